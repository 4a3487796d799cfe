//! Who calls, where several may call at the same time: a thread, the event loop that a thread of
//! ours works for, or all tasks together. Knows nothing of what is called.
//!
//! Numbers of threads are no help: they do not say whether the thread is still there, and those of
//! a pool say nothing of who had them work.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock, Weak};

use super::WaitMode;

/// One of those that call, which calls one thing after the other.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Arc<()>);

thread_local! {
    /// Who has this thread work; it ends with the thread.
    static CALLER: RefCell<Caller> = RefCell::new(Caller(Arc::default()));
}

/// Tasks move from thread to thread: they are not told apart.
static TASKS: LazyLock<Caller> = LazyLock::new(|| Caller(Arc::default()));

impl Caller {
    /// The caller of the future that asks.
    pub(crate) fn current() -> Caller {
        match WaitMode::current() {
            WaitMode::Block => Caller::of_thread(),
            WaitMode::Await => TASKS.clone(),
        }
    }

    /// The caller for which this thread works: itself, unless it runs something for another.
    pub(crate) fn of_thread() -> Caller {
        // A thread that ends has lost its own.
        CALLER.try_with(|caller| caller.borrow().clone()).unwrap_or_else(|_| TASKS.clone())
    }

    /// Runs `job`, on a thread that works for this caller meanwhile.
    pub(crate) fn run<T>(self, job: impl FnOnce() -> T) -> T {
        let _scope = CallerScope(Some(CALLER.replace(self)));
        job()
    }
}

/// Puts the caller before back when it is dropped, after a panic as well.
struct CallerScope(Option<Caller>);

impl Drop for CallerScope {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            CALLER.set(before);
        }
    }
}

/// Those that called something, as far as they are still there.
#[derive(Debug, Default)]
pub(crate) struct LiveCallers(Vec<Weak<()>>);

impl LiveCallers {
    /// Adds `caller`, unless it is one of them.
    pub(crate) fn note(&mut self, Caller(caller): &Caller) {
        self.0.retain(|known| known.strong_count() > 0);
        if !self.0.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(caller))) {
            self.0.push(Arc::downgrade(caller));
        }
    }

    /// Whether more than one of them is still there.
    pub(crate) fn are_several(&self) -> bool {
        self.0.iter().filter(|known| known.strong_count() > 0).nth(1).is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_has_ended_counts_no_longer() {
        let mut callers = LiveCallers::default();
        for _ in 0..3 {
            let other = thread::spawn(Caller::of_thread).join().unwrap();
            callers.note(&other);
            callers.note(&Caller::of_thread());
            assert!(callers.are_several(), "while somebody has it");
        }
        assert!(!callers.are_several());
    }

    #[test]
    fn threads_that_work_for_one_caller_are_one() {
        let mut callers = LiveCallers::default();
        callers.note(&Caller::of_thread());
        for _ in 0..3 {
            let ours = Caller::of_thread();
            let theirs = thread::spawn(move || ours.run(Caller::of_thread)).join().unwrap();
            callers.note(&theirs);
        }
        assert!(!callers.are_several());
    }

    #[test]
    fn tasks_are_one_caller_on_whatever_thread_they_are() {
        let mut callers = LiveCallers::default();
        let threads: Vec<_> = (0..3).map(|_| thread::spawn(Caller::current)).collect();
        for thread in threads {
            callers.note(&thread.join().unwrap());
        }
        assert!(!callers.are_several());
    }
}
