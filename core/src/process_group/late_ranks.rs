//! Calls in which ranks wait that are no operations, and who is late for them: told to who asks,
//! and said when it lasts. Knows no call.

use super::ProcessGroup;
#[cfg(feature = "tcp")]
use crate::completion::rank_names;
#[cfg(feature = "tcp")]
use crate::recorder::meetings::{MeetingCall, OpenMeeting};
#[cfg(feature = "tcp")]
use crate::stall_report::WaitingCall;
use crate::store::Store;

/// How often a rank looks for what rank 0 tells soon, when it is to be said who is late.
#[cfg(feature = "tcp")]
const TOLD_SOON: u32 = 5;

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

/// How rank 0 of the group tells the others who is late, so that they need not ask for each other.
pub(super) struct Teller<'a> {
    #[cfg_attr(not(feature = "tcp"), expect(dead_code, reason = "nobody says who is late"))]
    late: &'a LateRanks<'a>,
    /// The store and the key where it tells it.
    #[cfg_attr(not(feature = "tcp"), expect(dead_code, reason = "nobody says who is late"))]
    place: (&'a dyn Store, String),
    /// Whom it has told last; none before the first time.
    #[cfg(feature = "tcp")]
    told: Option<Vec<u32>>,
}

/// What the others know of who is late: what rank 0 has told.
pub(super) struct News<'a> {
    #[cfg_attr(not(feature = "tcp"), expect(dead_code, reason = "nobody says who is late"))]
    late: &'a LateRanks<'a>,
    #[cfg_attr(not(feature = "tcp"), expect(dead_code, reason = "nobody says who is late"))]
    place: (&'a dyn Store, String),
    /// How often it is looked for once more, if it is.
    #[cfg(feature = "tcp")]
    looks_left: Option<u32>,
}

impl<'a> LateRanks<'a> {
    /// How rank 0 tells the others, at `key` of the group's `store`.
    pub(super) fn teller(&'a self, store: &'a dyn Store, key: String) -> Teller<'a> {
        Teller {
            late: self,
            place: (store, key),
            #[cfg(feature = "tcp")]
            told: None,
        }
    }

    /// What rank 0 tells there.
    pub(super) fn news(&'a self, store: &'a dyn Store, key: String) -> News<'a> {
        News {
            late: self,
            place: (store, key),
            #[cfg(feature = "tcp")]
            looks_left: None,
        }
    }
}

#[cfg(feature = "tcp")]
impl LateRanks<'_> {
    /// These ranks of the group had not come just now: told to who asks, and said when it lasts.
    pub(super) fn look(&self, ranks: &[u32]) {
        self.meeting.note_missing(ranks, 0);
        if !ranks.is_empty() && self.is_due() {
            self.say_missing(ranks);
        }
    }

    fn is_due(&self) -> bool {
        WaitingCall::present().is_some_and(|call| call.is_due())
    }

    fn say_missing(&self, ranks: &[u32]) {
        let ranks: Vec<u32> = ranks.iter().map(|&rank| self.global(rank)).collect();
        let have = if ranks.len() == 1 { "has" } else { "have" };
        self.say(&format!("{} {have} not come", rank_names(&ranks, 0)));
    }

    fn say_undecided(&self) {
        self.say(&format!("rank {} has not said yet whether all have come", self.global(0)));
    }

    fn say(&self, what: &str) {
        if let Some(call) = WaitingCall::present() {
            call.say(what);
        }
    }

    fn global(&self, rank: u32) -> u32 {
        self.group.global_rank(rank).unwrap_or(rank)
    }
}

#[cfg(feature = "tcp")]
impl Teller<'_> {
    /// These ranks had not come just now. No call fails for the sake of what may have to be said.
    pub(super) async fn tell(&mut self, missing: &[u32]) {
        self.late.look(missing);
        match &mut self.told {
            // Most calls are over before there is a second look.
            None => self.told = Some(Vec::new()),
            Some(told) if *told != missing && !missing.is_empty() => {
                let text: Vec<String> = missing.iter().map(u32::to_string).collect();
                let (store, key) = &self.place;
                let _ = store.set_async(key, text.join(",").as_bytes()).await;
                told.clear();
                told.extend(missing);
            }
            Some(_) => {}
        }
    }

    /// All have come: nobody reads it any more.
    pub(super) async fn end(self) {
        if self.told.is_some_and(|told| !told.is_empty()) {
            let (store, key) = self.place;
            let _ = store.delete_key_async(&key).await;
        }
    }
}

#[cfg(feature = "tcp")]
impl News<'_> {
    /// Says who has not come, when it lasts, once rank 0 has told that.
    pub(super) async fn look(&mut self) {
        if self.late.is_due() {
            self.looks_left = Some(TOLD_SOON);
        }
        let Some(looks) = self.looks_left else { return };
        let ranks = self.ranks().await;
        self.looks_left = looks.checked_sub(1).filter(|_| ranks.is_empty());
        match (self.looks_left, ranks.as_slice()) {
            (Some(_), _) => {}
            (None, []) => self.late.say_undecided(),
            (None, ranks) => self.late.say_missing(ranks),
        }
    }

    async fn ranks(&self) -> Vec<u32> {
        let (store, key) = &self.place;
        if !store.check_async(&[key]).await.unwrap_or(false) {
            return Vec::new();
        }
        let told = store.get_async(key).await.unwrap_or_default();
        let ranks = String::from_utf8_lossy(&told);
        ranks.split(',').filter_map(|rank| rank.parse().ok()).collect()
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
    pub(super) fn look(&self, _: &[u32]) {}
}

#[cfg(not(feature = "tcp"))]
impl Teller<'_> {
    pub(super) async fn tell(&mut self, _: &[u32]) {}

    pub(super) async fn end(self) {}
}

#[cfg(not(feature = "tcp"))]
impl News<'_> {
    pub(super) async fn look(&mut self) {}
}
