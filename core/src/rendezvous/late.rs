//! Says who has not come to a group that others wait for. Knows nothing of how ranks meet.

use std::time::Duration;

use super::join::Keys;
use super::missing::missing;
use crate::clock::{self, Instant};
use crate::recorder::stall_report::{PublishedStall, StallReport, taken_back};
use crate::recorder::watch::{listen, say, seconds, stall_limit};
use crate::store::Store;

/// When it is said next who is missing.
pub(super) struct LateReport {
    began: Instant,
    /// None if it is never said.
    pause: Option<Duration>,
    next: Instant,
    /// What was said last, and how often something was.
    said: Option<(PublishedStall, u32)>,
}

impl LateReport {
    /// For a wait that begins now.
    pub(super) fn new() -> LateReport {
        listen();
        let (began, pause) = (Instant::now(), stall_limit());
        let next = clock::after(pause.unwrap_or_default());
        LateReport { began, pause, next, said: None }
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
        let text =
            format!("group '{group}': {who} not come to the rendezvous; waited for {waited}");
        say(&text);
        let times = self.said.as_ref().map_or(1, |(_, times)| times.saturating_add(1));
        let report = self.report(group, text, times);
        self.said = Some((PublishedStall::new(report), times));
    }

    /// Says that all have come, if it was said that some had not.
    pub(super) fn end(&self) {
        if self.said.is_some() {
            say(&taken_back("the rendezvous", self.began.elapsed()));
        }
    }

    /// What the launcher is to say.
    fn report(&self, group: &str, text: String, times: u32) -> StallReport {
        let subject = format!("the rendezvous of group '{group}'");
        let waited_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Ranks are those of the group here, which its caller knows by other numbers.
        StallReport { subject, text, times, waited_ms, ..StallReport::default() }
    }
}
