//! Collectives in which every rank reads what it needs out of the memory of the others, where it
//! lies: allgather and alltoall of more than fits the board. The board says where; that a rank has
//! passed the operation says that it has read all. No frames, one copy. Knows no schedule.
//!
//! Rank 0 may choose the schedule in place of that: see [`super::exchange_choice`].
//!
//! A rank that breaks the group withdraws from the board before its caller gets the memory back. So
//! what was read counts only if its owner has not withdrawn by then.

use std::time::Duration;

use super::exchange_choice::{ChosenWay, ExchangeClass, ExchangeWay};
use super::lent_blocks::LentBlock;
use super::operation::{OwnPart, SlotProgress, SmallOperation};
use super::running_operation::RunningOperation;
use super::slot_exchange::{SlotExchange, over_board, where_lent};
use super::state::State;
use crate::clock::Instant;
use crate::generated::collective::Collective;
use crate::kernels;
use crate::schedule::Rank;
use crate::tensor::Region;
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
use crate::transport::board::Board as _;
use crate::transport::board::{Attention, Slot};
use crate::wire::abort::{Abort, Side};

/// Most bytes that are copied before the connections are looked at again.
const TURN_BYTES: usize = 1 << 20;

/// How long it may take until the end of a process whose memory is gone is known otherwise, which
/// says more.
const END_LIMIT: Duration = Duration::from_millis(50);

/// How much of an operation a rank has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirectProgress {
    /// One bit for each rank whose part is here.
    taken: u32,
    /// The part that is being taken, and how many of its bytes are here.
    current: Option<(Rank, usize)>,
    /// What this rank has chosen for all, if it is the one that chooses.
    chosen: Option<ChosenWay>,
    /// Set when all were there, if the operation is measured.
    began: Option<Instant>,
    /// The rank whose memory could not be read any more, and since when.
    ended: Option<(Rank, Instant)>,
}

/// The longest time for which a rank waits for the others so that it can measure an operation.
const ALL_THERE_LIMIT: Duration = Duration::from_millis(1);

/// What came of looking for a rank's part.
enum PartOutcome {
    /// So many bytes of it were taken.
    Taken(usize),
    /// It cannot be had: its owner has failed, which the connection to it will say, or runs the
    /// schedule, which is seen when the board is looked at again.
    Unavailable,
    /// Its owner's process, or the main thread of that, has ended.
    Ended,
}

impl State {
    /// Operation `sequence`, which is on the board, if it takes its data out of the memory of
    /// others.
    pub(super) fn direct(&self, sequence: u64) -> Option<SmallOperation> {
        let exchange = self.exchange.as_ref().filter(|it| it.reads_memory())?;
        let running = self.in_flight.get(sequence)?;
        let SlotProgress { small, part, .. } = running.slot_progress?;
        let operation = SmallOperation { sequence, fingerprint: running.fingerprint, small };
        (part == OwnPart::Lent || exchange.is_lent(&operation)).then_some(operation)
    }

    /// Shows where the input of operation `sequence` lies, or, if this rank chooses that, that all
    /// run the schedule. Returns whether it has shown either.
    pub(super) fn show_lent(&mut self, sequence: u64) -> bool {
        match self.chosen_way(sequence) {
            Some(_) if !self.may_begin(sequence) => false,
            Some(ChosenWay { way: ExchangeWay::Schedule, .. }) => self.show_scheduled(sequence),
            Some(_) | None => self.show_addresses(sequence),
        }
    }

    fn show_addresses(&mut self, sequence: u64) -> bool {
        let Some(exchange) = &mut self.exchange else { return false };
        let Some(running) = self.in_flight.get_mut(sequence) else { return false };
        if !exchange.can_lend(&running.bindings.input) {
            return self.show_scheduled(sequence);
        }
        exchange.input_scratch.clear();
        for block in &running.bindings.input {
            let (address, bytes) = (block.address() as u64, block.len() as u64);
            LentBlock { address, bytes }.encode(&mut exchange.input_scratch);
        }
        let fingerprint = where_lent(&running.fingerprint);
        let has_shown = exchange.board.show(sequence, &fingerprint, &exchange.input_scratch);
        if has_shown {
            running.slot_progress.iter_mut().for_each(|progress| progress.shown = true);
            running.progressed = self.now;
            exchange.shown += 1;
            self.choose_stores(sequence);
            self.wake_sleepers();
        }
        has_shown
    }

    /// What this rank has chosen for operation `sequence`; none if another rank chooses.
    fn chosen_way(&mut self, sequence: u64) -> Option<ChosenWay> {
        let exchange = self.exchange.as_mut()?;
        let is_alone = exchange.sequences.len() == 1 && exchange.lent.is_empty();
        let choice = exchange.choice.as_deref_mut()?;
        let running = self.in_flight.get_mut(sequence)?;
        let class = class_of(running);
        Some(*running.direct.chosen.get_or_insert_with(|| choice.choose(class, is_alone)))
    }

    /// Whether what was chosen for operation `sequence` can be shown now: if it is measured, when
    /// all others are there.
    fn may_begin(&mut self, sequence: u64) -> bool {
        let are_there = self.are_others_there(sequence);
        let Some(running) = self.in_flight.get_mut(sequence) else { return false };
        if running.direct.chosen.is_none_or(|chosen| !chosen.is_measured) {
            return true;
        }
        if are_there {
            running.direct.began = Some(Instant::now());
            return true;
        }
        // They may be late; then the operation is not measured.
        self.now.saturating_duration_since(running.progressed) > ALL_THERE_LIMIT
    }

    fn are_others_there(&self, sequence: u64) -> bool {
        let shows = |exchange: &SlotExchange, rank| exchange.board.shows(rank, sequence);
        self.exchange.as_ref().is_some_and(|exchange| {
            (0..self.size).all(|rank| rank == self.rank || shows(exchange, rank))
        })
    }

    /// Operation `sequence`, which is on the board, is to be run as a schedule: its duration does
    /// not count unless this rank has chosen that.
    pub(super) fn forget_direct(&mut self, sequence: u64) {
        let Some(running) = self.in_flight.get_mut(sequence) else { return };
        if running.direct.chosen.is_none_or(|chosen| chosen.way == ExchangeWay::Direct) {
            running.direct.began = None;
        }
    }

    /// How soon this rank must look again at the oldest operation on the board, which waits for
    /// nothing that the board shows.
    pub(super) fn look_again_after(&self) -> Option<Duration> {
        let exchange = self.exchange.as_ref()?;
        let direct = &self.in_flight.get(*exchange.sequences.front()?)?.direct;
        let is_deferred = exchange.shown == 0 && direct.chosen.is_some_and(|it| it.is_measured);
        (is_deferred || direct.ended.is_some()).then_some(ALL_THERE_LIMIT)
    }

    /// The ranks whose parts of a direct operation this rank has not taken.
    pub(super) fn untaken(&self, running: &RunningOperation) -> Vec<Rank> {
        let is_untaken = |rank: &Rank| running.direct.taken & 1 << *rank == 0;
        (0..self.size).filter(|rank| *rank != self.rank).filter(is_untaken).collect()
    }

    /// Notes how long an operation took that has ended, if it was measured.
    pub(super) fn note_duration(&mut self, running: &RunningOperation) {
        let DirectProgress { chosen: Some(chosen), began: Some(began), .. } = running.direct else {
            return;
        };
        let exchange = self.exchange.as_mut();
        let Some(choice) = exchange.and_then(|it| it.choice.as_deref_mut()) else { return };
        let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let bytes = running.bindings.input.iter().map(Region::len).sum();
        choice.note((class_of(running), chosen.way), bytes, nanoseconds);
    }

    /// Whether something can be done now for the oldest operation on the board, which is a direct
    /// one.
    pub(super) fn may_go_on(&self, operation: &SmallOperation) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        let Some(running) = self.in_flight.get(operation.sequence) else { return false };
        if exchange.is_scheduled(operation) {
            return true;
        }
        match exchange.shown {
            // What this rank would measure begins when all are there.
            0 => running.direct.chosen.is_some() && self.are_others_there(operation.sequence),
            _ => self.next_part(running).is_some(),
        }
    }

    /// Takes the next bytes of the oldest operation on the board, which is a direct one; whether
    /// there were any.
    pub(super) fn take_lent(&mut self, operation: &SmallOperation) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        let sequence = operation.sequence;
        if exchange.is_scheduled(operation) {
            self.leave_board(sequence);
            return true;
        }
        if exchange.shown == 0 {
            return false;
        }
        let Some(running) = self.in_flight.get(sequence) else { return false };
        if let Some((rank, since)) = running.direct.ended {
            let is_over = self.now.saturating_duration_since(since) > END_LIMIT;
            if is_over {
                let why = "its process, or the main thread of that, has ended".to_owned();
                self.fail(Abort::Failed { rank, why });
            }
            return is_over;
        }
        let Some((source, done)) = self.next_part(running) else { return false };
        let taken = match source == self.rank {
            true => own_part(running, source, done),
            false => self.part_of(source, operation, done),
        };
        let taken = match taken {
            Ok(PartOutcome::Taken(taken)) => taken,
            Ok(PartOutcome::Unavailable) => return false,
            Ok(PartOutcome::Ended) => {
                let running = self.in_flight.get_mut(sequence);
                running.into_iter().for_each(|it| it.direct.ended = Some((source, self.now)));
                return false;
            }
            Err(abort) => {
                self.fail(abort);
                return true;
            }
        };
        let Some(running) = self.in_flight.get_mut(sequence) else { return false };
        running.progressed = self.now;
        let done = done + taken;
        running.direct.current = Some((source, done));
        if running.bindings.output.get(source as usize).is_none_or(|block| block.len() <= done) {
            running.direct.taken |= 1 << source;
            running.direct.current = None;
        }
        if running.direct.taken.count_ones() == self.size {
            self.pass_lent(sequence);
        }
        true
    }

    /// Ends the operations whose input every other rank has read.
    pub(super) fn end_lent(&mut self) -> bool {
        let mut moved = false;
        while let Some(exchange) = &mut self.exchange
            && let Some(&sequence) = exchange.lent.front()
            && exchange.readers(sequence).next().is_none()
        {
            moved = true;
            exchange.lent.pop_front();
            if exchange.is_idle() {
                exchange.wake_up();
            }
            let running = self.in_flight.get_mut(sequence);
            running.into_iter().for_each(|running| running.remaining = 0);
            self.finish_if_done(sequence);
        }
        moved
    }

    /// All parts of operation `sequence` are here: tells the others, and waits for them if they
    /// read this rank's memory.
    fn pass_lent(&mut self, sequence: u64) {
        let done = self.done_with_board();
        let Some(exchange) = &mut self.exchange else { return };
        exchange.sequences.pop_front();
        exchange.shown -= 1;
        exchange.lent.push_back(sequence);
        exchange.publish_progress(done);
        // Nothing older is unchecked: what all show comes after what they had checked.
        debug_assert!(exchange.board.passed(self.rank) >= sequence, "{sequence} is not passed");
        exchange.board.fence();
        self.wake_sleepers();
        self.end_lent();
    }

    /// The rank whose part is to be taken next, and how many bytes of it are here.
    fn next_part(&self, running: &RunningOperation) -> Option<(Rank, usize)> {
        let exchange = self.exchange.as_ref()?;
        if running.direct.ended.is_some() {
            return None;
        }
        let is_there = |source: Rank| {
            source == self.rank
                || (exchange.board.shows(source, running.sequence)
                    && exchange.board.attention(source) != Attention::Withdrawn)
        };
        if let Some((source, done)) = running.direct.current {
            return is_there(source).then_some((source, done));
        }
        // Ranks that read at the same time read from different ones.
        let sources = (0..self.size).map(|distance| (self.rank + distance) % self.size);
        let mut open = sources.filter(|source| running.direct.taken & 1 << source == 0);
        open.find(|source| is_there(*source)).map(|source| (source, 0))
    }

    /// Takes the next bytes of the part of `source`, of which `done` are here.
    fn part_of(
        &mut self,
        source: Rank,
        operation: &SmallOperation,
        done: usize,
    ) -> Result<PartOutcome, Abort> {
        let sequence = operation.sequence;
        let (Some(exchange), Some(running)) = (&mut self.exchange, self.in_flight.get(sequence))
        else {
            return Ok(PartOutcome::Unavailable);
        };
        exchange.check(self.rank)?;
        let Some(into) = running.bindings.output.get(source as usize) else {
            return Ok(PartOutcome::Taken(0));
        };
        let nonsense = || Abort::Failed {
            rank: source,
            why: "it broke the protocol: its entry on the board is not valid".to_owned(),
        };
        let slot = exchange.board.read(source, sequence, 0..usize::MAX, &mut exchange.slot_scratch);
        let Slot::Bytes(shown, theirs) = slot else { return Err(nonsense()) };
        let shown = &exchange.slot_scratch[..shown];
        let gathers = running.fingerprint.collective == Collective::Allgather as u8;
        let expected = |bytes: u64| match bytes == into.len() as u64 {
            true => Ok(()),
            false => Err(mismatch(running, (self.rank, source), Some(bytes))),
        };
        if theirs == over_board(&running.fingerprint) && !gathers {
            let block = shown.len() / self.size as usize;
            expected(block as u64)?;
            let start = self.rank as usize * block;
            into.write(|into| into.copy_from_slice(&shown[start..start + block]));
            return Ok(PartOutcome::Taken(block));
        }
        if theirs == running.fingerprint && operation.may_be_elsewhere() {
            // It has chosen the schedule just now.
            return Ok(PartOutcome::Unavailable);
        }
        if theirs != where_lent(&running.fingerprint) {
            let (one, other) = (self.rank, source);
            // How they would have run it is not what they disagree on.
            let side = |rank, fingerprint| {
                let fingerprint = over_board(fingerprint);
                Side { rank, fingerprint, message_bytes: None }
            };
            let (one, other) = (side(one, &running.fingerprint), side(other, &theirs));
            return Err(Abort::Mismatch { sequence, one, other });
        }
        let lent = LentBlock::of(shown, self.rank, gathers).ok_or_else(nonsense)?;
        expected(lent.bytes)?;
        let end = into.len().min(done + TURN_BYTES);
        let from = lent.address.wrapping_add(done as u64);
        let is_read =
            into.write(|into| exchange.board.read_memory(source, from, &mut into[done..end]));
        // What was read is read before it is looked whether it counted.
        exchange.board.fence();
        let counts = exchange.board.attention(source) != Attention::Withdrawn
            // Then the schedule brings all, and the owner may have its memory back.
            && !exchange.is_scheduled(operation);
        match is_read {
            Ok(true) if counts => Ok(PartOutcome::Taken(end - done)),
            Ok(false) if counts => Ok(PartOutcome::Ended),
            Err(why) if counts => {
                let why = format!("its memory could not be read: {why}");
                Err(Abort::Failed { rank: source, why })
            }
            Ok(_) | Err(_) => Ok(PartOutcome::Unavailable),
        }
    }
}

/// Copies the next bytes of the part that this rank has itself.
fn own_part(running: &RunningOperation, rank: Rank, done: usize) -> Result<PartOutcome, Abort> {
    let index = match running.fingerprint.collective == Collective::Allgather as u8 {
        true => 0,
        false => rank as usize,
    };
    let input = running.bindings.input.get(index);
    let (Some(from), Some(into)) = (input, running.bindings.output.get(rank as usize)) else {
        return Ok(PartOutcome::Taken(0));
    };
    if from.len() != into.len() {
        return Err(mismatch(running, (rank, rank), Some(from.len() as u64)));
    }
    if from.same_memory(into) {
        return Ok(PartOutcome::Taken(into.len() - done));
    }
    if from.overlaps(into) {
        let why = "input and output memory overlap in part".to_owned();
        return Err(Abort::User { rank, why });
    }
    let end = into.len().min(done + TURN_BYTES);
    let stores = running.result_stores;
    let (from, into) = (from.slice(done..end), into.slice(done..end));
    into.write_from(&from, |into, from| kernels::copy(into, from, stores));
    Ok(PartOutcome::Taken(end - done))
}

/// The operations that are like this one.
fn class_of(running: &RunningOperation) -> ExchangeClass {
    let bytes = running.bindings.input.iter().map(Region::len).sum();
    let gathers = running.fingerprint.collective == Collective::Allgather as u8;
    ExchangeClass::of(if gathers { Collective::Allgather } else { Collective::Alltoall }, bytes)
}

/// That two ranks mean blocks of different lengths.
fn mismatch(running: &RunningOperation, (rank, other): (Rank, Rank), bytes: Option<u64>) -> Abort {
    let fingerprint = over_board(&running.fingerprint);
    let ours = running.bindings.output.get(other as usize).map(|block| block.len() as u64);
    let one = Side { rank, fingerprint, message_bytes: ours };
    let other = Side { rank: other, fingerprint, message_bytes: bytes };
    Abort::Mismatch { sequence: running.sequence, one, other }
}
