//! The handle on an operation that was issued. Knows no particular backend.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::backend::{Backend, Issued};
use crate::clock::{CAN_BLOCK, Instant};
use crate::executor::Completion;
use crate::{Error, Result, Tensor};

/// An operation that was issued: wait for it, `.await` it, or poll it.
///
/// Dropping a `Work` neither cancels nor waits: the operation goes on.
#[derive(Clone)]
#[must_use = "the operation is not done before the work is waited for"]
pub struct Work {
    inner: Arc<Inner>,
}

struct Inner {
    name: &'static str,
    sequence: u64,
    parts: Vec<(Arc<Completion>, Arc<dyn Backend>)>,
    /// Done when all parts are; the first part itself if it is the only one.
    whole: Arc<Completion>,
    outputs: Mutex<Vec<Tensor>>,
}

impl Work {
    /// A work of one part for each of `issued`.
    pub(crate) fn new(
        name: &'static str,
        issued: Vec<(Issued, Arc<dyn Backend>)>,
        outputs: Vec<Tensor>,
    ) -> Work {
        let sequence = issued.first().map_or(0, |(issued, _)| issued.sequence);
        let parts: Vec<_> =
            issued.into_iter().map(|(issued, backend)| (issued.completion, backend)).collect();
        let whole = match parts.as_slice() {
            [(only, _)] => only.clone(),
            _ => all_of(&parts),
        };
        Work { inner: Arc::new(Inner { name, sequence, parts, whole, outputs: outputs.into() }) }
    }

    /// The method that was called: `allreduce`.
    pub fn name(&self) -> &'static str {
        self.inner.name
    }

    /// Sequence number of the operation in its group.
    pub fn sequence(&self) -> u64 {
        self.inner.sequence
    }

    /// Waits until it is done, driving it.
    ///
    /// # Errors
    /// The operation's own failure. With a `timeout` that expires, [`Error::WaitTimeout`]: that
    /// harms nothing, the operation goes on, and a later `wait` can succeed. A timeout of zero is
    /// none, as in c10d. [`Error::Unsupported`] in a browser, if it is not done.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.filter(|timeout| !timeout.is_zero());
        match self.wait_slice(timeout.unwrap_or(Duration::MAX)) {
            Some(result) => result,
            None if !CAN_BLOCK => Err(Error::Unsupported {
                who: "a browser".into(),
                operation: format!("waiting for {}; await its work", self.inner.name),
            }),
            None => Err(Error::WaitTimeout {
                collective: self.inner.name.into(),
                sequence: self.inner.sequence,
                waited_ms: timeout.unwrap_or_default().as_millis() as u64,
            }),
        }
    }

    /// Waits for at most `slice`; `None` if it is not done by then.
    pub fn wait_slice(&self, slice: Duration) -> Option<Result<()>> {
        let until = Instant::now().checked_add(slice);
        for (completion, backend) in &self.inner.parts {
            if !completion.is_done() && !backend.wait(completion, until) {
                return None;
            }
        }
        Some(self.inner.outcome())
    }

    /// Whether it is done, well or not. Does not block.
    pub fn is_completed(&self) -> bool {
        if !self.inner.whole.is_done() {
            let now = Instant::now();
            for (completion, backend) in &self.inner.parts {
                backend.wait(completion, Some(now));
            }
        }
        self.inner.whole.is_done()
    }

    /// Whether it is done, and well.
    pub fn is_success(&self) -> bool {
        matches!(self.inner.whole.result(), Some(Ok(())))
    }

    /// The error it ended with, if it has.
    pub fn error(&self) -> Option<Error> {
        self.inner.whole.error()
    }

    /// The tensors that hold the result. Their elements are defined once it is done.
    pub fn result(&self) -> Vec<Tensor> {
        self.inner.outputs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits, and hands back the tensors that were given to an `_async` call.
    ///
    /// # Errors
    /// As [`Work::wait`].
    pub fn into_result(self) -> Result<Vec<Tensor>> {
        self.wait(None)?;
        Ok(std::mem::take(&mut *self.inner.outputs.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Whether it is done, as far as is known: moves nothing, which somebody else must do.
    pub fn is_done(&self) -> bool {
        self.inner.whole.is_done()
    }

    /// Lets go of the tensors that hold the result.
    pub(crate) fn release_outputs(&self) {
        drop(std::mem::take(
            &mut *self.inner.outputs.lock().unwrap_or_else(PoisonError::into_inner),
        ));
    }

    /// The sender, for a receive that is done.
    pub fn source_rank(&self) -> Option<u32> {
        self.inner.parts.first().and_then(|(completion, _)| completion.source_rank())
    }

    /// Calls `callback` when it is done; at once if it is. The callback may run on any thread.
    pub fn on_done(&self, callback: impl FnOnce(&Result<()>) + Send + 'static) {
        self.inner.whole.on_done(callback);
    }
}

impl Future for Work {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(result) = self.inner.whole.result() {
            return Poll::Ready(result);
        }
        if self.inner.whole.register(context.waker()) {
            return Poll::Pending;
        }
        Poll::Ready(self.inner.outcome())
    }
}

impl Inner {
    /// How it ended, when all parts are done. The whole may be settled a moment after the last
    /// part.
    fn outcome(&self) -> Result<()> {
        let failed = self.parts.iter().find_map(|(completion, _)| completion.error());
        failed.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, sequence, whole, .. } = &*self.inner;
        write!(f, "Work({name} {sequence}, {:?})", whole.result())
    }
}

/// A completion that is settled when all parts are, with the first error if there is one.
fn all_of(parts: &[(Arc<Completion>, Arc<dyn Backend>)]) -> Arc<Completion> {
    let whole = Arc::new(Completion::new());
    if parts.is_empty() {
        whole.settle(Ok(()));
        return whole;
    }
    let left = Arc::new(AtomicUsize::new(parts.len()));
    let first_error = Arc::new(Mutex::new(None));
    for (completion, _) in parts {
        let (whole, left, first_error) = (whole.clone(), left.clone(), first_error.clone());
        completion.on_done(move |result| {
            let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = result {
                first.get_or_insert_with(|| error.clone());
            }
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                whole.settle(first.take().map_or(Ok(()), Err));
            }
        });
    }
    whole
}
