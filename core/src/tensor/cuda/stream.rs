//! Streams and events: what is issued on a device in which order. Knows no memory.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::{Gpu, checked};
use crate::generated::error::Result;

/// A stream of our own.
pub(crate) struct Stream {
    gpu: Arc<Gpu>,
    raw: sys::CUstream,
}

// SAFETY: the driver takes its handles on any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; it locks for itself.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that does not wait for the legacy default stream. With `high_priority` its kernels
    /// come before those of other streams.
    ///
    /// # Errors
    /// [`crate::Error::Network`] with the driver's words.
    pub(crate) fn new(gpu: &Arc<Gpu>, high_priority: bool) -> Result<Stream> {
        let _entered = gpu.enter()?;
        let (_, greatest) =
            checked("cuCtxGetStreamPriorityRange", result::stream::get_priority_range())?;
        let priority = if high_priority { greatest } else { 0 };
        let kind = result::stream::StreamKind::NonBlocking;
        let raw = result::stream::create_with_priority(kind, priority);
        Ok(Stream { gpu: gpu.clone(), raw: checked("cuStreamCreateWithPriority", raw)? })
    }

    /// The handle.
    pub(crate) fn raw(&self) -> usize {
        self.raw as usize
    }

    /// The device that it is of.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: it was made here and is destroyed once; what was issued on it continues.
        let _ = unsafe { result::stream::destroy(self.raw) };
    }
}

/// A moment in the order of a stream.
pub(crate) struct Event {
    gpu: Arc<Gpu>,
    raw: sys::CUevent,
}

// SAFETY: the driver takes its handles on any thread.
unsafe impl Send for Event {}
// SAFETY: as above; it locks for itself.
unsafe impl Sync for Event {}

impl Event {
    /// The moment after everything that was issued on `stream`, one of `gpu`, so far.
    ///
    /// # Errors
    /// [`crate::Error::Network`] with the driver's words.
    pub(crate) fn now(gpu: &Arc<Gpu>, stream: usize) -> Result<Event> {
        let _entered = gpu.enter()?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let raw = checked("cuEventCreate", result::event::create(flags))?;
        let event = Event { gpu: gpu.clone(), raw };
        // SAFETY: the event was just made; the stream is one of the device by the caller's word.
        let recorded = unsafe { result::event::record(raw, stream as sys::CUstream) };
        checked("cuEventRecord", recorded)?;
        Ok(event)
    }

    /// Whether it has come.
    ///
    /// # Errors
    /// [`crate::Error::Network`] if something on the device failed.
    pub(crate) fn is_over(&self) -> Result<bool> {
        // SAFETY: the event lives as long as this.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => Ok(true),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => checked("an operation before an event", Err(error)),
        }
    }

    /// Has what is issued on `stream` from now on wait for it.
    ///
    /// # Errors
    /// [`crate::Error::Network`] with the driver's words.
    pub(crate) fn comes_before(&self, stream: usize) -> Result<()> {
        let _entered = self.gpu.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event lives as long as this; the stream is one that the caller uses.
        let ordered =
            unsafe { result::stream::wait_event(stream as sys::CUstream, self.raw, flags) };
        checked("cuStreamWaitEvent", ordered)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.gpu.is_usable() {
            return;
        }
        // SAFETY: it was made here and is destroyed once; what waits for it continues.
        let _ = unsafe { result::event::destroy(self.raw) };
    }
}
