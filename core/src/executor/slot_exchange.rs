//! The board of a group, and the operations on it. Knows the board's trait, and of schedules only
//! that an operation may have to run its own.

use std::collections::VecDeque;
use std::ops::Range;

use super::operation::SmallOperation;
use super::small_collective::SmallCollective;
use crate::generated::collective::Collective;
use crate::schedule::Rank;
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
use crate::transport::board::Board as _;
use crate::transport::board::{AnyBoard, Attention, BOARD_BYTES, Slot};
use crate::wire::abort::{Abort, Side};
use crate::wire::frame::{BOARD_ALGORITHM, Fingerprint};

/// How an operation goes on, by what the ranks that it needs have shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeOutcome {
    /// Its result was taken.
    All,
    /// Some rank runs the schedule, so all have to.
    Schedule,
}

/// The board of the group and the operations that are on it.
pub(super) struct SlotExchange {
    pub(super) board: AnyBoard,
    /// The operations over the board that are in flight, oldest first.
    pub(super) sequences: VecDeque<u64>,
    /// How many of them this rank has shown: the first ones.
    pub(super) shown: usize,
    /// Operations that ended here, but whose fingerprints were not compared with the others' yet.
    pub(super) unchecked: VecDeque<(u64, Fingerprint)>,
    /// Whether others have to wake this rank.
    pub(super) asleep: bool,
    pub(super) given: Vec<u8>,
    pub(super) taken: Vec<u8>,
    /// What one rank shows.
    copied: Vec<u8>,
}

impl SlotExchange {
    pub(super) fn new(board: AnyBoard) -> SlotExchange {
        SlotExchange {
            board,
            sequences: VecDeque::new(),
            shown: 0,
            unchecked: VecDeque::new(),
            asleep: false,
            given: Vec::new(),
            taken: Vec::new(),
            copied: vec![0; BOARD_BYTES],
        }
    }

    /// Notes that frames carry operation `sequence`, so that no rank waits for this one to read the
    /// board.
    pub(super) fn skip(&mut self, sequence: u64) {
        if self.sequences.is_empty() {
            self.pass(sequence);
        }
    }

    /// Tells the others which operations, up to `issued`, this rank has finished on the board.
    pub(super) fn pass(&mut self, issued: u64) {
        let open = self.sequences.front().into_iter().chain(self.unchecked.front().map(|it| &it.0));
        self.board.pass(open.min().map_or(issued, |oldest| oldest - 1));
    }

    /// Notes that an operation is over. If it needed no other rank, the comparison is still to
    /// come.
    pub(super) fn note_done(&mut self, operation: &SmallOperation) {
        let SmallOperation { sequence, fingerprint, small } = operation;
        if small.sources().is_empty() && small.size > 1 {
            self.unchecked.push_back((*sequence, *fingerprint));
        }
    }

    /// Compares the unchecked operations with the other ranks', as far as those have come. Returns
    /// whether anything was compared, or the first disagreement.
    pub(super) fn check(&mut self, rank: Rank) -> Result<bool, Abort> {
        let mut checked = false;
        while let Some(&(sequence, fingerprint)) = self.unchecked.front() {
            let others = (0..self.board.size()).filter(|&other| other != rank);
            if !others.clone().all(|other| self.board.shows(other, sequence)) {
                break;
            }
            for other in others {
                if let Slot::Bytes(_, theirs) = self.board.read(other, sequence, &mut self.copied)
                    && theirs != fingerprint
                {
                    let one = Side { rank, fingerprint, message_bytes: None };
                    let other = Side { rank: other, fingerprint: theirs, message_bytes: None };
                    return Err(Abort::Mismatch { sequence, one, other });
                }
            }
            self.unchecked.pop_front();
            checked = true;
        }
        Ok(checked)
    }

    pub(super) fn push(&mut self, sequence: u64, shown: bool) {
        self.shown += usize::from(shown && self.shown == self.sequences.len());
        self.sequences.push_back(sequence);
    }

    /// Releases all operations, because the group broke, and tells the others that this rank takes
    /// part no longer.
    pub(super) fn give_up(&mut self) {
        self.sequences.clear();
        self.unchecked.clear();
        self.shown = 0;
        self.board.withdraw();
    }

    /// Tells the others that this rank leaves, with nothing in flight.
    pub(super) fn leave(&mut self) {
        self.board.leave();
    }

    /// Whether `rank` left in order.
    pub(super) fn has_left(&self, rank: Rank) -> bool {
        self.board.attention(rank) == Attention::Left
    }

    pub(super) fn wake_up(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.board.set_asleep(false);
        }
    }

    /// Whether some rank shows that it runs the schedule of the operation.
    pub(super) fn is_scheduled(&self, operation: &SmallOperation) -> bool {
        let SmallOperation { sequence, fingerprint, small } = operation;
        let is_it = |rank| self.board.fingerprint(rank, *sequence) == Some(*fingerprint);
        small.may_be_scheduled() && small.sources().any(is_it)
    }

    /// The ranks, of those that `small` needs, that show nothing for it.
    pub(super) fn missing(&self, small: &SmallCollective, sequence: u64) -> Vec<Rank> {
        small.sources().filter(|&rank| !self.board.shows(rank, sequence)).collect()
    }

    /// Takes the sources' parts into `output`. The error says what is wrong with one of them.
    pub(super) fn take(
        &mut self,
        operation: &SmallOperation,
        part: impl Fn(Rank) -> Range<usize>,
        output: &mut [u8],
    ) -> Result<TakeOutcome, Abort> {
        let &SmallOperation { sequence, ref fingerprint, ref small } = operation;
        // A rank that shows this operation has shown all earlier ones, except those that it ran as
        // schedules, and those are always checked.
        self.check(small.rank)?;
        if self.is_scheduled(operation) {
            return Ok(TakeOutcome::Schedule);
        }
        let fingerprint = over_board(fingerprint);
        for source in small.sources() {
            let one = Side { rank: small.rank, fingerprint, message_bytes: None };
            match self.board.read(source, sequence, &mut self.copied) {
                Slot::Bytes(_, theirs) if theirs != fingerprint => {
                    let other = Side { rank: source, fingerprint: theirs, message_bytes: None };
                    return Err(Abort::Mismatch { sequence, one, other });
                }
                Slot::Bytes(bytes, _)
                    if small.collective == Collective::Alltoall && bytes != output.len() =>
                {
                    let block = |all: usize| Some((all / small.size as usize) as u64);
                    let one = Side { message_bytes: block(output.len()), ..one };
                    let other = Side { rank: source, message_bytes: block(bytes), ..one };
                    return Err(Abort::Mismatch { sequence, one, other });
                }
                Slot::Bytes(bytes, _) => {
                    if small.take(source, &self.copied[..bytes], part(source), output) {
                        continue;
                    }
                }
                Slot::Empty | Slot::Corrupt => {}
            }
            let why = "it broke the protocol: its entry on the board is not valid".to_owned();
            return Err(Abort::Failed { rank: source, why });
        }
        Ok(TakeOutcome::All)
    }
}

/// The fingerprint beside data on the board. A rank that runs the schedule shows its operation's
/// own fingerprint instead.
pub(super) fn over_board(fingerprint: &Fingerprint) -> Fingerprint {
    Fingerprint { algorithm: BOARD_ALGORITHM, ..*fingerprint }
}
