//! Looks for messages before they are received: what a receive would take, which stays where it
//! is. Knows no transport.

use std::sync::{Arc, OnceLock};

use super::operation::Message;
use super::pending_messages::{PendingReceive, UnexpectedMessage};
use super::state::State;
use crate::clock::Instant;
use crate::completion::{Completion, error_of, tagged_name};
use crate::generated::dtype::DType;
use crate::tensor::Region;
use crate::transport::Rank;

/// What is known of a message before it is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageInfo {
    /// The rank that sends it.
    pub source: Rank,
    /// Its tag.
    pub tag: u32,
    /// The type of its elements.
    pub dtype: DType,
    /// The bytes of all its elements.
    pub bytes: u64,
}

/// Where a look says what it has found; it stays empty if there was nothing.
pub type FoundMessage = Arc<OnceLock<MessageInfo>>;

/// A message that is looked for.
pub struct ProbeRequest {
    /// The rank that sends it; `None` is any.
    pub peer: Option<Rank>,
    /// Its tag.
    pub tag: u32,
    /// Whether to wait for it.
    pub waits: bool,
    /// Where to say what was found.
    pub found: FoundMessage,
}

/// A look for a message.
pub struct Probe {
    /// Which one.
    pub request: ProbeRequest,
    /// When it must have come, if it is waited for.
    pub deadline: Instant,
    /// Notified of the end. Its source rank is set if one was found.
    pub completion: Arc<Completion>,
}

impl State {
    /// Looks for a message, and for later ones if it is waited for.
    pub(super) fn probe(&mut self, probe: Probe) {
        let Probe { request: ProbeRequest { peer, tag, waits, found }, deadline, completion } =
            probe;
        // A receive of nothing, which takes nothing.
        let memory = Region::zeroed(0);
        let message =
            Message { peer, tag, dtype: DType::U8, memory, deadline, finish: None, completion };
        let Some((peer, message)) = self.admitted(message, "probe") else { return };
        let looking = PendingReceive {
            peer,
            tag,
            dtype: message.dtype,
            memory: message.memory,
            own_number: self.messages.last_receive,
            number: 0,
            received: 0,
            stores: None,
            probe: Some(found),
            ending: self.ending(message.deadline, message.finish, message.completion),
        };
        let known = self.first_message(peer, tag);
        if known.is_some() || !waits {
            return self.end_probe(looking, known);
        }
        self.messages.posted.push_back(looking);
        if self.departed > 0 {
            self.check_departed_messages();
        }
    }

    /// Ends the looks for a message that has come.
    pub(super) fn answer_probes(&mut self) {
        let mut place = 0;
        while let Some(known) = self.messages.posted.get(place) {
            let found = match known.probe {
                Some(_) => self.first_message(known.peer, known.tag),
                None => None,
            };
            match found.and_then(|_| self.messages.posted.remove(place)) {
                Some(looking) => self.end_probe(looking, found),
                None => place += 1,
            }
        }
    }

    /// Ends the looks that have found nothing by their deadline, and those that nobody waits for
    /// any more. Nothing was sent for them, so that the group goes on.
    pub(super) fn end_late_probes(&mut self) {
        let mut place = 0;
        while let Some(known) = self.messages.posted.get(place) {
            let Some(found) = &known.probe else {
                place += 1;
                continue;
            };
            let (is_abandoned, is_late) =
                (Arc::strong_count(found) == 1, known.ending.deadline <= self.now);
            if !(is_abandoned || is_late) {
                place += 1;
                continue;
            }
            let Some(looking) = self.messages.posted.remove(place) else { return };
            let (name, number) = (looking.name(), looking.own_number);
            let called = tagged_name(name, looking.tag);
            let late = self.past_deadline(called, number, looking.peer, &looking.ending);
            let error = error_of(&late, &self.group.name, name, number);
            looking.ending.fail(error, &mut self.finished);
        }
    }

    /// The message that a receive from `peer`, or from any, with this tag would take now.
    fn first_message(&self, peer: Option<Rank>, tag: u32) -> Option<MessageInfo> {
        let fits = |known: &&UnexpectedMessage| {
            known.tag == tag && peer.is_none_or(|peer| peer == known.announcement.peer)
        };
        if let Some(found) = self.messages.unmatched.iter().find(fits) {
            let sent = found.announcement;
            let dtype = DType::from_code(sent.dtype).unwrap_or(DType::U8);
            return Some(MessageInfo { source: sent.peer, tag, dtype, bytes: sent.bytes });
        }
        let own = peer.is_none_or(|peer| peer == self.rank);
        let (dtype, bytes) = self.messages.own.first(tag).filter(|_| own)?;
        Some(MessageInfo { source: self.rank, tag, dtype, bytes })
    }

    fn end_probe(&mut self, mut looking: PendingReceive, found: Option<MessageInfo>) {
        looking.peer = found.map(|found| found.source);
        if let (Some(place), Some(found)) = (&looking.probe, found) {
            // Nobody else has the place before the look is over.
            let _ = place.set(found);
        }
        self.end_receive(looking);
    }
}
