//! Lets a language binding end a store's wait, for Ctrl-C. Knows nothing of stores or signals.
//!
//! The check belongs to the thread: a binding installs it around a call, and only waits of that
//! thread look at it, every 100 ms. Threads without one never pay for it.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::blocking::is_abandoned;

type Condition = Box<dyn Fn() -> bool>;

thread_local! {
    static CHECK: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
    static CONDITIONS: RefCell<Vec<(u64, Condition)>> = const { RefCell::new(Vec::new()) };
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
    CONDITIONS.with_borrow_mut(|all| all.push((number, Box::new(condition))));
    InterruptCondition(number)
}

impl Drop for InterruptCondition {
    fn drop(&mut self) {
        CONDITIONS.with_borrow_mut(|all| all.retain(|(number, _)| *number != self.0));
    }
}

/// Whether this thread is asked to stop waiting, or works for a task that is gone.
pub(crate) fn requested() -> bool {
    CHECK.with(Cell::get).is_some_and(|check| check())
        || is_abandoned()
        || CONDITIONS.with_borrow(|all| all.iter().any(|(_, holds)| holds()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
