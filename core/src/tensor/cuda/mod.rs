//! CUDA devices, as far as tensors and operations on them need them: contexts, streams, events,
//! memory. The one place that knows cudarc, nothing of which is called before its probe said that
//! the driver is there: without one, everything past the probe panics.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::clock;
use crate::generated::error::{Error, Result};

mod memory;
mod stream;

#[cfg(feature = "nccl")]
pub(crate) use memory::{Scratch, copy};
pub use memory::{allocate, download, upload};
pub(crate) use memory::{synchronize, upload_into};
#[cfg(feature = "nccl")]
pub(crate) use stream::{Event, Stream};

/// The functions of the driver that are used. An old one lacks some, and calling them would panic.
const NEEDED: [&str; 27] = [
    "cuInit",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetPCIBusId",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetStreamPriorityRange",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuMemAlloc_v2",
    "cuMemAllocAsync",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// Whether this process can use CUDA devices: there is a driver, and it has at least one.
///
/// # Errors
/// What was looked for, and what is missing.
pub fn available() -> std::result::Result<(), String> {
    static PROBED: OnceLock<(u32, std::result::Result<(), String>)> = OnceLock::new();
    let (process, answer) = PROBED.get_or_init(|| (clock::process_id(), probe()));
    match answer {
        // The driver was started, and it does not live on in children.
        Ok(()) if *process != clock::process_id() => Err(FORKED.to_owned()),
        answer => answer.clone(),
    }
}

/// How many CUDA devices this process sees.
///
/// # Errors
/// [`Error::BackendUnavailable`] without a driver or a device; [`Error::Network`] with the driver's
/// words.
pub fn device_count() -> Result<u32> {
    check_available()?;
    let count = checked("cuDeviceGetCount", result::device::get_count())?;
    Ok(u32::try_from(count).unwrap_or(0))
}

fn check_available() -> Result<()> {
    available().map_err(|why| Error::BackendUnavailable { backend: "cuda".into(), why })
}

/// What the child of a process that used the driver is told.
const FORKED: &str = "CUDA was used before this process was forked, and the driver cannot be used \
                      in a forked child; start processes with 'spawn', or fork before CUDA is used";

fn probe() -> std::result::Result<(), String> {
    // SAFETY: what the driver does when it is loaded is its maker's affair.
    if !unsafe { sys::is_culib_present() } {
        let looked = "looked for libcuda.so and libcuda.so.1 where the system's loader looks";
        return Err(format!("there is no CUDA driver: {looked}"));
    }
    // SAFETY: the probe above found the library.
    let library = unsafe { sys::culib() };
    for name in NEEDED {
        // SAFETY: only whether there is such a symbol is looked at.
        if unsafe { library.get::<*mut c_void>(name.as_bytes()) }.is_err() {
            return Err(format!("the CUDA driver is too old: it lacks {name}"));
        }
    }
    let said = |what: &str, error: DriverError| format!("the CUDA driver fails in {what}: {error}");
    result::init().map_err(|error| said("cuInit", error))?;
    match result::device::get_count().map_err(|error| said("cuDeviceGetCount", error))? {
        0 => Err("the CUDA driver sees no device".to_owned()),
        _ => Ok(()),
    }
}

/// One device of this process.
pub(crate) struct Gpu {
    context: Arc<CudaContext>,
    index: u32,
    process: u32,
}

impl Gpu {
    /// The device with this index, whose primary context this process uses from now on.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`] without a driver; [`Error::InvalidArgument`] for an index that
    /// no device has; [`Error::Network`] with the driver's words.
    pub(crate) fn open(index: u32) -> Result<Arc<Gpu>> {
        static OPEN: OnceLock<Mutex<HashMap<u32, Arc<Gpu>>>> = OnceLock::new();
        check_available()?;
        let devices = OPEN.get_or_init(Mutex::default);
        let mut devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = devices.get(&index) {
            return Ok(gpu.clone());
        }
        let count = device_count()?;
        if index >= count {
            let message = format!("there is no CUDA device {index}: this process sees {count}");
            return Err(Error::InvalidArgument { message });
        }
        let before = DeviceGuard::remember()?;
        let context = checked("making a context", CudaContext::new(index as usize))?;
        drop(before);
        let gpu = Arc::new(Gpu { context, index, process: clock::process_id() });
        devices.insert(index, gpu.clone());
        Ok(gpu)
    }

    /// Its index.
    #[cfg(feature = "nccl")]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Where it is plugged in on this host: `0000:3b:00.0`.
    ///
    /// # Errors
    /// [`Error::Network`] with the driver's words.
    #[cfg(feature = "nccl")]
    pub(crate) fn bus_id(&self) -> Result<String> {
        /// With the zero at the end; the driver asks for at least 13.
        const BYTES: usize = 32;
        let mut text = [0_u8; BYTES];
        // SAFETY: the text has as many bytes as said, and the context keeps the device.
        let code = unsafe {
            sys::cuDeviceGetPCIBusId(
                text.as_mut_ptr().cast::<c_char>(),
                BYTES as c_int,
                self.context.cu_device(),
            )
        };
        checked("cuDeviceGetPCIBusId", code.result())?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(BYTES);
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    /// Whether it can be used here. What a forked child has of it is its parent's, and must not be
    /// touched: not even to release it.
    pub(crate) fn is_usable(&self) -> bool {
        self.process == clock::process_id()
    }

    /// Makes it the calling thread's, until what is returned is dropped.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`] in a forked child; [`Error::Network`] with the driver's words.
    pub(crate) fn enter(&self) -> Result<DeviceGuard> {
        if !self.is_usable() {
            return Err(Error::BackendUnavailable { backend: "cuda".into(), why: FORKED.into() });
        }
        let entered = DeviceGuard::remember()?;
        checked("cuCtxSetCurrent", self.context.bind_to_thread())?;
        Ok(entered)
    }
}

/// The device that the calling thread had before: it is the application's choice.
pub(crate) struct DeviceGuard {
    before: Option<sys::CUcontext>,
}

impl DeviceGuard {
    fn remember() -> Result<DeviceGuard> {
        Ok(DeviceGuard { before: checked("cuCtxGetCurrent", result::ctx::get_current())? })
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        let Ok(now) = result::ctx::get_current() else { return };
        if now != self.before {
            let before = self.before.unwrap_or(std::ptr::null_mut());
            // SAFETY: it was current on this thread; null stands for none.
            let _ = unsafe { result::ctx::set_current(before) };
        }
    }
}

/// The driver's answer as ours.
fn checked<T>(what: &str, answer: std::result::Result<T, DriverError>) -> Result<T> {
    answer.map_err(|error| Error::Network { message: format!("CUDA: {what} failed: {error}") })
}
