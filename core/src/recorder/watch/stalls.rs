//! Which operations have waited too long, and when that was said. Knows no store, and nothing of
//! who reads what is said.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::place::CalledOperation;
use super::words::Subject;
use super::{Places, words};
use crate::clock::{self, Instant};
use crate::recorder::{GroupFacts, RecordedOperation, Recorder};
use crate::stall_report::{PublishedStall, taken_back};

/// Stalls that were reported, by the address of the recorder and the number of the operation.
pub(super) struct Stalls {
    limit: Duration,
    reported: BTreeMap<(usize, u64), ReportedStall>,
}

struct ReportedStall {
    subject: String,
    about: Subject,
    since: Instant,
    /// When it is said again, and how long after that again.
    again: Instant,
    pause: Duration,
    /// How often it was said.
    times: u32,
    _published: PublishedStall,
}

/// An operation that has waited too long.
pub(super) struct Stall {
    recorder: Arc<Recorder>,
    operation: RecordedOperation,
    since: Instant,
}

impl Stalls {
    /// Those of operations that have waited for `limit`.
    pub(super) fn new(limit: Duration) -> Stalls {
        Stalls { limit, reported: BTreeMap::new() }
    }

    /// What is to be said now: of each group the oldest operation that somebody waits for, if it
    /// has waited too long. Says of those that were reported and have ended that they go on.
    pub(super) fn due(&mut self, recorders: &[Arc<Recorder>], now: Instant) -> Vec<Stall> {
        let mut due = Vec::new();
        let mut open = Vec::new();
        for recorder in recorders {
            let operations = recorder.open_operations();
            open.extend(operations.iter().map(|operation| key_of(recorder, operation)));
            let oldest = operations.into_iter().find(|it| it.is_awaited);
            let Some((operation, since)) = oldest.and_then(|it| it.issued.map(|at| (it, at)))
            else {
                continue;
            };
            let key = key_of(recorder, &operation);
            let is_late = now.saturating_duration_since(since) >= self.limit;
            if is_late && self.reported.get(&key).is_none_or(|known| now >= known.again) {
                due.push(Stall { recorder: recorder.clone(), operation, since });
            }
        }
        self.take_back(&open, now);
        due
    }

    /// Says what is wrong with those that are `due`, as far as `places` tell.
    pub(super) fn report(&mut self, due: Vec<Stall>, places: &Places) {
        // To ask took a while.
        let now = Instant::now();
        for Stall { recorder, operation, since } in due {
            let (key, group) = (key_of(&recorder, &operation), recorder.group());
            if !recorder.open_operations().iter().any(|it| it.number == operation.number) {
                continue;
            }
            let waited = now.saturating_duration_since(since);
            let called = CalledOperation::of(&operation, &group, now);
            let explanation = words::stalled(&group, &called, waited, places);
            let about = subject_of(&operation, &group);
            words::say_of(&about, &explanation.for_rank());
            let known = self.reported.get(&key);
            let pause = known.map_or(self.limit, |known| known.pause.saturating_mul(2));
            let times = known.map_or(1, |known| known.times.saturating_add(1));
            let again = clock::after(pause);
            let subject = explanation.subject.clone();
            let published = PublishedStall::new(explanation.report(times, waited));
            let stall =
                ReportedStall { subject, about, since, again, pause, times, _published: published };
            self.reported.insert(key, stall);
        }
    }

    fn take_back(&mut self, open: &[(usize, u64)], now: Instant) {
        let over = self.reported.extract_if(.., |key, _| !open.contains(key));
        for (_, ReportedStall { subject, about, since, .. }) in over {
            let waited = now.saturating_duration_since(since);
            words::say_of(&about, &taken_back(&subject, waited));
        }
    }
}

fn subject_of(operation: &RecordedOperation, group: &GroupFacts) -> Subject {
    Subject {
        group: group.name.clone(),
        rank: group.rank,
        operation: operation.name,
        sequence: operation.sequence,
        comm_name: operation.comm_name.clone(),
    }
}

fn key_of(recorder: &Arc<Recorder>, operation: &RecordedOperation) -> (usize, u64) {
    (Arc::as_ptr(recorder).addr(), operation.number)
}
