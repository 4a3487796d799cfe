//! What a rank is in the middle of while it waits: a call that the recorder does not know as an
//! operation. Whoever finds out within it what it waits for says so, once for all of them.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::said::say;
use super::{PublishedStall, ReportedWait, StallReport};
use crate::context::{self, within_async};
use crate::env::variable;

/// What the program waits for, by the names that it knows.
pub(crate) struct AwaitedNames {
    pub(crate) names: Vec<String>,
    /// How it is said that some of them have not come.
    pub(crate) missing: fn(&str) -> String,
}

/// A call in which a rank waits.
pub(crate) struct WaitingCall {
    /// "monitored_barrier of group dp".
    subject: String,
    /// The name of the group.
    group: String,
    /// This rank, as a global rank; none where it is not known yet.
    rank: Option<u32>,
    /// None where it waits for no such thing.
    names: Option<AwaitedNames>,
    wait: Mutex<ReportedWait>,
}

thread_local! {
    static CALLS: RefCell<Vec<Arc<WaitingCall>>> = const { RefCell::new(Vec::new()) };
}

impl WaitingCall {
    /// One that begins now.
    pub(crate) fn new(subject: String, group: &str, rank: Option<u32>) -> WaitingCall {
        let wait = Mutex::new(ReportedWait::new());
        WaitingCall { subject, group: group.to_owned(), rank, names: None, wait }
    }

    /// One of which nothing is known but that this process waits; its rank, as it is alone in it,
    /// is the one that the launcher has given it.
    pub(crate) fn of_process(subject: String) -> WaitingCall {
        // Only a launcher reads what is written to its folder.
        let is_launched = variable::POLYRANK_STALL_DIR.value().is_some();
        let rank = is_launched.then(|| variable::RANK.text()).flatten();
        WaitingCall::new(subject, "", rank.and_then(|rank| rank.parse().ok()))
    }

    /// One of which nothing is ever said: whoever calls has words of its own for what it waits for.
    pub(crate) fn unsaid() -> WaitingCall {
        let wait = Mutex::new(ReportedWait::after(None));
        let (subject, group) = (String::new(), String::new());
        WaitingCall { subject, group, rank: None, names: None, wait }
    }

    /// As [`WaitingCall::of_process`], in which the program waits for what has these names.
    pub(crate) fn of_names(subject: String, names: AwaitedNames) -> WaitingCall {
        let mut call = WaitingCall::of_process(subject);
        call.names = Some(names);
        call
    }

    /// What the program waits for, if it has names.
    pub(crate) fn names(&self) -> Option<&AwaitedNames> {
        self.names.as_ref()
    }

    /// The outermost that this thread is in: the one that the program has called.
    pub(crate) fn present() -> Option<Arc<WaitingCall>> {
        // A thread that ends has none any more, and may still have to leave a group.
        CALLS.try_with(|calls| calls.borrow().last().cloned()).ok().flatten()
    }

    fn is_within_another() -> bool {
        CALLS.try_with(|calls| !calls.borrow().is_empty()).unwrap_or(true)
    }

    /// Runs `future` within this call, or within the one that it is a part of.
    pub(crate) async fn of<F: Future>(self, future: F) -> F::Output {
        if WaitingCall::is_within_another() {
            return future.await;
        }
        within_async(&CALLS, Arc::new(self), pin!(future)).await
    }

    /// As [`WaitingCall::of`], for what blocks.
    pub(crate) fn run<R>(self, run: impl FnOnce() -> R) -> R {
        if WaitingCall::is_within_another() {
            return run();
        }
        context::within(&CALLS, Arc::new(self), run)
    }

    /// Runs `run` on this thread, which works for a call.
    pub(crate) fn continued<R>(call: Option<Arc<WaitingCall>>, run: impl FnOnce() -> R) -> R {
        match call {
            Some(call) => context::within(&CALLS, call, run),
            None => run(),
        }
    }

    /// Whether it is to be said now what is waited for: true once each time.
    pub(crate) fn is_due(&self) -> bool {
        self.wait().is_due()
    }

    /// Says that this rank waits, and what is known of that: "rank 1 has not come".
    pub(crate) fn say(&self, what: &str) {
        let WaitingCall { subject, group, rank, .. } = self;
        let waited = self.wait().waited();
        let text = match rank {
            Some(rank) => format!("{subject}: rank {rank} has waited for {waited}; {what}"),
            None => format!("{subject} has waited for {waited}; {what}"),
        };
        let waiting: Vec<u32> = rank.iter().copied().collect();
        let report = StallReport {
            subject: subject.clone(),
            group: group.clone(),
            text: text.clone(),
            concerned: waiting.clone(),
            waiting_count: waiting.len() as u32,
            waiting,
            ..StallReport::default()
        };
        let report = self.wait().counted(report);
        // Whoever listens may wait within this call: what it holds is not locked.
        say(&text);
        let published = PublishedStall::new(report);
        let former = self.wait().note(published);
        drop(former);
    }

    fn wait(&self) -> MutexGuard<'_, ReportedWait> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingCall {
    /// Takes back what was said: the call is over, or given up.
    fn drop(&mut self) {
        let last_words = self.wait().last_words(&self.subject);
        if let Some(text) = last_words {
            say(&text);
        }
    }
}
