//! Whether the ranks of one host reach each other through shared memory or as all others do, and
//! one transport out of the two. Knows nothing of schedules or groups.

use super::{Interest, Payload, Rank, Sink, Transport};
use crate::clock::Instant;
use crate::env::{TransportChoice, TransportEnvironment};
use crate::generated::error::{Error, Result};
use crate::wire::card::Card;
use crate::wire::frame::Header;
use crate::wire::handshake::Token;

#[cfg(target_os = "linux")]
use super::shm::{self, Listener, ShmTransport};

/// One turn of so many is for the ranks elsewhere while those of this host keep this one busy.
const ELSEWHERE_TURNS: u32 = 8;

/// What a rank has to share memory with others of its host; by default, nothing.
#[derive(Debug, Default)]
pub struct WithinHost {
    #[cfg(target_os = "linux")]
    listener: Option<Listener>,
    /// Whether nothing else will do.
    is_required: bool,
}

impl WithinHost {
    /// What this host allows and `POLYRANK_TRANSPORT` says.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if the variable has another value; [`Error::Network`] if it demands
    /// what this host does not allow.
    pub fn open() -> Result<WithinHost> {
        let choice = TransportEnvironment::read()?.transport;
        if choice == TransportChoice::Tcp {
            return Ok(WithinHost::default());
        }
        Self::open_as(choice == TransportChoice::Shm)
    }

    #[cfg(target_os = "linux")]
    fn open_as(is_required: bool) -> Result<WithinHost> {
        match Listener::bind() {
            Ok(listener) => Ok(WithinHost { listener: Some(listener), is_required }),
            Err(error) if is_required => Err(error),
            Err(error) => {
                tracing::info!(%error, "ranks of this host talk by TCP");
                Ok(WithinHost::default())
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn open_as(is_required: bool) -> Result<WithinHost> {
        match is_required {
            true => {
                let message = "shared memory is used on Linux only".to_owned();
                Err(Error::Network { message })
            }
            false => Ok(WithinHost::default()),
        }
    }

    /// Adds to `card` how memory is shared with its rank.
    #[must_use]
    pub fn sign(&self, card: Card) -> Card {
        #[cfg(target_os = "linux")]
        if let Some(listener) = &self.listener {
            return listener.sign(card);
        }
        card
    }

    /// The transport of `rank` to those with whom it shares memory and, by what `others` makes, to
    /// the rest, if there are any.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if there are some and shared memory is demanded; [`Error::Network`] if
    /// the system gives no more of something.
    #[cfg(target_os = "linux")]
    pub(super) fn transport(
        self,
        rank: Rank,
        cards: &[Card],
        (token, generation): (Token, u32),
        others: impl FnOnce() -> Result<Box<dyn Transport>>,
    ) -> Result<Box<dyn Transport>> {
        let Some(listener) = self.listener else { return others() };
        let ours = &cards[rank as usize];
        let is_near: Vec<bool> = cards.iter().map(|card| shm::is_reached(ours, card)).collect();
        let far = is_near.iter().position(|is_near| !is_near);
        if let Some(far) = far.filter(|_| self.is_required) {
            let message = format!(
                "POLYRANK_TRANSPORT is 'shm', but rank {rank} shares no memory with rank {far}: it \
                 is on another host, of another user or set to something else"
            );
            return Err(Error::Rendezvous { message });
        }
        let near = is_near.iter().filter(|is_near| **is_near).count() - 1;
        tracing::debug!(rank, near, of = cards.len() - 1, "ranks reached through shared memory");
        if near == 0 && far.is_some() {
            return others();
        }
        let options = super::tcp::Options::default();
        let shared = ShmTransport::new(listener, rank, cards, token, generation, options)?;
        if far.is_none() {
            return Ok(Box::new(shared));
        }
        let shared: Box<dyn Transport> = Box::new(shared);
        Ok(Box::new(NearFarTransport { near: shared, far: others()?, is_near, turn: 0 }))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn transport(
        self,
        _rank: Rank,
        _cards: &[Card],
        _group: (Token, u32),
        others: impl FnOnce() -> Result<Box<dyn Transport>>,
    ) -> Result<Box<dyn Transport>> {
        others()
    }
}

/// Frames to the ranks of this host and to those elsewhere.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there is one way only"))]
struct NearFarTransport {
    near: Box<dyn Transport>,
    far: Box<dyn Transport>,
    /// By rank: whether it is reached through shared memory.
    is_near: Vec<bool>,
    turn: u32,
}

impl NearFarTransport {
    fn way(&mut self, peer: Rank) -> &mut dyn Transport {
        match self.is_near.get(peer as usize) {
            Some(true) => &mut *self.near,
            _ => &mut *self.far,
        }
    }
}

impl Transport for NearFarTransport {
    fn rank(&self) -> Rank {
        self.near.rank()
    }

    fn size(&self) -> u32 {
        self.near.size()
    }

    fn send(&mut self, peer: Rank, header: Header, payload: Payload) {
        self.way(peer).send(peer, header, payload);
    }

    fn send_at_once(&mut self, peer: Rank, header: Header, payload: &[u8]) -> bool {
        self.way(peer).send_at_once(peer, header, payload)
    }

    fn is_near(&self, peer: Rank) -> bool {
        self.is_near.get(peer as usize) == Some(&true) && self.near.is_near(peer)
    }

    fn eager_bytes(&self, peer: Rank) -> usize {
        match self.is_near.get(peer as usize) {
            Some(true) => self.near.eager_bytes(peer),
            _ => self.far.eager_bytes(peer),
        }
    }

    fn unasked_bytes(&self, peer: Rank, message_bytes: usize) -> usize {
        match self.is_near.get(peer as usize) {
            Some(true) => self.near.unasked_bytes(peer, message_bytes),
            _ => self.far.unasked_bytes(peer, message_bytes),
        }
    }

    fn connect(&mut self, peer: Rank) {
        self.way(peer).connect(peer);
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        let moved = self.near.advance(sink);
        self.turn = self.turn.wrapping_add(1);
        if moved && !self.turn.is_multiple_of(ELSEWHERE_TURNS) {
            return true;
        }
        self.far.advance(sink) || moved
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        self.near.interests(interests);
        self.far.interests(interests);
    }

    fn deadline(&self) -> Option<Instant> {
        self.near.deadline().into_iter().chain(self.far.deadline()).min()
    }

    fn abandon(&mut self) {
        self.near.abandon();
        self.far.abandon();
    }

    fn close(&mut self, orderly: bool) {
        self.near.close(orderly);
        self.far.close(orderly);
    }
}
