//! When a WebSocket is dialled again, and when that is hopeless. Knows nothing of what it carries.

use std::sync::Arc;
use std::time::Duration;

use super::socket::{Dialer, Socket};
use crate::clock::Instant;

/// How long one attempt may take until the other side has answered.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the first failure; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between attempts.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// The attempts to reach one place.
pub(super) struct Redial {
    dialer: Arc<dyn Dialer>,
    urls: Vec<String>,
    /// How long every attempt may fail before the first success: a rank listens before it
    /// publishes its address.
    refused_timeout: Duration,
    attempts: u32,
    /// Since when every attempt has failed.
    failing_since: Option<Instant>,
    /// When to dial; while an attempt is under way, when it is given up.
    next: Instant,
}

impl Redial {
    pub(super) fn new(
        dialer: Arc<dyn Dialer>,
        urls: Vec<String>,
        refused_timeout: Duration,
        now: Instant,
    ) -> Redial {
        Redial { dialer, urls, refused_timeout, attempts: 0, failing_since: None, next: now }
    }

    /// Dials, if it is time.
    pub(super) fn dial(&mut self, now: Instant) -> Option<Result<Box<dyn Socket>, String>> {
        if now < self.next {
            return None;
        }
        let Some(url) = self.urls.get(self.attempts as usize % self.urls.len().max(1)) else {
            return Some(Err("its address card names no WebSocket endpoint".to_owned()));
        };
        self.attempts = self.attempts.wrapping_add(1);
        self.next = now + ATTEMPT_TIMEOUT;
        Some(self.dialer.dial(url).map_err(|error| error.to_string()))
    }

    /// Whether the attempt under way takes too long.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// The other side has answered.
    pub(super) fn succeeded(&mut self) {
        self.attempts = 0;
        self.failing_since = None;
    }

    /// An attempt failed, or a socket broke. Why it is hopeless, if it is; it never is for a pipe
    /// that stood (`stood`), whose grace decides.
    pub(super) fn failed(&mut self, stood: bool, why: String, now: Instant) -> Option<String> {
        let since = *self.failing_since.get_or_insert(now);
        let urls = u32::try_from(self.urls.len().max(1)).unwrap_or(1);
        // A socket that stood is replaced immediately.
        let pause = match self.attempts / urls {
            0 => Duration::ZERO,
            rounds => (FIRST_PAUSE * 2_u32.pow((rounds - 1).min(10))).min(MAX_PAUSE),
        };
        self.next = now + pause;
        let last = (self.attempts as usize).wrapping_sub(1) % self.urls.len().max(1);
        let tried_all = self.attempts >= urls || self.urls.is_empty();
        let hopeless = !stood && tried_all && now >= since + self.refused_timeout;
        hopeless.then(|| match self.urls.get(last) {
            Some(url) => format!("{url}: {why}"),
            None => why,
        })
    }

    /// When to look again; `connected`: the other side has answered.
    pub(super) fn deadline(&self, connected: bool) -> Option<Instant> {
        (!connected).then_some(self.next)
    }
}
