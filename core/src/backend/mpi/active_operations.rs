//! All operations of this process that MPI runs, and how they end: normally, at their
//! deadline, or with their group. One lock guards this; nothing here waits or calls user code.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::abi::Handle;
use super::group::Group;
use super::job::{FAILED, Job};
use super::messages;
use super::queued_collective::QueuedCollective;
use super::running_operation::{
    DRAIN, FinishedOperation, MatchedMessage, PendingReceive, RunningOperation, test,
};
use crate::backend::group_status::{FoundBy, STALL};
use crate::clock::Instant;
use crate::generated::error::Error;
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;

/// The operations of this process.
pub(super) struct ActiveOperations<H: Handle> {
    running: Vec<RunningOperation<H>>,
    /// Collectives that wait for the ranks to agree on them, oldest first.
    held: VecDeque<QueuedCollective<H>>,
    /// Messages that have not come, oldest first.
    receives: Vec<PendingReceive<H>>,
    /// Requests with memory that lives for ever, and of which nobody waits for the end.
    forgotten: Vec<H>,
    /// No deadline is earlier.
    earliest: Option<Instant>,
}

/// What is to be done when the lock is released.
pub(super) struct DeferredCompletions<H: Handle> {
    /// The first is kept apart, as there is seldom another.
    first: Option<FinishedOperation>,
    more: Vec<FinishedOperation>,
    /// Groups that broke, and whether this rank found why.
    pub(super) broken: Vec<(Arc<Group<H>>, FoundBy)>,
}

impl<H: Handle> Default for DeferredCompletions<H> {
    fn default() -> DeferredCompletions<H> {
        DeferredCompletions { first: None, more: Vec::new(), broken: Vec::new() }
    }
}

impl<H: Handle> DeferredCompletions<H> {
    /// Settles the completions and publishes why groups broke. No lock may be held.
    pub(super) fn tell(self) {
        for (group, found) in self.broken {
            if found == FoundBy::ThisRank {
                group.status.publish();
            }
        }
        self.first.into_iter().chain(self.more).for_each(FinishedOperation::settle);
    }

    fn push(&mut self, over: Option<FinishedOperation>) {
        match over {
            Some(over) if self.first.is_some() => self.more.push(over),
            Some(over) => self.first = Some(over),
            None => {}
        }
    }
}

impl<H: Handle> Default for ActiveOperations<H> {
    fn default() -> ActiveOperations<H> {
        ActiveOperations {
            running: Vec::new(),
            held: VecDeque::new(),
            receives: Vec::new(),
            forgotten: Vec::new(),
            earliest: None,
        }
    }
}

impl<H: Handle> ActiveOperations<H> {
    /// Takes an operation that was issued, and looks whether it is over already.
    pub(super) fn add(
        &mut self,
        job: &Job<H>,
        running: RunningOperation<H>,
        ended: &mut DeferredCompletions<H>,
    ) {
        running.group.in_flight.fetch_add(1, Ordering::SeqCst);
        running.group.in_library.fetch_add(1, Ordering::SeqCst);
        self.admit(job, running, ended);
    }

    /// As [`ActiveOperations::add`], for what the group counts already. Of a broken group it ends
    /// immediately.
    pub(super) fn admit(
        &mut self,
        job: &Job<H>,
        mut running: RunningOperation<H>,
        ended: &mut DeferredCompletions<H>,
    ) {
        let group = running.group.clone();
        if group.status.is_broken() {
            self.note_deadline(running.deadline);
            self.running.push(running);
            return self.sweep(&group, ended);
        }
        // What was started in part does not end well.
        let partly = running.failed.as_deref().map(|(error, _)| error.clone());
        let failure = match running.test(job) {
            Ok(true) => {
                ended.push(running.end(job, Ok(())));
                partly
            }
            Err(error) if running.is_over() => {
                ended.push(running.end(job, Err(error.clone())));
                Some(error)
            }
            tested => {
                self.note_deadline(running.deadline);
                self.running.push(running);
                partly.or(tested.err())
            }
        };
        if let Some(error) = failure {
            self.break_group(&group, failed(&group, &error), FoundBy::ThisRank, ended);
        }
    }

    /// Breaks the group in which MPI did not start an operation: the others may have started it,
    /// and what comes next here would be for it. An argument that is refused breaks nothing.
    pub(super) fn not_started(
        &mut self,
        group: &Arc<Group<H>>,
        error: &Error,
        ended: &mut DeferredCompletions<H>,
    ) {
        if matches!(error, Error::Network { .. }) {
            self.break_group(group, failed(group, error), FoundBy::ThisRank, ended);
        }
    }

    /// Takes a collective that waits for the ranks to agree on it.
    pub(super) fn hold(&mut self, held: QueuedCollective<H>) {
        held.group.in_flight.fetch_add(1, Ordering::SeqCst);
        self.note_deadline(held.deadline);
        self.held.push_back(held);
    }

    /// The number of the oldest collective of `group` that waits, and what it is.
    pub(super) fn first_held(&self, group: &Arc<Group<H>>) -> Option<(u64, Fingerprint)> {
        let first = self.held.iter().find(|held| Arc::ptr_eq(&held.group, group))?;
        Some((first.sequence, first.fingerprint))
    }

    /// Gives a collective on which the ranks agree to MPI, unless it was given up meanwhile.
    pub(super) fn start_held(
        &mut self,
        job: &Job<H>,
        group: &Arc<Group<H>>,
        sequence: u64,
        ended: &mut DeferredCompletions<H>,
    ) {
        let is_it = |held: &QueuedCollective<H>| {
            held.sequence == sequence && Arc::ptr_eq(&held.group, group)
        };
        let Some(place) = self.held.iter().position(is_it) else { return };
        let Some(held) = self.held.remove(place) else { return };
        // It stays in flight all the while.
        match held.start(job) {
            Ok(running) => {
                group.in_library.fetch_add(1, Ordering::SeqCst);
                self.admit(job, running, ended);
            }
            Err((completion, error)) => {
                group.in_flight.fetch_sub(1, Ordering::SeqCst);
                ended.push(Some(FinishedOperation::new(completion, Err(error.clone()))));
                self.break_group(group, failed(group, &error), FoundBy::ThisRank, ended);
            }
        }
    }

    /// Takes a receive, and looks whether the message is here.
    pub(super) fn add_receive(
        &mut self,
        job: &Job<H>,
        receive: PendingReceive<H>,
        ended: &mut DeferredCompletions<H>,
    ) {
        receive.group.in_flight.fetch_add(1, Ordering::SeqCst);
        self.note_deadline(receive.deadline);
        self.receives.push(receive);
        self.poll_receives(job, ended);
    }

    /// Takes an operation that MPI has, as its group knows, and of which nobody waits for the end.
    pub(super) fn abandon(&mut self, running: RunningOperation<H>) {
        self.running.push(running);
    }

    /// Takes a request of which nobody waits for the end.
    pub(super) fn forget(&mut self, request: H) {
        self.forgotten.push(request);
    }

    /// Moves what can be moved; whether anything ended or came. Deadlines count if `now` is given.
    pub(super) fn poll(
        &mut self,
        job: &Job<H>,
        now: Option<Instant>,
        ended: &mut DeferredCompletions<H>,
    ) -> bool {
        let mut moved = false;
        self.forgotten.retain_mut(|request| matches!(test(job, request), Ok(false)));
        for place in (0..self.running.len()).rev() {
            match self.running[place].test(job) {
                Ok(false) => {
                    let since = &mut self.running[place].since;
                    *since = since.or(now);
                }
                Ok(true) => {
                    moved = true;
                    ended.push(self.running.swap_remove(place).end(job, Ok(())));
                }
                Err(error) => {
                    let group = self.running[place].group.clone();
                    // Requests of it that are left use its memory: it goes with the group then.
                    if self.running[place].is_over() {
                        let running = self.running.swap_remove(place);
                        ended.push(running.end(job, Err(error.clone())));
                    }
                    self.break_group(&group, failed(&group, &error), FoundBy::ThisRank, ended);
                    // The list is another one now.
                    return true;
                }
            }
        }
        moved |= self.poll_receives(job, ended);
        if let Some(now) = now.filter(|now| self.earliest.is_some_and(|earliest| *now >= earliest))
        {
            self.check_deadlines(job, now, ended);
        }
        moved
    }

    /// Whether there is nothing that could move.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.receives.is_empty() && self.held.is_empty()
    }

    /// Whether all that is left is what nobody waits for any more.
    pub(super) fn is_abandoned(&self) -> bool {
        let nobody_waits = self.running.iter().all(|it| it.completion.is_none());
        nobody_waits && self.receives.is_empty() && self.held.is_empty()
    }

    /// The groups of which an operation stands still, with the number of the oldest collective
    /// among them, 0 if there is none.
    pub(super) fn stalled(&self, now: Instant) -> Vec<(Arc<Group<H>>, u64)> {
        let running = self.running.iter().filter(|it| it.completion.is_some());
        let running = running.filter_map(|it| {
            Some((&it.group, it.since?, if it.is_collective { it.sequence } else { u64::MAX }))
        });
        let receives = self.receives.iter().map(|it| (&it.group, it.since, u64::MAX));
        let mut stalled: Vec<(Arc<Group<H>>, u64)> = Vec::new();
        let held = self.held.iter().map(|it| (&it.group, it.since, it.sequence));
        for (group, since, sequence) in running.chain(receives).chain(held) {
            if now.saturating_duration_since(since) < STALL {
                continue;
            }
            match stalled.iter_mut().find(|(known, _)| Arc::ptr_eq(known, group)) {
                Some((_, oldest)) => *oldest = sequence.min(*oldest),
                None => stalled.push((group.clone(), sequence)),
            }
        }
        let number = |oldest| if oldest == u64::MAX { 0 } else { oldest };
        stalled.into_iter().map(|(group, oldest)| (group, number(oldest))).collect()
    }

    /// Fails everything of a group that is in flight, and notes why if it is not broken yet, which
    /// is returned. What MPI continues with is kept, unless it was only lent: that ends when MPI is
    /// done with it.
    pub(super) fn break_group(
        &mut self,
        group: &Arc<Group<H>>,
        abort: Abort,
        found: FoundBy,
        ended: &mut DeferredCompletions<H>,
    ) -> bool {
        let is_first = group.status.set_broken(abort);
        self.sweep(group, ended);
        if is_first {
            ended.broken.push((group.clone(), found));
        }
        is_first
    }

    /// Closes a group to new operations, for this reason. Returns whether it was intact and had
    /// nothing in flight.
    pub(super) fn leave(
        &mut self,
        group: &Arc<Group<H>>,
        abort: Abort,
        ended: &mut DeferredCompletions<H>,
    ) -> bool {
        if group.in_flight.load(Ordering::SeqCst) == 0 {
            return group.status.set_broken(abort);
        }
        self.break_group(group, abort, FoundBy::ThisRank, ended);
        false
    }

    /// Whether MPI has memory that was only lent for an operation that failed.
    pub(super) fn has_lent(&self) -> bool {
        self.running.iter().any(|running| running.failed.is_some() && running.kept.is_borrowed())
    }

    /// Forgets everything, as MPI is called no more: it may use the memory until the process ends.
    pub(super) fn close(&mut self) {
        std::mem::forget(std::mem::take(&mut self.running));
        self.forgotten.clear();
    }

    /// Ends everything of a broken group.
    fn sweep(&mut self, group: &Arc<Group<H>>, ended: &mut DeferredCompletions<H>) {
        let until = Instant::now() + DRAIN;
        for running in &mut self.running {
            if Arc::ptr_eq(&running.group, group) {
                // A message of another size has come, and is received to its end.
                if running.completion.is_some() {
                    FAILED.store(true, Ordering::SeqCst);
                }
                let error = group.status.error(running.name, running.sequence);
                ended.push(running.fail(error, until));
            }
        }
        for receive in self.receives.extract_if(.., |it| Arc::ptr_eq(&it.group, group)) {
            group.in_flight.fetch_sub(1, Ordering::SeqCst);
            let error = group.status.error("recv", receive.sequence);
            ended.push(Some(FinishedOperation::new(receive.completion, Err(error))));
        }
        self.held.retain(|held| {
            let stays = !Arc::ptr_eq(&held.group, group);
            if !stays {
                group.in_flight.fetch_sub(1, Ordering::SeqCst);
                let error = group.status.error(held.call.name, held.sequence);
                ended.push(Some(FinishedOperation::new(held.completion.clone(), Err(error))));
            }
            stays
        });
        self.note_deadline(until);
    }

    fn note_deadline(&mut self, deadline: Instant) {
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
    }

    fn poll_receives(&mut self, job: &Job<H>, ended: &mut DeferredCompletions<H>) -> bool {
        let mut moved = false;
        let mut place = 0;
        while place < self.receives.len() {
            let receive = &self.receives[place];
            // Messages go to receives in the order in which those were issued.
            let waits = self.receives[..place].iter().any(|earlier| earlier.meets(receive));
            let matched = if waits { Ok(None) } else { receive.probe(job) };
            match matched {
                Ok(None) => place += 1,
                Ok(Some(matched)) => {
                    moved = true;
                    let receive = self.receives.remove(place);
                    self.take(job, receive, matched, ended);
                    // A group that broke took its receives with it.
                    place = place.min(self.receives.len());
                }
                Err(error) => {
                    let group = receive.group.clone();
                    self.break_group(&group, failed(&group, &error), FoundBy::ThisRank, ended);
                    return true;
                }
            }
        }
        moved
    }

    /// Receives a message that came for `receive`.
    fn take(
        &mut self,
        job: &Job<H>,
        receive: PendingReceive<H>,
        matched: MatchedMessage<H>,
        ended: &mut DeferredCompletions<H>,
    ) {
        let group = receive.group.clone();
        let fits = matched.bytes == receive.memory.len() as u64;
        let size = Abort::MessageSize {
            from: matched.source,
            to: group.rank,
            tag: receive.tag,
            sent_bytes: matched.bytes,
            buffer_bytes: receive.memory.len() as u64,
        };
        // It stays in flight all the while.
        let completion = receive.completion.clone();
        match messages::receive(job, receive, matched) {
            Ok(mut running) => {
                group.in_library.fetch_add(1, Ordering::SeqCst);
                if fits {
                    return self.admit(job, running, ended);
                }
                // It is received all the same, into memory of its own, and nobody is told.
                running.completion = None;
                group.in_flight.fetch_sub(1, Ordering::SeqCst);
                let sequence = running.sequence;
                match running.test(job) {
                    Ok(true) => drop(running.end(job, Ok(()))),
                    _ => self.abandon(running),
                }
                self.break_group(&group, size, FoundBy::ThisRank, ended);
                let error = group.status.error("recv", sequence);
                ended.push(Some(FinishedOperation::new(completion, Err(error))));
            }
            Err(error) => {
                group.in_flight.fetch_sub(1, Ordering::SeqCst);
                ended.push(Some(FinishedOperation::new(completion, Err(error.clone()))));
                self.break_group(&group, failed(&group, &error), FoundBy::ThisRank, ended);
            }
        }
    }

    fn check_deadlines(&mut self, job: &Job<H>, now: Instant, ended: &mut DeferredCompletions<H>) {
        let mut late: Vec<(Arc<Group<H>>, Abort)> = Vec::new();
        for running in &self.running {
            match running.failed.as_deref() {
                Some((error, until)) if *until <= now => job.end_job(&format!(
                    "MPI does not release memory that was only lent to it for an operation that \
                     failed: {error}"
                )),
                Some(_) => {}
                None if running.completion.is_some() && running.deadline <= now => {
                    let place = (running.name, running.sequence, running.since);
                    let abort = overdue(&running.group, place, running.is_collective, now);
                    late.push((running.group.clone(), abort));
                }
                None => {}
            }
        }
        for receive in self.receives.iter().filter(|receive| receive.deadline <= now) {
            let abort = Abort::TimedOut {
                rank: receive.group.rank,
                sequence: u64::from(receive.tag),
                operation: "recv".to_owned(),
                waited_ms: millis(now - receive.since),
                waiting_for: receive.peer.into_iter().collect(),
            };
            late.push((receive.group.clone(), abort));
        }
        for held in self.held.iter().filter(|held| held.deadline <= now) {
            let place = (held.call.name, held.sequence, Some(held.since));
            late.push((held.group.clone(), overdue(&held.group, place, true, now)));
        }
        for (group, abort) in late {
            self.break_group(&group, abort, FoundBy::ThisRank, ended);
        }
        let running = self.running.iter().filter_map(|it| match it.failed.as_deref() {
            Some((_, until)) => Some(*until),
            None => it.completion.as_ref().map(|_| it.deadline),
        });
        let receives = self.receives.iter().map(|receive| receive.deadline);
        let held = self.held.iter().map(|held| held.deadline);
        self.earliest = running.chain(receives).chain(held).min();
    }
}

/// The reason of a group of which an operation, with this name, number and begin, is late.
fn overdue<H: Handle>(
    group: &Group<H>,
    (name, sequence, since): (&str, u64, Option<Instant>),
    is_collective: bool,
    now: Instant,
) -> Abort {
    Abort::TimedOut {
        rank: group.rank,
        sequence,
        operation: name.to_owned(),
        waited_ms: since.map_or(0, |since| millis(now - since)),
        waiting_for: if is_collective { group.status.late(sequence) } else { Vec::new() },
    }
}

/// The reason of a group in which MPI itself reports an error.
fn failed<H: Handle>(group: &Group<H>, error: &Error) -> Abort {
    Abort::Failed { rank: group.rank, why: error.to_string() }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
