//! The sockets that belong to this process alone. A forked child has copies of all descriptors, and
//! a socket closes with its last copy: the peers of a rank that was killed would not hear of it
//! before its children have ended, too. So a child gives its copies up, before `fork` returns.
//!
//! Their numbers stay taken, by a socket that is connected to nobody: the child has copies of their
//! owners, too, and what those close there must not be a file of the child's own.
//!
//! Nobody has to say that a socket was closed. The table has for each descriptor the number of the
//! socket itself (`st_ino`), which no later file of that descriptor has.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors of one part of the table, which exists if one of them was a socket.
const PART: usize = 1024;
/// Parts; Linux lets a process have 1,048,576 descriptors unless its administrator wants more.
const PARTS: usize = 1024;

/// The numbers of sockets, by descriptor; 0 is none.
type Part = [AtomicU64; PART];

static TABLE: [OnceLock<Box<Part>>; PARTS] = [const { OnceLock::new() }; PARTS];

/// Notes a socket that children are to give up.
pub(super) fn note(socket: BorrowedFd<'_>) {
    let descriptor = socket.as_raw_fd();
    let part = usize::try_from(descriptor).ok().and_then(|index| TABLE.get(index / PART));
    let (Some(part), Some(number)) = (part, number(descriptor)) else {
        tracing::debug!(descriptor, "forked children will keep a copy of a socket");
        return;
    };
    let part = part.get_or_init(|| Box::new([const { AtomicU64::new(0) }; PART]));
    part[descriptor as usize % PART].store(number, Ordering::Relaxed);
}

/// In a forked child, which may use nothing here but atomics and system calls: gives all noted
/// sockets up.
pub(super) fn leave_to_parent() {
    let mut substitute = Substitute { descriptor: -1, is_used: false };
    for (index, part) in TABLE.iter().enumerate() {
        let Some(part) = part.get() else { continue };
        for (offset, place) in part.iter().enumerate() {
            let noted = place.load(Ordering::Relaxed);
            let descriptor = (index * PART + offset) as RawFd;
            if noted != 0 && number(descriptor) == Some(noted) {
                substitute.replace(descriptor);
            }
        }
    }
    substitute.end();
}

/// The number of the socket with that descriptor; none if there is no socket, or the system does
/// not number them.
fn number(descriptor: RawFd) -> Option<u64> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the system writes to what has the size that it expects, if the descriptor is open.
    let status = unsafe {
        if libc::fstat(descriptor, status.as_mut_ptr()) != 0 {
            return None;
        }
        status.assume_init()
    };
    let is_socket = status.st_mode & libc::S_IFMT == libc::S_IFSOCK;
    // Some systems have numbers of 32 bits.
    #[allow(clippy::useless_conversion)]
    let number = u64::from(status.st_ino);
    (is_socket && number != 0).then_some(number)
}

/// What a child has in place of its parent's sockets.
struct Substitute {
    /// Negative: not made.
    descriptor: RawFd,
    /// Whether its own descriptor is one of those that were given up.
    is_used: bool,
}

impl Substitute {
    fn replace(&mut self, given_up: RawFd) {
        if self.descriptor < 0 {
            self.descriptor = disconnected();
        }
        // SAFETY: the descriptor is this process's copy of its parent's socket, and no other thread
        // uses it. Whoever has it here finds a socket whose peer is gone.
        unsafe {
            if self.descriptor < 0 {
                // There was no descriptor left; now there is one.
                libc::close(given_up);
                self.descriptor = disconnected();
                self.is_used = self.descriptor == given_up;
                if self.is_used {
                    return;
                }
            }
            // It fails for a descriptor above a limit that was lowered, which no file can get.
            if self.descriptor < 0 || libc::dup2(self.descriptor, given_up) < 0 {
                libc::close(given_up);
            } else {
                libc::fcntl(given_up, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }

    fn end(self) {
        if self.descriptor >= 0 && !self.is_used {
            // SAFETY: it was opened here, and nobody else knows it.
            unsafe { libc::close(self.descriptor) };
        }
    }
}

/// A socket that is connected to nobody and that nobody can wait for; negative if there is none.
fn disconnected() -> RawFd {
    // SAFETY: these calls have no memory to be wrong about.
    unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        if descriptor >= 0 {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK);
            libc::shutdown(descriptor, libc::SHUT_RDWR);
        }
        descriptor
    }
}
