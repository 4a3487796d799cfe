//! Holds a rank of a program that is written in Rust until a debugger has attached to its process
//! and goes on, or until SIGCONT. Knows nothing of the other ranks.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGCONT, SIGTRAP};

use super::Breakpoint;
use crate::clock;
use crate::generated::error::{Error, Result};
use crate::held_ranks::HeldRank;
use crate::process_group::ProcessGroup;
use crate::standard_error::write_line;

/// How long the others wait, unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// How often it is looked whether a debugger has attached.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How often each line has called it with something to skip.
static CALLS: Mutex<BTreeMap<(&str, u32, u32), u32>> = Mutex::new(BTreeMap::new());

/// Which rank [`breakpoint`] stops, and how long the others wait.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BreakpointOptions {
    /// The rank that stops, a global rank; 0 by default.
    pub rank: u32,
    /// The first so many calls of a line do nothing; 0 by default.
    pub skip: u32,
    /// How long the others wait, an hour by default: zero is without limit, none as long as the
    /// group's operations may take.
    pub timeout: Option<Duration>,
    /// The group whose ranks wait for one another; the default group by default.
    pub group: Option<ProcessGroup>,
}

setters! {
    BreakpointOptions {
        rank: u32 => rank,
        skip: u32 => skip,
        timeout: impl Into<Option<Duration>> => timeout.into(),
        group: ProcessGroup => Some(group),
    }
}

impl Default for BreakpointOptions {
    fn default() -> BreakpointOptions {
        BreakpointOptions { rank: 0, skip: 0, timeout: Some(TIMEOUT), group: None }
    }
}

/// Stops one rank at this line until a debugger has attached to its process and goes on there; the
/// other ranks of the group wait in a barrier. All ranks of the group call it.
///
/// The rank that stops says on standard error which process it is, and how to attach. When a
/// debugger has attached and lets the program continue, the program stops in it once more, here.
/// Without a debugger, `kill -CONT` lets the rank go on.
///
/// Groups of this process that have a shorter limit than [`BreakpointOptions::timeout`] have that
/// one from then on, as one steps through their operations slowly.
///
/// ```no_run
/// use polyrank::distributed::{BreakpointOptions, breakpoint};
///
/// breakpoint(BreakpointOptions::default().rank(2))?;
/// # Ok::<(), polyrank::Error>(())
/// ```
///
/// # Errors
/// [`Error::RankNotInGroup`]; [`Error::NotInitialized`]; those of a barrier: [`Error::RankFailed`]
/// if the rank ends while it is held, [`Error::CollectiveTimeout`] if it is held too long.
#[track_caller]
pub fn breakpoint(options: BreakpointOptions) -> Result<()> {
    let caller = Location::caller();
    let BreakpointOptions { rank, skip, timeout, group } = options;
    if is_skipped(caller, skip) {
        return Ok(());
    }
    let breakpoint = Breakpoint::new(group, rank, timeout)?;
    let held = match breakpoint.is_held() {
        true => hold(rank, &format!("{}:{}", caller.file(), caller.line())),
        false => Ok(()),
    };
    // The others wait, whether or not this rank could be held.
    breakpoint.pass_here()?;
    held
}

fn is_skipped(caller: &'static Location<'static>, skip: u32) -> bool {
    if skip == 0 {
        return false;
    }
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let count = calls.entry((caller.file(), caller.line(), caller.column())).or_default();
    *count = count.saturating_add(1);
    *count <= skip
}

fn hold(rank: u32, site: &str) -> Result<()> {
    let _held = HeldRank::new(rank, site);
    // In this order: who sees that it listens to the second may send the first.
    let (goes_on, trapped) = (Listening::to(SIGCONT)?, Listening::to(SIGTRAP)?);
    let process = clock::process_id();
    let _attachable = Attachable::new();
    write_line(&format!(
        "polyrank: rank {rank} is at its breakpoint, {site}, in process {process}. Attach a \
         debugger (gdb -p {process}, or lldb -p {process}) and let it continue: it stops there. \
         Without one, kill -CONT {process} lets the rank go on."
    ));
    while !goes_on.has_come() {
        if is_traced() {
            // It is the debugger's, and should that be gone meanwhile, it is only noted.
            let _ = signal_hook::low_level::raise(SIGTRAP);
            break;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    drop(trapped);
    Ok(())
}

/// A signal that is only noted; what the program does with it, it still does.
struct Listening {
    flag: Arc<AtomicBool>,
    id: signal_hook::SigId,
}

impl Listening {
    fn to(signal: i32) -> Result<Listening> {
        let flag = Arc::new(AtomicBool::new(false));
        match signal_hook::flag::register(signal, flag.clone()) {
            Ok(id) => Ok(Listening { flag, id }),
            Err(error) => Err(Error::Unsupported {
                who: format!("this process (signal {signal}: {error})"),
                operation: "breakpoint".to_owned(),
            }),
        }
    }

    fn has_come(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.id);
    }
}

/// Whether a debugger has attached to this process, as far as the system tells.
fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

/// Any debugger of this user may attach until this is dropped: many systems allow only a parent to
/// do so (Yama's `ptrace_scope`).
struct Attachable;

#[cfg(target_os = "linux")]
impl Attachable {
    fn new() -> Attachable {
        // Where there is no such rule, there is nothing to allow.
        let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
        Attachable
    }
}

#[cfg(target_os = "linux")]
impl Drop for Attachable {
    fn drop(&mut self) {
        let _ = rustix::process::set_ptracer(rustix::process::PTracer::None);
    }
}

#[cfg(not(target_os = "linux"))]
impl Attachable {
    fn new() -> Attachable {
        Attachable
    }
}
