//! Runs a future for callers that block and for tasks, so that code that waits is written only
//! once. Knows nothing of what that code does.
//!
//! A caller that may block polls the future once, by [`block_on`], and has the result: every wait
//! inside blocks the thread ([`WaitMode::Block`]). Any other caller that polls it is a task, whose
//! thread must not be blocked ([`WaitMode::Await`]): there, code that can only block runs on a
//! thread of its own, by [`unblock`].

mod caller;
#[cfg(not(target_family = "wasm"))]
mod threads;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) use self::caller::{Caller, LiveCallers};
#[cfg(not(target_family = "wasm"))]
pub(crate) use self::threads::Threads;
use crate::clock::{self, CAN_BLOCK};
use crate::completion::WaitIntent;
use crate::generated::error::{Error, Result};

thread_local! {
    /// Whether this thread polls a future for a caller that blocks.
    static BLOCKS: Cell<bool> = const { Cell::new(false) };
    /// Whether the task that this thread works for is gone.
    static ABANDONED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// How a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitMode {
    /// The thread waits, and drives what it waits for.
    Block,
    /// A task waits, and is woken.
    Await,
}

impl WaitMode {
    /// The mode of the caller that polls the current future.
    pub(crate) fn current() -> WaitMode {
        if BLOCKS.get() { WaitMode::Block } else { WaitMode::Await }
    }

    /// Whether the caller of an operation drives it.
    pub(crate) fn waiting(self) -> WaitIntent {
        match self {
            WaitMode::Block => WaitIntent::Soon,
            WaitMode::Await => WaitIntent::Later,
        }
    }
}

/// The result of a future, for a caller that blocks until it is available.
///
/// # Errors
/// The future's own; [`Error::Unsupported`] if something in it cannot block, as in a browser.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    match poll_once(future) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(Error::Unsupported {
            who: "a store that cannot block, as in a browser,".into(),
            operation: "calls that wait; the forms whose names end in `_async` do".into(),
        }),
    }
}

/// Polls `future` for a caller that blocks. It is pending only if something in it cannot block.
pub(crate) fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    let _scope = BlockingScope { before: BLOCKS.replace(CAN_BLOCK) };
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The result of `run`, which may block: for a task it runs on a thread of its own. A task that
/// goes away ends the waits of that thread.
///
/// # Errors
/// Those of `run`; [`Error::Network`] if the system starts no more threads.
pub(crate) async fn unblock<T: Send + 'static>(
    run: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if !CAN_BLOCK || WaitMode::current() == WaitMode::Block {
        return run();
    }
    let handoff = Arc::new(Handoff { state: Mutex::default(), abandoned: Arc::default() });
    let theirs = handoff.clone();
    let thread = std::thread::Builder::new().name("polyrank-blocking".to_owned());
    let started = thread.spawn(move || {
        ABANDONED.set(Some(theirs.abandoned.clone()));
        let _scope = BlockingScope { before: BLOCKS.replace(true) };
        theirs.complete(catch_unwind(AssertUnwindSafe(run)));
    });
    started.map_err(|error| Error::Network {
        message: format!("cannot start a thread for a call that waits: {error}"),
    })?;
    let task = AwaitingTask(handoff);
    match std::future::poll_fn(|context| task.0.poll(context.waker())).await {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}

/// Waits for `duration`. Blocks the thread of a caller that blocks.
pub(crate) async fn sleep(duration: Duration) -> Result<()> {
    if CAN_BLOCK {
        return unblock(move || {
            std::thread::sleep(duration);
            Ok(())
        })
        .await;
    }
    clock::sleep_until(clock::after(duration)).await;
    Ok(())
}

/// Whether this thread works for a task that is gone, so that its waits have to end.
pub(crate) fn is_abandoned() -> bool {
    ABANDONED.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
}

/// Restores the previous mode when it is dropped, also after a panic.
struct BlockingScope {
    before: bool,
}

impl Drop for BlockingScope {
    fn drop(&mut self) {
        BLOCKS.set(self.before);
    }
}

/// The result that a thread hands to the task that waits for it.
struct Handoff<T> {
    state: Mutex<HandoffState<T>>,
    /// Whether the task is gone.
    abandoned: Arc<AtomicBool>,
}

struct HandoffState<T> {
    result: Option<std::thread::Result<T>>,
    waker: Option<Waker>,
}

impl<T> Default for HandoffState<T> {
    fn default() -> Self {
        HandoffState { result: None, waker: None }
    }
}

impl<T> Handoff<T> {
    fn complete(&self, result: std::thread::Result<T>) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.result = Some(result);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, waker: &Waker) -> Poll<std::thread::Result<T>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}

/// The task's end of a [`Handoff`].
struct AwaitingTask<T>(Arc<Handoff<T>>);

impl<T> Drop for AwaitingTask<T> {
    fn drop(&mut self) {
        self.0.abandoned.store(true, Ordering::Relaxed);
    }
}
