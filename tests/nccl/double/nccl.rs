//! The functions of NCCL. Knows no socket.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use super::communicator::{
    Communicator, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, SUCCESS, SYSTEM_ERROR,
};
use super::config::{self, Config};
use super::driver::{current_device, forbid_children};
use super::mesh::{ID_BYTES, new_id};
use super::operation::{Kind, Operation};
use super::{reduce, stream};

const NO_COLOR: c_int = -1;

#[repr(C)]
struct UniqueId([u8; ID_BYTES]);

/// What was called since the group began, outermost and inner.
#[derive(Default)]
struct Group {
    depth: usize,
    calls: Vec<(usize, usize, Operation)>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Adds a line to the file that the environment names.
pub(crate) fn log(line: &str) {
    let Some(path) = std::env::var_os("NCCL_DOUBLE_LOG") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

fn communicators() -> MutexGuard<'static, HashMap<usize, Arc<Communicator>>> {
    static ALL: OnceLock<Mutex<HashMap<usize, Arc<Communicator>>>> = OnceLock::new();
    ALL.get_or_init(Mutex::default).lock().unwrap()
}

fn keep(made: Arc<Communicator>) -> usize {
    let handle = Arc::as_ptr(&made) as usize;
    communicators().insert(handle, made);
    handle
}

fn with(handle: usize, run: impl FnOnce(&Arc<Communicator>) -> c_int) -> c_int {
    let found = communicators().get(&handle).cloned();
    found.map_or(INVALID_ARGUMENT, |found| run(&found))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    unsafe { *version = config::version() };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    log("ncclGetUniqueId");
    match new_id() {
        Ok(made) => {
            unsafe { *id = UniqueId(made) };
            SUCCESS
        }
        Err(_) => SYSTEM_ERROR,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut usize,
    size: c_int,
    id: UniqueId,
    rank: c_int,
    config: *mut Config,
) -> c_int {
    let Some(device) = current_device() else { return INVALID_USAGE };
    let chosen = unsafe { config::chosen(config) };
    let Some(chosen) = chosen.filter(|_| (0..size).contains(&rank)) else {
        return INVALID_ARGUMENT;
    };
    log(&format!("ncclCommInitRankConfig {rank} of {size}{chosen}"));
    let made = Communicator::begin(device, id.0, rank as usize, size as usize);
    unsafe { *comm = keep(made) };
    IN_PROGRESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommSplit(
    comm: usize,
    color: c_int,
    key: c_int,
    child: *mut usize,
    config: *mut Config,
) -> c_int {
    with(comm, |parent| {
        let chosen = unsafe { config::chosen(config) };
        let Some(chosen) = chosen.filter(|_| parent.is_ready() && color >= NO_COLOR) else {
            return INVALID_USAGE;
        };
        log(&format!("ncclCommSplit {color} {key}{chosen}"));
        // The handle is there when all ranks have come, and the parent is busy until then.
        unsafe { *child = 0 };
        let place = child as usize;
        parent.split(color, key, move |made| {
            let handle = keep(made);
            // SAFETY: the caller keeps the place as long as the parent.
            unsafe { AtomicUsize::from_ptr(place as *mut usize) }.store(handle, Ordering::Release);
        });
        IN_PROGRESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommFinalize(comm: usize) -> c_int {
    log("ncclCommFinalize");
    with(comm, |it| {
        it.note_busy();
        IN_PROGRESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommDestroy(comm: usize) -> c_int {
    log("ncclCommDestroy");
    communicators().remove(&comm).map_or(INVALID_ARGUMENT, |_| SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommAbort(comm: usize) -> c_int {
    forbid_children("ncclCommAbort");
    log("ncclCommAbort");
    let found = communicators().remove(&comm);
    // It takes the library a while.
    let slowly = std::env::var_os("NCCL_DOUBLE_ABORTS_SLOWLY").is_some();
    std::thread::sleep(Duration::from_millis(if slowly { 300 } else { 0 }));
    found.map_or(INVALID_ARGUMENT, |found| {
        found.abort();
        log("aborted");
        SUCCESS
    })
}

/// Writes a part of the place that a communicator has.
unsafe fn tell_place(
    comm: usize,
    into: *mut c_int,
    part: impl FnOnce((usize, usize)) -> usize,
) -> c_int {
    with(comm, |it| {
        let Some(place) = it.place() else { return INVALID_USAGE };
        unsafe { *into = part(place) as c_int };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommCount(comm: usize, count: *mut c_int) -> c_int {
    unsafe { tell_place(comm, count, |(_, size)| size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommUserRank(comm: usize, rank: *mut c_int) -> c_int {
    unsafe { tell_place(comm, rank, |(rank, _)| rank) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(comm: usize, error: *mut c_int) -> c_int {
    forbid_children("ncclCommGetAsyncError");
    with(comm, |it| {
        unsafe { *error = it.async_error() };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        SUCCESS => c"no error",
        SYSTEM_ERROR => c"unhandled system error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetLastError(_comm: usize) -> *const c_char {
    c"the test double has no more to say".as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGroupStart() -> c_int {
    forbid_children("ncclGroupStart");
    GROUP.with_borrow_mut(|group| group.depth += 1);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGroupEnd() -> c_int {
    let calls = GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.saturating_sub(1);
        if group.depth == 0 { std::mem::take(&mut group.calls) } else { Vec::new() }
    });
    log(&format!("ncclGroupEnd of {}", calls.len()));
    let launched = launch(calls);
    if fails_late() { SYSTEM_ERROR } else { launched }
}

/// Whether this is the launch that the environment wants to fail after the device has it.
fn fails_late() -> bool {
    static LAUNCHES: AtomicUsize = AtomicUsize::new(0);
    let number = LAUNCHES.fetch_add(1, Ordering::SeqCst) + 1;
    let which = std::env::var("NCCL_DOUBLE_FAILS").ok().and_then(|text| text.parse().ok());
    which == Some(number)
}

fn launch(calls: Vec<(usize, usize, Operation)>) -> c_int {
    let mut groups: Vec<(usize, usize, Vec<Operation>)> = Vec::new();
    for (comm, of, call) in calls {
        match groups.iter_mut().find(|group| (group.0, group.1) == (comm, of)) {
            Some(group) => group.2.push(call),
            None => groups.push((comm, of, vec![call])),
        }
    }
    let mut outcome = SUCCESS;
    for (comm, of, calls) in groups {
        let launched = with(comm, |it| {
            let here = it.clone();
            it.note_busy();
            let first = calls.clone();
            let push = move || stream::push(of, Box::new(move || here.run(&calls)));
            match it.when_connected(&first, push) {
                true => IN_PROGRESS,
                false => INVALID_ARGUMENT,
            }
        });
        outcome = outcome.max(launched);
    }
    outcome
}

/// Takes one call, now or when the group ends.
fn call(comm: usize, of: *mut c_void, operation: Operation) -> c_int {
    log(&format!("nccl{:?} {} of {}", operation.kind, operation.count, operation.dtype));
    let good = with(comm, |it| {
        let Some((_, size)) = it.place().filter(|_| it.is_ready()) else { return INVALID_USAGE };
        match (operation.other < size, current_device() == Some(it.device)) {
            (true, true) => SUCCESS,
            (false, _) => INVALID_ARGUMENT,
            (true, false) => INVALID_USAGE,
        }
    });
    if good != SUCCESS {
        return good;
    }
    let item = (comm, of as usize, operation);
    let grouped = GROUP.with_borrow_mut(|group| {
        let grouped = group.depth > 0;
        if grouped {
            group.calls.push(item);
        }
        grouped
    });
    if grouped { SUCCESS } else { launch(vec![item]) }
}

/// Takes one call; `number` is the operator's, `other` the root or the peer.
fn called(
    kind: Kind,
    (from, into, count): (*const c_void, *mut c_void, usize),
    (dtype, number, other): (c_int, c_int, c_int),
    comm: usize,
    of: *mut c_void,
) -> c_int {
    let mut operator = None;
    let known = with(comm, |it| {
        operator = it.operator(number, dtype);
        SUCCESS
    });
    let (SUCCESS, Some(operator)) = (known, operator) else { return INVALID_ARGUMENT };
    let other = other as usize;
    let (from, into) = (from as usize, into as usize);
    call(comm, of, Operation { kind, from, into, count, dtype, operator, other })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllReduce(
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    dtype: c_int,
    operator: c_int,
    comm: usize,
    of: *mut c_void,
) -> c_int {
    called(Kind::AllReduce, (from, into, count), (dtype, operator, 0), comm, of)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclReduce(
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    dtype: c_int,
    operator: c_int,
    root: c_int,
    comm: usize,
    of: *mut c_void,
) -> c_int {
    called(Kind::Reduce, (from, into, count), (dtype, operator, root), comm, of)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclReduceScatter(
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    dtype: c_int,
    operator: c_int,
    comm: usize,
    of: *mut c_void,
) -> c_int {
    called(Kind::ReduceScatter, (from, into, count), (dtype, operator, 0), comm, of)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclBroadcast(
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    dtype: c_int,
    root: c_int,
    comm: usize,
    of: *mut c_void,
) -> c_int {
    called(Kind::Broadcast, (from, into, count), (dtype, 0, root), comm, of)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllGather(
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    dtype: c_int,
    comm: usize,
    of: *mut c_void,
) -> c_int {
    called(Kind::AllGather, (from, into, count), (dtype, 0, 0), comm, of)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: usize,
    of: *mut c_void,
) -> c_int {
    called(Kind::Send, (from, std::ptr::null_mut(), count), (dtype, 0, peer), comm, of)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclRecv(
    into: *mut c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: usize,
    of: *mut c_void,
) -> c_int {
    called(Kind::Recv, (std::ptr::null(), into, count), (dtype, 0, peer), comm, of)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclRedOpCreatePreMulSum(
    operator: *mut c_int,
    factor: *mut c_void,
    dtype: c_int,
    _residence: c_int,
    comm: usize,
) -> c_int {
    log("ncclRedOpCreatePreMulSum");
    let bytes = unsafe { std::slice::from_raw_parts(factor.cast::<u8>(), reduce::width(dtype)) };
    with(comm, |it| {
        unsafe { *operator = it.make_operator(dtype, reduce::factor(dtype, bytes)) };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclRedOpDestroy(operator: c_int, comm: usize) -> c_int {
    with(comm, |it| if it.destroy_operator(operator) { SUCCESS } else { INVALID_ARGUMENT })
}
