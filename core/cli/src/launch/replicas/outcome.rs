//! How a job of replicas goes on and ends when one of them has ended. Knows nothing of processes.

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
    /// Of so many replicas on this host.
    pub(super) fn new(count: u32, min: u32) -> Outcome {
        Outcome {
            count,
            min,
            ended: Vec::new(),
            signalled: None,
            timed_out: false,
            output_closed: false,
            failed: None,
            is_over: false,
        }
    }

    /// Takes in that a replica has ended; why the others are now to end, too, if they are. How many
    /// are left on other hosts is asked with the number of those that are left here.
    pub(super) fn ended(
        &mut self,
        finished: &Finished,
        elsewhere: impl FnOnce(u32) -> u32,
    ) -> Option<String> {
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
        self.ended.push(Ended { number, exit_code: *exit_code, restarts, lost: lost.clone() });
        let mut why = self.output_closed.then(|| "nobody reads the output".to_owned());
        if let Some(what) = &lost {
            self.failed = self.failed.or(Some(*exit_code));
            let left = self.left() + elsewhere(self.left());
            let what =
                format!("replica {number} is lost, after {}: {what}", restarts_in_words(restarts));
            if self.signalled.is_none() {
                say(&format!("{what}; {}", self.others(left)));
            }
            why = why.or((left < self.min).then_some(what));
        }
        let why = why.filter(|_| !self.is_over);
        self.is_over |= why.is_some();
        why
    }

    /// Takes in that the job ends, because of what happened elsewhere; whether that is new.
    pub(super) fn ends(&mut self, exit_code: i32) -> bool {
        let is_new = !self.is_over;
        if is_new {
            self.is_over = true;
            self.failed = self.failed.or(Some(exit_code));
        }
        is_new
    }

    /// Whether those that are left were told to end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Those that have ended well.
    pub(super) fn well(&self) -> u32 {
        self.ended.iter().filter(|replica| replica.exit_code == 0).count() as u32
    }

    /// The replicas that run, or have ended well.
    fn left(&self) -> u32 {
        let lost = self.ended.iter().filter(|replica| replica.lost.is_some()).count();
        self.count - lost as u32
    }

    fn others(&self, left: u32) -> String {
        match (left, left < self.min) {
            (0, _) => "no other is left".to_owned(),
            (1, false) => "1 is left and goes on".to_owned(),
            (left, false) => format!("{left} are left and go on"),
            (left, true) => {
                format!("{left} left, fewer than --min-replicas {}: stopping them", self.min)
            }
        }
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
        let mut text = format!("{} of {} replicas ended well", self.well(), self.count);
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
