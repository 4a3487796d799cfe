//! What is over in a few microseconds is carried out at once, on the thread that calls and in its
//! memory: small operations over the board, short messages. Nobody sleeps for it, and what cannot
//! be done so is left to the longer way. Knows no schedule.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, TryLockError};
use std::thread;

use super::{Driver, Settling};
use crate::completion::Waiting;
use crate::executor::{Envelope, Executor, Progress, Small, SpinPolicy};
use crate::tensor::LentMemory;
use crate::transport::Rank;
use crate::wire::frame::Fingerprint;

/// How often it is looked whether the others have shown what a small operation needs, before
/// anybody else may have the executor: a few microseconds.
const LOOKS: u32 = 256;

/// As [`LOOKS`], where the other rank may need this core.
const YIELDS: u32 = 16;

/// After how many small operations, or calls that send short messages, frames are looked at.
const LOOK_AT_FRAMES: u64 = 64;

impl Driver {
    /// Tries to run a small operation from beginning to end, in the memory of the caller and
    /// without waiting for long. None if it did nothing; false if this rank has given its part, so
    /// that the operation has to be submitted as one that is shown. What else is over by then is
    /// told when the caller drops the other result, as with [`Driver::submit`].
    pub fn try_small(
        &self,
        (sequence, fingerprint): (u64, &Fingerprint),
        small: &Small,
        memory: &mut LentMemory<'_>,
        waiting: Waiting,
    ) -> (Option<bool>, Settling<'_>) {
        let mut settling = Settling { driver: self, finished: Vec::new() };
        if self.is_inherited() {
            return (None, settling);
        }
        let (looks, between) = self.looks(waiting);
        let Some(mut executor) = self.try_lock() else { return (None, settling) };
        self.activity.fetch_add(1, Ordering::Relaxed);
        let tried = executor.try_small((sequence, fingerprint), small, memory, looks, between);
        if !sequence.is_multiple_of(LOOK_AT_FRAMES) && !executor.has_replies() {
            return (tried, settling);
        }
        // Others have to be woken; or a loop of small operations keeps frames waiting.
        drop(executor);
        self.turn(&mut settling.finished, |_, _| {});
        (tried, settling)
    }

    /// Sends a short message to a rank, with a tag, from beginning to end, or does nothing: whether
    /// it has gone. What else is over by then is told when the caller drops the other result, as
    /// with [`Driver::submit`].
    pub fn send_short(&self, to: Envelope, payload: &[u8]) -> (bool, Settling<'_>) {
        let mut settling = Settling { driver: self, finished: Vec::new() };
        let mut sent = false;
        if !self.is_inherited()
            && let Some(executor) = self.try_lock()
        {
            let calls = self.activity.fetch_add(1, Ordering::Relaxed);
            let looks = calls.is_multiple_of(LOOK_AT_FRAMES);
            self.act_on(executor, &mut settling.finished, |executor, now| {
                sent = executor.send_short(to, payload, now);
                if looks {
                    // Who only sends hears in this way that the group broke.
                    return executor.advance(now);
                }
                // Whether there is more to do is known to whoever has moved things.
                Progress { moved: sent, unfinished: self.unfinished.load(Ordering::SeqCst) }
            });
            if looks && self.is_busy() && self.waiters.load(Ordering::SeqCst) == 0 {
                self.attend();
            }
        }
        (sent, settling)
    }

    /// Receives a short message of exactly this length from a rank, or any, with a tag, if it comes
    /// soon; its sender. None if nothing was received: then nothing waits for it. What else is over
    /// by then is told as with [`Driver::send_short`].
    pub fn receive_short(&self, from: Envelope, memory: &mut [u8]) -> (Option<Rank>, Settling<'_>) {
        let mut settling = Settling { driver: self, finished: Vec::new() };
        let mut sender = None;
        // What is in flight would move in between, and be waited for.
        if !self.is_inherited()
            && !self.is_busy()
            && let Some(executor) = self.try_lock()
        {
            self.activity.fetch_add(1, Ordering::Relaxed);
            let looks = self.looks(Waiting::Soon);
            self.act_on(executor, &mut settling.finished, |executor, now| {
                sender = executor.receive_short(from, memory, looks, now);
                Progress { moved: true, unfinished: true }
            });
            // What else came meanwhile is not to wait for the next call.
            if self.is_busy() && self.waiters.load(Ordering::SeqCst) == 0 {
                self.attend();
            }
        }
        (sender, settling)
    }

    /// The executor, unless another thread has it: who moves something large has it for longer than
    /// what is done here may take.
    fn try_lock(&self) -> Option<MutexGuard<'_, Executor>> {
        match self.executor.try_lock() {
            Ok(executor) => Some(executor),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// How often to look at what is over soon, and what to do in between.
    fn looks(&self, waiting: Waiting) -> (u32, fn()) {
        match (self.spin, waiting) {
            (SpinPolicy::Spin(_), Waiting::Soon | Waiting::Likely) => (LOOKS, std::hint::spin_loop),
            (SpinPolicy::Spin(_), Waiting::Later) => (LOOKS / 4, std::hint::spin_loop),
            (SpinPolicy::Yield(_), Waiting::Soon | Waiting::Likely) => (YIELDS, thread::yield_now),
            _ => (0, std::hint::spin_loop),
        }
    }
}
