//! How a job of replicas goes on and ends when one of them has ended. Knows nothing of processes.

use super::super::arguments::job::Replicas;
use super::super::attempt::{EXIT_OUTPUT_CLOSED, EXIT_TIMEOUT};
use super::super::report::say;
use super::super::supervise::Finished;

/// Most replicas that the report at the end names.
const MAX_NAMED: usize = 32;

/// What is known of the replicas that have ended, and of the job.
pub(super) struct Outcome {
    count: u32,
    min: u32,
    ended: Vec<Ended>,
    /// The signal that asked the launcher to end.
    pub(super) signalled: Option<i32>,
    pub(super) timed_out: bool,
    output_closed: bool,
    /// The exit code of the first replica that was lost.
    failed: Option<i32>,
    /// Whether those that are left were told to end.
    is_over: bool,
}

/// A replica that has ended.
struct Ended {
    number: u32,
    exit_code: i32,
    restarts: u32,
    /// What failed in it, if it was lost.
    lost: Option<String>,
}

impl Outcome {
    pub(super) fn new(replicas: &Replicas) -> Outcome {
        Outcome {
            count: replicas.count,
            min: replicas.min,
            ended: Vec::new(),
            signalled: None,
            timed_out: false,
            output_closed: false,
            failed: None,
            is_over: false,
        }
    }

    /// Takes in that a replica has ended; whether the others are now to end, too.
    pub(super) fn ended(&mut self, finished: &Finished) -> bool {
        let Finished { exit_code, record, .. } = finished;
        self.timed_out |= finished.timed_out;
        self.output_closed |= finished.output_closed;
        // Of one that was told to end, its exit code says nothing.
        let is_told = self.is_over
            || self.timed_out
            || self.output_closed
            || self.signalled.is_some() && record.last_failure().is_none();
        let lost = (*exit_code != 0 && !is_told)
            .then(|| record.last_failure().unwrap_or_else(|| "it was not started".to_owned()));
        let number = record.replica.unwrap_or_default();
        let restarts = record.restarts;
        if let Some(what) = &lost {
            self.failed = self.failed.or(Some(*exit_code));
            self.lost(number, what, restarts);
        }
        self.ended.push(Ended { number, exit_code: *exit_code, restarts, lost });
        let others_end = self.output_closed || self.left() < self.min;
        let is_new = others_end && !self.is_over;
        self.is_over |= others_end;
        is_new
    }

    /// The replicas that run, or have ended well.
    fn left(&self) -> u32 {
        let lost = self.ended.iter().filter(|replica| replica.lost.is_some()).count();
        self.count - lost as u32
    }

    fn lost(&self, number: u32, what: &str, restarts: u32) {
        if self.signalled.is_some() {
            return;
        }
        // This one does not count among those that have ended yet.
        let left = self.left() - 1;
        let restarts = restarts_in_words(restarts);
        let others = match (left, left < self.min) {
            (0, _) => "no other is left".to_owned(),
            (1, false) => "1 is left and goes on".to_owned(),
            (left, false) => format!("{left} are left and go on"),
            (left, true) => {
                format!("{left} left, fewer than --min-replicas {}: stopping them", self.min)
            }
        };
        say(&format!("replica {number} is lost, after {restarts}: {what}; {others}"));
    }

    /// The exit code of the launcher, when all have ended.
    pub(super) fn exit_code(&self) -> i32 {
        let all_well = self.ended.iter().all(|replica| replica.exit_code == 0);
        let timeout = self.timed_out.then_some(EXIT_TIMEOUT);
        match timeout.or(self.failed) {
            Some(code) => code,
            None if all_well => 0,
            // A job that was stopped is not done, though its ranks have ended in good order.
            None => match self.signalled {
                Some(signal) => 128 + signal,
                None if self.output_closed => EXIT_OUTPUT_CLOSED,
                None => 1,
            },
        }
    }

    /// How the replicas have ended, if there is more to say than that all ended well at once.
    pub(super) fn report(&mut self) -> Option<String> {
        self.ended.sort_by_key(|replica| replica.number);
        let is_notable = |replica: &&Ended| replica.restarts > 0 || replica.lost.is_some();
        let notable: Vec<&Ended> = self.ended.iter().filter(is_notable).collect();
        if notable.is_empty() {
            return None;
        }
        let well = self.ended.iter().filter(|replica| replica.exit_code == 0).count();
        let mut text = format!("{well} of {} replicas ended well", self.count);
        for replica in notable.iter().take(MAX_NAMED) {
            let restarts = restarts_in_words(replica.restarts);
            let how = match (&replica.lost, replica.exit_code) {
                (Some(what), _) => format!("lost after {restarts}: {what}"),
                (None, 0) => format!("ended well after {restarts}"),
                (None, _) => format!("stopped after {restarts}"),
            };
            text.push_str(&format!("\n    replica {}: {how}", replica.number));
        }
        let more = notable.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            text.push_str(&format!("\n    and {more} more"));
        }
        Some(text)
    }
}

fn restarts_in_words(restarts: u32) -> String {
    match restarts {
        0 => "no restart".to_owned(),
        1 => "1 restart".to_owned(),
        more => format!("{more} restarts"),
    }
}
