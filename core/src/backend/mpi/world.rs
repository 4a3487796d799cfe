//! The MPI job of this process, its groups and what they have under way: entered when it is first
//! needed, left at the end of the process, if the application does not finalise the library before.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::abi::{self, Abi, Constants, Handle};
use super::cuda_support;
use super::group::Group;
use super::heap;
use super::job::{FAILED, Job};
use super::launcher::Launcher;
use super::library::{self, LoadedLibrary};
use super::progress::Progress;
use crate::backend::CudaMemory;
use crate::generated::error::{Error, Result};
use crate::spin::is_crowded;
use crate::wire::abort::Abort;

/// This process's part in its job, and what it has under way there. There is one in a process, for
/// ever.
pub(super) struct World<H: Handle> {
    pub(super) job: Job<H>,
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
/// The world, or why there can be none: a library is initialised once, whatever the result.
static WORLD: Mutex<Option<std::result::Result<AnyWorld, String>>> = Mutex::new(None);

/// This is a child of the process that initialised the library.
static FORKED: AtomicBool = AtomicBool::new(false);

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
    pub(super) fn rank_and_size(self) -> (u32, u32) {
        match self {
            AnyWorld::Ints(world) => (world.job.rank, world.job.size),
            AnyWorld::Pointers(world) => (world.job.rank, world.job.size),
        }
    }

    /// Whether the library takes memory of CUDA devices.
    pub(super) fn takes_cuda_memory(self, found: &LoadedLibrary) -> CudaMemory {
        let library = &found.library;
        match self {
            AnyWorld::Ints(world) => cuda_support::ask(library, world.job.constants.comm_world),
            AnyWorld::Pointers(world) => cuda_support::ask(library, world.job.constants.comm_world),
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
        let (job, initialised_here) = Job::enter(found, constants)?;
        let world = Box::leak(Box::new(World {
            progress: Progress::new(is_crowded(job.ranks_on_host as usize)),
            job,
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

    /// Leaves `group` at the end of the process, if it was not left before.
    pub(super) fn register(&self, group: &Arc<Group<H>>) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|group| group.strong_count() > 0);
        groups.push(Arc::downgrade(group));
    }

    /// Arranges that [`World::end`] runs before anybody finalises the library: MPI drops the
    /// attributes of this communicator first. For an operation that is in flight then, this is too
    /// late: MPI_Finalize may be called only when all threads have completed their calls (MPI
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
        let (job, mut key) = (&self.job, 0);
        let functions = &job.functions;
        let extra = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the functions are of the types that MPI asks for; the key is an output argument.
        let code =
            unsafe { (functions.comm_create_keyval)(copy::<H>, end::<H>, &raw mut key, extra) };
        job.check(code, "MPI_Comm_create_keyval")?;
        let comm_self = job.constants.comm_self;
        // SAFETY: the communicator is predefined, and the key was made above.
        let code = unsafe { (functions.comm_set_attr)(comm_self, key, std::ptr::null_mut()) };
        job.check(code, "MPI_Comm_set_attr")
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
        self.progress.drain(&self.job);
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
}

/// What is done when the process ends cleanly, or forks.
mod at_exit {
    use super::*;

    type FinalizeCheck = Box<dyn Fn() + Send + Sync>;

    static FINALISE: OnceLock<FinalizeCheck> = OnceLock::new();

    unsafe extern "C" {
        /// C's list of functions to call when the process exits.
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

    /// Finalises `world` when the process ends, unless a group failed: what is under way then
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
                unsafe { (world.job.functions.finalize)() };
                return;
            }
            let why = match in_order {
                true => "it ended after a group had failed",
                false => "it ended while operations of a group were under way",
            };
            match world.job.abi {
                Abi::OpenMpi => world.job.say_end(why),
                Abi::Mpich | Abi::Standard => world.job.abort_job(why),
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
