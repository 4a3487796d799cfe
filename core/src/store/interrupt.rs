//! Lets a language binding end a store's wait, for Ctrl-C. Knows nothing of stores or signals.
//!
//! The check belongs to the thread: a binding installs it around a call, and only waits of that
//! thread look at it, every 100 ms. Threads without one never pay for it. A condition inside the
//! crate may come with a call that ends waits for sockets at once.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::blocking::is_abandoned;
#[cfg(feature = "tcp")]
use crate::transport::{Bell, Interest};

/// What may end the waits of a thread.
struct Condition {
    number: u64,
    holds: Box<dyn Fn() -> bool>,
    is_heeded: bool,
    #[cfg(feature = "tcp")]
    bell: Option<Bell>,
}

thread_local! {
    static CHECK: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
    static CONDITIONS: RefCell<Vec<Condition>> = const { RefCell::new(Vec::new()) };
}

/// Puts the previous check back when it is dropped.
#[derive(Debug)]
pub struct InterruptGuard {
    previous: Option<fn() -> bool>,
    // The guard must be dropped on the thread whose check it restores.
    _not_send: std::marker::PhantomData<*const ()>,
}

/// Makes waits of this thread end with [`crate::Error::Store`] ("interrupted …") soon after
/// `check` returns true, until the guard is dropped. `check` is called while a wait is under way,
/// at most every 100 ms, and may take locks of the language's runtime, but must not use the store.
pub fn install_interrupt_check(check: fn() -> bool) -> InterruptGuard {
    InterruptGuard {
        previous: CHECK.with(|slot| slot.replace(Some(check))),
        _not_send: std::marker::PhantomData,
    }
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        CHECK.with(|slot| slot.set(self.previous));
    }
}

/// Ends waits of this thread, as [`install_interrupt_check`] does beside others, until it is
/// dropped on the same thread.
#[derive(Debug)]
pub(crate) struct InterruptCondition(u64);

/// Makes waits of this thread end soon after `condition` holds. It must not use the store.
pub(crate) fn interrupt_when(condition: impl Fn() -> bool + 'static) -> InterruptCondition {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let condition = Condition {
        number,
        holds: Box::new(condition),
        is_heeded: true,
        #[cfg(feature = "tcp")]
        bell: None,
    };
    change_all(|all| all.push(condition));
    InterruptCondition(number)
}

impl InterruptCondition {
    /// What any thread may call when the condition holds, and not before: waits of this thread for
    /// a socket then end at once. Does nothing if the process has no descriptor left.
    #[cfg(feature = "tcp")]
    pub(crate) fn caller(&self) -> impl FnOnce() + Send + use<> {
        let bell = Bell::new().ok();
        self.change(|condition| condition.bell.clone_from(&bell));
        move || bell.iter().for_each(Bell::ring)
    }

    #[cfg(not(feature = "tcp"))]
    pub(crate) fn caller(&self) -> impl FnOnce() + Send + use<> {
        || {}
    }

    /// Whether it ends waits of this thread from now on; it does at first.
    pub(crate) fn set_heeded(&self, is_heeded: bool) {
        self.change(|condition| condition.is_heeded = is_heeded);
    }

    fn change(&self, change: impl FnOnce(&mut Condition)) {
        change_all(|all| {
            if let Some(condition) = all.iter_mut().find(|condition| condition.number == self.0) {
                change(condition);
            }
        });
    }
}

/// What is ready when a condition of this thread holds.
#[cfg(feature = "tcp")]
pub(super) fn interests() -> Vec<Interest> {
    let of_thread = CONDITIONS.try_with(|all| {
        let all = all.borrow();
        let heeded = all.iter().filter(|condition| condition.is_heeded);
        heeded.filter_map(|condition| condition.bell.as_ref()?.interest()).collect()
    });
    // A thread that ends has none any more, and may still have to leave a group.
    of_thread.unwrap_or_default()
}

impl Drop for InterruptCondition {
    fn drop(&mut self) {
        change_all(|all| all.retain(|condition| condition.number != self.0));
    }
}

/// Whether this thread is asked to stop waiting, or works for a task that is gone.
pub fn requested() -> bool {
    CHECK.with(Cell::get).is_some_and(|check| check())
        || is_abandoned()
        || CONDITIONS
            .try_with(|all| all.borrow().iter().any(|it| it.is_heeded && (it.holds)()))
            .unwrap_or(false)
}

/// Changes the conditions of this thread, which has none any more when it ends.
fn change_all(change: impl FnOnce(&mut Vec<Condition>)) {
    let _ = CONDITIONS.try_with(|all| change(&mut all.borrow_mut()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_may_still_wait() {
        /// Waits as a group does that is left when its thread ends.
        struct AtTheEnd;
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                assert!(!requested());
                #[cfg(feature = "tcp")]
                assert!(interests().is_empty());
            }
        }
        thread_local!(static LAST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) });
        let thread = std::thread::spawn(|| {
            // What is used first is destroyed last.
            LAST.with_borrow_mut(|last| *last = Some(AtTheEnd));
            drop(interrupt_when(|| false));
        });
        assert!(thread.join().is_ok());
    }

    #[test]
    fn a_condition_counts_while_it_is_heeded() {
        let condition = interrupt_when(|| true);
        assert!(requested());
        condition.set_heeded(false);
        assert!(!requested());
        condition.set_heeded(true);
        assert!(requested());
        drop(condition);
        assert!(!requested());
    }

    #[test]
    fn the_check_is_this_threads_and_ends_with_its_guard() {
        assert!(!requested());
        let outer = install_interrupt_check(|| true);
        assert!(requested());
        let inner = install_interrupt_check(|| false);
        assert!(!requested());
        drop(inner);
        assert!(requested());
        let elsewhere = std::thread::scope(|s| s.spawn(requested).join());
        assert!(matches!(elsewhere, Ok(false)));
        drop(outer);
        assert!(!requested());
    }
}
