//! The one handle of everything that takes time: waited on, awaited or polled.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;

use crate::clock::{CAN_BLOCK, Instant};
use crate::generated::error::{Error, Result};

type Callback = Box<dyn FnOnce(&Result<()>) + Send>;

/// Who asks whether it is done counts as waiting until the watch has looked so often: it does once
/// a second, and programs may ask seldom.
const LOOKS_PER_POLL: u8 = 5;

/// Whether an operation is done, and how it ended. Completed once.
#[derive(Default)]
pub struct Completion {
    done: AtomicBool,
    /// Whether somebody asked how it ended when it had, or was told.
    asked: AtomicBool,
    /// Whether somebody waits for its end, or is to be told of it.
    awaited: AtomicBool,
    /// For how many more looks of the watch whoever asked whether it is done counts as waiting.
    polled: AtomicU8,
    /// Sender of a received message, -1 if this is not a receive or it is not here yet.
    source_rank: AtomicI64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    result: Option<Result<()>>,
    /// When it ended.
    ended_at: Option<Instant>,
    wakers: Vec<Waker>,
    callbacks: Vec<Callback>,
    /// Whether a callback wants to know how it ended.
    asks: bool,
}

/// The notifications for those who asked to learn of a completion.
#[must_use = "somebody waits for it"]
pub(crate) struct Notification {
    result: Result<()>,
    wakers: Vec<Waker>,
    callbacks: Vec<Callback>,
}

impl Notification {
    /// Whether functions are called, and not only threads and tasks woken.
    pub(crate) fn has_callbacks(&self) -> bool {
        !self.callbacks.is_empty()
    }

    /// Wakes tasks and runs callbacks, so it must be called without the progress lock.
    pub(crate) fn deliver(self) {
        for callback in self.callbacks {
            guarded(|| callback(&self.result));
        }
        for waker in self.wakers {
            guarded(|| waker.wake());
        }
    }
}

/// Runs a callback at the end of an operation. A panic in it, which the panic hook reports, ends
/// nothing else: the thread may belong to somebody who waits for another operation, or be the one
/// that drives all groups.
pub(crate) fn guarded(run: impl FnOnce()) {
    let is_nested = IN_CALLBACK.replace(true);
    // It may run while a hook waits, and is no part of that.
    let was_in_hook = IN_HOOK.replace(false);
    let _ = catch_unwind(AssertUnwindSafe(run));
    IN_HOOK.set(was_in_hook);
    IN_CALLBACK.set(is_nested);
}

/// Runs a hook of an operation: what it issues itself has no hooks. It does not panic.
pub(crate) fn in_hook<R>(run: impl FnOnce() -> R) -> R {
    let is_nested = IN_HOOK.replace(true);
    let result = run();
    IN_HOOK.set(is_nested);
    result
}

/// Whether this thread runs a hook of an operation.
pub(crate) fn is_in_hook() -> bool {
    IN_HOOK.get()
}

/// Whether this thread runs a callback at the end of an operation.
#[cfg(feature = "tcp")]
pub(crate) fn is_in_callback() -> bool {
    IN_CALLBACK.get()
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

impl Completion {
    /// Not done yet.
    pub fn new() -> Completion {
        Completion { source_rank: AtomicI64::new(-1), ..Completion::default() }
    }

    /// Whether it is done, well or not.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// How it ended, if it has.
    pub fn result(&self) -> Option<Result<()>> {
        let result = self.peek();
        if result.is_some() {
            self.asked.store(true, Ordering::Relaxed);
        }
        result
    }

    /// As [`Completion::result`], for texts about it: that does not count as asked.
    pub(crate) fn peek(&self) -> Option<Result<()>> {
        if !self.is_done() {
            return None;
        }
        self.lock().result.clone()
    }

    /// As [`Completion::peek`], with the time at which it ended.
    pub(crate) fn peek_end(&self) -> Option<(Result<()>, Instant)> {
        let state = self.lock();
        state.result.clone().zip(state.ended_at)
    }

    /// Whether somebody asked how it ended when it had, or was told by a callback.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Somebody waits for its end, or is to be told of it.
    pub(crate) fn note_awaited(&self) {
        self.awaited.store(true, Ordering::Relaxed);
    }

    /// Somebody asks whether it is done, and will again, perhaps.
    pub(crate) fn note_polled(&self) {
        self.polled.store(LOOKS_PER_POLL, Ordering::Relaxed);
    }

    /// The watch has looked.
    #[cfg(feature = "tcp")]
    pub(crate) fn note_look(&self) {
        let left = self.polled.load(Ordering::Relaxed);
        // Who asks at this very moment asks again, or waits no longer.
        self.polled.store(left.saturating_sub(1), Ordering::Relaxed);
    }

    /// Whether somebody waits for its end, or did, or is to be told of it, or has asked for it
    /// lately.
    #[cfg(feature = "tcp")]
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) || self.polled.load(Ordering::Relaxed) > 0
    }

    /// The error it ended with, if it has.
    pub fn error(&self) -> Option<Error> {
        self.result().and_then(Result::err)
    }

    /// Sender of the received message.
    pub fn source_rank(&self) -> Option<u32> {
        u32::try_from(self.source_rank.load(Ordering::Acquire)).ok()
    }

    /// Notes the sender of the received message. Called before [`Completion::complete`].
    pub fn set_source_rank(&self, rank: u32) {
        self.source_rank.store(i64::from(rank), Ordering::Release);
    }

    /// Ends it. Wakes tasks and runs callbacks, so it must be called without the progress lock.
    /// A second call does nothing.
    pub fn complete(&self, result: Result<()>) {
        if let Some(notification) = self.mark_done(result) {
            notification.deliver();
        }
    }

    /// Ends it, and hands back what is to be told to those who asked for it, if anybody did. A
    /// second call does nothing.
    pub(crate) fn mark_done(&self, result: Result<()>) -> Option<Notification> {
        let now = Instant::now();
        let mut state = self.lock();
        if state.result.is_some() {
            return None;
        }
        state.result = Some(result.clone());
        state.ended_at = Some(now);
        self.done.store(true, Ordering::Release);
        let wakers = std::mem::take(&mut state.wakers);
        let callbacks = std::mem::take(&mut state.callbacks);
        let is_awaited = !wakers.is_empty() || !callbacks.is_empty();
        self.asked.fetch_or(state.asks, Ordering::Relaxed);
        is_awaited.then_some(Notification { result, wakers, callbacks })
    }

    /// Calls `callback` when it is done; immediately if it is.
    pub fn on_done(&self, callback: impl FnOnce(&Result<()>) + Send + 'static) {
        self.call(callback, true);
    }

    /// As [`Completion::on_done`], for a callback that tells nobody how it ended.
    pub(crate) fn on_end(&self, callback: impl FnOnce(&Result<()>) + Send + 'static) {
        self.call(callback, false);
    }

    fn call(&self, callback: impl FnOnce(&Result<()>) + Send + 'static, asks: bool) {
        let result = {
            let mut state = self.lock();
            match &state.result {
                None => {
                    state.asks |= asks;
                    state.callbacks.push(Box::new(callback));
                    return;
                }
                Some(result) => result.clone(),
            }
        };
        self.asked.fetch_or(asks, Ordering::Relaxed);
        guarded(|| callback(&result));
    }

    /// Wakes `waker` when it is done; false, and nothing is kept, if it is.
    pub fn register(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        if state.result.is_some() {
            return false;
        }
        if !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        true
    }

    /// Has the thread wait until it is done or `until` has come; whether it is done. Does not wait
    /// where no thread may.
    pub(crate) fn park(&self, until: Option<Instant>) -> bool {
        let waker = Waker::from(Arc::new(Unparker(std::thread::current())));
        while CAN_BLOCK && self.register(&waker) {
            match until {
                None => std::thread::park(),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    std::thread::park_timeout(left);
                }
            }
        }
        self.is_done()
    }

    /// Ends when it is done.
    pub async fn ended(&self) {
        std::future::poll_fn(|context| match self.register(context.waker()) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes a thread that waits.
struct Unparker(Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Completion({:?})", self.peek())
    }
}
