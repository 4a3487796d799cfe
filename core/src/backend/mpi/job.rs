//! This process's part in an MPI job: who it is there, and the library, which is initialised if the
//! application has not done so. Knows no group and no operation.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::abi::{Abi, Constants, Handle};
use super::functions::Functions;
use super::heap;
use super::launcher::Launcher;
use super::library::LoadedLibrary;
use super::operators::Operators;
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::standard_error::write_line;

/// Most bytes that `MPI_Error_string` writes in any of the three ABIs.
const MAX_ERROR_BYTES: usize = 512;

/// How long a reason may wait to be read by the launcher.
const UNREAD: Duration = Duration::from_millis(500);

/// The highest tag that every library allows.
pub(super) const GUARANTEED_TAGS: u32 = 32_767;

/// A group failed here with operations in the library, which may never end there, so that it is not
/// finalised.
pub(super) static FAILED: AtomicBool = AtomicBool::new(false);

/// The library, and who this process is in its job.
pub(super) struct Job<H: Handle> {
    pub(super) functions: Functions<H>,
    pub(super) constants: Constants<H>,
    pub(super) abi: Abi,
    pub(super) rank: u32,
    pub(super) size: u32,
    /// What all ranks of the job have in common, and other jobs have not.
    pub(super) name: String,
    /// The highest tag of a message.
    pub(super) max_tag: u32,
    /// How many ranks share this host, as far as the launcher says; else all of them.
    pub(super) ranks_on_host: u32,
    /// Whether all ranks of the job are known to be on this host.
    pub(super) is_one_host: bool,
    pub(super) operators: Operators<H>,
}

impl<H: Handle> Job<H> {
    /// Enters the job, with a library that is initialised if it is not yet. Whether it was done
    /// here.
    ///
    /// # Errors
    /// Why the library cannot be used.
    pub(super) fn enter(
        found: &'static LoadedLibrary,
        constants: Constants<H>,
    ) -> std::result::Result<(Job<H>, bool), String> {
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
        let job = Job {
            max_tag: max_tag(&functions, &constants),
            functions,
            constants,
            abi: found.abi,
            rank,
            size,
            name: launcher.job,
            ranks_on_host: launcher.local_size.unwrap_or(size),
            is_one_host: size == 1 || launcher.local_size.is_some_and(|local| local >= size),
            operators: Operators::default(),
        };
        Ok((job, initialised_here))
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

    /// Says why the job ends, in time to be read.
    pub(super) fn say_end(&self, why: &str) {
        write_line(&format!("polyrank: rank {} of the MPI job ends it: {why}", self.rank));
        let_the_launcher_read();
    }

    /// Ends all processes of the job; returns only if the library cannot.
    pub(super) fn abort_job(&self, why: &str) {
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
