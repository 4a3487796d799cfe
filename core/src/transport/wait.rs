//! Waiting for the descriptors of transports. Knows no transport.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::Interest;

/// Waits until one of `interests` is ready or `timeout` has passed (`None`: no limit). Returns
/// whether one is ready; a signal may end the wait early.
pub fn wait(interests: &[Interest], timeout: Option<Duration>) -> bool {
    let flags = |writable| if writable { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let descriptors = interests.iter().map(|it| PollFd::new(&it.fd, flags(it.writable)));
    let mut descriptors: Vec<_> = descriptors.collect();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(&mut descriptors, timeout.as_ref()) {
        Ok(ready) => ready > 0,
        Err(Errno::INTR) => false,
        Err(error) => {
            tracing::warn!(%error, "cannot wait for the transports");
            // A caller that cannot wait has to look.
            true
        }
    }
}
