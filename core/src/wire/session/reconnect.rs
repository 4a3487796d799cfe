//! When a client opens its next socket, and when it gives its session up. Knows time only as a
//! number of milliseconds from anywhere.

/// First and longest pause between two attempts.
const PAUSES_MS: (u64, u64) = (20, 400);

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is a socket, or one is being opened.
    Nothing,
    /// Open a socket, and say [`Reconnect::trying`].
    Try,
    /// Ask again at this time.
    Wait {
        /// Milliseconds on the caller's clock.
        until_ms: u64,
    },
    /// The server has given the session up by now, and so does the client.
    GiveUp,
}

/// Attempts of a client that had a session to come back to it.
#[derive(Clone, Debug)]
pub struct Reconnect {
    grace_ms: u64,
    lost_ms: Option<u64>,
    pause_ms: u64,
    next_ms: u64,
    trying: bool,
}

impl Reconnect {
    /// Of a session whose server waits `grace_ms` for its client.
    pub fn new(grace_ms: u32) -> Reconnect {
        let grace_ms = u64::from(grace_ms);
        Reconnect { grace_ms, lost_ms: None, pause_ms: 0, next_ms: 0, trying: false }
    }

    /// The socket was lost, or an attempt at one failed.
    pub fn lost(&mut self, now_ms: u64) {
        self.trying = false;
        if self.lost_ms.is_none() {
            // Immediately the first time: most losses are over when they are noticed.
            (self.lost_ms, self.pause_ms, self.next_ms) = (Some(now_ms), 0, now_ms);
        } else {
            self.pause_ms = (self.pause_ms * 2).clamp(PAUSES_MS.0, PAUSES_MS.1);
            self.next_ms = now_ms + self.pause_ms;
        }
    }

    /// A socket is being opened; [`Reconnect::lost`] or [`Reconnect::restored`] follows.
    pub fn trying(&mut self) {
        self.trying = true;
    }

    /// The session continues.
    pub fn restored(&mut self) {
        (self.lost_ms, self.trying) = (None, false);
    }

    /// What to do at `now_ms`.
    pub fn next(&self, now_ms: u64) -> Next {
        let Some(lost_ms) = self.lost_ms else { return Next::Nothing };
        let end_ms = lost_ms + self.grace_ms;
        if now_ms >= end_ms {
            Next::GiveUp
        } else if self.trying {
            Next::Wait { until_ms: end_ms }
        } else if now_ms >= self.next_ms {
            Next::Try
        } else {
            Next::Wait { until_ms: self.next_ms.min(end_ms) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tries_at_once_then_ever_later_and_gives_up_after_the_grace() {
        let mut reconnect = Reconnect::new(1500);
        assert_eq!(reconnect.next(0), Next::Nothing);
        let (mut now, mut tries) = (1000, Vec::new());
        reconnect.lost(now);
        loop {
            match reconnect.next(now) {
                Next::Try => {
                    tries.push(now - 1000);
                    reconnect.trying();
                    assert_eq!(reconnect.next(now), Next::Wait { until_ms: 2500 });
                    reconnect.lost(now);
                }
                Next::Wait { until_ms } => now = until_ms,
                Next::GiveUp => break,
                Next::Nothing => unreachable!("it is lost"),
            }
        }
        assert_eq!(now, 2500);
        assert_eq!(tries, [0, 20, 60, 140, 300, 620, 1020, 1420]);
        reconnect.restored();
        assert_eq!(reconnect.next(9000), Next::Nothing);
        reconnect.lost(9000);
        assert_eq!(reconnect.next(9000), Next::Try);
    }
}
