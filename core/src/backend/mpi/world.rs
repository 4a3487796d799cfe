//! This process's part in the MPI job: the library is initialised once, if the application has not
//! done so, and finalised at the end of the process, if the application does not. Knows no group.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::abi::{self, Abi, Constants, Handle};
use super::functions::Functions;
use super::group::Group;
use super::heap;
use super::launcher::Launcher;
use super::library::{self, LoadedLibrary};
use super::progress::Progress;
use super::reductions::Operators;
use crate::clock::Instant;
use crate::spin::is_crowded;
use crate::wire::abort::Abort;
use crate::{Error, Result};

/// Most bytes that `MPI_Error_string` writes in any of the three ABIs.
const MAX_ERROR_BYTES: usize = 512;

/// How long a reason may wait to be read by the launcher.
const UNREAD: Duration = Duration::from_millis(500);

/// The highest tag that every library allows.
pub(super) const GUARANTEED_TAGS: u32 = 32_767;

/// The library, and who this process is in its job. There is one in a process, for ever.
pub(super) struct World<H: Handle> {
    pub(super) functions: Functions<H>,
    pub(super) constants: Constants<H>,
    pub(super) abi: Abi,
    pub(super) rank: u32,
    pub(super) size: u32,
    /// What all ranks of the job have in common, and other jobs have not.
    pub(super) job: String,
    /// The highest tag of a message.
    pub(super) max_tag: u32,
    /// Whether all ranks of the job are known to be on this host.
    pub(super) is_one_host: bool,
    pub(super) operators: Operators<H>,
    pub(super) progress: Progress<H>,
    /// The groups that were made, for the end of the process.
    groups: Mutex<Vec<Weak<Group<H>>>>,
}

/// The world of a library whose handles are integers, or pointers.
#[derive(Clone, Copy)]
pub(super) enum AnyWorld {
    Ints(&'static World<c_int>),
    Pointers(&'static World<usize>),
}

static FOUND: OnceLock<LoadedLibrary> = OnceLock::new();
/// The world, or why there can be none: a library is initialised once, whatever came of it.
static WORLD: Mutex<Option<std::result::Result<AnyWorld, String>>> = Mutex::new(None);

/// This is a child of the process that initialised the library.
static FORKED: AtomicBool = AtomicBool::new(false);

/// A group failed here with operations in the library, which may never end there, so that it is not
/// finalised.
pub(super) static FAILED: AtomicBool = AtomicBool::new(false);

/// The library that this process uses. It is found, not initialised.
///
/// # Errors
/// What was looked for, and what was wrong with what was there.
pub(super) fn found() -> std::result::Result<&'static LoadedLibrary, String> {
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    heap::protect();
    let found = library::find(&Launcher::read())?;
    Ok(FOUND.get_or_init(|| found))
}

/// The world, which is initialised if it is not yet.
///
/// # Errors
/// [`Error::BackendUnavailable`].
pub(super) fn world() -> Result<AnyWorld> {
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Ok(world)) = *world {
        world.check_process()?;
        return Ok(world);
    }
    let found = found().map_err(unavailable)?;
    world.get_or_insert_with(|| AnyWorld::enter(found)).clone().map_err(unavailable)
}

/// Whether the library was initialised for this process's groups.
pub(super) fn is_initialised() -> bool {
    matches!(*WORLD.lock().unwrap_or_else(PoisonError::into_inner), Some(Ok(_)))
}

/// The error of a library that cannot be used.
pub(super) fn unavailable(why: String) -> Error {
    Error::BackendUnavailable { backend: "mpi".into(), why }
}

impl AnyWorld {
    fn enter(found: &'static LoadedLibrary) -> std::result::Result<AnyWorld, String> {
        let named = |why: String| format!("{} ({}): {why}", found.name, found.version);
        let library = &found.library;
        let world = match found.abi {
            Abi::Mpich => World::enter(found, abi::mpich()).map(AnyWorld::Ints),
            Abi::Standard => World::enter(found, abi::standard()).map(AnyWorld::Pointers),
            Abi::OpenMpi => abi::open_mpi(library)
                .and_then(|constants| World::enter(found, constants))
                .map(AnyWorld::Pointers),
        };
        world.map_err(named)
    }

    /// This process's rank in the job, and the number of ranks.
    pub(super) fn place(self) -> (u32, u32) {
        match self {
            AnyWorld::Ints(world) => (world.rank, world.size),
            AnyWorld::Pointers(world) => (world.rank, world.size),
        }
    }

    fn check_process(self) -> Result<()> {
        match self {
            AnyWorld::Ints(world) => world.check_process(),
            AnyWorld::Pointers(world) => world.check_process(),
        }
    }
}

impl<H: Handle> World<H> {
    fn enter(
        found: &'static LoadedLibrary,
        constants: Constants<H>,
    ) -> std::result::Result<&'static World<H>, String> {
        let functions = Functions::find(&found.library)?;
        let initialised_here = initialise(&functions, &constants)?;
        let number = |function: unsafe extern "C" fn(H, *mut c_int) -> c_int| {
            let mut number: c_int = 0;
            // SAFETY: the library is initialised, and the communicator is the predefined one.
            let failed = unsafe { function(constants.comm_world, &raw mut number) } != 0;
            u32::try_from(number).ok().filter(|_| !failed).ok_or("it does not know its job")
        };
        let (rank, size) = (number(functions.comm_rank)?, number(functions.comm_size)?);
        let launcher = Launcher::read();
        launcher.agrees(rank, size)?;
        let max_tag = max_tag(&functions, &constants);
        let ranks_on_host = launcher.local_size.unwrap_or(size);
        let world = Box::leak(Box::new(World {
            functions,
            constants,
            abi: found.abi,
            rank,
            size,
            job: launcher.job,
            max_tag,
            is_one_host: size == 1 || launcher.local_size.is_some_and(|local| local >= size),
            operators: Operators::default(),
            progress: Progress::new(is_crowded(ranks_on_host as usize)),
            groups: Mutex::default(),
        }));
        at_exit::notice_forks();
        world.notice_the_end().map_err(|error| error.to_string())?;
        if initialised_here {
            at_exit::finalise(world);
        }
        Ok(world)
    }

    /// Whether this is the process that initialised the library, and it has not been finalised.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] in a forked child; [`Error::BackendUnavailable`].
    pub(super) fn check_process(&self) -> Result<()> {
        if self.is_inherited() {
            let message = "MPI belongs to the parent process, a forked child cannot use it";
            return Err(Error::InvalidGroup { message: message.into() });
        }
        if self.is_finalised() {
            return Err(unavailable("MPI was finalised already in this process".into()));
        }
        Ok(())
    }

    /// Has `group` left at the end of the process, if it is not before.
    pub(super) fn register(&self, group: &Arc<Group<H>>) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|group| group.strong_count() > 0);
        groups.push(Arc::downgrade(group));
    }

    /// Has [`World::end`] called before anybody finalises the library, whoever that is: MPI drops
    /// the attributes of this communicator first. For an operation that is in flight then, this is
    /// too late: MPI_Finalize may be called only when all threads have completed their calls (MPI
    /// 4.1, "MPI and Threads"), and MPICH unlocks nothing any more when it has begun.
    fn notice_the_end(&'static self) -> Result<()> {
        extern "C" fn copy<H>(
            _: H,
            _: c_int,
            _: *mut c_void,
            _: *mut c_void,
            _: *mut c_void,
            is_copied: *mut c_int,
        ) -> c_int {
            // SAFETY: an output argument. Nothing is copied.
            unsafe { *is_copied = 0 };
            0
        }
        extern "C" fn end<H: Handle>(_: H, _: c_int, _: *mut c_void, world: *mut c_void) -> c_int {
            // SAFETY: the address is that of a world, which lives for ever.
            let world: &'static World<H> = unsafe { &*world.cast_const().cast() };
            let end = || world.end("MPI was finalised in this process");
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(end));
            0
        }
        let (functions, mut key) = (&self.functions, 0);
        let extra = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the functions are of the types that MPI asks for; the key is an output argument.
        let code =
            unsafe { (functions.comm_create_keyval)(copy::<H>, end::<H>, &raw mut key, extra) };
        self.check(code, "MPI_Comm_create_keyval")?;
        let comm_self = self.constants.comm_self;
        // SAFETY: the communicator is predefined, and the key was made above.
        let code = unsafe { (functions.comm_set_attr)(comm_self, key, std::ptr::null_mut()) };
        self.check(code, "MPI_Comm_set_attr")
    }

    /// Leaves all groups that are still there, the others shall not wait for a process that ends,
    /// and calls MPI no more. Whether MPI had nothing of this process under way any more.
    fn end(&'static self, why: &str) -> bool {
        if self.is_inherited() || self.progress.is_stopped() {
            return false;
        }
        let groups =
            std::mem::take(&mut *self.groups.lock().unwrap_or_else(PoisonError::into_inner));
        let groups: Vec<_> = groups.iter().filter_map(Weak::upgrade).collect();
        for group in &groups {
            let abort = Abort::Failed { rank: group.rank, why: why.to_owned() };
            self.progress.change(|active, ended| active.leave(group, abort, ended));
            group.status.leave();
        }
        self.progress.drain(self);
        let is_done = |group: &Arc<Group<H>>| group.in_library.load(Ordering::SeqCst) == 0;
        let in_order = groups.iter().all(is_done);
        self.progress.stop();
        in_order
    }

    /// Whether this process got it from its parent.
    pub(super) fn is_inherited(&self) -> bool {
        FORKED.load(Ordering::Relaxed)
    }

    /// Whether the application finalised the library.
    pub(super) fn is_finalised(&self) -> bool {
        self.progress.is_stopped()
    }

    /// An error unless `code` is that of success.
    ///
    /// # Errors
    /// [`Error::Network`] with the library's own words.
    pub(super) fn check(&self, code: c_int, function: &str) -> Result<()> {
        match code {
            0 => Ok(()),
            code => Err(Error::Network { message: self.describe(code, function) }),
        }
    }

    /// What the library says of an error code.
    pub(super) fn describe(&self, code: c_int, function: &str) -> String {
        let mut text = [0_u8; MAX_ERROR_BYTES + 1];
        let mut length: c_int = 0;
        // SAFETY: the text has room for as much as any ABI's constant allows.
        unsafe {
            (self.functions.error_string)(code, text.as_mut_ptr().cast::<c_char>(), &raw mut length)
        };
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..end]);
        format!("{function} failed with code {code}: {}", text.trim())
    }

    /// Ends all processes of the job.
    pub(super) fn end_job(&self, why: &str) -> ! {
        self.abort_job(why);
        std::process::abort()
    }

    fn say_end(&self, why: &str) {
        eprintln!("polyrank: rank {} of the MPI job ends it: {why}", self.rank);
        let_the_launcher_read();
    }

    fn abort_job(&self, why: &str) {
        self.say_end(why);
        // SAFETY: the library is initialised; the function does not return, but for a failure.
        unsafe { (self.functions.abort)(self.constants.comm_world, 1) };
    }
}

/// Waits a little until what was written to standard output and error has been read: launchers drop
/// what they have not read of a rank when its job is aborted, and with it the reason.
fn let_the_launcher_read() {
    let until = Instant::now() + UNREAD;
    let has_unread = |bytes: rustix::io::Result<u64>| bytes.is_ok_and(|bytes| bytes > 0);
    let is_unread = || {
        has_unread(rustix::io::ioctl_fionread(std::io::stdout()))
            || has_unread(rustix::io::ioctl_fionread(std::io::stderr()))
    };
    while is_unread() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_set(function: unsafe extern "C" fn(*mut c_int) -> c_int) -> bool {
    let mut flag: c_int = 0;
    // SAFETY: both functions of this type (Initialized, Finalized) may be called at any time.
    let failed = unsafe { function(&raw mut flag) } != 0;
    !failed && flag != 0
}

/// Initialises the library unless it is initialised; whether it was done here.
fn initialise<H: Handle>(
    functions: &Functions<H>,
    constants: &Constants<H>,
) -> std::result::Result<bool, String> {
    if is_set(functions.finalized) {
        return Err("MPI was finalised already in this process, and cannot be initialised \
                    again"
            .into());
    }
    let there = is_set(functions.initialized);
    // Components of the library may be linked to UCX where it is not.
    heap::protect();
    let mut level: c_int = 0;
    // SAFETY: asking for the level is allowed when it is initialised, initialising it when it is
    // not; both was asked above. Null arguments are allowed since MPI 2.
    let failed = unsafe {
        match there {
            true => (functions.query_thread)(&raw mut level),
            false => (functions.init_thread)(
                std::ptr::null_mut(),
                std::ptr::null_mut::<c_void>(),
                constants.thread_multiple,
                &raw mut level,
            ),
        }
    } != 0;
    if failed {
        return Err("MPI_Init_thread failed".into());
    }
    if !there {
        // Some mistakes are reported to this communicator, whichever they are about. They shall not
        // end the process.
        // SAFETY: both are predefined, and MPI is initialised.
        unsafe { (functions.comm_set_errhandler)(constants.comm_world, constants.errors_return) };
    }
    if level >= constants.thread_multiple {
        return Ok(!there);
    }
    let named = constants.thread_levels.iter().find(|(number, _)| *number == level);
    let name = named.map_or("an unknown thread level", |(_, name)| name);
    Err(match there {
        true => format!(
            "the application initialised MPI with {name}; polyrank makes progress on several \
             threads and needs MPI_THREAD_MULTIPLE, as mpi4py asks for by default"
        ),
        false => format!("the library grants only {name}, not MPI_THREAD_MULTIPLE"),
    })
}

fn max_tag<H: Handle>(functions: &Functions<H>, constants: &Constants<H>) -> u32 {
    let mut value: *const c_int = std::ptr::null();
    let mut flag: c_int = 0;
    // SAFETY: the attribute is a pointer to an integer, which is written where the third argument
    // points to; the integer lives as long as the communicator.
    unsafe {
        let found = (functions.comm_get_attr)(
            constants.comm_world,
            constants.tag_ub,
            (&raw mut value).cast::<c_void>(),
            &raw mut flag,
        ) == 0;
        match found && flag != 0 && !value.is_null() {
            true => u32::try_from(*value).unwrap_or(GUARANTEED_TAGS),
            false => GUARANTEED_TAGS,
        }
    }
}

/// What is done when the process ends in order, or forks.
mod at_exit {
    use super::*;

    type FinalizeCheck = Box<dyn Fn() + Send + Sync>;

    static FINALISE: OnceLock<FinalizeCheck> = OnceLock::new();

    unsafe extern "C" {
        /// C's list of what is called when the process exits.
        fn atexit(function: extern "C" fn()) -> c_int;
        /// POSIX's list of what is called before a fork, and after it in the parent and the child.
        fn pthread_atfork(
            before: Option<extern "C" fn()>,
            in_parent: Option<extern "C" fn()>,
            in_child: Option<extern "C" fn()>,
        ) -> c_int;
    }

    /// Has children of this process know that the library is not theirs. Asking for the number of
    /// the process at every call would take longer than some calls.
    pub(super) fn notice_forks() {
        extern "C" fn in_child() {
            FORKED.store(true, Ordering::Relaxed);
        }
        // SAFETY: the function does nothing but store a flag.
        unsafe { pthread_atfork(None, None, Some(in_child)) };
    }

    /// Has `world` finalised when the process ends, unless a group failed: what is under way then
    /// might never end. The job is ended instead, with a reason. Open MPI's launcher does that on
    /// its own, with an error, when a process goes without finalising, and can hang where several
    /// ranks abort at once. MPICH's kills the others without a word then, and returns 0.
    pub(super) fn finalise<H: Handle>(world: &'static World<H>) {
        let finalise = move || {
            if world.is_inherited() || world.is_finalised() {
                return;
            }
            let in_order = world.end("the process ended");
            if in_order && !FAILED.load(Ordering::SeqCst) {
                // SAFETY: the library is initialised and not finalised, and nothing is called after
                // this: that is the end.
                unsafe { (world.functions.finalize)() };
                return;
            }
            let why = match in_order {
                true => "it ended after a group had failed",
                false => "it ended while operations of a group were under way",
            };
            match world.abi {
                Abi::OpenMpi => world.say_end(why),
                Abi::Mpich | Abi::Standard => world.abort_job(why),
            }
        };
        if FINALISE.set(Box::new(finalise)).is_ok() {
            // SAFETY: the function is of the type that C asks for, and catches what it raises.
            unsafe { atexit(run) };
        }
    }

    extern "C" fn run() {
        if let Some(finalise) = FINALISE.get() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(finalise));
        }
    }
}
