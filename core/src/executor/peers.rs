//! The state of each peer: how far it is, and how much was sent to it ahead of that. Only peers
//! that this rank communicates with take memory, not all ranks of a group. Knows no schedules and
//! no transport.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
#[cfg(feature = "tcp")]
use std::time::Duration;

use super::limits::WINDOW_BYTES;
use crate::clock::Instant;
use crate::sorted::{LargeSortedMap, SortedMap};
use crate::transport::{LossReason, Rank};

/// Where the payload of the frame that is arriving from a peer goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PayloadTarget {
    /// Nowhere.
    #[default]
    Nothing,
    /// Into a step of an operation.
    Step {
        /// The operation.
        sequence: u64,
        /// The step.
        step: u32,
    },
    /// It waits for its step.
    Early {
        /// The operation.
        sequence: u64,
        /// The step.
        step: u32,
    },
    /// It waits for its operation.
    UnexpectedFrame,
    /// Into the buffer of a receive.
    Matched,
    /// It waits for a receive.
    UnexpectedMessage,
    /// The ranks that the peer is missing itself.
    Report,
    /// Into the memory of a window, or to be computed with it, if that is what is registered.
    Access {
        /// Whether it is.
        granted: bool,
    },
    /// To where an access reads.
    AccessReply,
    /// Why the peer broke the group.
    Abort,
}

/// The peers that this rank communicates with. A transport names only ranks of its group.
#[derive(Default)]
pub(super) struct Peers {
    known: LargeSortedMap<Rank, Peer>,
    /// Messages of up to this many bytes leave and come unasked.
    eager_bytes: usize,
    /// The same for peers for which it is not so many.
    other_eager_bytes: SortedMap<Rank, usize>,
}

impl Peers {
    /// Sets, for each peer, up to which length messages to and from it are sent without asking.
    pub(super) fn set_eager_bytes(&mut self, bytes: impl Iterator<Item = (Rank, usize)>) {
        let mut bytes = bytes.peekable();
        self.eager_bytes = bytes.peek().map_or(0, |(_, usual)| *usual);
        let usual = self.eager_bytes;
        self.other_eager_bytes = bytes.filter(|(_, bytes)| *bytes != usual).collect();
    }

    /// Up to which length messages to and from a peer are sent without asking.
    pub(super) fn eager_bytes(&self, peer: Rank) -> usize {
        match self.other_eager_bytes.is_empty() {
            true => self.eager_bytes,
            false => *self.other_eager_bytes.get(&peer).unwrap_or(&self.eager_bytes),
        }
    }

    /// The state of a peer, which is added if it is new.
    pub(super) fn of(&mut self, peer: Rank) -> &mut Peer {
        self.known.entry(peer).or_default()
    }

    /// The state of a peer, if there is one.
    pub(super) fn get(&self, peer: Rank) -> Option<&Peer> {
        self.known.get(&peer)
    }

    /// The states of all known peers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.known.values()
    }

    /// The states of all known peers, by rank.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Rank, &mut Peer)> {
        self.known.iter_mut().map(|(rank, peer)| (*rank, peer))
    }

    /// Whether a peer said goodbye.
    pub(super) fn has_left(&self, peer: Rank) -> bool {
        self.get(peer).is_some_and(|peer| peer.lost == Some(LossReason::Goodbye))
    }

    /// Whether the connection to a peer ended without a goodbye.
    pub(super) fn has_died(&self, peer: Rank) -> bool {
        self.get(peer).is_some_and(|peer| matches!(peer.lost, Some(LossReason::Died(_))))
    }

    /// Notes that an operation waited for `peer`, from one time to another. Where several did, the
    /// time counts once.
    #[cfg_attr(not(feature = "tcp"), allow(unused_variables, reason = "nobody asks there"))]
    pub(super) fn note_wait(&mut self, peer: Option<Rank>, (from, to): (Instant, Instant)) {
        #[cfg(feature = "tcp")]
        if let Some(peer) = peer.and_then(|peer| self.known.get_mut(&peer)) {
            let from = peer.waited_until.map_or(from, |until| until.max(from));
            peer.waited += to.saturating_duration_since(from);
            peer.waited_until = Some(to.max(from));
        }
    }

    /// How long operations have waited for each peer.
    #[cfg(feature = "tcp")]
    pub(super) fn waits(&self) -> Vec<(Rank, Duration)> {
        let known = self.known.iter().filter(|(_, peer)| !peer.waited.is_zero());
        known.map(|(rank, peer)| (*rank, peer.waited)).collect()
    }

    /// The peers that said goodbye.
    pub(super) fn departed(&self) -> impl Iterator<Item = Rank> {
        let left = |(_, peer): &(&Rank, &Peer)| peer.lost == Some(LossReason::Goodbye);
        self.known.iter().filter(left).map(|(rank, _)| *rank)
    }

    /// Forgets all operations.
    pub(super) fn forget(&mut self) {
        self.known.values_mut().for_each(Peer::forget);
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let each = |peer: &Peer| {
            size_of::<(Rank, Peer)>()
                + peer.ahead.capacity() * size_of::<(u64, usize)>()
                + peer.held.capacity() * size_of::<(u64, u32, usize)>()
        };
        self.iter().map(each).sum::<usize>()
            + self.other_eager_bytes.len() * size_of::<(Rank, usize)>()
    }
}

/// One of the other ranks.
#[derive(Default)]
pub(super) struct Peer {
    /// The highest operation that it has issued, as far as is known here.
    issued: u64,
    /// Bytes sent to it for each operation that it may not have issued, by rising sequence of
    /// first use.
    ahead: VecDeque<(u64, usize)>,
    ahead_bytes: usize,
    /// Steps whose frames wait until it has issued their operations: sequence, step, bytes.
    held: BinaryHeap<Reverse<(u64, u32, usize)>>,
    /// The operation whose held frames the peer was told about.
    told_held: Option<u64>,
    /// The operation that the peer waits for this rank to issue.
    pub(super) wants_issued: Option<u64>,
    /// Bytes that came for operations that this rank has not issued.
    pub(super) received_ahead_bytes: usize,
    /// Where the payload of the arriving frame goes.
    pub(super) incoming: PayloadTarget,
    /// Whether there ever was a frame or a connection between the two.
    pub(super) was_reached: bool,
    /// Why the connection was lost, if it was.
    pub(super) lost: Option<LossReason>,
    /// Whether it has said that it leaves since the group gets other members.
    pub(super) retired: bool,
    /// Whether its abort has arrived.
    pub(super) abort_received: bool,
    /// Whether it said that it has broken the group, and not that it will: all that it had to give
    /// was under way before.
    pub(super) has_broken_group: bool,
    /// Whether this rank's abort was handed to the transport.
    pub(super) abort_given: bool,
    /// Whether it has left.
    pub(super) abort_sent: bool,
    /// How long operations have waited for it.
    #[cfg(feature = "tcp")]
    waited: Duration,
    /// Up to when that was counted.
    #[cfg(feature = "tcp")]
    waited_until: Option<Instant>,
}

impl Peer {
    /// Whether nothing ever arrived from it, not even the end of its connection.
    pub(super) fn is_unheard_of(&self) -> bool {
        self.issued == 0 && self.lost.is_none()
    }

    /// The highest operation that it has issued, as far as is known.
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// Whether a frame of `bytes` for operation `sequence` may be sent; if so, it is counted.
    pub(super) fn admit(&mut self, sequence: u64, bytes: usize) -> bool {
        if sequence <= self.issued {
            return true;
        }
        if self.ahead_bytes + bytes > WINDOW_BYTES {
            return false;
        }
        self.ahead_bytes += bytes;
        match self.ahead.back_mut() {
            Some((last, total)) if *last == sequence => *total += bytes,
            _ => self.ahead.push_back((sequence, bytes)),
        }
        true
    }

    /// Remembers a step whose frame was not admitted. Returns the sequence number that the peer
    /// must be told, unless it was told before.
    pub(super) fn hold(&mut self, sequence: u64, step: u32, bytes: usize) -> Option<u64> {
        self.held.push(Reverse((sequence, step, bytes)));
        self.tell_held()
    }

    /// Notes that the peer has issued operations up to `issued`, and appends the held steps that
    /// may be tried again. If frames are still held, returns the sequence number that it must be
    /// told.
    pub(super) fn note_issued(
        &mut self,
        issued: u64,
        released: &mut Vec<(u64, u32)>,
    ) -> Option<u64> {
        if issued <= self.issued {
            return None;
        }
        self.issued = issued;
        let ahead_bytes = &mut self.ahead_bytes;
        self.ahead.retain(|&(sequence, bytes)| {
            if sequence <= issued {
                *ahead_bytes -= bytes;
            }
            sequence > issued
        });
        let mut room = WINDOW_BYTES - self.ahead_bytes;
        while let Some(&Reverse((sequence, step, bytes))) = self.held.peek() {
            if sequence > issued {
                if bytes > room {
                    break;
                }
                room -= bytes;
            }
            self.held.pop();
            released.push((sequence, step));
        }
        if self.told_held.is_some_and(|told| told <= issued) {
            self.told_held = None;
        }
        self.tell_held()
    }

    fn tell_held(&mut self) -> Option<u64> {
        let Reverse((sequence, _, _)) = *self.held.peek()?;
        if self.told_held.is_some_and(|told| told <= sequence) {
            return None;
        }
        self.told_held = Some(sequence);
        Some(sequence)
    }

    /// Whether nothing remains to be sent or received after the group broke.
    pub(super) fn is_settled(&self) -> bool {
        self.lost.is_some() || !self.was_reached || (self.abort_received && self.abort_sent)
    }

    /// Forgets all operations.
    fn forget(&mut self) {
        self.ahead.clear();
        self.held.clear();
        // Of an abort that has come in part, the rest is still heard.
        if self.incoming != PayloadTarget::Abort {
            self.incoming = PayloadTarget::Nothing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issued_operations_are_never_held() {
        let mut peer = Peer::default();
        assert!(peer.admit(5, WINDOW_BYTES));
        assert!(!peer.admit(6, 1));
        assert_eq!(peer.hold(6, 0, 1), Some(6));
        assert_eq!(peer.hold(7, 0, 1), None, "it is told once");
        let mut released = Vec::new();
        assert_eq!(peer.note_issued(4, &mut released), None);
        assert!(released.is_empty());
        assert_eq!(peer.note_issued(5, &mut released), None);
        assert_eq!(released, [(6, 0), (7, 0)]);
        assert!(peer.admit(6, WINDOW_BYTES), "what is issued leaves the window");
    }

    #[test]
    fn a_frame_of_an_issued_operation_overtakes_older_held_ones() {
        let mut peer = Peer::default();
        assert!(peer.admit(10, WINDOW_BYTES));
        peer.hold(11, 0, WINDOW_BYTES);
        peer.hold(9, 3, WINDOW_BYTES);
        let mut released = Vec::new();
        assert_eq!(peer.note_issued(9, &mut released), Some(11));
        assert_eq!(released, [(9, 3)]);
    }
}
