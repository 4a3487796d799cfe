//! Says who has not come to a group that others wait for. Knows nothing of how ranks meet.

use std::time::Duration;

use super::join::Keys;
use super::missing::missing;
use crate::clock::{self, Instant};
use crate::recorder::watch::{listen, say, seconds, stall_limit};
use crate::store::Store;

/// When it is said next who is missing.
pub(super) struct LateReport {
    began: Instant,
    /// None if it is never said.
    pause: Option<Duration>,
    next: Instant,
    has_said: bool,
}

impl LateReport {
    /// For a wait that begins now.
    pub(super) fn new() -> LateReport {
        listen();
        let (began, pause) = (Instant::now(), stall_limit());
        let next = clock::after(pause.unwrap_or_default());
        LateReport { began, pause, next, has_said: false }
    }

    /// Says who is missing, if this rank has waited for long, and after twice as long again.
    pub(super) async fn look(&mut self, store: &dyn Store, keys: &Keys<'_>, world_size: u32) {
        let Some(pause) = self.pause.filter(|_| Instant::now() >= self.next) else { return };
        let pause = pause.saturating_mul(2);
        (self.pause, self.next) = (Some(pause), clock::after(pause));
        let waited = seconds(self.began.elapsed());
        // Whoever is missing, this rank waits: what the store does not say is left out.
        let who = match missing(store, keys, world_size).await {
            Ok(Some(missing)) => missing.who(world_size),
            Ok(None) => return,
            Err(error) => format!("ranks are missing, and the store does not say which ({error})"),
        };
        let group = keys.group_name;
        say(&format!("group '{group}': {who} not come to the rendezvous; waited for {waited}"));
        self.has_said = true;
    }

    /// Says that all have come, if it was said that some had not.
    pub(super) fn end(&self) {
        if self.has_said {
            let waited = seconds(self.began.elapsed());
            say(&format!("the rendezvous waits no longer, after {waited}"));
        }
    }
}
