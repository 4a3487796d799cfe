//! Looks for an answer for a moment before the thread sleeps until it is there: to be woken takes
//! longer than most answers. Knows nothing of what is asked.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::Socket;

use super::crowd;

/// How long an answer is looked for. Others that want the core get it meanwhile.
const LOOK: Duration = Duration::from_micros(50);
/// So many looks in vain, one after the other, show that it does not pay: a server that slept is
/// late once.
const TRIES: u32 = 4;
/// Most answers that are not looked for after that.
const MOST_SKIPPED: u32 = 64;

/// Whether it pays to look for the answers of one server, by what became of the last looks.
///
/// It does where the server answers on another core: 6 µs instead of 20 to 45 were measured. It
/// does not where more processes ask than there are cores, each of which has its turn before the
/// server has: 16 Python processes on two cores got 57,000 to 75,000 answers a second where they
/// always looked, and 95,000 to 105,000 where they slept at once.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    /// Looks in vain since the last that was not, or since answers were skipped.
    failures: u32,
    /// So many of the next answers are not looked for.
    skips: u32,
    /// So many were skipped last; 0 if a look has paid since.
    last_skips: u32,
}

impl Lookout {
    /// Receives what comes within a moment; none if nothing does, or it does not pay to look.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        buffer: &mut [u8],
    ) -> Option<Result<usize, Errno>> {
        if crowd::is_there() || !self.pays() {
            return None;
        }
        let began = Instant::now();
        loop {
            let received = match recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((bytes, _)) => Ok(bytes),
                Err(Errno::AGAIN | Errno::INTR) => {
                    if began.elapsed() <= LOOK && crowd::yield_core() {
                        continue;
                    }
                    self.learn(false);
                    return None;
                }
                Err(error) => Err(error),
            };
            // Where the core came back late, the answer did.
            self.learn(began.elapsed() <= LOOK);
            return Some(received);
        }
    }

    fn pays(&mut self) -> bool {
        let pays = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        pays
    }

    /// An answer was looked for, and came `in_time` or did not.
    fn learn(&mut self, in_time: bool) {
        if in_time {
            *self = Self::default();
            return;
        }
        self.failures += 1;
        if self.failures == TRIES {
            self.failures = 0;
            self.last_skips = (2 * self.last_skips).clamp(1, MOST_SKIPPED);
            self.skips = self.last_skips;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_in_vain_become_rarer_until_one_is_not() {
        let mut lookout = Lookout::default();
        let until_next = |lookout: &mut Lookout| (0..).find(|_| lookout.pays());
        for skipped in [1, 2, 4, 8, 16, 32, 64, 64] {
            for _ in 0..TRIES {
                assert_eq!(until_next(&mut lookout), Some(0));
                lookout.learn(false);
            }
            assert_eq!(until_next(&mut lookout), Some(skipped));
        }
        lookout.learn(true);
        for _ in 0..TRIES {
            assert_eq!(until_next(&mut lookout), Some(0));
            lookout.learn(false);
        }
        assert_eq!(until_next(&mut lookout), Some(1));
    }
}
