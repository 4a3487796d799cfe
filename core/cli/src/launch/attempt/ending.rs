//! How a start of the ranks has ended: which rank failed first, whether another start may help, and
//! the exit code. Knows nothing of what is done meanwhile.

use super::super::error_file::Reply;
use super::super::output::LastLines;
use super::super::record;
use super::super::report::{self, say};
use super::{Attempt, EXIT_OUTPUT_CLOSED, EXIT_TIMEOUT, FirstFailure};
use crate::nodes::Ending;

impl Attempt<'_> {
    /// Says which rank failed first, and returns it for the record.
    pub(super) fn first_failure(
        &self,
        ranks: &[record::Rank],
        lines: &[LastLines],
        replies: &[Option<Reply>],
    ) -> Option<record::Failure> {
        let Some(failure) = &self.first_failure else {
            return self.failure_elsewhere();
        };
        let FirstFailure { local_rank, ending, after, time } = failure;
        let (rank, reply) = (&ranks[*local_rank], replies[*local_rank].as_ref());
        let last = lines[*local_rank].lines();
        say(&report::first_failure(rank.rank, *ending, &rank.program, *after, &last, reply));
        let mut message = reply.map(|reply| reply.message.clone());
        if let Some((cause, reply)) = older(replies, *local_rank) {
            say(&report::root_cause(ranks[cause].rank, reply));
            message = Some(format!("rank {}: {}", ranks[cause].rank, reply.message));
        }
        Some(record::Failure {
            rank: Some(rank.rank),
            host: rank.host.clone(),
            time: time.clone(),
            what: ending.to_string(),
            message,
        })
    }

    fn failure_elsewhere(&self) -> Option<record::Failure> {
        let (host, what) = match self.everywhere.as_ref()? {
            Ending::Done => return None,
            Ending::Failed { host, what, .. } => (host.clone(), what.clone()),
            Ending::Lost { what } | Ending::Changed { what, .. } => (String::new(), what.clone()),
        };
        Some(record::Failure { rank: None, host, time: record::now(), what, message: None })
    }

    /// Whether another start may help.
    pub(super) fn may_restart(&self) -> bool {
        let is_over = self.timed_out || self.output_closed || self.job_ends;
        let is_told = self.signalled.is_some() || is_over;
        if is_told || self.start_failure.is_some() {
            return false;
        }
        match &self.everywhere {
            Some(Ending::Failed { may_restart, .. }) => *may_restart,
            Some(Ending::Lost { .. } | Ending::Changed { .. }) => true,
            Some(Ending::Done) => false,
            None => self.first_failure.is_some() && !self.setting.job.keep_going,
        }
    }

    /// The exit code of the launcher, if nothing is started again.
    pub(super) fn exit_code(&self, all_well: bool) -> i32 {
        let elsewhere = match &self.everywhere {
            Some(Ending::Failed { exit_code, .. }) => Some(*exit_code),
            Some(Ending::Lost { .. } | Ending::Changed { .. }) => Some(1),
            Some(Ending::Done) | None => None,
        };
        let failure = self.first_failure.as_ref().map(|failure| failure.ending.exit_code());
        let timeout = self.timed_out.then_some(EXIT_TIMEOUT);
        let known = timeout.or(self.start_failure).or(failure);
        if let Some(code) = known.or(elsewhere.filter(|_| self.signalled.is_none())) {
            return code;
        }
        // It came when all had ended by themselves.
        let is_late = !self.stopping || self.everywhere == Some(Ending::Done);
        match self.signalled {
            Some(_) if all_well && is_late => 0,
            // A job that was stopped is not done, though its ranks have ended in good order.
            Some(signal) => 128 + signal,
            None if all_well => 0,
            None if self.output_closed => EXIT_OUTPUT_CLOSED,
            None => 1,
        }
    }
}

/// The reply that was written before that of the rank which failed first, if one was.
fn older(replies: &[Option<Reply>], failed: usize) -> Option<(usize, &Reply)> {
    let time = replies[failed].as_ref()?.timestamp?;
    let dated = replies.iter().enumerate().filter_map(|(rank, reply)| {
        let reply = reply.as_ref()?;
        reply.timestamp.filter(|other| *other < time).map(|time| (time, rank, reply))
    });
    dated.min_by_key(|(time, rank, _)| (*time, *rank)).map(|(_, rank, reply)| (rank, reply))
}
