//! What is handed to the background thread, because no thread of the user waits for it: at the end
//! of a grace in which its issuer may begin to wait, or immediately, where somebody is to be told
//! of the end, which says that nobody waits.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::Driver;
use crate::clock::Instant;
use crate::completion::{Completion, inherited_error, is_in_callback};
use crate::spin::{BackOff, SpinPolicy};

/// After so many brief polls in vain, one after the other, they become rarer.
const MISSED_POLLS: u32 = 2;

/// Most operations that are handed over without a brief poll, before there is one again: a rank
/// that hands over makes the others miss the end of theirs, so all have to return to polling soon.
const MAX_SKIPPED_POLLS: u32 = 16;

/// The limit of a brief poll where ranks share cores. A thread that is woken waits there for a
/// core, while one that yields between two polls is in nobody's way.
const CROWDED_LIMIT: Duration = Duration::from_micros(300);

/// Nothing is known yet of whether brief polls pay.
pub(super) fn brief_polls() -> BackOff {
    BackOff::new(MISSED_POLLS, MAX_SKIPPED_POLLS)
}

impl Driver {
    /// For a caller that is to be told of the end of `completion` and does not wait for it. Moves
    /// it for as long as it would take to hand it to another thread, if that has paid lately; then
    /// the background thread does so, without a grace.
    pub fn hasten(&self, completion: &Completion) {
        if completion.is_done() {
            return;
        }
        if self.is_inherited() {
            completion.complete(Err(inherited_error()));
            return;
        }
        if self.is_brief_poll_due() {
            let is_done = self.poll_for(completion, self.brief_limit());
            self.lock_brief_polls().note(is_done);
            if is_done {
                return;
            }
        }
        self.is_urgent.store(true, Ordering::SeqCst);
        self.leave_to_background();
    }

    /// Moves what is in flight for up to `limit`, without a sleep, unless another thread does.
    /// Whether `completion` is done; if not, the caller sees to it that a thread moves it.
    pub fn poll_for(&self, completion: &Completion, limit: Duration) -> bool {
        self.poll_while_moving(completion, limit, limit)
    }

    /// As [`Driver::poll_for`], and no longer than `idle_limit` after anything moved.
    pub fn poll_while_moving(
        &self,
        completion: &Completion,
        idle_limit: Duration,
        limit: Duration,
    ) -> bool {
        if completion.is_done() || self.is_inherited() {
            return completion.is_done();
        }
        {
            let mut turn = self.lock_turn();
            if turn.leader.is_some() {
                return completion.is_done();
            }
            turn.leader = Some(thread::current().id());
        }
        self.note_activity();
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let (mut finished, start) = (Vec::new(), Instant::now());
        let mut moved_at = start;
        loop {
            let moved = self.turn_once(&mut finished, |executor, _| executor.stay_awake());
            let now = Instant::now();
            if moved {
                moved_at = now;
            }
            let is_idle = now.saturating_duration_since(moved_at) > idle_limit;
            if completion.is_done() || is_idle || now.saturating_duration_since(start) > limit {
                break;
            }
            if !moved {
                self.spin.pause().take();
            }
        }
        let mut turn = self.lock_turn();
        turn.leader = None;
        if turn.sleeping > 0 {
            self.turned.notify_all();
        }
        drop(turn);
        let left = self.waiters.fetch_sub(1, Ordering::SeqCst) - 1;
        let is_done = completion.is_done();
        if is_done && left == 0 {
            self.leave_to_background();
        }
        is_done
    }

    /// Whether to poll before something is handed over. In a callback, the next callback would run
    /// within it, and so on.
    fn is_brief_poll_due(&self) -> bool {
        self.spin != SpinPolicy::Sleep && !is_in_callback() && self.lock_brief_polls().is_due()
    }

    /// How long such a poll may last: as long as the hand-over, for which a thread has to be woken,
    /// which most often wakes another one in turn.
    fn brief_limit(&self) -> Duration {
        match self.spin {
            SpinPolicy::Spin(limit) => limit.min(2 * self.background.wake_cost(limit)),
            SpinPolicy::Yield(_) => CROWDED_LIMIT,
            SpinPolicy::Sleep => Duration::ZERO,
        }
    }

    fn lock_brief_polls(&self) -> MutexGuard<'_, BackOff> {
        self.brief_polls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it, unless a thread of the user waits, that the background thread hears of what
    /// arrives from now on: this thread may have taken the event that would have woken that one.
    pub(super) fn leave_to_background(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            return;
        }
        if self.is_busy() || self.watched.load(Ordering::SeqCst) {
            self.hand_to_background();
        } else if self.driven_in_background.load(Ordering::SeqCst) && !self.background.is_in_grace()
        {
            // It sleeps since the group was quiet; it looks again at times now that it is not.
            self.background.request_check();
        }
    }

    /// Asks the background thread to drive it.
    fn hand_to_background(&self) {
        #[cfg(test)]
        self.left_to_background.fetch_add(1, Ordering::SeqCst);
        let is_urgent = self.is_urgent.load(Ordering::SeqCst);
        let is_in_grace = self.background.is_in_grace();
        if is_in_grace && !is_urgent {
            return;
        }
        let is_new = !self.driven_in_background.swap(true, Ordering::SeqCst);
        // If that thread sleeps already, the threads that have to wake it may not know that. In a
        // grace, it waits for nothing but its bell.
        if is_new
            || is_in_grace
            || self.unfinished.load(Ordering::SeqCst)
            || !self.lock().let_others_wake()
        {
            self.background.request_check();
        }
    }
}
