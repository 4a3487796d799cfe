//! Whether the ranks of one host reach each other through shared memory or as all others do, and in
//! which order a rank serves both kinds. Knows nothing of schedules or groups.

use super::{Membership, Transport};
use crate::env::{CopyChoice, TransportChoice, TransportEnvironment};
use crate::generated::error::{Error, Result};
use crate::wire::card::Card;

#[cfg(target_os = "linux")]
use super::router::{Router, TurnOrder};
#[cfg(target_os = "linux")]
use super::shm::{self, LendingThresholds, Listener, ShmTransport};
#[cfg(target_os = "linux")]
use super::{Sink, Timeouts};

/// While the ranks of this host keep this one busy, one turn in this many is for ranks elsewhere.
#[cfg(target_os = "linux")]
const ELSEWHERE_TURNS: u32 = 8;

/// How a rank shares memory with others of its host; by default, not at all.
#[derive(Debug, Default)]
pub struct WithinHost {
    #[cfg(target_os = "linux")]
    listener: Option<Listener>,
    /// Whether the user demands shared memory.
    is_required: bool,
    /// How payloads are copied there.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nothing is shared"))]
    copy: CopyChoice,
}

impl WithinHost {
    /// What this host allows and `POLYRANK_TRANSPORT` and `POLYRANK_COPY` say.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if a variable has another value; [`Error::Network`] if it demands
    /// what this host does not allow.
    pub fn open() -> Result<WithinHost> {
        let TransportEnvironment { transport, copy, .. } = TransportEnvironment::read()?;
        if transport == TransportChoice::Tcp {
            return Ok(WithinHost::default());
        }
        let opened = Self::open_as(transport == TransportChoice::Shm)?;
        Ok(WithinHost { copy, ..opened })
    }

    #[cfg(target_os = "linux")]
    fn open_as(is_required: bool) -> Result<WithinHost> {
        match Listener::bind() {
            Ok(listener) => {
                Ok(WithinHost { listener: Some(listener), is_required, ..WithinHost::default() })
            }
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

    /// The transport of a rank: through shared memory to the ranks of its host, and by the
    /// transport that `others` makes to the rest, if there are any.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if there are others and shared memory is demanded; [`Error::Network`]
    /// if the system lacks resources.
    #[cfg(target_os = "linux")]
    pub(super) fn transport(
        self,
        membership: Membership<'_>,
        others: impl FnOnce() -> Result<Box<dyn Transport>>,
    ) -> Result<Box<dyn Transport>> {
        let Some(listener) = self.listener else { return others() };
        let Membership { rank, cards, .. } = membership;
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
        let lending = LendingThresholds::of(self.copy);
        let shared = ShmTransport::new(listener, membership, Timeouts::default(), lending)?;
        if far.is_none() {
            return Ok(Box::new(shared));
        }
        Ok(Box::new(Router::new(shared, others()?, is_near, NearFirstOrder::default())))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn transport(
        self,
        _membership: Membership<'_>,
        others: impl FnOnce() -> Result<Box<dyn Transport>>,
    ) -> Result<Box<dyn Transport>> {
        others()
    }
}

/// Serves the ranks of this host as long as they send something, and the others in a few turns.
#[cfg(target_os = "linux")]
#[derive(Default)]
struct NearFirstOrder {
    turn: u32,
}

#[cfg(target_os = "linux")]
impl TurnOrder<ShmTransport, dyn Transport> for NearFirstOrder {
    fn advance(
        &mut self,
        near: &mut ShmTransport,
        far: &mut (dyn Transport + 'static),
        sink: &mut dyn Sink,
    ) -> bool {
        let moved = near.advance(sink);
        self.turn = self.turn.wrapping_add(1);
        if moved && !self.turn.is_multiple_of(ELSEWHERE_TURNS) {
            return true;
        }
        far.advance(sink) || moved
    }
}
