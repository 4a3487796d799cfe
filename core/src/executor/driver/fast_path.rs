//! The fast path: small collectives over the board, and short messages, which take a few
//! microseconds, run immediately, on the calling thread and in its memory. It never sleeps; what it
//! cannot complete is left to the general path. Knows no schedule.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, TryLockError};

use super::{DeferredCompletions, Driver};
use crate::completion::WaitIntent;
use crate::executor::advance::{Executor, Progress};
use crate::executor::operation::{Envelope, SmallOperation};
use crate::executor::small_collective::SmallAttempt;
use crate::spin::{Pause, SpinBudget, SpinPolicy};
use crate::tensor::LentMemory;
use crate::transport::Rank;

/// How often the fast path checks whether the others have shown what a small collective needs,
/// before it releases the executor: a few microseconds.
const MAX_SPINS: u32 = 256;

/// As [`MAX_SPINS`], where the other rank may need this core.
const MAX_YIELDS: u32 = 16;

/// After this many small collectives, or calls that send short messages, frames are checked, too.
const CALLS_PER_FRAME_CHECK: u64 = 64;

impl Driver {
    /// Tries to run a small collective from beginning to end, in the memory of the caller and
    /// without waiting for long. Calls `meanwhile` with its number once this rank has shown its
    /// part; it must not call back. Other operations that are over by then are settled when the
    /// caller drops the second result, as with [`Driver::submit`].
    pub fn try_small(
        &self,
        operation: &SmallOperation,
        memory: &mut LentMemory<'_>,
        waiting: WaitIntent,
        meanwhile: &mut dyn FnMut(u64),
    ) -> (SmallAttempt, DeferredCompletions<'_>) {
        let mut deferred_completions = DeferredCompletions { driver: self, finished: Vec::new() };
        if self.is_inherited() {
            return (SmallAttempt::Declined, deferred_completions);
        }
        let spin = self.spin_budget(waiting);
        let Some(mut executor) = self.try_lock() else {
            return (SmallAttempt::Declined, deferred_completions);
        };
        self.note_activity();
        let attempt = executor.try_small(operation, memory, spin, meanwhile);
        let has_woken = executor.take_woken();
        if !operation.sequence.is_multiple_of(CALLS_PER_FRAME_CHECK) && !has_woken {
            return (attempt, deferred_completions);
        }
        // Frames must not wait for the end of a loop of small calls, nor those that woke others.
        drop(executor);
        self.turn(&mut deferred_completions.finished, |_, _| {});
        self.leave_to_background();
        (attempt, deferred_completions)
    }

    /// Sends a short message to a rank, with a tag, from beginning to end, or does nothing. Returns
    /// whether it was sent. Other operations that are over by then are settled when the caller
    /// drops the second result, as with [`Driver::submit`].
    pub fn send_short(&self, to: Envelope, payload: &[u8]) -> (bool, DeferredCompletions<'_>) {
        let mut deferred_completions = DeferredCompletions { driver: self, finished: Vec::new() };
        let mut sent = false;
        if !self.is_inherited()
            && let Some(executor) = self.try_lock()
        {
            let calls = self.note_activity();
            let checks_frames = calls.is_multiple_of(CALLS_PER_FRAME_CHECK);
            self.act_on(executor, &mut deferred_completions.finished, |executor, now| {
                sent = executor.send_short(to, payload, now);
                if checks_frames {
                    // This is how a rank that only sends learns that the group broke.
                    return executor.advance(now);
                }
                // The thread that moved the frames knows whether there is more to do.
                Progress { moved: sent, unfinished: self.unfinished.load(Ordering::SeqCst) }
            });
            if checks_frames {
                self.leave_to_background();
            }
        }
        (sent, deferred_completions)
    }

    /// Receives a short message of exactly this length from a rank, or any, with a tag, if it comes
    /// soon. Returns its sender, or none if nothing was received: then no receive is left pending.
    /// Other operations that are over by then are settled as with [`Driver::send_short`].
    pub fn receive_short(
        &self,
        from: Envelope,
        memory: &mut [u8],
    ) -> (Option<Rank>, DeferredCompletions<'_>) {
        let mut deferred_completions = DeferredCompletions { driver: self, finished: Vec::new() };
        let mut sender = None;
        // With operations in flight, the call would spend its time on those.
        if !self.is_inherited()
            && !self.is_busy()
            && let Some(executor) = self.try_lock()
        {
            self.note_activity();
            let spin = self.spin_budget(WaitIntent::Soon);
            self.act_on(executor, &mut deferred_completions.finished, |executor, now| {
                sender = executor.receive_short(from, memory, spin, now);
                Progress { moved: true, unfinished: true }
            });
            // Other frames that came meanwhile must not wait for the next call.
            self.leave_to_background();
        }
        (sender, deferred_completions)
    }

    /// The executor, unless another thread has it: a thread that moves a large message keeps it for
    /// longer than the fast path may take.
    fn try_lock(&self) -> Option<MutexGuard<'_, Executor>> {
        match self.executor.try_lock() {
            Ok(executor) => Some(executor),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// How often to check for what is expected soon, and what to do in between.
    fn spin_budget(&self, waiting: WaitIntent) -> SpinBudget {
        match (self.spin, waiting) {
            (SpinPolicy::Spin(_), WaitIntent::Soon | WaitIntent::Likely) => {
                SpinBudget { spins: MAX_SPINS, pause: Pause::Spin }
            }
            (SpinPolicy::Spin(_), WaitIntent::Later) => {
                SpinBudget { spins: MAX_SPINS / 4, pause: Pause::Spin }
            }
            (SpinPolicy::Yield(_), WaitIntent::Soon | WaitIntent::Likely) => {
                SpinBudget { spins: MAX_YIELDS, pause: Pause::Yield }
            }
            _ => SpinBudget::NONE,
        }
    }
}
