//! Calls in which ranks wait that are no operations, and who is late for them: told to who asks,
//! and said when it lasts. Knows no call.

use super::ProcessGroup;
#[cfg(feature = "tcp")]
use crate::completion::rank_names;
#[cfg(feature = "tcp")]
use crate::recorder::meetings::{MeetingCall, OpenMeeting};
#[cfg(feature = "tcp")]
use crate::stall_report::WaitingCall;

/// A call for which ranks may be late.
pub(super) struct LateRanks<'a> {
    #[cfg_attr(not(feature = "tcp"), expect(dead_code, reason = "nobody says who is late"))]
    group: &'a ProcessGroup,
    #[cfg(feature = "tcp")]
    meeting: OpenMeeting,
}

#[cfg(feature = "tcp")]
impl ProcessGroup {
    /// Runs `future` as a call of `function`: who finds out there that this rank waits for long
    /// says it of that.
    pub(crate) fn within_call<F: Future>(
        &self,
        function: &str,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        // What is awaited within others is as large as they are together: the stack of a thread
        // that polls the outermost must hold none of it.
        self.waiting_call(function).of(Box::pin(future))
    }

    /// As [`ProcessGroup::within_call`], for what blocks.
    pub(super) fn run_within_call<R>(&self, function: &str, run: impl FnOnce() -> R) -> R {
        self.waiting_call(function).run(run)
    }

    fn waiting_call(&self, function: &str) -> WaitingCall {
        let (title, rank) = (self.inner.recorder.group().shown(), self.global_rank(self.rank()));
        WaitingCall::new(format!("{function} of group {title}"), self.group_name(), rank.ok())
    }

    /// Those who are late for a call of `function`, which begins now.
    pub(super) fn late_ranks(&self, function: &str) -> LateRanks<'_> {
        let call = MeetingCall {
            function: function.to_owned(),
            makes_group: false,
            group: self.group_name().to_owned(),
            description: self.inner.description.clone(),
            members: self.inner.members.clone(),
        };
        LateRanks { group: self, meeting: OpenMeeting::of_call(call, self.rank()) }
    }
}

#[cfg(feature = "tcp")]
impl LateRanks<'_> {
    /// These ranks of the group had not come just now: told to who asks.
    pub(super) fn note(&self, ranks: &[u32]) {
        self.meeting.note_missing(ranks, 0);
    }

    /// Whether it is to be said who is late: true once each time.
    pub(super) fn is_due(&self) -> bool {
        WaitingCall::present().is_some_and(|call| call.is_due())
    }

    /// Says that these ranks of the group have not come; if there are none, that rank 0 of the
    /// group has not decided.
    pub(super) fn say(&self, ranks: &[u32]) {
        let global = |&rank: &u32| self.group.global_rank(rank).unwrap_or(rank);
        let ranks: Vec<u32> = ranks.iter().map(global).collect();
        let what = match ranks.len() {
            0 => format!("rank {} has not said yet whether all have come", global(&0)),
            1 => format!("{} has not come", rank_names(&ranks, 0)),
            _ => format!("{} have not come", rank_names(&ranks, 0)),
        };
        if let Some(call) = WaitingCall::present() {
            call.say(&what);
        }
    }
}

/// Where nobody says who is late.
#[cfg(not(feature = "tcp"))]
impl ProcessGroup {
    pub(crate) fn within_call<F: Future>(&self, _: &str, future: F) -> F {
        future
    }

    pub(super) fn run_within_call<R>(&self, _: &str, run: impl FnOnce() -> R) -> R {
        run()
    }

    pub(super) fn late_ranks(&self, _: &str) -> LateRanks<'_> {
        LateRanks { group: self }
    }
}

#[cfg(not(feature = "tcp"))]
impl LateRanks<'_> {
    pub(super) fn note(&self, _: &[u32]) {}

    pub(super) fn is_due(&self) -> bool {
        false
    }

    pub(super) fn say(&self, _: &[u32]) {}
}
