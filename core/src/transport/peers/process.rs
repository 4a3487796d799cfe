//! Whether the process of a lost peer has ended. Knows nothing of connections.
//!
//! The end of a connection does not say why it came. The system closes the sockets of a process
//! that ends, but a process that lives closes them, too: it has broken the group, and another rank
//! may be about to say for which reason. Where both ranks number processes alike, as on one host,
//! the system tells the two apart: a process that has ended has no number any more, or a descriptor
//! of it is readable. Its sockets end a moment before that, so the descriptor may have to be
//! awaited. Should another process have the number by then, this one counts as running, and is
//! given the time that any rank gets which may still explain itself.

use std::os::fd::OwnedFd;

/// A process of this host, asked for once.
pub(super) enum ProcessCheck {
    /// It has ended.
    Ended,
    /// It runs; the descriptor is readable when it has ended.
    Runs(OwnedFd),
    /// The system does not tell.
    Unknown,
}

impl ProcessCheck {
    /// What the system says of the process with this number.
    #[cfg(target_os = "linux")]
    pub(super) fn of(process_id: u32) -> ProcessCheck {
        use rustix::event::{PollFd, PollFlags, poll};
        use rustix::io::Errno;
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        use rustix::time::Timespec;

        let pid = i32::try_from(process_id).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return ProcessCheck::Unknown };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return ProcessCheck::Ended,
            // Before Linux 5.3, without descriptors, or where a filter forbids the call.
            Err(_) => return ProcessCheck::Unknown,
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&zero)) {
            Ok(0) => ProcessCheck::Runs(process),
            Ok(_) => ProcessCheck::Ended,
            Err(_) => ProcessCheck::Unknown,
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn of(_process_id: u32) -> ProcessCheck {
        ProcessCheck::Unknown
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Command;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn a_process_that_has_ended_is_told_apart_from_one_that_runs() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let ProcessCheck::Runs(descriptor) = ProcessCheck::of(child.id()) else {
            panic!("it runs");
        };
        child.kill().unwrap();
        // Without a limit: it hangs if the descriptor does not tell.
        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).unwrap();
        let has_ended = |id| matches!(ProcessCheck::of(id), ProcessCheck::Ended);
        assert!(has_ended(child.id()), "although nobody has asked for its exit code");
        child.wait().unwrap();
        assert!(has_ended(child.id()));
        assert!(matches!(ProcessCheck::of(std::process::id()), ProcessCheck::Runs(_)));
        for none in [0, u32::MAX] {
            assert!(matches!(ProcessCheck::of(none), ProcessCheck::Unknown));
        }
    }
}
