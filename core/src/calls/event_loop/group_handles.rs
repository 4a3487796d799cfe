//! What becomes of a group when a language drops it that has several threads with event loops.
//!
//! A group that lost its last handle in the normal course of things ends when its operations do.
//! But where the thread itself ended, as a Worker of JavaScript does that is terminated, the group
//! is left immediately: no rank shall wait for one that does not exist any more. Groups that the
//! process keeps are not, because other threads may use them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::threads;
use crate::distributed;
use crate::process_group::ProcessGroup;

/// How many handles all threads have on each group, by its number.
static HANDLES: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

/// Notes a new handle on the group of this number.
pub fn add_handle(group: u64) {
    *handles().get_or_insert_default().entry(group).or_default() += 1;
}

/// Drops a handle, on a thread that ends or not.
pub fn drop_handle(group: ProcessGroup, is_ending: bool) {
    let mut handles = handles();
    let handles = handles.get_or_insert_default();
    let key = group.identity();
    if let Some(count) = handles.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            handles.remove(&key);
        }
    }
    end(group, is_ending && !handles.contains_key(&key));
}

/// Drops what an operation that is not done holds of its group, on a thread that ends or not.
pub fn drop_operation(group: ProcessGroup, is_ending: bool) {
    let is_last = !handles().get_or_insert_default().contains_key(&group.identity());
    end(group, is_ending && is_last);
}

fn end(group: ProcessGroup, leaves: bool) {
    // Both may take a moment, in which the others are told.
    threads::run(move || {
        if leaves && !distributed::is_registered(&group) {
            // Nobody is left who could be told of a disagreement.
            let _ = group.shutdown_within(Duration::ZERO);
        }
        drop(group);
    });
}

fn handles() -> MutexGuard<'static, Option<HashMap<u64, usize>>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}
