//! Processes that a test forks without starting a program in them. Knows nothing of groups.

#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Descriptors that [`shared_sockets`] looks at.
const DESCRIPTORS: i32 = 4096;

/// A child; it is not waited for when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct ForkedChild(libc::pid_t);

/// Forks. The child runs `run` and ends, with code 0 if that did not panic.
pub fn fork(run: impl FnOnce()) -> ForkedChild {
    // SAFETY: the child uses what other threads of its parent may have had locked only in ways in
    // which every program does that forks with threads, as Python's: the allocator allows it.
    match unsafe { libc::fork() } {
        0 => {
            let code = i32::from(catch_unwind(AssertUnwindSafe(run)).is_err());
            end(code)
        }
        child => {
            assert!(child > 0, "{}", std::io::Error::last_os_error());
            ForkedChild(child)
        }
    }
}

impl ForkedChild {
    /// Its exit code; `None` after a signal.
    pub fn wait(self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: the status has the type that the system expects.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(waited, self.0, "{}", std::io::Error::last_os_error());
        libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
    }
}

/// Ends a child without a word: where many threads ran at the fork, it may not be able to print.
pub fn end(code: i32) -> ! {
    // SAFETY: nothing of the parent's is run at the end of this process.
    unsafe { libc::_exit(code) }
}

/// Leaves the pipes to which this process prints.
pub fn detach() {
    // SAFETY: what is printed goes nowhere from here on; no memory is concerned.
    unsafe {
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for stream in 0..3 {
            libc::dup2(nowhere, stream);
        }
    }
}

/// The sockets of this process that are connected to somebody or listen, by descriptor. Opens none,
/// so that it works without room for any.
pub fn shared_sockets() -> Vec<i32> {
    let is_shared = |descriptor: &i32| {
        let mut space = [0u8; 256];
        let mut length = space.len() as libc::socklen_t;
        let mut listens: libc::c_int = 0;
        let mut size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the system writes no more than the lengths that it is given.
        unsafe {
            libc::getpeername(*descriptor, space.as_mut_ptr().cast(), &raw mut length) == 0
                || libc::getsockopt(
                    *descriptor,
                    libc::SOL_SOCKET,
                    libc::SO_ACCEPTCONN,
                    (&raw mut listens).cast(),
                    &raw mut size,
                ) == 0
                    && listens != 0
        }
    };
    (0..DESCRIPTORS).filter(is_shared).collect()
}
