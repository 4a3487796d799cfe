//! Busy-polls for an answer for a moment before the thread sleeps until it is there: to be woken
//! takes longer than most answers. Knows nothing of what is asked.

use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::Socket;

use crate::spin::{BackOff, BusyPoll};

/// How long an answer is polled for. Others that want the core get it meanwhile.
const POLL_LIMIT: Duration = Duration::from_micros(50);
/// So many misses, one after the other, show that it does not pay: a server that slept is
/// late once.
const MISSES: u32 = 4;
/// Most answers that are not polled for after that.
const MAX_SKIPPED: u32 = 64;

/// Whether it pays to poll for the answers of one server, by the results of the last polls.
///
/// It does where the server answers on another core: 6 µs instead of 20 to 45 were measured. It
/// does not where more processes ask than there are cores, each of which has its turn before the
/// server has: 16 Python processes on two cores got 57,000 to 75,000 answers a second where they
/// always polled, and 95,000 to 105,000 where they slept immediately.
#[derive(Debug)]
pub(super) struct AdaptivePoll(BackOff);

impl Default for AdaptivePoll {
    fn default() -> AdaptivePoll {
        AdaptivePoll(BackOff::new(MISSES, MAX_SKIPPED))
    }
}

impl AdaptivePoll {
    /// Receives what comes within a moment; none if nothing does, or polling does not pay.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        buffer: &mut [u8],
    ) -> Option<Result<usize, Errno>> {
        let poll = BusyPoll::start(POLL_LIMIT).filter(|_| self.0.is_due())?;
        loop {
            let received = match recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((bytes, _)) => Ok(bytes),
                Err(Errno::AGAIN | Errno::INTR) if poll.goes_on() => continue,
                Err(Errno::AGAIN | Errno::INTR) => {
                    self.0.note(false);
                    return None;
                }
                Err(error) => Err(error),
            };
            // Where the core came back late, the answer did.
            self.0.note(poll.is_in_time());
            return Some(received);
        }
    }
}
