//! The board of a group, and the operations on it. Knows the board's trait, and of schedules only
//! that an operation may have to run its own.

use std::collections::VecDeque;
use std::ops::Range;

use super::exchange_choice::ExchangeChoice;
use super::lent_blocks::LentBlock;
use super::operation::SmallOperation;
use super::small_collective::SmallCollective;
use crate::generated::collective::Collective;
use crate::schedule::Rank;
use crate::spin::SpinBudget;
use crate::tensor::Region;
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
use crate::transport::board::Board as _;
use crate::transport::board::{AnyBoard, Attention, Slot, board_bytes};
use crate::wire::abort::{Abort, Side};
use crate::wire::frame::{BOARD_ALGORITHM, Fingerprint, LENT_ALGORITHM};

/// Result of [`SlotExchange::take`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeOutcome {
    /// The operation is complete: `output` holds its result.
    Complete,
    /// The data of some rank is not on the board: that rank runs the schedule, so all have to, or
    /// shows where its data lies.
    Elsewhere,
}

/// The board of the group and the operations that are on it.
pub(super) struct SlotExchange {
    pub(super) board: AnyBoard,
    /// The operations over the board that are in flight, oldest first.
    pub(super) sequences: VecDeque<u64>,
    /// How many of them this rank has shown: the first ones.
    pub(super) shown: usize,
    /// Operations that have all that they need, but whose input others may still read in this
    /// rank's memory, oldest first.
    pub(super) lent: VecDeque<u64>,
    /// Which way exchanges take that do not fit the board, where this rank chooses.
    pub(super) choice: Option<Box<ExchangeChoice>>,
    /// Operations that ended here, but whose fingerprints were not compared with the others' yet.
    pub(super) unchecked: VecDeque<(u64, Fingerprint)>,
    /// Whether others have to wake this rank.
    pub(super) asleep: bool,
    /// This rank's input in one piece, before it is written to the board.
    pub(super) input_scratch: Vec<u8>,
    /// The result in one piece, before it is copied to the output blocks.
    pub(super) output_scratch: Vec<u8>,
    /// A copy of what is wanted of one rank's slot.
    pub(super) slot_scratch: Vec<u8>,
}

impl SlotExchange {
    /// The exchange of `rank`.
    pub(super) fn new(board: AnyBoard, rank: Rank) -> SlotExchange {
        SlotExchange {
            choice: (rank == 0 && board.reads_memory()).then(Box::default),
            slot_scratch: vec![0; board_bytes(board.size())],
            board,
            sequences: VecDeque::new(),
            shown: 0,
            lent: VecDeque::new(),
            unchecked: VecDeque::new(),
            asleep: false,
            input_scratch: Vec::new(),
            output_scratch: Vec::new(),
        }
    }

    /// Whether every rank can read the memory of every other where it lies.
    pub(super) fn reads_memory(&self) -> bool {
        self.board.reads_memory()
    }

    /// Notes that operation `sequence` does not use the board, so that no rank waits for this one
    /// to read it there.
    pub(super) fn skip_to(&mut self, sequence: u64) {
        if self.sequences.is_empty() {
            self.publish_progress(sequence);
        }
    }

    /// Publishes which operations, up to `issued`, this rank has finished on the board.
    pub(super) fn publish_progress(&mut self, issued: u64) {
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

    /// Compares the unchecked operations with the other ranks', as far as those have published
    /// theirs. Returns whether anything was compared, or the first disagreement.
    ///
    /// The fingerprints are compared as they are, without [`over_board`]: unchecked operations have
    /// no sources, so none of them is an alltoall or an allgather, and every other operation on the
    /// board has [`BOARD_ALGORITHM`] in its own fingerprint.
    pub(super) fn check(&mut self, rank: Rank) -> Result<bool, Abort> {
        let mut checked = false;
        while let Some(&(sequence, fingerprint)) = self.unchecked.front() {
            debug_assert_eq!(fingerprint, over_board(&fingerprint), "an operation without sources");
            let others = (0..self.board.size()).filter(|&other| other != rank);
            if !others.clone().all(|other| self.board.shows(other, sequence)) {
                break;
            }
            for other in others {
                let slot = self.board.read(other, sequence, 0..0, &mut self.slot_scratch);
                if let Slot::Bytes(_, theirs) = slot
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

    /// Adds an operation; `shown` says whether this rank's part is on the board already.
    pub(super) fn push(&mut self, sequence: u64, shown: bool) {
        self.shown += usize::from(shown && self.shown == self.sequences.len());
        self.sequences.push_back(sequence);
    }

    /// Drops all operations, because the group broke, and tells the others that `rank`, this one,
    /// no longer takes part: `from` is the first collective that it has not run to its end, if it
    /// is not 0.
    pub(super) fn give_up(&mut self, abort: &Abort, (rank, from): (Rank, u64)) {
        self.sequences.clear();
        self.lent.clear();
        self.unchecked.clear();
        self.shown = 0;
        // What it has shown for those before counts.
        self.board.pass(self.board.passed(rank).max(from.saturating_sub(1)));
        self.board.withdraw(&encoded(abort, from));
    }

    /// Publishes that this rank leaves, with nothing in flight, and why, if that is said.
    pub(super) fn leave(&mut self, why: Option<&Abort>) {
        self.board.leave(&why.map(|abort| encoded(abort, 0)).unwrap_or_default());
    }

    /// Whether `rank` left cleanly.
    pub(super) fn has_left(&self, rank: Rank) -> bool {
        self.board.attention(rank) == Attention::Left
    }

    /// Whether `rank` left since the group gets other members.
    pub(super) fn has_retired(&self, rank: Rank) -> bool {
        let reason = || decoded(&self.board.reason(rank)?);
        self.has_left(rank) && matches!(reason(), Some((Abort::Left { retired: true, .. }, _)))
    }

    /// Why `rank` broke the group, if it has published that, and the first collective that it has
    /// not run to its end, if that is known. It stays when its process ends.
    pub(super) fn reason(&self, rank: Rank) -> Option<(Abort, Option<u64>)> {
        let reason = self.board.reason(rank).filter(|_| !self.has_left(rank))?;
        decoded(&reason)
    }

    /// Whether `rank` takes no part any more: it has broken the group, or left.
    pub(super) fn is_gone(&self, rank: Rank) -> bool {
        matches!(self.board.attention(rank), Attention::Withdrawn | Attention::Left)
    }

    pub(super) fn wake_up(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.board.set_asleep(false);
        }
    }

    /// Whether `rank` shows operation `sequence` with a fingerprint that agrees with this one.
    pub(super) fn shown_by(&self, rank: Rank, sequence: u64, fingerprint: &Fingerprint) -> bool {
        self.board.fingerprint(rank, sequence).is_some_and(|it| it.agrees_with(fingerprint))
    }

    /// Whether some rank shows that it runs the schedule of the operation.
    pub(super) fn is_scheduled(&self, operation: &SmallOperation) -> bool {
        let SmallOperation { sequence, fingerprint, small } = operation;
        let is_it = |rank| self.shown_by(rank, *sequence, fingerprint);
        // Also a rank whose data this one does not need may choose that for all.
        operation.may_be_elsewhere() && (0..small.size).any(is_it)
    }

    /// Whether some rank shows where its data lies, in place of the data.
    pub(super) fn is_lent(&self, operation: &SmallOperation) -> bool {
        let SmallOperation { sequence, fingerprint, small } = operation;
        let lent = where_lent(fingerprint);
        let lends = |rank| self.shown_by(rank, *sequence, &lent);
        operation.may_be_elsewhere() && small.sources().any(lends)
    }

    /// Whether others can read all of `blocks` where they lie in this rank's memory.
    pub(super) fn can_lend(&mut self, blocks: &[Region]) -> bool {
        let board = &mut self.board;
        blocks.iter().all(|block| board.can_lend(block.address() as u64, block.len() as u64))
    }

    /// Writes to `input_scratch` where `blocks` lie.
    pub(super) fn encode_lent(&mut self, blocks: &[Region]) {
        self.input_scratch.clear();
        for block in blocks {
            let (address, bytes) = (block.address() as u64, block.len() as u64);
            LentBlock { address, bytes }.encode(&mut self.input_scratch);
        }
    }

    /// The ranks that may still read this rank's input of operation `sequence` where it lies.
    pub(super) fn readers(&self, sequence: u64) -> impl Iterator<Item = Rank> {
        (0..self.board.size()).filter(move |&rank| !self.board.has_read(rank, sequence))
    }

    /// Whether it polls only what others show or read.
    pub(super) fn is_idle(&self) -> bool {
        self.sequences.is_empty() && self.lent.is_empty()
    }

    /// Polls what all ranks show that `small` needs; false if the budget is spent before they do.
    #[inline]
    pub(super) fn polls(&self, small: &SmallCollective, sequence: u64, spin: SpinBudget) -> bool {
        let mut polls = 0;
        for source in small.sources() {
            while !self.board.shows(source, sequence) {
                if polls == spin.spins {
                    return false;
                }
                polls += 1;
                spin.pause_after(polls);
            }
        }
        true
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
        if !self.unchecked.is_empty() {
            self.check(small.rank)?;
        }
        if operation.may_be_elsewhere() && (self.is_scheduled(operation) || self.is_lent(operation))
        {
            return Ok(TakeOutcome::Elsewhere);
        }
        let fingerprint = over_board(fingerprint);
        for source in small.sources() {
            let one = Side { rank: small.rank, fingerprint, message_bytes: None };
            let wanted = small.wanted(part(source));
            match self.board.read(source, sequence, wanted, &mut self.slot_scratch) {
                Slot::Bytes(_, theirs) if !theirs.agrees_with(&fingerprint) => {
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
                    if small.take(source, &self.slot_scratch[..bytes], part(source), output) {
                        continue;
                    }
                }
                Slot::Empty | Slot::Corrupt => {}
            }
            let why = "it broke the protocol: its entry on the board is not valid".to_owned();
            return Err(Abort::Failed { rank: source, why });
        }
        Ok(TakeOutcome::Complete)
    }
}

/// A reason as it stands on the board.
fn encoded(abort: &Abort, gives_up: u64) -> Vec<u8> {
    let mut reason = abort.encode();
    reason.extend(gives_up.to_le_bytes());
    reason
}

/// Reads what [`encoded`] wrote.
fn decoded(reason: &[u8]) -> Option<(Abort, Option<u64>)> {
    let (abort, gives_up) = reason.split_last_chunk()?;
    let gives_up = u64::from_le_bytes(*gives_up);
    Some((Abort::decode(abort)?, (gives_up > 0).then_some(gives_up)))
}

/// The fingerprint that a rank shows which says where its data lies.
pub(super) fn where_lent(fingerprint: &Fingerprint) -> Fingerprint {
    Fingerprint { algorithm: LENT_ALGORITHM, ..*fingerprint }
}

/// The fingerprint beside data on the board. A rank that runs the schedule shows its operation's
/// own fingerprint instead.
pub(super) fn over_board(fingerprint: &Fingerprint) -> Fingerprint {
    Fingerprint { algorithm: BOARD_ALGORITHM, ..*fingerprint }
}
