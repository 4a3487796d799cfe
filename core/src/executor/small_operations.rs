//! Operations over the board. They are shown, and their results are taken, in the order in which
//! they were issued. Frames are sent only to wake a rank that sleeps.

use std::ops::Range;
use std::time::Duration;

use super::broken_group::Cause;
use super::direct_parts::DirectCollective;
use super::operation::{OwnPart, SlotProgress, SmallOperation};
use super::running_operation::RunningOperation;
use super::slot_exchange::{TakeOutcome, over_board};
use super::small_collective::{SmallAttempt, SmallCollective};
use super::state::State;
use crate::clock::Instant;
use crate::generated::collective::Blocks;
use crate::kernels::{self, Stores};
use crate::schedule::Rank;
use crate::spin::SpinBudget;
use crate::tensor::{LentMemory, Region};
use crate::transport::Transport;
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
use crate::transport::board::Board as _;
use crate::transport::board::{Attention, board_bytes};
use crate::wire::abort::Abort;
use crate::wire::frame::Kind;

/// The longest sleep of a rank that waits for another to pass an old operation. The other usually
/// wakes it, but making sure of that would slow down every operation.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Most calls, one after the other, that leave frames where they are.
#[cfg(all(feature = "tcp", target_os = "linux"))]
const MAX_WITHOUT_FRAMES: u32 = 16;

impl State {
    /// Runs a small collective with the next number from beginning to end, if the others show their
    /// parts while the spin budget lasts. Those that sleep are woken first: while they wake up,
    /// this rank does its part. `meanwhile` is called while what this rank shows is on its way to
    /// the others, which costs least.
    pub(super) fn try_small(
        &mut self,
        transport: &mut dyn Transport,
        operation: &SmallOperation,
        memory: &mut LentMemory<'_>,
        spin: SpinBudget,
        meanwhile: &mut dyn FnMut(u64),
    ) -> SmallAttempt {
        let &SmallOperation { sequence, ref fingerprint, ref small } = operation;
        let is_plain = sequence > self.issued
            && self.wanting_issued == 0
            && self.unexpected.is_empty()
            && self.departed == 0
            && self.deferred.is_none()
            && self.heard.is_none()
            && !self.is_failing();
        let exchange = self.exchange.as_mut().filter(|it| is_plain && it.sequences.is_empty());
        let Some(exchange) = exchange else { return SmallAttempt::Declined };
        if !exchange.unchecked.is_empty() {
            if let Err(abort) = exchange.check(self.rank) {
                self.fail_with(Cause::found(abort));
                return SmallAttempt::Declined;
            }
            exchange.publish_progress(self.issued);
        }
        let fingerprint_there = over_board(fingerprint);
        let is_written = match small.gives() {
            true => memory.read(|given| exchange.board.write(sequence, &fingerprint_there, given)),
            false => exchange.board.write(sequence, &fingerprint_there, &[]),
        };
        if !is_written {
            return SmallAttempt::Declined;
        }
        (self.issued, self.tried) = (sequence, Some(sequence));
        meanwhile(sequence);
        // Whether the others sleep is read after they can see what was written.
        exchange.board.fence();
        if self.wake_immediately(transport) {
            return SmallAttempt::Shown;
        }
        let Some(exchange) = self.exchange.as_mut() else { return SmallAttempt::Shown };
        if !exchange.polls(small, sequence, spin) {
            return SmallAttempt::Shown;
        }
        let (_, bytes) = memory.lengths();
        let gathers = small.collective.facts().output == Blocks::All;
        let block = if gathers { bytes / small.size as usize } else { bytes };
        let part = |source: Rank| {
            let index = if gathers { source } else { small.rank } as usize;
            index * block..(index + 1) * block
        };
        match memory.write(|output| exchange.take(operation, part, output)) {
            Ok(TakeOutcome::Complete) => {}
            // `look_at_board` finds that again after the operation is submitted.
            Ok(TakeOutcome::Elsewhere) => return SmallAttempt::Shown,
            Err(abort) => {
                self.fail_with(Cause::found(abort));
                return SmallAttempt::Shown;
            }
        }
        self.tried = None;
        exchange.note_done(operation);
        exchange.publish_progress(sequence);
        self.in_flight.note_finished(sequence, *fingerprint);
        SmallAttempt::Done
    }

    /// As [`State::wake_sleepers`], without waiting for the next call that moves frames.
    fn wake_immediately(&mut self, transport: &mut dyn Transport) -> bool {
        let has_failed = self.wake_sleepers();
        if !self.replies.is_empty() {
            self.has_woken = true;
            self.send_replies(transport);
        }
        has_failed
    }

    /// Ends what is over by what the others have shown, which takes no system call: a rank that has
    /// just been woken is woken for that. False if nothing is, or frames must wait no longer.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    pub(super) fn ends_on_board(&mut self, transport: &mut dyn Transport) -> bool {
        let may_end = self.without_frames < MAX_WITHOUT_FRAMES && self.cause.is_none();
        let ends = may_end && self.look_at_board() && !self.finished.is_empty();
        self.without_frames = if ends { self.without_frames + 1 } else { 0 };
        if ends {
            // Those that sleep until this rank has read what they lend are woken by these alone.
            self.send_replies(transport);
        }
        ends
    }

    /// Moves the operations on the board. Returns whether anything moved.
    pub(super) fn look_at_board(&mut self) -> bool {
        let mut moved = self.check_board();
        moved |= self.end_lent();
        loop {
            let Some(exchange) = &self.exchange else { return moved };
            let Some(&oldest) = exchange.sequences.front() else { return moved };
            if self.cause.is_some() || self.is_disputed(oldest) {
                return moved;
            }
            let shown = self.show_next();
            let taken = match self.direct(oldest) {
                // A part of it; the connections are to be looked at before the next.
                Some(operation) => return self.take_lent(&operation) || shown || moved,
                None => self.take_oldest(),
            };
            if !taken && !shown {
                return moved;
            }
            moved = true;
        }
    }

    /// Compares the fingerprints of operations that ended here without a check of the others'.
    fn check_board(&mut self) -> bool {
        let done = self.done_with_board();
        let may_check = self.deferred.is_none();
        let exchange = self.exchange.as_mut().filter(|it| may_check && !it.unchecked.is_empty());
        let Some(exchange) = exchange else {
            return false;
        };
        match exchange.check(self.rank) {
            Ok(false) => false,
            Ok(true) => {
                exchange.publish_progress(done);
                self.wake_sleepers();
                true
            }
            Err(abort) => {
                self.fail(abort);
                true
            }
        }
    }

    /// Publishes this rank's part of the oldest operation that is not on the board yet, if there is
    /// room. Returns whether it did.
    fn show_next(&mut self) -> bool {
        let Some(exchange) = &mut self.exchange else { return false };
        let Some(&sequence) = exchange.sequences.get(exchange.shown) else { return false };
        let Some(running) = self.in_flight.get_mut(sequence) else { return false };
        let Some(SlotProgress { small, part, shown }) = &mut running.slot_progress else {
            return false;
        };
        exchange.input_scratch.clear();
        match part {
            OwnPart::Data => {}
            OwnPart::Lent if exchange.reads_memory() => return self.show_lent(sequence),
            OwnPart::Lent => return self.show_scheduled(sequence),
        }
        let size = small.size;
        let data = DirectCollective { small: *small, bindings: &running.bindings }.lent();
        data.iter().for_each(|block| block.read(|bytes| exchange.input_scratch.extend(bytes)));
        if exchange.input_scratch.len() > board_bytes(size) {
            let why = format!("operation {sequence} does not fit the board of {size} ranks");
            self.fail_from(sequence, Abort::User { rank: self.rank, why });
            return true;
        }
        let fingerprint = over_board(&running.fingerprint);
        *shown = exchange.board.show(sequence, &fingerprint, &exchange.input_scratch);
        let has_shown = *shown;
        if has_shown {
            exchange.shown += 1;
            running.progressed = self.now;
            self.wake_sleepers();
        }
        has_shown
    }

    /// Shows that operation `sequence` is run as a schedule, and runs it. Returns whether there was
    /// room.
    pub(super) fn show_scheduled(&mut self, sequence: u64) -> bool {
        let Some(exchange) = &mut self.exchange else { return false };
        let Some(running) = self.in_flight.get(sequence) else { return false };
        let marked = exchange.board.show(sequence, &running.fingerprint, &[]);
        if marked {
            self.leave_board(sequence);
        }
        marked
    }

    /// Ends the oldest operation if all ranks that it needs have shown their parts.
    fn take_oldest(&mut self) -> bool {
        let done = self.done_with_board();
        let Some(exchange) = &mut self.exchange else { return false };
        let Some(&sequence) = exchange.sequences.front() else { return false };
        let Some(running) = self.in_flight.get_mut(sequence) else { return false };
        let Some(SlotProgress { small, .. }) = running.slot_progress else { return false };
        let operation = SmallOperation { sequence, fingerprint: running.fingerprint, small };
        let counts = |rank| {
            // The part of a rank that has failed counts only if it had finished this operation.
            exchange.board.shows(rank, sequence)
                && (exchange.board.attention(rank) != Attention::Withdrawn
                    || exchange.board.passed(rank) >= sequence)
        };
        if exchange.is_scheduled(&operation) {
            self.leave_board(sequence);
            return true;
        }
        if exchange.shown == 0 {
            return false;
        }
        if let Some(missing) = small.sources().find(|&rank| !counts(rank)) {
            running.set_missing(Some(missing));
            return false;
        }
        let mut output = std::mem::take(&mut exchange.output_scratch);
        output.clear();
        output.resize(running.bindings.output.iter().map(Region::len).sum(), 0);
        let parts = parts(running, &small);
        let part = |source: Rank| parts.get(source as usize).cloned().unwrap_or(0..0);
        match exchange.take(&operation, part, &mut output) {
            Ok(TakeOutcome::Elsewhere) => {
                exchange.output_scratch = output;
                // Otherwise the last rank has shown that just now, and it is looked at again.
                if exchange.is_lent(&operation) && !exchange.reads_memory() {
                    let why = "a rank lends memory that others may not read".to_owned();
                    self.fail_from(sequence, Abort::User { rank: self.rank, why });
                }
            }
            Ok(TakeOutcome::Complete) => {
                if !small.sources().is_empty() {
                    scatter(&output, &running.bindings.output);
                }
                running.remaining = 0;
                let waited_for = running.take_missing();
                self.peers.note_wait(waited_for, (running.progressed, self.now));
                running.progressed = self.now;
                exchange.sequences.pop_front();
                exchange.shown -= 1;
                exchange.output_scratch = output;
                exchange.note_done(&operation);
                exchange.publish_progress(done);
                if exchange.is_idle() {
                    exchange.wake_up();
                }
                self.wake_sleepers();
                self.finish_if_done(sequence);
            }
            Err(abort) => self.fail(abort),
        }
        true
    }

    /// Notes for whom operation `sequence` waits, if it needs all ranks before it can go on.
    #[cfg(feature = "tcp")]
    pub(super) fn note_missing(&mut self, sequence: u64) {
        let Some(exchange) = &self.exchange else { return };
        let Some(running) = self.in_flight.get_mut(sequence) else { return };
        let needs_all = running.direct.taken == 0
            && running.direct_collective().is_some_and(|direct| direct.reduces());
        if needs_all {
            let is_missing = |rank: &Rank| !exchange.board.shows(*rank, sequence);
            running.set_missing((0..self.size).find(is_missing));
        }
    }

    /// Runs the schedule of operation `sequence`, because some rank, perhaps this one, showed that
    /// it does.
    pub(super) fn leave_board(&mut self, sequence: u64) {
        let done = self.done_with_board();
        let Some(exchange) = &mut self.exchange else { return };
        let Some(place) = exchange.sequences.iter().position(|&on_board| on_board == sequence)
        else {
            return;
        };
        exchange.sequences.remove(place);
        exchange.shown -= usize::from(place < exchange.shown);
        exchange.publish_progress(done);
        if exchange.is_idle() {
            exchange.wake_up();
        }
        self.wake_sleepers();
        self.forget_direct(sequence);
        self.run_schedule(sequence);
    }

    /// Sends a frame to every rank that sleeps, after something was shown or read. Returns whether
    /// some rank has failed.
    pub(super) fn wake_sleepers(&mut self) -> bool {
        let mut failed = false;
        for peer in 0..self.size {
            let Some(exchange) = &self.exchange else { return failed };
            match exchange.board.attention(peer) {
                Attention::Awake | Attention::Left => {}
                Attention::Withdrawn => failed = true,
                Attention::Asleep if peer != self.rank => {
                    let header = self.header(Kind::Issued, self.issued);
                    self.replies.push_back((peer, header));
                }
                Attention::Asleep => {}
            }
        }
        failed
    }

    /// Asks the others to wake this rank; false if what it would wait for has arrived.
    pub(super) fn fall_asleep(&mut self) -> bool {
        let Some(exchange) = self.exchange.as_mut().filter(|it| !it.is_idle()) else { return true };
        exchange.board.set_asleep(true);
        exchange.asleep = true;
        if exchange.lent.front().is_some_and(|&lent| exchange.readers(lent).next().is_none()) {
            return false;
        }
        let Some(&sequence) = exchange.sequences.front() else { return true };
        if let Some(operation) = self.direct(sequence) {
            return !self.may_go_on(&operation);
        }
        let Some(exchange) = &self.exchange else { return true };
        let Some(running) = self.in_flight.get(sequence) else { return true };
        let Some(SlotProgress { small, shown, .. }) = running.slot_progress else { return true };
        let operation = SmallOperation { sequence, fingerprint: running.fingerprint, small };
        let is_there = shown && exchange.missing(&small, sequence).is_empty();
        !is_there && !exchange.is_scheduled(&operation)
    }

    /// Publishes that this rank polls again.
    pub(super) fn wake_up(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.wake_up();
        }
    }

    /// When to look at the board again, if an operation waits for what nobody is woken for.
    pub(super) fn room_deadline(&self) -> Option<Instant> {
        let waiting = self.exchange.as_ref().filter(|it| it.shown < it.sequences.len());
        let room = waiting.map(|_| ROOM_CHECK_INTERVAL);
        let interval = self.look_again_after().into_iter().chain(room).min();
        interval.map(|interval| self.now + interval)
    }

    /// The ranks for which an operation waits.
    pub(super) fn waits_for(&self, running: &RunningOperation) -> Vec<Rank> {
        match (&self.exchange, running.slot_progress) {
            (Some(exchange), Some(SlotProgress { small, .. })) => {
                match exchange.lent.contains(&running.sequence) {
                    true => exchange.readers(running.sequence).collect(),
                    false if self.direct(running.sequence).is_some() => self.untaken(running),
                    false => exchange.missing(&small, running.sequence),
                }
            }
            _ => running.waits_for(),
        }
    }

    /// The rank that left the group and will never show what operation `sequence` needs.
    pub(super) fn gone_from_board(&mut self, sequence: u64) -> Option<Rank> {
        // What the rank showed before it left still counts.
        self.look_at_board();
        let running = self.in_flight.get(sequence).filter(|it| it.slot_progress.is_some())?;
        let gone = |rank: &Rank| self.peers.has_left(*rank);
        self.waits_for(running).into_iter().find(gone)
    }
}

/// For each source, the part of a flat buffer that [`SmallCollective::take`] fills.
fn parts(running: &RunningOperation, small: &SmallCollective) -> Vec<Range<usize>> {
    let facts = small.collective.facts();
    let ranges = |blocks: &[Region]| {
        let mut start = 0;
        let range = |block: &Region| {
            start += block.len();
            start - block.len()..start
        };
        blocks.iter().map(range).collect::<Vec<_>>()
    };
    if facts.output == Blocks::All {
        return ranges(&running.bindings.output);
    }
    if facts.input == Blocks::All {
        let own = ranges(&running.bindings.input).get(small.rank as usize).cloned();
        return vec![own.unwrap_or(0..0); small.size as usize];
    }
    Vec::new()
}

/// Copies a flat buffer to its blocks.
fn scatter(flat: &[u8], blocks: &[Region]) {
    let mut rest = flat;
    for block in blocks {
        let Some((own, others)) = rest.split_at_checked(block.len()) else { return };
        block.write(|into| kernels::copy(into, own, Stores::Cached));
        rest = others;
    }
}
