//! What is known of each peer: how far it is, and how much was sent to it ahead of that. Only peers
//! that this rank has to do with take memory, not all ranks of a group. Knows no schedules and no
//! transport.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::limits::WINDOW;
use crate::sorted::{LargeSortedMap, SortedMap};
use crate::transport::{LossReason, Rank};

/// Where the payload of the frame goes that a peer is sending.
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
    /// Whom the peer misses itself.
    Report,
    /// Why the peer broke the group.
    Abort,
}

/// The peers that this rank has to do with. A transport names only ranks of its group.
#[derive(Default)]
pub(super) struct Peers {
    known: LargeSortedMap<Rank, Peer>,
    /// Messages of up to this many bytes leave and come unasked.
    eager_bytes: usize,
    /// The same for peers for which it is not so many.
    other_eager_bytes: SortedMap<Rank, usize>,
}

impl Peers {
    /// Notes for each peer up to which length messages to it, and from it, leave unasked.
    pub(super) fn set_eager_bytes(&mut self, bytes: impl Iterator<Item = (Rank, usize)>) {
        let mut bytes = bytes.peekable();
        self.eager_bytes = bytes.peek().map_or(0, |(_, usual)| *usual);
        let usual = self.eager_bytes;
        self.other_eager_bytes = bytes.filter(|(_, bytes)| *bytes != usual).collect();
    }

    /// Up to which length messages to a peer, and from it, leave unasked.
    pub(super) fn eager_bytes(&self, peer: Rank) -> usize {
        match self.other_eager_bytes.is_empty() {
            true => self.eager_bytes,
            false => *self.other_eager_bytes.get(&peer).unwrap_or(&self.eager_bytes),
        }
    }

    /// What is known of a peer; from now on there is something.
    pub(super) fn of(&mut self, peer: Rank) -> &mut Peer {
        self.known.entry(peer).or_default()
    }

    /// What is known of a peer, if there is anything.
    pub(super) fn get(&self, peer: Rank) -> Option<&Peer> {
        self.known.get(&peer)
    }

    /// All of which something is known.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.known.values()
    }

    /// All of which something is known, by rank.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Rank, &mut Peer)> {
        self.known.iter_mut().map(|(rank, peer)| (*rank, peer))
    }

    /// Whether a peer said goodbye.
    pub(super) fn has_left(&self, peer: Rank) -> bool {
        self.get(peer).is_some_and(|peer| peer.lost == Some(LossReason::Goodbye))
    }

    /// Those that said goodbye.
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
    /// The operation of which it was told that frames are held.
    told_held: Option<u64>,
    /// It wants to hear when this rank has issued this operation.
    pub(super) wants_issued: Option<u64>,
    /// Bytes that came for operations that this rank has not issued.
    pub(super) received_ahead_bytes: usize,
    /// Where the payload of the frame under way goes.
    pub(super) incoming: PayloadTarget,
    /// Whether there ever was a frame or a connection between the two.
    pub(super) touched: bool,
    /// Why the connection is gone, if it is.
    pub(super) lost: Option<LossReason>,
    /// Whether its reason for breaking the group came.
    pub(super) abort_received: bool,
    /// Whether this rank's reason for breaking the group was handed to the transport.
    pub(super) abort_given: bool,
    /// Whether it has left.
    pub(super) abort_sent: bool,
}

impl Peer {
    /// Whether nothing ever came from it, not even the end of its connection.
    pub(super) fn is_unheard_of(&self) -> bool {
        self.issued == 0 && self.lost.is_none()
    }

    /// The highest operation that it has issued, as far as is known.
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// Whether a frame of `bytes` for operation `sequence` may go; if so, it is accounted for.
    pub(super) fn admit(&mut self, sequence: u64, bytes: usize) -> bool {
        if sequence <= self.issued {
            return true;
        }
        if self.ahead_bytes + bytes > WINDOW {
            return false;
        }
        self.ahead_bytes += bytes;
        match self.ahead.back_mut() {
            Some((last, total)) if *last == sequence => *total += bytes,
            _ => self.ahead.push_back((sequence, bytes)),
        }
        true
    }

    /// Remembers a step whose frame was not admitted. Returns the sequence that the peer must be
    /// told of, if it has not been told.
    pub(super) fn hold(&mut self, sequence: u64, step: u32, bytes: usize) -> Option<u64> {
        self.held.push(Reverse((sequence, step, bytes)));
        self.tell_held()
    }

    /// Takes note that it has issued operations up to `issued`; appends the held steps that may be
    /// tried again. Returns the sequence of which it must be told that frames are still held.
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
        let mut room = WINDOW - self.ahead_bytes;
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

    /// Whether nothing more is to be said or heard after the group broke.
    pub(super) fn is_settled(&self) -> bool {
        self.lost.is_some() || !self.touched || (self.abort_received && self.abort_sent)
    }

    /// Forgets all operations.
    fn forget(&mut self) {
        self.ahead.clear();
        self.held.clear();
        self.incoming = PayloadTarget::Nothing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issued_operations_are_never_held() {
        let mut peer = Peer::default();
        assert!(peer.admit(5, WINDOW));
        assert!(!peer.admit(6, 1));
        assert_eq!(peer.hold(6, 0, 1), Some(6));
        assert_eq!(peer.hold(7, 0, 1), None, "it is told once");
        let mut released = Vec::new();
        assert_eq!(peer.note_issued(4, &mut released), None);
        assert!(released.is_empty());
        assert_eq!(peer.note_issued(5, &mut released), None);
        assert_eq!(released, [(6, 0), (7, 0)]);
        assert!(peer.admit(6, WINDOW), "what is issued leaves the window");
    }

    #[test]
    fn a_frame_of_an_issued_operation_overtakes_older_held_ones() {
        let mut peer = Peer::default();
        assert!(peer.admit(10, WINDOW));
        peer.hold(11, 0, WINDOW);
        peer.hold(9, 3, WINDOW);
        let mut released = Vec::new();
        assert_eq!(peer.note_issued(9, &mut released), Some(11));
        assert_eq!(released, [(9, 3)]);
    }
}
