//! The ends of this process's connections, of all groups together: one descriptor that tells of no
//! messages, so that a thread may sleep on it while other threads exchange them. Knows nothing of
//! groups or peers: who is woken has to ask the transports which connection ended.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::Interest;

/// Those of the process that started with `main`.
static FIRST: OnceLock<Box<Endings>> = OnceLock::new();

/// Which connections of a process have ended.
pub(crate) struct Endings {
    process_id: u32,
    /// None if the process had no descriptor left.
    epoll: Option<Arc<OwnedFd>>,
    /// Those of a child of this process, in the child's copy of this memory.
    heir: OnceLock<Box<Endings>>,
}

impl Endings {
    /// Those of this process.
    pub(crate) fn of_this_process() -> Option<&'static Endings> {
        let mut place: &'static OnceLock<Box<Endings>> = &FIRST;
        loop {
            let found = place.get_or_init(|| Box::new(Endings::new()));
            if found.process_id == crate::clock::process_id() {
                return found.epoll.is_some().then_some(found);
            }
            place = &found.heir;
        }
    }

    fn new() -> Endings {
        let epoll = epoll::create(CreateFlags::CLOEXEC).ok().map(Arc::new);
        Endings { process_id: crate::clock::process_id(), epoll, heir: OnceLock::new() }
    }

    /// Adds a connection, which must be removed before it is closed.
    pub(in crate::transport) fn add(&self, socket: impl AsFd) {
        let Some(epoll) = &self.epoll else { return };
        // Each end is told once, whether or not the connection is removed soon.
        let flags = EventFlags::RDHUP | EventFlags::ET;
        if let Err(error) = epoll::add(&**epoll, socket, EventData::new_u64(0), flags)
            && error != Errno::EXIST
        {
            tracing::debug!(%error, "the end of a connection is noticed only when it is used");
        }
    }

    /// Removes a connection.
    pub(in crate::transport) fn remove(&self, socket: impl AsFd) {
        if let Some(epoll) = &self.epoll {
            // An error means that it is not there.
            let _ = epoll::delete(&**epoll, socket);
        }
    }

    /// What a thread has to wait for in order to be told of the next end.
    pub(crate) fn interest(&self) -> Option<Interest> {
        self.epoll.as_ref().map(|epoll| Interest { fd: epoll.clone(), writable: false })
    }

    /// Whether any connection has ended since this was last asked.
    pub(crate) fn take(&self) -> bool {
        let Some(epoll) = &self.epoll else { return false };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut has_ended = false;
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(&**epoll, rustix::buffer::spare_capacity(&mut events), Some(&zero)) {
                Ok(0) => return has_ended,
                Ok(_) => has_ended = true,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot ask which connections have ended");
                    return has_ended;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::transport::wait::wait;

    #[test]
    fn ends_are_told_once_and_messages_never() {
        let endings = Endings::new();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (other, _stays) = UnixStream::pair().unwrap();
        endings.add(&ours);
        endings.add(&other);
        theirs.write_all(&[0; 100]).unwrap();
        assert!(!endings.take());
        drop(theirs);
        let interests: Vec<_> = endings.interest().into_iter().collect();
        assert!(wait(&interests, None));
        assert!(endings.take() && !endings.take());
        endings.remove(&ours);
        endings.remove(&other);
    }
}
