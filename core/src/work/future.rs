//! Values that are there when an operation is complete: c10d's `Future`. Knows no particular
//! operation.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Work, WorkResult};
use crate::clock::CAN_BLOCK;
use crate::generated::error::{Error, Result};
use crate::tensor::Tensor;

/// A value that is there when an operation is complete: wait for it, `.await` it, or chain what
/// follows by [`Future::then`].
///
/// ```no_run
/// # fn example(group: &polyrank::ProcessGroup) -> polyrank::Result<()> {
/// use polyrank::ReduceOp;
///
/// let work = group.allreduce_async(vec![1.0_f32; 4], ReduceOp::Sum)?;
/// let sums = work.get_future();
/// let first = sums.then(|sums| Ok(sums.wait()?.remove(0).into_vec::<f32>()?[0]));
/// assert_eq!(first.wait()?, group.size() as f32);
/// # Ok(()) }
/// ```
#[must_use = "the value is not there before the future is waited for"]
pub struct Future<T> {
    work: Work,
    source: Source<T>,
}

/// Where the value comes from.
enum Source<T> {
    /// The operation, which ended so.
    Operation(fn(&Work, Result<()>) -> Result<T>),
    /// A callback, which runs when the operation is complete.
    Callback(Arc<Promise<T>>),
}

/// What a callback returned, once it ran.
struct Promise<T> {
    state: Mutex<State<T>>,
    settled: Condvar,
}

struct State<T> {
    outcome: Option<Result<T>>,
    wakers: Vec<Waker>,
    callbacks: Vec<Box<dyn FnOnce() + Send>>,
}

impl Work {
    /// A future of the tensors that hold the result.
    pub fn get_future(&self) -> Future<Vec<Tensor>> {
        let tensors = |work: &Work, ended: Result<()>| ended.map(|()| work.result());
        Future { work: self.clone(), source: Source::Operation(tensors) }
    }

    /// A future of how the operation ended, which is never an error where threads can wait.
    pub fn get_future_result(&self) -> Future<WorkResult> {
        let result = |_: &Work, ended: Result<()>| {
            Ok(ended.err().map_or(WorkResult::Success, |error| WorkResult::of(&error)))
        };
        Future { work: self.clone(), source: Source::Operation(result) }
    }
}

impl<T: Clone + Send + 'static> Future<T> {
    /// Waits for the value. Where the tensors are a device's, [`Work::get_future`] does not block,
    /// as [`Work::wait`].
    ///
    /// # Errors
    /// What the operation failed with, or what the callback returned; [`Error::Unsupported`] in a
    /// browser, if it is not there.
    pub fn wait(&self) -> Result<T> {
        match &self.source {
            Source::Operation(value) => {
                let ended = self.work.wait(None);
                match self.work.is_done() {
                    true => value(&self.work, ended),
                    false => ended.and_then(|()| value(&self.work, Ok(()))),
                }
            }
            Source::Callback(promise) => {
                // Whoever waits drives the operation; its error is the callback's to see.
                while self.work.wait_slice(Duration::MAX).is_none() {
                    if !CAN_BLOCK {
                        return self.work.wait(None).and_then(|()| promise.wait());
                    }
                }
                promise.wait()
            }
        }
    }

    /// Whether the value, or the failure, is there. Does not block.
    pub fn done(&self) -> bool {
        match &self.source {
            Source::Operation(_) => self.work.is_completed(),
            Source::Callback(promise) => promise.lock().outcome.is_some(),
        }
    }

    /// The value, or the failure; `None` if it is not there. Does not block.
    pub fn value(&self) -> Option<Result<T>> {
        match &self.source {
            Source::Operation(value) => {
                let is_there = self.work.is_completed();
                is_there.then(|| value(&self.work, self.work.error().map_or(Ok(()), Err)))
            }
            Source::Callback(promise) => promise.lock().outcome.clone(),
        }
    }

    /// Calls `callback` with this future when it is done, immediately if it is; a future of what
    /// that returns. It runs as one of [`Work::on_done`]; where it panics, the other future fails.
    pub fn then<R: Clone + Send + 'static>(
        &self,
        callback: impl FnOnce(&Future<T>) -> Result<R> + Send + 'static,
    ) -> Future<R> {
        let promise = Arc::new(Promise::new());
        let kept = promise.clone();
        self.add_done_callback(move |future| {
            match catch_unwind(AssertUnwindSafe(|| callback(future))) {
                Ok(outcome) => kept.settle(outcome),
                Err(panic) => {
                    kept.settle(Err(Error::HookFailed {
                        message: "the callback of `then` panicked".to_owned(),
                    }));
                    resume_unwind(panic);
                }
            }
        });
        Future { work: self.work.clone(), source: Source::Callback(promise) }
    }

    /// Calls `callback` with this future when it is done, immediately if it is, as one of
    /// [`Work::on_done`].
    pub fn add_done_callback(&self, callback: impl FnOnce(&Future<T>) + Send + 'static) {
        let this = self.clone();
        let run = move || callback(&this);
        match &self.source {
            Source::Operation(_) => self.work.on_end(run),
            Source::Callback(promise) => promise.on_settled(run),
        }
    }
}

impl<T> Clone for Future<T> {
    fn clone(&self) -> Future<T> {
        let source = match &self.source {
            Source::Operation(value) => Source::Operation(*value),
            Source::Callback(promise) => Source::Callback(promise.clone()),
        };
        Future { work: self.work.clone(), source }
    }
}

impl<T> fmt::Debug for Future<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Future({})", self.work)
    }
}

impl<T: Clone + Send + 'static> std::future::Future for Future<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Source::Callback(promise) = &self.source {
            return promise.poll(context);
        }
        let ended = match Pin::new(&mut self.work).poll(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(ended) => ended,
        };
        match &self.source {
            Source::Operation(value) => Poll::Ready(value(&self.work, ended)),
            Source::Callback(promise) => promise.poll(context),
        }
    }
}

impl<T: Clone> Promise<T> {
    fn new() -> Promise<T> {
        let state = State { outcome: None, wakers: Vec::new(), callbacks: Vec::new() };
        Promise { state: Mutex::new(state), settled: Condvar::new() }
    }

    fn settle(&self, outcome: Result<T>) {
        let (wakers, callbacks) = {
            let mut state = self.lock();
            state.outcome = Some(outcome);
            (std::mem::take(&mut state.wakers), std::mem::take(&mut state.callbacks))
        };
        self.settled.notify_all();
        wakers.into_iter().for_each(Waker::wake);
        callbacks.into_iter().for_each(crate::completion::guarded);
    }

    fn on_settled(&self, callback: impl FnOnce() + Send + 'static) {
        {
            let mut state = self.lock();
            if state.outcome.is_none() {
                state.callbacks.push(Box::new(callback));
                return;
            }
        }
        crate::completion::guarded(callback);
    }

    fn wait(&self) -> Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = self.lock();
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                state.wakers.push(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The state. No callback runs while it is held.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
