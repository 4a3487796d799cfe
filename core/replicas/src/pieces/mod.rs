//! States as messages of the group: in pieces, from several sources at once, each piece verified.
//!
//! Ranks that take a state ask, and those that give theirs answer until all are through. Two pieces
//! of the same number are the same bytes in all sources, or else that of the first source counts,
//! which also says what the digests (BLAKE3) of all pieces are.
//!
//! A rank that dies breaks the group, as always, and the state of this step is not taken. What has
//! come by then stays: in the next quorum, at the same step, only the rest is taken, from those
//! that are there.

mod assembly;
mod give;
mod progress;
mod take;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use polyrank::ProcessGroup;

use self::assembly::PartialState;
use self::take::{Outcome, StateReceiver};
use crate::transport::{StatePeer, StateTransport, TransportError};

/// States as messages of the group: in pieces of 4 MiB, from several sources at once, and each
/// piece verified by its digest, BLAKE3.
///
/// Of a state that did not come whole the pieces that did are kept, until a state is taken or
/// given. The next [`StateTransport::receive`] of the same step takes only the others, if the
/// source has the same state still.
#[derive(Debug)]
pub struct GroupTransport {
    group: ProcessGroup,
    verifies: bool,
    kept: Mutex<Option<PartialState>>,
}

impl GroupTransport {
    /// Over this group, whose members the manager replaces.
    #[must_use]
    pub fn new(group: ProcessGroup) -> GroupTransport {
        GroupTransport { group, verifies: true, kept: Mutex::new(None) }
    }

    /// Takes states as they come, and keeps nothing of one that does not come whole. For those who
    /// measure.
    #[doc(hidden)]
    #[must_use]
    pub fn without_digests(self) -> GroupTransport {
        GroupTransport { verifies: false, ..self }
    }

    fn take(
        &self,
        sources: &[StatePeer<'_>],
        step: i64,
        deadline: Instant,
    ) -> (Result<Vec<u8>, TransportError>, Outcome) {
        if sources.is_empty() {
            let error = TransportError::Other("no source of the state was named".to_owned());
            return (Err(error), Outcome::default());
        }
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept().take();
        let taking =
            StateReceiver::new(&self.group, sources, (step, deadline), self.verifies, before);
        let (state, outcome, part) = taking.run();
        *kept() = part;
        (state, outcome)
    }
}

impl StateTransport for GroupTransport {
    fn metadata(&self) -> String {
        "group".to_owned()
    }

    fn needs_metadata(&self) -> bool {
        false
    }

    fn takes_from_several(&self) -> bool {
        true
    }

    fn send(
        &self,
        destinations: &[StatePeer<'_>],
        step: i64,
        state: Vec<u8>,
        deadline: Instant,
    ) -> Result<(), TransportError> {
        // Who gives a state lacks none.
        drop(self.kept.lock().unwrap_or_else(PoisonError::into_inner).take());
        give::give(&self.group, destinations, step, state, deadline).map(drop)
    }

    fn receive(
        &self,
        sources: &[StatePeer<'_>],
        _metadata: &str,
        step: i64,
        deadline: Instant,
    ) -> Result<Vec<u8>, TransportError> {
        self.take(sources, step, deadline).0
    }

    fn disallow(&self) {}
}
