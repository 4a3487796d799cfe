//! Busy-polls for an answer for a moment before the thread sleeps until it is there: to be woken
//! takes longer than most answers. Knows nothing of what is asked.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::Socket;

use super::cpu_contention;

/// How long an answer is polled for. Others that want the core get it meanwhile.
const POLL_LIMIT: Duration = Duration::from_micros(50);
/// So many misses, one after the other, show that it does not pay: a server that slept is
/// late once.
const MISSES: u32 = 4;
/// Most answers that are not polled for after that.
const MAX_SKIPPED: u32 = 64;

/// Whether it pays to poll for the answers of one server, by what became of the last polls.
///
/// It does where the server answers on another core: 6 µs instead of 20 to 45 were measured. It
/// does not where more processes ask than there are cores, each of which has its turn before the
/// server has: 16 Python processes on two cores got 57,000 to 75,000 answers a second where they
/// always polled, and 95,000 to 105,000 where they slept immediately.
#[derive(Debug, Default)]
pub(super) struct AdaptivePoll {
    /// Misses since the last hit, or since answers were skipped.
    failures: u32,
    /// So many of the next answers are not polled for.
    skips: u32,
    /// So many were skipped last; 0 after a hit.
    last_skips: u32,
}

impl AdaptivePoll {
    /// Receives what comes within a moment; none if nothing does, or polling does not pay.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        buffer: &mut [u8],
    ) -> Option<Result<usize, Errno>> {
        if cpu_contention::is_contended() || !self.worth_polling() {
            return None;
        }
        let began = Instant::now();
        loop {
            let received = match recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((bytes, _)) => Ok(bytes),
                Err(Errno::AGAIN | Errno::INTR) => {
                    if began.elapsed() <= POLL_LIMIT && cpu_contention::yield_core() {
                        continue;
                    }
                    self.learn(false);
                    return None;
                }
                Err(error) => Err(error),
            };
            // Where the core came back late, the answer did.
            self.learn(began.elapsed() <= POLL_LIMIT);
            return Some(received);
        }
    }

    fn worth_polling(&mut self) -> bool {
        let pays = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        pays
    }

    /// An answer was polled for, and came `in_time` or did not.
    fn learn(&mut self, in_time: bool) {
        if in_time {
            *self = Self::default();
            return;
        }
        self.failures += 1;
        if self.failures == MISSES {
            self.failures = 0;
            self.last_skips = (2 * self.last_skips).clamp(1, MAX_SKIPPED);
            self.skips = self.last_skips;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_make_polls_rarer_until_one_hits() {
        let mut poll = AdaptivePoll::default();
        let until_next = |poll: &mut AdaptivePoll| (0..).find(|_| poll.worth_polling());
        for skipped in [1, 2, 4, 8, 16, 32, 64, 64] {
            for _ in 0..MISSES {
                assert_eq!(until_next(&mut poll), Some(0));
                poll.learn(false);
            }
            assert_eq!(until_next(&mut poll), Some(skipped));
        }
        poll.learn(true);
        for _ in 0..MISSES {
            assert_eq!(until_next(&mut poll), Some(0));
            poll.learn(false);
        }
        assert_eq!(until_next(&mut poll), Some(1));
    }
}
