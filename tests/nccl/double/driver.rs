//! The functions of the CUDA driver. Knows no communicator.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::stream::EventState;
use super::{memory, stream};

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const NOT_INITIALIZED: c_int = 3;
const INVALID_CONTEXT: c_int = 201;
const INVALID_HANDLE: c_int = 400;
const NOT_READY: c_int = 600;

/// Devices of this process.
const DEVICES: c_int = 8;
/// What a context's handle is more than its device's number.
const CONTEXT: usize = 0xC000;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Ends a forked child of the process that used the driver: nothing of it may be called there.
pub(crate) fn forbid_children(name: &str) {
    static PROCESS: OnceLock<u32> = OnceLock::new();
    if *PROCESS.get_or_init(std::process::id) != std::process::id() {
        super::nccl::log(&format!("{name} in a forked child"));
        std::process::abort();
    }
}

/// The device of the calling thread.
pub(crate) fn current_device() -> Option<c_int> {
    CURRENT.get().checked_sub(CONTEXT).map(|device| device as c_int)
}

fn outcome(good: bool) -> c_int {
    if good { SUCCESS } else { INVALID_HANDLE }
}

fn in_context(run: impl FnOnce() -> c_int) -> c_int {
    if CURRENT.get() == 0 { INVALID_CONTEXT } else { run() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuInit(_flags: c_uint) -> c_int {
    forbid_children("cuInit");
    match std::env::var_os("NCCL_DOUBLE_NO_DEVICE") {
        Some(_) => 100,
        None => SUCCESS,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    unsafe { *count = DEVICES };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    if !(0..DEVICES).contains(&ordinal) {
        return 101;
    }
    unsafe { *device = ordinal };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    _attribute: c_int,
    _device: c_int,
) -> c_int {
    unsafe { *value = 1 };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, bytes: c_int, device: c_int) -> c_int {
    let id = format!("0000:{device:02x}:00.0\0");
    if (bytes as usize) < id.len() {
        return INVALID_VALUE;
    }
    unsafe { std::ptr::copy_nonoverlapping(id.as_ptr().cast(), text, id.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> c_int {
    unsafe { *context = CONTEXT + device as usize };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> c_int {
    forbid_children("cuCtxGetCurrent");
    unsafe { *context = CURRENT.get() };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    CURRENT.set(context);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize() -> c_int {
    in_context(|| outcome(stream::synchronize(0)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int {
    unsafe {
        *least = 0;
        *greatest = -5;
    }
    SUCCESS
}

fn create_stream(made: *mut usize) -> c_int {
    in_context(|| {
        unsafe { *made = stream::create() };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(made: *mut usize, _flags: c_uint) -> c_int {
    create_stream(made)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(
    made: *mut usize,
    _flags: c_uint,
    priority: c_int,
) -> c_int {
    if !(-5..=0).contains(&priority) {
        return INVALID_VALUE;
    }
    super::nccl::log(&format!("cuStreamCreateWithPriority {priority}"));
    create_stream(made)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamDestroy_v2(of: usize) -> c_int {
    outcome(stream::destroy(of))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamSynchronize(of: usize) -> c_int {
    outcome(stream::synchronize(of))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamWaitEvent(of: usize, event: usize, _flags: c_uint) -> c_int {
    outcome(stream::wait_for(of, event))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut usize, _flags: c_uint) -> c_int {
    in_context(|| {
        unsafe { *event = stream::event() };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventDestroy_v2(event: usize) -> c_int {
    forbid_children("cuEventDestroy");
    outcome(stream::forget_event(event))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventQuery(event: usize) -> c_int {
    forbid_children("cuEventQuery");
    match stream::event_state(event) {
        EventState::Unknown => INVALID_HANDLE,
        EventState::Complete => SUCCESS,
        EventState::Pending => NOT_READY,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventRecord(event: usize, of: usize) -> c_int {
    outcome(stream::record(event, of))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    if bytes == 0 {
        return INVALID_VALUE;
    }
    in_context(|| {
        unsafe { *address = memory::allocate(bytes) as u64 };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, _of: usize) -> c_int {
    unsafe { cuMemAlloc_v2(address, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    super::nccl::log("cuMemFree of a device");
    outcome(memory::free(address as usize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeAsync(address: u64, of: usize) -> c_int {
    let known =
        stream::push(of, Box::new(move || assert!(memory::free(address as usize), "freed once")));
    if !known {
        super::nccl::log("cuMemFreeAsync on no stream");
    }
    outcome(known)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(into: u64, from: *const c_void, bytes: usize) -> c_int {
    memory::copy(from as usize, into as usize, bytes);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    into: u64,
    from: *const c_void,
    bytes: usize,
    of: usize,
) -> c_int {
    // Memory that is not pinned is read before the call returns.
    let staged = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec();
    let job = move || memory::copy(staged.as_ptr() as usize, into as usize, staged.len());
    outcome(stream::push(of, Box::new(job)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    into: *mut c_void,
    from: u64,
    bytes: usize,
    of: usize,
) -> c_int {
    let into = into as usize;
    let job = move || memory::copy(from as usize, into, bytes);
    // Into memory that is not pinned the copy is done when the call returns.
    outcome(stream::push(of, Box::new(job)) && stream::synchronize(of))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoDAsync_v2(into: u64, from: u64, bytes: usize, of: usize) -> c_int {
    let job = move || memory::copy(from as usize, into as usize, bytes);
    outcome(stream::push(of, Box::new(job)))
}

fn name(code: c_int) -> &'static std::ffi::CStr {
    match code {
        SUCCESS => c"no error",
        INVALID_VALUE => c"invalid argument",
        NOT_INITIALIZED => c"initialization error",
        100 => c"no CUDA-capable device is detected",
        101 => c"invalid device ordinal",
        INVALID_CONTEXT => c"invalid device context",
        INVALID_HANDLE => c"invalid resource handle",
        NOT_READY => c"device not ready",
        _ => c"an error of the double",
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: c_int, text: *mut *const c_char) -> c_int {
    unsafe { *text = name(code).as_ptr() };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    unsafe { cuGetErrorName(code, text) }
}
