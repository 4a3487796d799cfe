//! The handle on an operation that was issued. Knows no particular backend.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::backend::{Backend, IssuedOperation};
use crate::blocking::WaitMode;
use crate::clock::{CAN_BLOCK, Instant};
use crate::completion::{Completion, guarded};
use crate::generated::error::{Error, Result};
use crate::kernels::CompressionLoss;
#[cfg(feature = "tcp")]
use crate::recorder::Recorder;
use crate::store::{INTERRUPT_CHECK_INTERVAL, is_interrupted};
use crate::tensor::{OnDevice, Tensor};
use comm_name::CommName;
use losses::Losses;

mod called_name;
pub(crate) mod comm_name;
mod derived;
mod described;
mod future;
pub(crate) mod group_names;
mod label;
#[cfg(feature = "tcp")]
mod logged;
pub(crate) mod losses;
mod result;
mod shown;
#[cfg(all(test, feature = "tcp"))]
mod tests;

pub use derived::WorkEnd;
pub use future::Future;
pub(crate) use label::OperationLabel;
pub use result::WorkResult;

/// An operation that was issued: wait for it, `.await` it, or poll it.
///
/// Dropping a `Work` neither cancels nor waits: the operation continues.
#[derive(Clone)]
#[must_use = "the operation is not done before the work is waited for"]
pub struct Work {
    name: &'static str,
    sequence: u64,
    /// The identity of its group.
    group: u64,
    /// `None` if it had succeeded when it was made, and has no tensors.
    inner: Option<Arc<Inner>>,
}

/// An operation of a backend, and who moves it.
type Part = (Arc<Completion>, Arc<dyn Backend>);

struct Inner {
    /// The method that was called.
    name: &'static str,
    began: Instant,
    sequence: u64,
    parts: Vec<Part>,
    /// What follows the parts, if anything does: ended by itself when they are done.
    endings: Vec<Arc<Completion>>,
    /// Done when all parts are, and what follows them; with a single one, that itself.
    whole: Arc<Completion>,
    /// Whether what follows the parts says how it ended, whatever became of them.
    ends_by_itself: bool,
    outputs: Mutex<Vec<Tensor>>,
    /// The devices of the tensors that are written or read.
    devices: Vec<OnDevice>,
    /// What was lost where elements travel compressed.
    losses: OnceLock<Arc<Losses>>,
    /// What the user calls it.
    comm_name: Option<CommName>,
    /// Whether somebody is to be told of its end, so that it is moved without delay.
    is_hastened: AtomicBool,
    /// Whether its failure was logged.
    #[cfg(feature = "tcp")]
    is_failure_told: AtomicBool,
    /// Where it is recorded.
    #[cfg(feature = "tcp")]
    recorder: Option<Arc<Recorder>>,
}

impl Work {
    /// A work with one part for each of `issued`, whose only tensors are the `outputs`.
    pub(crate) fn new(
        label: OperationLabel,
        issued: Vec<(IssuedOperation, Arc<dyn Backend>)>,
        outputs: Vec<Tensor>,
    ) -> Work {
        let devices = outputs.iter().filter_map(|tensor| tensor.region().device()).collect();
        Work::on_devices(label, issued, outputs, devices)
    }

    /// As [`Work::new`], where tensors on `devices` are written or read.
    pub(crate) fn on_devices(
        label: OperationLabel,
        issued: Vec<(IssuedOperation, Arc<dyn Backend>)>,
        outputs: Vec<Tensor>,
        devices: Vec<OnDevice>,
    ) -> Work {
        Work::followed(label, issued, Vec::new(), outputs, devices)
    }

    /// As [`Work::on_devices`], done when `endings` are, which follow the parts; they need nobody
    /// to move them.
    pub(crate) fn followed(
        label: OperationLabel,
        issued: Vec<(IssuedOperation, Arc<dyn Backend>)>,
        endings: Vec<Arc<Completion>>,
        outputs: Vec<Tensor>,
        devices: Vec<OnDevice>,
    ) -> Work {
        let sequence = issued.first().map_or(0, |(issued, _)| issued.sequence);
        let parts: Vec<_> =
            issued.into_iter().map(|(issued, backend)| (issued.completion, backend)).collect();
        // Streams are put in order without a wait.
        #[cfg(feature = "tcp")]
        let endings = match devices.is_empty() {
            true => endings.into_iter().chain(label.located(&parts)).collect(),
            false => endings,
        };
        let whole = match (endings.as_slice(), parts.as_slice()) {
            ([only], _) | ([], [(only, _)]) => only.clone(),
            ([], parts) => all_of(parts.iter().map(|(completion, _)| completion)),
            (endings, _) => all_of(endings.iter()),
        };
        let began = label.began;
        #[cfg(feature = "tcp")]
        let (label, recorder) = {
            let numbers = (sequence, parts.len().max(1) as u64);
            label.recorded(numbers, began, &whole)
        };
        let OperationLabel { name, group, comm_name, .. } = label;
        let (outputs, is_hastened) = (outputs.into(), AtomicBool::new(false));
        let losses = OnceLock::new();
        let inner = Inner {
            name,
            began,
            sequence,
            parts,
            endings,
            whole,
            ends_by_itself: false,
            outputs,
            devices,
            losses,
            comm_name,
            is_hastened,
            #[cfg(feature = "tcp")]
            is_failure_told: AtomicBool::new(false),
            #[cfg(feature = "tcp")]
            recorder,
        };
        Work { name, sequence, group, inner: Some(Arc::new(inner)) }
    }

    /// The same, where elements travel compressed.
    pub(crate) fn with_losses(self, losses: Arc<Losses>) -> Work {
        if let Some(inner) = &self.inner {
            let _ = inner.losses.set(losses);
        }
        self
    }

    /// The operations that it waits for.
    pub(crate) fn parts(&self) -> Vec<(IssuedOperation, Arc<dyn Backend>)> {
        let sequence = self.sequence;
        let parts = self.inner.iter().flat_map(|inner| &inner.parts);
        let part = |(completion, backend): &(Arc<Completion>, Arc<dyn Backend>)| {
            (IssuedOperation { sequence, completion: completion.clone() }, backend.clone())
        };
        parts.map(part).collect()
    }

    /// The work of an operation of this name that is done, in the group of this identity.
    pub fn done(name: &'static str, group: u64, sequence: u64) -> Work {
        Work { name, sequence, group, inner: None }
    }

    /// The method that was called: `allreduce`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What messages call it: the method, and what [`record_comm`](crate::record_comm) calls it:
    /// `allreduce 'layer 1'`.
    pub fn title(&self) -> String {
        let comm_name = self.inner.as_ref().and_then(|inner| inner.comm_name.as_ref());
        comm_name.map_or_else(|| self.name.to_owned(), |it| it.beside(self.name))
    }

    /// Sequence number of the operation in its group.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// How long it took, or has taken so far; zero if it was done when its call returned.
    pub fn duration(&self) -> Duration {
        let Some(inner) = &self.inner else { return Duration::ZERO };
        inner.end().map_or_else(|| inner.began.elapsed(), |(_, took)| took)
    }

    /// The error that compression made of what this rank compressed: its tensors, and in an
    /// allreduce the part of the result that it reduced. None where nothing is compressed, and
    /// before it is done.
    pub fn compression_error(&self) -> Option<CompressionLoss> {
        let losses = self.inner.as_ref()?.losses.get()?;
        self.is_done().then(|| losses.all())
    }

    /// Waits until it is done, driving it.
    ///
    /// # Errors
    /// The operation's own failure. With a `timeout` that expires, [`Error::WaitTimeout`]: that
    /// is harmless: the operation continues, and a later `wait` can succeed. A timeout of zero
    /// means none, as in c10d. Without one, a work of device tensors does not block: the streams of
    /// their owners wait for it instead. [`Error::Unsupported`] in a browser, if it is not done.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        if self.inner.is_none() {
            return Ok(());
        }
        let timeout = timeout.filter(|timeout| !timeout.is_zero());
        if timeout.is_none()
            && let Some(ordered) = self.order()
        {
            return ordered;
        }
        match self.wait_slice(timeout.unwrap_or(Duration::MAX)) {
            Some(result) => result,
            None if !CAN_BLOCK => Err(Error::Unsupported {
                who: "a browser".into(),
                operation: format!("waiting for {}; await its work", self.name),
            }),
            None => Err(Error::WaitTimeout {
                collective: self.title(),
                sequence: self.sequence,
                waited_ms: timeout.unwrap_or_default().as_millis() as u64,
            }),
        }
    }

    /// Has what the tensors' owners issue from now on, on the streams of the devices where their
    /// tensors are, come after the operation: what waiting without a timeout does for tensors of
    /// devices. `None` if that is no way to wait for it.
    pub fn order(&self) -> Option<Result<()>> {
        self.order_on(&[])
    }

    /// As [`Work::order`], for what is issued on these streams instead: those that are the waiter's
    /// current ones, one of each device. Those of the tensors' owners count for devices of which
    /// none is given.
    pub fn order_on(&self, waiter: &[OnDevice]) -> Option<Result<()>> {
        let inner = self.inner.as_ref()?;
        if inner.is_settled() {
            return Some(inner.outcome());
        }
        if !inner.endings.is_empty() {
            return None;
        }
        let mut ordered = None;
        for (completion, backend) in &inner.parts {
            ordered = match completion.result() {
                Some(Err(error)) => return Some(inner.described(Err(error))),
                Some(Ok(())) => continue,
                None => match backend.order(completion, waiter) {
                    Some(Err(error)) => return Some(inner.described(Err(error))),
                    // It may be done by now, and then it needs no order.
                    None if completion.is_done() => continue,
                    None => return None,
                    ordered => ordered,
                },
            };
        }
        ordered
    }

    /// Waits for at most `slice`; `None` if it is not done by then.
    pub fn wait_slice(&self, slice: Duration) -> Option<Result<()>> {
        let Some(inner) = &self.inner else { return Some(Ok(())) };
        if !inner.whole.is_done() {
            inner.whole.note_awaited();
        }
        #[cfg(feature = "tcp")]
        let _span = inner.span().entered();
        let until = Instant::now().checked_add(slice);
        for (completion, backend) in &inner.parts {
            if !completion.is_done() && !backend.wait(completion, until) {
                return None;
            }
        }
        for ending in &inner.endings {
            if !ending.is_done() && !ending.park(until) {
                return None;
            }
        }
        inner.is_settled().then(|| inner.outcome())
    }

    /// Whether it is done, well or not. Does not block.
    pub fn is_completed(&self) -> bool {
        let Some(inner) = &self.inner else { return true };
        if !inner.whole.is_done() {
            inner.whole.note_polled();
            let now = Instant::now();
            for (completion, backend) in &inner.parts {
                backend.wait(completion, Some(now));
            }
        }
        inner.is_settled()
    }

    /// Whether it is done, for a caller that will otherwise be told of its end: looks for as long
    /// as it would take to wake another thread, if that has helped lately, and has it moved without
    /// delay from then on.
    pub fn is_completed_soon(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.hasten())
    }

    /// Moves it for up to `limit`, without a sleep; whether it is done. If not, the caller has a
    /// thread wait for it.
    pub(crate) fn poll_for(&self, limit: Duration) -> bool {
        let Some(inner) = &self.inner else { return true };
        let start = Instant::now();
        let is_moved = inner.parts.iter().all(|(completion, backend)| {
            completion.is_done()
                || backend.poll_for(completion, limit.saturating_sub(start.elapsed()))
        });
        is_moved && inner.is_settled()
    }

    /// As [`Work::poll_for`], and no longer than about `idle_limit` after anything moved.
    pub(crate) fn poll_while_moving(&self, idle_limit: Duration, limit: Duration) -> bool {
        let Some(inner) = &self.inner else { return true };
        let start = Instant::now();
        let is_moved = inner.parts.iter().all(|(completion, backend)| {
            let left = limit.saturating_sub(start.elapsed());
            completion.is_done() || backend.poll_while_moving(completion, idle_limit, left)
        });
        is_moved && inner.is_settled()
    }

    /// Whether it is done, and well.
    pub fn is_success(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| matches!(inner.whole.result(), Some(Ok(()))))
    }

    /// The error it ended with, if it has.
    pub fn error(&self) -> Option<Error> {
        let inner = self.inner.as_ref().filter(|inner| inner.whole.is_done())?;
        inner.outcome().err()
    }

    /// The devices on which its tensors lie, written or only read, and the streams of their owners.
    pub fn devices(&self) -> Vec<OnDevice> {
        self.inner.as_ref().map(|inner| inner.devices.clone()).unwrap_or_default()
    }

    /// The tensors that hold the result. Their elements are defined once it is done.
    pub fn result(&self) -> Vec<Tensor> {
        self.inner.as_ref().map(|inner| inner.outputs().clone()).unwrap_or_default()
    }

    /// Waits, and hands back the tensors that were given to an `_async` call.
    ///
    /// # Errors
    /// As [`Work::wait`].
    pub fn into_result(self) -> Result<Vec<Tensor>> {
        self.wait(None)?;
        Ok(self.inner.map(|inner| std::mem::take(&mut *inner.outputs())).unwrap_or_default())
    }

    /// Waits as the caller waits: on this thread, or as a task.
    ///
    /// # Errors
    /// The operation's own failure.
    pub(crate) async fn settle(&self) -> Result<()> {
        if WaitMode::current() == WaitMode::Await {
            return self.clone().await;
        }
        if let Some(ordered) = self.order() {
            return ordered;
        }
        loop {
            match self.wait_slice(INTERRUPT_CHECK_INTERVAL) {
                Some(result) => return result,
                None if !CAN_BLOCK => return self.wait(None),
                None if is_interrupted() => {
                    let message = format!("interrupted while waiting for {}", self.title());
                    return Err(Error::Store { message });
                }
                None => {}
            }
        }
    }

    /// Whether it is done, as far as is known: moves nothing, which somebody else must do.
    pub fn is_done(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.whole.is_done())
    }

    /// Releases the tensors that hold the result.
    #[doc(hidden)]
    pub fn release_outputs(&self) {
        if let Some(inner) = &self.inner {
            drop(std::mem::take(&mut *inner.outputs()));
        }
    }

    /// The sender, for a receive that is done, also if messages were sent together with it.
    pub fn source_rank(&self) -> Option<u32> {
        let parts = &self.inner.as_ref()?.parts;
        let mut senders = parts.iter().filter_map(|(completion, _)| completion.source_rank());
        // Of several receives there is no one sender.
        senders.next().filter(|_| senders.next().is_none())
    }

    /// The sender of a receive that ended well.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if the backend did not say it, which every backend must.
    pub(crate) fn sender(&self) -> Result<u32> {
        self.source_rank().ok_or_else(|| Error::InvalidGroup {
            message: "the backend ended a receive without naming its sender".to_owned(),
        })
    }

    /// Calls `callback` when it is done; immediately if it is. As [`Work::is_completed_soon`], it
    /// may look for the end for a moment, and run other callbacks. The callback may run on any
    /// thread, and may wait for other operations; if it does so on the thread that moves what
    /// nobody waits for, other groups of this process stand still meanwhile, unless somebody waits
    /// for them. A panic in it, of which the panic hook tells, ends nothing but the callback.
    pub fn on_done(&self, callback: impl FnOnce(&Result<()>) + Send + 'static) {
        match &self.inner {
            Some(inner) => {
                inner.hasten();
                inner.whole.on_done(inner.describing(callback));
            }
            None => guarded(|| callback(&Ok(()))),
        }
    }

    /// As [`Work::on_done`], for a callback that does not say how it ended: the caller asks for
    /// that. An error that nobody has asked for is reported when the group is left.
    pub fn on_end(&self, callback: impl FnOnce() + Send + 'static) {
        match &self.inner {
            Some(inner) => {
                inner.hasten();
                inner.whole.on_end(move |_| callback());
            }
            None => guarded(callback),
        }
    }

    /// As [`Work::on_end`], for a callback that is told how it ended, which does not count as
    /// asking for that, and in no hurry.
    pub(crate) fn on_outcome(&self, callback: impl FnOnce(&Result<()>) + Send + 'static) {
        match &self.inner {
            Some(inner) => inner.whole.on_end(inner.describing(callback)),
            None => guarded(|| callback(&Ok(()))),
        }
    }

    /// As [`Work::on_end`], for a caller that has a thread wait for it.
    pub(crate) fn on_awaited_end(&self, callback: impl FnOnce() + Send + 'static) {
        match &self.inner {
            Some(inner) => inner.whole.on_end(move |_| callback()),
            None => guarded(callback),
        }
    }
}

/// The first poll looks for the end as [`Work::is_completed_soon`] does.
impl std::future::Future for Work {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(inner) = &self.inner else { return Poll::Ready(Ok(())) };
        #[cfg(feature = "tcp")]
        let _span = inner.span().entered();
        if inner.hasten() {
            return Poll::Ready(inner.outcome());
        }
        if inner.whole.register(context.waker()) {
            return Poll::Pending;
        }
        Poll::Ready(inner.outcome())
    }
}

impl Inner {
    /// Has it moved without delay, as somebody is to be told of its end; whether it is done.
    fn hasten(&self) -> bool {
        if !self.whole.is_done() && !self.is_hastened.swap(true, Ordering::Relaxed) {
            self.whole.note_awaited();
            let open = self.parts.iter().filter(|(completion, _)| !completion.is_done());
            open.for_each(|(completion, backend)| backend.hasten(completion));
        }
        self.whole.is_done()
    }

    /// Whether all parts are done, and what follows them. The thread that ended the last of them
    /// may still be about to settle the whole, or run callbacks that wait for this work: who sees
    /// the end settles it, so that all that is asked from then on agrees.
    fn is_settled(&self) -> bool {
        if !self.whole.is_done() && self.completions().all(|completion| completion.is_done()) {
            let failed = self.completions().find_map(|completion| completion.peek()?.err());
            self.whole.complete(failed.map_or(Ok(()), Err));
        }
        self.whole.is_done()
    }

    /// How it ended, when all parts are done, and what follows them.
    fn outcome(&self) -> Result<()> {
        let failed = match self.ends_by_itself {
            true => self.whole.error(),
            false => self.completions().find_map(|completion| completion.error()),
        };
        let outcome = self.described(failed.map_or(Ok(()), Err));
        #[cfg(feature = "tcp")]
        if let (Err(error), Some(recorder)) = (&outcome, &self.recorder) {
            recorder.note_failure(error);
            self.tell_failure(error);
        }
        outcome
    }

    fn completions(&self) -> impl Iterator<Item = &Arc<Completion>> {
        self.parts.iter().map(|(completion, _)| completion).chain(&self.endings)
    }

    /// How it ended, and after how long.
    fn end(&self) -> Option<(Result<()>, Duration)> {
        let (result, at) = self.whole.peek_end()?;
        Some((self.described(result), at.saturating_duration_since(self.began)))
    }

    fn outputs(&self) -> MutexGuard<'_, Vec<Tensor>> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A completion that is settled when all parts are, with the first error if there is one.
fn all_of<'a>(parts: impl ExactSizeIterator<Item = &'a Arc<Completion>>) -> Arc<Completion> {
    let whole = Arc::new(Completion::new());
    if parts.len() == 0 {
        whole.complete(Ok(()));
        return whole;
    }
    let left = Arc::new(AtomicUsize::new(parts.len()));
    let first_error = Arc::new(Mutex::new(None));
    for completion in parts {
        let (whole, left, first_error) = (whole.clone(), left.clone(), first_error.clone());
        completion.on_end(move |result| {
            let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = result {
                first.get_or_insert_with(|| error.clone());
            }
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                whole.complete(first.take().map_or(Ok(()), Err));
            }
        });
    }
    whole
}
