//! The current group of a thread. Knows no operations.

use std::cell::RefCell;

use super::default_group;
use crate::generated::error::Result;
use crate::process_group::ProcessGroup;

thread_local! {
    static CURRENT: RefCell<Vec<ProcessGroup>> = const { RefCell::new(Vec::new()) };
}

/// The group of the innermost [`with_process_group`] of this thread, else the default group.
///
/// # Errors
/// [`Error::NotInitialized`](crate::Error::NotInitialized).
pub fn current_process_group() -> Result<ProcessGroup> {
    let current = CURRENT.with_borrow(|groups| groups.last().cloned());
    current.map_or_else(default_group, Ok)
}

/// Runs `f`, on this thread, with `group` as the current group. What asks for the default group
/// gets that all the same.
pub fn with_process_group<R>(group: &ProcessGroup, f: impl FnOnce() -> R) -> R {
    CURRENT.with_borrow_mut(|groups| groups.push(group.clone()));
    let _restore = RestoreGuard;
    f()
}

/// Makes the group before current again, after a panic as well.
struct RestoreGuard;

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        // Dropped outside of the borrow: the last handle of a group does more than a `pop`.
        drop(CURRENT.with_borrow_mut(Vec::pop));
    }
}
