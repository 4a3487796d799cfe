//! Says who has not come to a group that others wait for. Knows nothing of how ranks meet.

use super::join::Keys;
use super::missing::missing;
use crate::recorder::watch::listen;
use crate::stall_report::ReportedWait;
use crate::store::Store;

/// What is said of who is missing.
pub(super) struct LateReport(ReportedWait);

impl LateReport {
    /// For a wait that begins now.
    pub(super) fn new() -> LateReport {
        listen();
        LateReport(ReportedWait::new())
    }

    /// Says who is missing, if this rank has waited for long, and after twice as long again.
    pub(super) async fn look(&mut self, store: &dyn Store, keys: &Keys<'_>, world_size: u32) {
        if !self.0.is_due() {
            return;
        }
        let waited = self.0.waited();
        // Whoever is missing, this rank waits: what the store does not say is left out.
        let who = match missing(store, keys, world_size).await {
            Ok(Some(missing)) => missing.who(world_size),
            Ok(None) => return,
            Err(error) => format!("ranks are missing, and the store does not say which ({error})"),
        };
        let group = keys.group_name;
        let text =
            format!("group '{group}': {who} not come to the rendezvous; waited for {waited}");
        self.0.say(format!("the rendezvous of group '{group}'"), text);
    }

    /// Says that all have come, if it was said that some had not.
    pub(super) fn end(&self) {
        self.0.end("the rendezvous");
    }
}
