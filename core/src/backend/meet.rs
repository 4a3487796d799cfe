//! How the ranks of a group find one another: address cards and a token in the store.
//! Knows no schedule.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::rendezvous;
use crate::store::Store;
use crate::transport::tcp::TcpTransport;
use crate::transport::{Transport, inproc};
use crate::wire::card::Card;
use crate::wire::handshake::Token;
use crate::{Error, Result};

/// What came of a meeting.
pub(super) struct Meeting {
    /// The way to the others.
    pub(super) transport: Box<dyn Transport>,
    /// How many of the ranks share this host's cores.
    pub(super) ranks_on_host: usize,
}

/// Publishes this rank in `store`, waits for the others and listens for them.
///
/// # Errors
/// [`Error::RendezvousTimeout`] naming the ranks that did not come; [`Error::Rendezvous`] if this
/// rank is there already, or another runs a different version.
pub(super) fn meet(
    store: &Arc<dyn Store>,
    rank: u32,
    size: u32,
    timeout: Duration,
) -> Result<Meeting> {
    if size == 1 {
        let transport = inproc::connect(1)
            .pop()
            .ok_or_else(|| Error::Network { message: "cannot make a group of one rank".into() })?;
        return Ok(Meeting { transport: Box::new(transport), ranks_on_host: 1 });
    }
    rendezvous::join(&**store, "group", rank, size, timeout)?;
    // The interface that leads to the store leads to the other ranks; without one, this host only.
    let address = store.local_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let listener = TcpTransport::bind(SocketAddr::new(address, 0))?;
    let ours = listener.card(&[]);
    store.set(&card_key(rank), &ours.encode())?;
    if rank == 0 {
        store.set(TOKEN, &random_token()?.0)?;
    }
    let keys: Vec<String> = (0..size).map(card_key).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).chain([TOKEN]).collect();
    store.wait(&keys, Some(timeout))?;
    let mut values = store.multi_get(&keys)?;
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
    let transport = TcpTransport::new(listener, rank, &cards, token, 0)?;
    Ok(Meeting { transport: Box::new(transport), ranks_on_host })
}

const TOKEN: &str = "token";

fn card_key(rank: u32) -> String {
    format!("rank/{rank}")
}

/// Bytes that only members of the group get to see.
fn random_token() -> Result<Token> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(16) => Ok(Token(bytes)),
        other => Err(Error::Network {
            message: format!("the system gave no random bytes for the group's token: {other:?}"),
        }),
    }
}
