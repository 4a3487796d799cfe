//! Collectives in which every rank reads what it needs out of the memory of the others, where it
//! lies ([`super::direct_parts`]): those of more than fits the board. The board says where, and
//! when a rank has read all. No frames, one copy. Knows no schedule.
//!
//! Rank 0 may choose the schedule in place of that: see [`super::exchange_choice`].
//!
//! A rank that breaks the group withdraws from the board before its caller gets the memory back,
//! and a rank whose memory moves says on the board where it lies now before anybody may change what
//! lies where it was. So what was read counts only if its owner has not withdrawn by then, and
//! still shows the same place.

use std::time::Duration;

use super::direct_parts::LentPart;
use super::exchange_choice::{ChosenWay, ExchangeClass, ExchangeWay};
use super::lent_blocks::LentBlock;
use super::operation::{OwnPart, SlotProgress, SmallOperation};
use super::running_operation::RunningOperation;
use super::slot_exchange::{SlotExchange, over_board, where_lent};
use super::state::State;
use crate::clock::Instant;
use crate::generated::collective::Collective;
use crate::kernels::{self, Stores};
use crate::schedule::Rank;
use crate::tensor::Region;
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
use crate::transport::board::Board as _;
use crate::transport::board::{Attention, Slot};
use crate::wire::abort::{Abort, Side};
use crate::wire::frame::BOARD_ALGORITHM;

/// The rank that chooses for all.
const CHOOSER: Rank = 0;

/// Most bytes that are copied before the connections are looked at again.
pub(super) const TURN_BYTES: usize = 1 << 20;

/// How long it may take until the end of a process whose memory is gone is known otherwise, which
/// says more.
const END_LIMIT: Duration = Duration::from_millis(50);

/// How much of an operation a rank has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirectProgress {
    /// One bit for each rank whose part of the result is here.
    pub(super) taken: u32,
    /// The part that is being taken, and how many of its bytes are here.
    current: Option<(Rank, usize)>,
    /// How many bytes of its own part of the result the rank has reduced.
    pub(super) reduced: usize,
    /// What this rank has chosen for all, if it is the one that chooses.
    chosen: Option<ChosenWay>,
    /// Set when all were there, if the operation is measured.
    began: Option<Instant>,
    /// The rank whose memory could not be read any more, and since when.
    ended: Option<(Rank, Instant)>,
}

/// The longest time for which a rank waits for the others so that it can measure an operation.
const ALL_THERE_LIMIT: Duration = Duration::from_millis(1);

/// What a rank can do next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextTake {
    /// Reduce more of its own part of the result.
    Reduction,
    /// Take more of the part of a rank, of which so many bytes are here.
    Part(Rank, usize),
    /// Pass the operation: all that it needs is here.
    Pass,
}

/// What came of looking for a rank's part.
pub(super) enum PartOutcome {
    /// So many bytes of it were taken.
    Taken(usize),
    /// It cannot be had: its owner has failed, which the connection to it will say, or runs the
    /// schedule, which is seen when the board is looked at again.
    Unavailable,
    /// The process of this rank, its owner, or the main thread of that, has ended.
    Ended(Rank),
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
        let lent = running.direct_collective().map_or(&[][..], |direct| direct.lent());
        if !exchange.can_lend(lent) {
            return self.show_scheduled(sequence);
        }
        exchange.encode_lent(lent);
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

    /// Shows where the memory of operation `sequence` lies now, if it has moved and this rank shows
    /// where it lay.
    pub(super) fn show_moved(&mut self, sequence: u64) {
        let Some(exchange) = &mut self.exchange else { return };
        let Some(running) = self.in_flight.get(sequence) else { return };
        // Where all run the schedule, nobody reads.
        let Some(direct) = running.direct_collective() else { return };
        let lent = where_lent(&running.fingerprint);
        if exchange.board.fingerprint(self.rank, sequence) != Some(lent) {
            return;
        }
        exchange.encode_lent(direct.lent());
        let whole = 0..usize::MAX;
        exchange.board.read(self.rank, sequence, whole, &mut exchange.slot_scratch);
        if !exchange.slot_scratch.starts_with(&exchange.input_scratch) {
            exchange.board.change(sequence, &exchange.input_scratch);
        }
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

    /// The ranks for which a direct operation waits: those whose parts it lacks, or all that are
    /// not there yet where it needs all.
    pub(super) fn untaken(&self, running: &RunningOperation) -> Vec<Rank> {
        let Some(direct) = running.direct_collective() else { return Vec::new() };
        let missing = direct.needed() & !running.direct.taken;
        let reduces = direct.reduces() && running.direct.taken == 0;
        let is_awaited = |rank: &Rank| match reduces {
            true => !self.shows(*rank, running.sequence),
            false => missing & 1 << *rank != 0 || (missing == 0 && *rank == CHOOSER),
        };
        (0..self.size).filter(|rank| *rank != self.rank).filter(is_awaited).collect()
    }

    /// Notes how long an operation took that has ended, if it was measured.
    pub(super) fn note_duration(&mut self, running: &RunningOperation) {
        let DirectProgress { chosen: Some(chosen), began: Some(began), .. } = running.direct else {
            return;
        };
        let exchange = self.exchange.as_mut();
        let Some(choice) = exchange.and_then(|it| it.choice.as_deref_mut()) else { return };
        let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        choice.note((class_of(running), chosen.way), given_bytes(running), nanoseconds);
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
            _ => self.next_take(running).is_some(),
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
        let Some(next) = self.next_take(running) else {
            #[cfg(feature = "tcp")]
            self.note_missing(sequence);
            return false;
        };
        let outcome = match next {
            NextTake::Pass => {
                self.pass_lent(sequence);
                return true;
            }
            NextTake::Reduction => self.reduce_own_part(operation),
            NextTake::Part(source, done) if source == self.rank => own_part(running, done),
            NextTake::Part(source, done) => self.take_part(source, operation, done),
        };
        match outcome {
            Ok(PartOutcome::Taken(taken)) => self.note_taken(sequence, next, taken),
            Ok(PartOutcome::Unavailable) => return false,
            Ok(PartOutcome::Ended(rank)) => {
                let running = self.in_flight.get_mut(sequence);
                running.into_iter().for_each(|it| it.direct.ended = Some((rank, self.now)));
                return false;
            }
            Err(abort) => self.fail_from(sequence, abort),
        }
        true
    }

    /// Notes that `taken` more bytes are here of what was next, and passes the operation if that
    /// was all.
    fn note_taken(&mut self, sequence: u64, next: NextTake, taken: usize) {
        let Some(running) = self.in_flight.get_mut(sequence) else { return };
        let waited_for = match next {
            NextTake::Part(source, _) => Some(source).filter(|source| *source != self.rank),
            NextTake::Reduction => running.take_missing(),
            NextTake::Pass => None,
        };
        self.peers.note_wait(waited_for, (running.progressed, self.now));
        running.progressed = self.now;
        let Some(direct) = running.direct_collective() else { return };
        let (whole, source, done) = match next {
            NextTake::Reduction => {
                let whole = direct.own_reduction().map_or(0, |own| own.into.len());
                (whole, self.rank, running.direct.reduced + taken)
            }
            NextTake::Part(source, done) => {
                (direct.place_of(source).map_or(0, |place| place.len()), source, done + taken)
            }
            NextTake::Pass => return,
        };
        let is_reduction = next == NextTake::Reduction;
        let is_complete = done >= whole;
        let progress = &mut running.direct;
        match is_reduction {
            true => progress.reduced = done,
            false => progress.current = (!is_complete).then_some((source, done)),
        }
        if !is_complete {
            return;
        }
        progress.taken |= 1 << source;
        if is_reduction {
            // The memory may have moved since a part of the result was written there, and who moved
            // it may not have come to say so yet: where it lay is the input, then.
            self.show_moved(sequence);
            self.exchange.iter_mut().for_each(|it| it.board.show_result(sequence));
            self.wake_sleepers();
        }
        if self.in_flight.get(sequence).and_then(|it| self.next_take(it)) == Some(NextTake::Pass) {
            self.pass_lent(sequence);
        }
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
        let Some(running) = self.in_flight.get_mut(sequence) else { return };
        let lends = running.direct_collective().is_some_and(|it| !it.lent().is_empty());
        exchange.sequences.pop_front();
        exchange.shown -= 1;
        exchange.publish_progress(done);
        exchange.board.end_reading(sequence);
        match lends {
            true => exchange.lent.push_back(sequence),
            false => running.remaining = 0,
        }
        if exchange.is_idle() {
            exchange.wake_up();
        }
        self.wake_sleepers();
        self.finish_if_done(sequence);
        self.end_lent();
    }

    /// What can be done next for an operation that this rank has shown.
    fn next_take(&self, running: &RunningOperation) -> Option<NextTake> {
        let exchange = self.exchange.as_ref()?;
        let (direct, progress) = (running.direct_collective()?, &running.direct);
        if progress.ended.is_some() {
            return None;
        }
        let missing = direct.needed() & !progress.taken;
        if missing == 0 {
            // Until it has shown its own part, it may still choose the schedule for all. One that
            // shows another operation disagrees, and must not take this rank for one that agrees.
            let chosen = exchange.board.fingerprint(CHOOSER, running.sequence)?;
            let direct = [where_lent, over_board].map(|of| of(&running.fingerprint));
            return direct.iter().any(|it| it.agrees_with(&chosen)).then_some(NextTake::Pass);
        }
        let reduces = direct.reduces();
        if reduces && progress.taken == 0 {
            // Where the operation is in place, the reduction overwrites the input that the
            // schedule would need. Who has shown where its data lies does not go back on that.
            return self.are_others_there(running.sequence).then_some(NextTake::Reduction);
        }
        let is_there = |source: Rank| {
            source == self.rank
                || (exchange.board.shows(source, running.sequence)
                    && (!reduces || exchange.board.shows_result(source, running.sequence))
                    && exchange.board.attention(source) != Attention::Withdrawn)
        };
        if let Some((source, done)) = progress.current {
            return is_there(source).then_some(NextTake::Part(source, done));
        }
        // Ranks that read at the same time read from different ones.
        let sources = (0..self.size).map(|distance| (self.rank + distance) % self.size);
        let mut open = sources.filter(|source| missing & 1 << source != 0);
        open.find(|source| is_there(*source)).map(|source| NextTake::Part(source, 0))
    }

    fn shows(&self, rank: Rank, sequence: u64) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.board.shows(rank, sequence))
    }

    /// Takes the next bytes of the part of `source`, of which `done` are here.
    fn take_part(
        &mut self,
        source: Rank,
        operation: &SmallOperation,
        done: usize,
    ) -> Result<PartOutcome, Abort> {
        let (Some(exchange), Some(running)) =
            (&mut self.exchange, self.in_flight.get(operation.sequence))
        else {
            return Ok(PartOutcome::Unavailable);
        };
        exchange.check(self.rank)?;
        let Some(direct) = running.direct_collective() else { return Ok(PartOutcome::Unavailable) };
        let Some(place) = direct.place_of(source) else { return Ok(PartOutcome::Taken(0)) };
        let part = direct.part_of(source, &place);
        let address = match exchange.lent_address(running, (self.rank, source), &part)? {
            LentAddress::At(address) => address,
            LentAddress::Nowhere => return Ok(PartOutcome::Unavailable),
            LentAddress::OnBoard(shown) => {
                let block = shown / self.size as usize;
                if block != place.len() {
                    return Err(mismatch(running, (self.rank, source), Some(block as u64)));
                }
                let start = self.rank as usize * block;
                let shown = &exchange.slot_scratch[start..start + block];
                place.write(|into| kernels::copy(into, shown, Stores::Cached));
                return Ok(PartOutcome::Taken(block));
            }
        };
        let end = place.len().min(done + TURN_BYTES);
        let has_moved = false;
        let lent = LentRead { running, operation, source, part: &part, address, has_moved };
        let read = |into: &mut [u8]| exchange.read_lent(&lent, done, into);
        let outcome = place.slice(done..end).write(read);
        outcome.map(|outcome| outcome.unwrap_or(PartOutcome::Taken(end - done)))
    }
}

/// Where a part lies that another rank has.
pub(super) enum LentAddress {
    /// In its memory, from this address on.
    At(u64),
    /// In its place of the board, of which so many bytes are in the scratch memory.
    OnBoard(usize),
    /// It has chosen the schedule just now.
    Nowhere,
}

/// What is read of another rank: a part that begins at an address, as far as is known.
#[derive(Clone, Copy)]
pub(super) struct LentRead<'a> {
    pub(super) running: &'a RunningOperation,
    pub(super) operation: &'a SmallOperation,
    pub(super) source: Rank,
    pub(super) part: &'a LentPart,
    pub(super) address: u64,
    /// Whether it was found to have moved.
    pub(super) has_moved: bool,
}

impl SlotExchange {
    /// Where `part` lies of what `source` shows for the operation of `running`, once it shows that.
    /// The error says that it shows something else.
    pub(super) fn lent_address(
        &mut self,
        running: &RunningOperation,
        (rank, source): (Rank, Rank),
        part: &LentPart,
    ) -> Result<LentAddress, Abort> {
        let RunningOperation { sequence, fingerprint, .. } = running;
        let nonsense = || Abort::Failed {
            rank: source,
            why: "it broke the protocol: its entry on the board is not valid".to_owned(),
        };
        let slot = self.board.read(source, *sequence, 0..usize::MAX, &mut self.slot_scratch);
        let Slot::Bytes(shown, theirs) = slot else { return Err(nonsense()) };
        // In an alltoall, a rank knows only its own blocks.
        let is_alltoall = fingerprint.collective == Collective::Alltoall as u8;
        if is_alltoall && theirs.agrees_with(&over_board(fingerprint)) {
            return Ok(LentAddress::OnBoard(shown));
        }
        if theirs.agrees_with(fingerprint) && fingerprint.algorithm != BOARD_ALGORITHM {
            return Ok(LentAddress::Nowhere);
        }
        if !theirs.agrees_with(&where_lent(fingerprint)) {
            // How they would have run it is not what they disagree on.
            let side = |rank, fingerprint| {
                let fingerprint = over_board(fingerprint);
                Side { rank, fingerprint, message_bytes: None }
            };
            let (one, other) = (side(rank, fingerprint), side(source, &theirs));
            return Err(Abort::Mismatch { sequence: *sequence, one, other });
        }
        let shown = &self.slot_scratch[..shown];
        let lent = LentBlock::of(shown, part.index, part.blocks).ok_or_else(nonsense)?;
        match lent.bytes == part.block_bytes as u64 {
            true => Ok(LentAddress::At(lent.address.wrapping_add(part.start as u64))),
            false => Err(mismatch(running, (rank, source), Some(lent.bytes))),
        }
    }

    /// Reads what lies at `from` of a part of another rank: none if that counts, else what came of
    /// it. If it has moved meanwhile, it is read where it lies now.
    pub(super) fn read_lent(
        &mut self,
        lent: &LentRead<'_>,
        from: usize,
        into: &mut [u8],
    ) -> Result<Option<PartOutcome>, Abort> {
        let &LentRead { running, operation, source, part, address, has_moved } = lent;
        let rank = operation.small.rank;
        let is_read = self.board.read_memory(source, address.wrapping_add(from as u64), into);
        // What was read is read before it is looked whether it counted.
        self.board.fence();
        let counts = self.board.attention(source) != Attention::Withdrawn
            // Then the schedule brings all, and the owner may have its memory back.
            && !self.is_scheduled(operation);
        if counts {
            match self.lent_address(running, (rank, source), part)? {
                LentAddress::At(now) if now == address => {}
                // It moves once: a call is over once.
                LentAddress::At(address) if !has_moved => {
                    let moved = LentRead { address, has_moved: true, ..*lent };
                    return self.read_lent(&moved, from, into);
                }
                _ => return Ok(Some(PartOutcome::Unavailable)),
            }
        }
        match is_read {
            Ok(true) if counts => Ok(None),
            Ok(false) if counts => Ok(Some(PartOutcome::Ended(source))),
            Err(why) if counts => {
                let why = format!("its memory could not be read: {why}");
                Err(Abort::Failed { rank: source, why })
            }
            Ok(_) | Err(_) => Ok(Some(PartOutcome::Unavailable)),
        }
    }
}

/// Copies the next bytes of the part that this rank has itself, of which `done` are there.
fn own_part(running: &RunningOperation, done: usize) -> Result<PartOutcome, Abort> {
    let Some(direct) = running.direct_collective() else { return Ok(PartOutcome::Unavailable) };
    let rank = direct.small.rank;
    let (Some(from), Some(into)) = (direct.own_block(), direct.place_of(rank)) else {
        return Ok(PartOutcome::Taken(0));
    };
    if from.len() != into.len() {
        return Err(mismatch(running, (rank, rank), Some(from.len() as u64)));
    }
    if from.same_memory(&into) {
        return Ok(PartOutcome::Taken(into.len() - done));
    }
    if from.overlaps(&into) {
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
    let collective = Collective::from_code(running.fingerprint.collective);
    ExchangeClass::of(collective.unwrap_or(Collective::Alltoall), given_bytes(running))
}

/// How many bytes a rank gives to the operation, whichever way it goes.
fn given_bytes(running: &RunningOperation) -> usize {
    running.bindings.given().iter().map(Region::len).sum()
}

/// That two ranks mean blocks of different lengths.
fn mismatch(running: &RunningOperation, (rank, other): (Rank, Rank), bytes: Option<u64>) -> Abort {
    let fingerprint = over_board(&running.fingerprint);
    let place = running.direct_collective().and_then(|direct| direct.place_of(other));
    let ours = place.map(|place| place.len() as u64);
    let one = Side { rank, fingerprint, message_bytes: ours };
    let other = Side { rank: other, fingerprint, message_bytes: bytes };
    Abort::Mismatch { sequence: running.sequence, one, other }
}
