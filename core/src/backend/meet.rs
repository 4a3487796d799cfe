//! How the ranks of a group find one another: address cards and a token in the store.
//! Knows no schedule.

#[cfg(feature = "tcp")]
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::rendezvous;
use crate::store::Store;
#[cfg(not(feature = "tcp"))]
use crate::store::grace_to_ms;
#[cfg(feature = "tcp")]
use crate::transport::tcp::{Listener, TcpTransport};
#[cfg(not(feature = "tcp"))]
use crate::transport::websocket::dialer;
use crate::transport::{Means, Transport, compose, inproc};
use crate::wire::card::Card;
use crate::wire::handshake::Token;
use crate::{Error, Result, random};

/// What came of a meeting.
pub(super) struct Meeting {
    /// The way to the others.
    pub(super) transport: Box<dyn Transport>,
    /// How many of the ranks share this host's cores.
    pub(super) ranks_on_host: usize,
    /// The ranks that have a session with the store's server, and its number.
    pub(super) sessions: Vec<(u32, u64)>,
}

/// Publishes this rank of the group `name` in `store`, waits for the others and listens for them.
///
/// # Errors
/// [`Error::RendezvousTimeout`] naming the ranks that did not come; [`Error::Rendezvous`] if this
/// rank is there already, or another runs a different version.
pub(super) async fn meet(
    store: &Arc<dyn Store>,
    name: &str,
    (rank, size): (u32, u32),
    timeout: Duration,
) -> Result<Meeting> {
    if size == 1 {
        let transport = inproc::connect(1)
            .pop()
            .ok_or_else(|| Error::Network { message: "cannot make a group of one rank".into() })?;
        let (transport, sessions) = (Box::new(transport), Vec::new());
        return Ok(Meeting { transport, ranks_on_host: 1, sessions });
    }
    rendezvous::join_async(&**store, name, rank, size, timeout).await?;
    let means = means(&**store)?;
    meet_with(store, rank, size, timeout, means).await
}

/// As [`meet`], for a rank that has joined, with these means.
async fn meet_with(
    store: &Arc<dyn Store>,
    rank: u32,
    size: u32,
    timeout: Duration,
    means: Means,
) -> Result<Meeting> {
    let ours = means.card();
    store.set_async(&card_key(rank), &ours.encode()).await?;
    if rank == 0 {
        store.set_async(TOKEN, &random::bytes::<16>()?).await?;
    }
    let keys: Vec<String> = (0..size).map(card_key).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).chain([TOKEN]).collect();
    store.wait_async(&keys, Some(timeout)).await?;
    let mut values = store.multi_get_async(&keys).await?;
    let token = values.pop().unwrap_or_default();
    let token = <[u8; 16]>::try_from(token).map(Token).map_err(|_| Error::Rendezvous {
        message: "the store holds something else under the group's token".into(),
    })?;
    let cards = values
        .iter()
        .enumerate()
        .map(|(other, bytes)| {
            Card::decode(bytes).map_err(|error| Error::Rendezvous {
                message: format!("the store's entry for rank {other}: {error}"),
            })
        })
        .collect::<Result<Vec<Card>>>()?;
    let ranks_on_host = cards.iter().filter(|card| card.host == ours.host).count();
    // Ranks that listen tell of one another by themselves.
    let is_told = |card: &Card| card.tcp.is_empty() || ours.tcp.is_empty();
    let sessions = (0..).zip(&cards).filter(|(_, card)| is_told(card));
    let sessions = sessions.filter_map(|(other, card)| Some((other, card.relay?)));
    let sessions = sessions.filter(|(other, _)| *other != rank).collect();
    let transport = compose(rank, &cards, token, 0, means)?;
    Ok(Meeting { transport, ranks_on_host, sessions })
}

const TOKEN: &str = "token";

fn card_key(rank: u32) -> String {
    format!("rank/{rank}")
}

/// What this rank has to reach the others and to be reached.
fn means(store: &dyn Store) -> Result<Means> {
    // The others come to a rank that listens, but for those that may open no such connection.
    #[cfg(feature = "tcp")]
    return Ok(Means { listener: Some(listen(store)?), relay: store.relay(), ..Means::default() });
    #[cfg(not(feature = "tcp"))]
    return Ok(Means {
        dialer: dialer(),
        relay: store.relay(),
        reconnect_grace_ms: grace_to_ms(store.reconnect_grace()),
    });
}

#[cfg(feature = "tcp")]
fn listen(store: &dyn Store) -> Result<Listener> {
    // The interface that leads to the store leads to the other ranks; without one, this host only.
    let address = store.local_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    TcpTransport::bind(SocketAddr::new(address, 0))
}
