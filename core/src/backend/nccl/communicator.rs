//! A communicator: one rank's handle on the ranks of a group, on one device, with the stream on
//! which its operations run. Knows no operation, and no store but by the watch that it asks.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::abort_watch::{AbortWatch, WaitLimit};
use super::config::{Config, Names, config};
use super::functions::{Comm, Functions, NO_COLOR, UniqueId, code};
use super::library::LoadedLibrary;
use super::{NcclConfig, NcclOptions};
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::rendezvous::timed_out;
use crate::spin::PollStages;
use crate::tensor::cuda::{Gpu, Stream};

/// How it is asked whether a call is done: the library works on threads of its own meanwhile.
const STAGES: PollStages = PollStages {
    spin: Duration::ZERO,
    yielding: Duration::from_micros(200),
    nap: Duration::from_micros(50),
};
/// How long a wait goes on before it is asked whether the group broke meanwhile.
const CALM: Duration = Duration::from_millis(20);
/// How long it may take to leave cleanly what is not used any more.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// One communicator of this process.
pub(super) struct Communicator {
    found: &'static LoadedLibrary,
    /// None once it was destroyed or aborted. The library takes one call at a time.
    raw: Mutex<Option<Handle>>,
    pub(super) gpu: Arc<Gpu>,
    pub(super) stream: Arc<Stream>,
    pub(super) rank: u32,
    pub(super) size: u32,
    /// What the library may use until this communicator is gone: of its own making, and of those
    /// that were split off it.
    making: Mutex<Vec<Arc<InitBuffers>>>,
}

#[derive(Clone, Copy)]
struct Handle(Comm);

// SAFETY: the library takes its handles on any thread, one call at a time, which the lock ensures.
unsafe impl Send for Handle {}

/// What the library reads and writes after the call that was given it has returned, on a thread of
/// its own: communicators that do not block are made meanwhile.
struct InitBuffers {
    /// Where the handle goes, at the beginning and once more at the end.
    place: AtomicPtr<c_void>,
    config: UnsafeCell<Config>,
    _names: Names,
}

// SAFETY: the pointers in the configuration are those of the names, which nobody changes.
unsafe impl Send for InitBuffers {}
// SAFETY: as above; the library alone uses the configuration.
unsafe impl Sync for InitBuffers {}

/// A communicator that was begun by splitting another, to be joined.
pub(super) struct Share {
    handle: Option<Handle>,
    found: &'static LoadedLibrary,
    gpu: Arc<Gpu>,
    making: Arc<InitBuffers>,
}

/// The id of a new communicator, whose ranks meet in this process.
///
/// # Errors
/// [`Error::Network`] with the library's words.
pub(super) fn new_id(found: &LoadedLibrary) -> Result<Vec<u8>> {
    let mut id = UniqueId([0; UniqueId::BYTES]);
    // SAFETY: the argument is where an id goes.
    let answer = unsafe { (found.functions.get_unique_id)(&raw mut id) };
    check(&found.functions, std::ptr::null_mut(), answer, "ncclGetUniqueId")?;
    Ok(id.0.to_vec())
}

impl Communicator {
    /// Meets the others that have the same `id`.
    ///
    /// # Errors
    /// [`Error::RendezvousTimeout`] if some have not come by `until`; [`Error::Network`] with the
    /// library's words.
    pub(super) fn join(
        found: &'static LoadedLibrary,
        gpu: &Arc<Gpu>,
        id: &[u8],
        (rank, size): (u32, u32),
        options: &NcclOptions,
        limit: WaitLimit<'_>,
    ) -> Result<Communicator> {
        let id = id.first_chunk().copied().map(UniqueId).ok_or_else(|| Error::Rendezvous {
            message: format!("rank 0 gave an NCCL id of {} bytes", id.len()),
        })?;
        let stream = Arc::new(Stream::new(gpu, options.is_high_priority_stream)?);
        let making = InitBuffers::new(&options.config)?;
        let entered = gpu.enter()?;
        // SAFETY: all pointers are of what lives until the communicator is gone.
        let answer = unsafe {
            (found.functions.comm_init)(
                making.place.as_ptr(),
                size as c_int,
                id,
                rank as c_int,
                making.config(),
            )
        };
        drop(entered);
        check(&found.functions, std::ptr::null_mut(), answer, "ncclCommInitRankConfig")?;
        let raw = Mutex::new(making.handle());
        let making = Mutex::new(vec![making]);
        let made = Communicator { found, raw, gpu: gpu.clone(), stream, rank, size, making };
        made.ready(limit)
    }

    /// Begins to make a communicator of some of this one's ranks; all of them call this. Those
    /// without `color` get none.
    ///
    /// # Errors
    /// [`Error::Network`] with the library's words, or if not all ranks have called it in time.
    /// Then the library may still be at it, and this communicator is of no use any more.
    pub(super) fn split(
        &self,
        color: Option<u32>,
        key: u32,
        options: &NcclOptions,
        limit: WaitLimit<'_>,
    ) -> Result<Share> {
        let color = color.map_or(NO_COLOR, |color| (color & 0x7fff_ffff) as c_int);
        let making = InitBuffers::new(&options.config)?;
        self.making.lock().unwrap_or_else(PoisonError::into_inner).push(making.clone());
        self.call("ncclCommSplit", |functions, comm| {
            let (place, config) = (making.place.as_ptr(), making.config());
            // SAFETY: the handle is ours, and the pointers are of what lives until it is gone.
            unsafe { (functions.comm_split)(comm, color, key as c_int, place, config) }
        })?;
        self.settle(limit)?;
        Ok(Share { handle: making.handle(), found: self.found, gpu: self.gpu.clone(), making })
    }

    /// Calls the library with the handle.
    ///
    /// # Errors
    /// [`Error::Network`] with the library's words, or if the communicator was aborted.
    pub(super) fn call(
        &self,
        name: &str,
        call: impl FnOnce(&Functions, Comm) -> c_int,
    ) -> Result<()> {
        let raw = self.lock();
        let Some(Handle(comm)) = *raw else { return Err(gone()) };
        let _entered = self.gpu.enter()?;
        let functions = &self.found.functions;
        check(functions, comm, call(functions, comm), name)
    }

    /// Waits until the last call is done as far as the host is concerned.
    ///
    /// # Errors
    /// [`Error::Network`] with the library's words, or if it is not done in time; that the group
    /// broke.
    pub(super) fn settle(&self, limit: WaitLimit<'_>) -> Result<()> {
        let since = Instant::now();
        loop {
            if self.is_settled()? {
                return Ok(());
            }
            let now = Instant::now();
            if now >= limit.until {
                let message = "NCCL did not take an operation in time".to_owned();
                return Err(Error::Network { message });
            }
            let waited = now - since;
            if waited >= CALM {
                limit.watch.check(waited)?;
            }
            STAGES.pause(waited, false);
        }
    }

    /// Whether the last call is done, and nothing has failed since.
    ///
    /// # Errors
    /// [`Error::Network`] with what failed, here or at another rank.
    pub(super) fn is_settled(&self) -> Result<bool> {
        self.with_state(|functions, comm, state| match state {
            code::SUCCESS => Ok(true),
            code::IN_PROGRESS => Ok(false),
            failed => {
                let why = if failed == code::REMOTE_ERROR { "another rank" } else { "NCCL" };
                check(functions, comm, failed, why).map(|()| false)
            }
        })
    }

    /// Whether the library says that it failed at another rank, not here.
    fn failed_elsewhere(&self) -> bool {
        let state = self.with_state(|_, _, state| Ok(state));
        state.is_ok_and(|state| state == code::REMOTE_ERROR)
    }

    /// Runs `run` with what the library says of the last call. Nobody else has the handle then.
    fn with_state<R>(&self, run: impl FnOnce(&Functions, Comm, c_int) -> Result<R>) -> Result<R> {
        let raw = self.lock();
        let Some(Handle(comm)) = *raw else { return Err(gone()) };
        let functions = &self.found.functions;
        let mut state: c_int = code::SUCCESS;
        // SAFETY: the handle is ours, and the second argument is where a result goes.
        let answer = unsafe { (functions.comm_async_error)(comm, &raw mut state) };
        check(functions, comm, answer, "ncclCommGetAsyncError")?;
        run(functions, comm, state)
    }

    /// Ends what is under way on the device, and the communicator. May take a while.
    pub(super) fn abort(&self) {
        // A thread that comes second returns when it is over, too.
        let mut raw = self.lock();
        if let Some(handle) = raw.take() {
            abort(&self.found.functions, &self.gpu, handle);
        }
    }

    /// Leaves cleanly, when nothing is under way.
    pub(super) fn leave(&self) {
        let finalized = self.call("ncclCommFinalize", |functions, comm| {
            // SAFETY: the handle is ours, and nothing is issued after this.
            unsafe { (functions.comm_finalize)(comm) }
        });
        let limit = WaitLimit { until: Instant::now() + LEAVE_LIMIT, watch: &AbortWatch::none() };
        let settled = finalized.and_then(|()| self.settle(limit));
        if settled.is_err() {
            return self.abort();
        }
        let Some(Handle(comm)) = self.lock().take() else { return };
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: it was finalised, and nobody has the handle any more.
        let answer = unsafe { (self.found.functions.comm_destroy)(comm) };
        let destroyed =
            check(&self.found.functions, std::ptr::null_mut(), answer, "ncclCommDestroy");
        if let Err(error) = destroyed {
            tracing::debug!(%error, "a communicator is not destroyed");
        }
    }

    /// The communicator, when all others are there and it is what it should be.
    fn ready(self, limit: WaitLimit<'_>) -> Result<Communicator> {
        if let Err(error) = self.settle(limit) {
            let is_late = Instant::now() >= limit.until && matches!(self.is_settled(), Ok(false));
            if self.failed_elsewhere() {
                limit.watch.poll_failure();
            }
            self.abort();
            let message = format!(
                "not all of {} ranks came to their NCCL communicator: every rank of the group must \
                 make its first call on CUDA tensors",
                self.size
            );
            return Err(if is_late { timed_out(self.rank, Vec::new(), message) } else { error });
        }
        let (mut rank, mut size): (c_int, c_int) = (-1, -1);
        self.call("ncclCommUserRank", |functions, comm| {
            // SAFETY: the handle is ours, and the second argument is where a number goes.
            unsafe { (functions.comm_user_rank)(comm, &raw mut rank) }
        })?;
        self.call("ncclCommCount", |functions, comm| {
            // SAFETY: as above.
            unsafe { (functions.comm_count)(comm, &raw mut size) }
        })?;
        if (rank, size) == (self.rank as c_int, self.size as c_int) {
            return Ok(self);
        }
        self.abort();
        let message = format!(
            "NCCL made this rank {rank} of {size}, and it should be rank {} of {}",
            self.rank, self.size
        );
        Err(Error::Rendezvous { message })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Handle>> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Without the lock: in a forked child, a thread that is not there may have it.
        let raw = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = raw.take() {
            abort(&self.found.functions, &self.gpu, handle);
        }
    }
}

impl InitBuffers {
    fn new(chosen: &NcclConfig) -> Result<Arc<InitBuffers>> {
        let (config, names) = config(chosen)?;
        let place = AtomicPtr::new(std::ptr::null_mut());
        Ok(Arc::new(InitBuffers { place, config: UnsafeCell::new(config), _names: names }))
    }

    /// The handle, if there is one.
    fn handle(&self) -> Option<Handle> {
        let handle: Comm = self.place.load(Ordering::Acquire);
        (!handle.is_null()).then_some(Handle(handle))
    }

    /// What the library is told, which nobody else looks at any more.
    fn config(&self) -> *mut Config {
        self.config.get()
    }
}

impl Share {
    /// The communicator, when all of its ranks are there; none for a rank without a color.
    ///
    /// # Errors
    /// As [`Communicator::join`].
    pub(super) fn join(
        mut self,
        (rank, size): (u32, u32),
        options: &NcclOptions,
        limit: WaitLimit<'_>,
    ) -> Result<Option<Communicator>> {
        if self.handle.is_none() {
            return Ok(None);
        }
        let stream = Arc::new(Stream::new(&self.gpu, options.is_high_priority_stream)?);
        let (raw, gpu) = (Mutex::new(self.handle.take()), self.gpu.clone());
        let making = Mutex::new(vec![self.making.clone()]);
        let made = Communicator { found: self.found, raw, gpu, stream, rank, size, making };
        made.ready(limit).map(Some)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            abort(&self.found.functions, &self.gpu, handle);
        }
    }
}

/// Ends what is under way in a communicator that nobody has any more, and the communicator.
fn abort(functions: &Functions, gpu: &Gpu, Handle(comm): Handle) {
    let Ok(_entered) = gpu.enter() else { return };
    // SAFETY: the handle is ours, and nobody has it any more.
    let answer = unsafe { (functions.comm_abort)(comm) };
    if let Err(error) = check(functions, std::ptr::null_mut(), answer, "ncclCommAbort") {
        tracing::debug!(%error, "a communicator is not aborted");
    }
}

/// An error unless `answer` is that of success, or that it takes a while.
///
/// # Errors
/// [`Error::Network`] with the library's own words.
fn check(functions: &Functions, comm: Comm, answer: c_int, name: &str) -> Result<()> {
    if matches!(answer, code::SUCCESS | code::IN_PROGRESS) {
        return Ok(());
    }
    let words = |text: *const c_char| match text.is_null() {
        true => String::new(),
        // SAFETY: what the library returns is a text that ends with a zero, of its own.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    };
    // SAFETY: the function takes any code.
    let code_words = words(unsafe { (functions.error_string)(answer) });
    // SAFETY: the handle is ours, or null, which the function takes.
    let last_words = words(unsafe { (functions.last_error)(comm) });
    let more = if last_words.is_empty() { String::new() } else { format!(": {last_words}") };
    Err(Error::Network { message: format!("{name} failed with code {answer}: {code_words}{more}") })
}

fn gone() -> Error {
    Error::Network { message: "the NCCL communicator was aborted".to_owned() }
}

/// A stream's handle as the library takes it.
pub(super) fn stream_of(raw: usize) -> *mut c_void {
    raw as *mut c_void
}
