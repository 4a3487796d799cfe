//! Composes the one transport of a rank from its own endpoints and the others' address cards. Knows
//! nothing of stores, schedules or groups.
//!
//! Ranks that listen reach each other through shared memory if they are on one host, and by TCP
//! otherwise. A rank that cannot listen, as in a browser, dials the WebSocket of each rank that
//! does. Two ranks that cannot listen communicate through the relay of the store's server. So does
//! a rank that cannot listen if its store is reached over TLS: an encrypted page may open encrypted
//! connections only, and only the store's server accepts those.

use std::sync::Arc;

#[cfg(feature = "tcp")]
use super::tcp::{Listener, TcpTransport};
use super::websocket::{self, Dialer, Relay, Route, WebSocketTransport};
use super::{Membership, Rank, Transport, inproc};
#[cfg(feature = "tcp")]
use super::{Timeouts, WithinHost};
use crate::clock;
use crate::clock::Instant;
use crate::env::WebSocketEnvironment;
use crate::generated::error::Result;
use crate::wire::card::Card;
use crate::wire::handshake::Token;

/// The ways in which a rank reaches others and is reached.
#[derive(Default)]
pub struct Endpoints {
    /// Where it listens.
    #[cfg(feature = "tcp")]
    pub listener: Option<Listener>,
    /// How it shares memory with the ranks of its host; not used by a rank that does not listen.
    #[cfg(feature = "tcp")]
    pub within_host: WithinHost,
    /// Opens WebSockets; not used by a rank that listens.
    pub dialer: Option<Arc<dyn Dialer>>,
    /// Carries pipes between ranks that cannot, or must not, connect directly.
    pub relay: Option<Arc<dyn Relay>>,
    /// How long the others have to wait for this rank when a WebSocket that it opened is lost, ms.
    pub reconnect_grace_ms: Option<u32>,
    /// The environment's settings for WebSockets, read before the others rely on this rank.
    pub environment: WebSocketEnvironment,
}

impl Endpoints {
    /// The address card of a rank with these endpoints.
    pub fn card(&self) -> Card {
        let relay = self.relay.as_ref().map(|relay| relay.number());
        #[cfg(feature = "tcp")]
        if let Some(listener) = &self.listener {
            let card = Card { relay, ..self.within_host.sign(listener.card(&[])) };
            let answers = cfg!(feature = "websocket");
            return if answers { card.answering_websockets() } else { card };
        }
        let process_id = clock::process_id();
        // It shares no memory with other ranks, whatever its host is.
        Card { relay, ..Card::new(&format!("process {process_id}"), process_id, Vec::new()) }
    }
}

/// The transport of `rank` in a group whose ranks published `cards`, one for each rank. All ranks
/// of the group have the same `token`, and no other group has it. A rank that cannot be reached is
/// reported as lost when it is first needed.
///
/// # Errors
/// [`Error::Rendezvous`](crate::Error::Rendezvous) if another rank is a different version;
/// [`Error::Network`](crate::Error::Network) if the system lacks resources.
pub fn compose(
    rank: Rank,
    cards: &[Card],
    token: Token,
    generation: u32,
    means: Endpoints,
) -> Result<Box<dyn Transport>> {
    let wanted = means.reconnect_grace_ms.or(means.environment.reconnect_grace_ms);
    let grace_ms = wanted.unwrap_or_default();
    let options = websocket::Options { grace_ms, ..websocket::Options::default() };
    compose_with(Membership { rank, cards, token, generation }, means, options)
}

/// As [`compose`], with other timeouts for WebSockets.
pub(super) fn compose_with(
    membership: Membership<'_>,
    means: Endpoints,
    options: websocket::Options,
) -> Result<Box<dyn Transport>> {
    let size = membership.compatible_size()?;
    #[cfg(feature = "tcp")]
    if let Some(listener) = means.listener {
        let (relay, environment) = (means.relay, means.environment);
        let others = || {
            let tcp = TcpTransport::with_timeouts(listener, membership, Timeouts::default())?;
            listening(tcp, membership, relay, (environment, options))
        };
        return means.within_host.transport(membership, others);
    }
    let Membership { rank, cards, token, generation } = membership;
    let ours = &cards[rank as usize];
    let is_here = |card: &Card| (&card.host, card.process_id) == (&ours.host, ours.process_id);
    if cards.iter().all(is_here) {
        return Ok(Box::new(inproc::join(token.0, rank, size)?));
    }
    let (now, name) = (Instant::now(), membership.pipe_name());
    let routes = (0..).zip(cards).map(|(other, card)| match other == rank {
        true => Route::Elsewhere,
        false => route(card, &means, name, &options, now),
    });
    let routes = routes.collect();
    let transport = WebSocketTransport::new(rank, routes, None, token, generation, options);
    Ok(Box::new(transport))
}

/// How a rank that does not listen reaches the rank of `card`.
fn route(
    card: &Card,
    means: &Endpoints,
    pipe_name: u64,
    options: &websocket::Options,
    now: Instant,
) -> Route {
    match (&means.dialer, &means.relay, card.relay) {
        (_, Some(relay), Some(number)) => Route::Relayed(relay.open(number, pipe_name)),
        (Some(dialer), _, _) if !card.websocket.is_empty() => {
            let urls = card.websocket.clone();
            Route::Dialed(websocket::dialed(dialer.clone(), urls, options, now))
        }
        (None, _, _) if !card.websocket.is_empty() => {
            Route::Unreachable("nothing here can open WebSockets".to_owned())
        }
        (_, None, _) => {
            let why = "neither side listens, and the store has no relay between them";
            Route::Unreachable(why.to_owned())
        }
        _ => {
            Route::Unreachable("its address card names neither a WebSocket nor a relay".to_owned())
        }
    }
}

/// The transport of a rank that listens, to those that do and to those that do not.
#[cfg(feature = "tcp")]
fn listening(
    tcp: TcpTransport,
    membership: Membership<'_>,
    relay: Option<Arc<dyn Relay>>,
    settings: (WebSocketEnvironment, websocket::Options),
) -> Result<Box<dyn Transport>> {
    if membership.cards.iter().all(listens) {
        return Ok(Box::new(tcp));
    }
    let routes = membership.cards.iter().map(|card| match (&relay, card.relay) {
        _ if listens(card) => Route::Elsewhere,
        (Some(relay), Some(number)) => Route::Relayed(relay.open(number, membership.pipe_name())),
        _ => Route::Awaited,
    });
    mixed(tcp, routes.collect(), membership, settings)
}

#[cfg(feature = "tcp")]
fn listens(card: &Card) -> bool {
    !card.tcp.is_empty()
}

#[cfg(feature = "websocket")]
fn mixed(
    tcp: TcpTransport,
    routes: Vec<Route>,
    membership: Membership<'_>,
    (environment, options): (WebSocketEnvironment, websocket::Options),
) -> Result<Box<dyn Transport>> {
    let is_tcp = routes.iter().map(|route| matches!(route, Route::Elsewhere)).collect();
    let (arrivals, acceptor) = websocket::native::listening(environment);
    let Membership { rank, token, generation, .. } = membership;
    let websocket =
        WebSocketTransport::new(rank, routes, Some(acceptor), token, generation, options);
    Ok(Box::new(super::mixed::transport(tcp, websocket, arrivals, is_tcp)))
}

#[cfg(all(feature = "tcp", not(feature = "websocket")))]
fn mixed(
    _tcp: TcpTransport,
    routes: Vec<Route>,
    _membership: Membership<'_>,
    _settings: (WebSocketEnvironment, websocket::Options),
) -> Result<Box<dyn Transport>> {
    let is_web = |route: &Route| !matches!(route, Route::Elsewhere);
    let other = routes.iter().position(is_web).unwrap_or_default();
    Err(crate::generated::error::Error::BackendUnavailable {
        backend: "websocket".into(),
        why: format!("rank {other} is in a browser, and polyrank was built without `websocket`"),
    })
}
