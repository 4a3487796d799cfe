//! What ends the sleep of the thread that leads a group. A descriptor for it is open while a thread
//! sleeps; the first groups of a process keep theirs, as opening it costs a system call. Knows
//! nothing of what the thread sleeps for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::transport::Bell;

/// How many groups of a process keep their descriptors.
const MAX_KEPT: usize = 16;

/// How many do.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// The bell of one group.
#[derive(Default)]
pub(super) struct LeaderBell(Mutex<State>);

#[derive(Default)]
struct State {
    bell: Option<Bell>,
    /// Whether it stays open between two sleeps.
    is_kept: bool,
    has_ended: bool,
}

impl LeaderBell {
    /// The bell for a thread that is about to sleep. None if the group was left or the process has
    /// no descriptor left.
    pub(super) fn open(&self) -> Option<Bell> {
        let mut state = self.lock();
        if state.bell.is_none() && !state.has_ended {
            state.bell = Bell::new().ok();
        }
        state.bell.clone()
    }

    /// The thread does not sleep any more.
    pub(super) fn note_awake(&self) {
        let mut state = self.lock();
        let Some(bell) = &state.bell else { return };
        if !state.is_kept && KEPT.fetch_add(1, Ordering::Relaxed) >= MAX_KEPT {
            KEPT.fetch_sub(1, Ordering::Relaxed);
            state.bell = None;
            return;
        }
        bell.heard();
        state.is_kept = true;
    }

    /// Ends the sleep, if a thread sleeps.
    pub(super) fn ring(&self) {
        if let Some(bell) = &self.lock().bell {
            bell.ring();
        }
    }

    /// Ends the sleep for good, and closes the descriptor.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        if let Some(bell) = state.bell.take() {
            bell.ring();
        }
        if std::mem::take(&mut state.is_kept) {
            KEPT.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the group was left.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is valid between any two statements here, even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LeaderBell {
    fn drop(&mut self) {
        self.end();
    }
}
