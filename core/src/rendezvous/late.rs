//! Says who has not come to a group that others wait for, to the program and to who asks. Knows
//! nothing of how ranks meet.

use std::time::Duration;

use super::join::Keys;
use super::missing::missing;
use crate::blocking::unblock;
use crate::call_site::call_site;
use crate::generated::error::Result;
use crate::recorder::meetings::{Meeting, OpenMeeting};
use crate::recorder::watch::{Answers, listen, look_after_process};
use crate::stall_report::{ReportedWait, StallReport};
use crate::store::Store;

/// When it is said next who is missing.
pub(super) struct LateReport {
    wait: ReportedWait,
    meeting: OpenMeeting,
    answers: Answers,
}

impl LateReport {
    /// For a wait of this of so many ranks, which begins now.
    pub(super) fn new(keys: &Keys<'_>, ranks: (u32, u32)) -> LateReport {
        listen();
        let meeting = OpenMeeting::begin(keys.group_name, ranks);
        LateReport { wait: ReportedWait::new(), meeting, answers: Answers::before_group() }
    }

    /// How long may be waited before the next look: `pause` at most.
    pub(super) fn until_next(&self, pause: Duration) -> Duration {
        self.wait.until_next(pause)
    }

    /// Says who is missing, if this rank has waited for long, and after twice as long again, and
    /// answers who asks.
    pub(super) async fn look(&mut self, store: &dyn Store, keys: &Keys<'_>, world_size: u32) {
        // Who does not wait so long has no use for a thread.
        look_after_process();
        let Some(meeting) = self.meeting.meeting() else { return };
        if meeting.is_first()
            && let Err(error) = self.answer(store, keys, (meeting.rank, world_size)).await
        {
            tracing::debug!(%error, "cannot tell who asks that this rank waits for others");
        }
        if !self.wait.is_due() {
            return;
        }
        // Whoever is missing, this rank waits: what the store does not say is left out.
        let obstacle = match self.look_for_missing(store, keys, world_size).await {
            Ok(true) => None,
            Ok(false) => return,
            Err(error) => Some(error.to_string()),
        };
        // Another thread asks: the program may be busy.
        let site = unblock(|| Ok(call_site())).await.unwrap_or_default();
        if let Some(meeting) = self.meeting.meeting() {
            self.say(&meeting, obstacle, site.or_else(|| meeting.site()));
        }
    }

    fn say(&mut self, meeting: &Meeting, obstacle: Option<String>, site: Option<String>) {
        let text = meeting.late(obstacle.as_deref(), &self.wait.waited());
        let at = |who: &str| {
            let site = site.as_ref().map(|site| format!("; {who} is at {site}"));
            format!("{text}{}", site.unwrap_or_default())
        };
        let report = StallReport {
            subject: meeting.what(),
            group: meeting.group_name().to_owned(),
            text: at(&format!("rank {}", meeting.rank)),
            ..StallReport::default()
        };
        self.wait.say(&at("this rank"), report);
    }

    /// Says that all have come, if it was said that some had not.
    pub(super) fn end(&self) {
        let Some(meeting) = self.meeting.meeting() else { return };
        self.wait.end(&meeting.over());
    }

    /// Tells who asks that this rank waits, and for whom.
    async fn answer(
        &mut self,
        store: &dyn Store,
        keys: &Keys<'_>,
        (rank, world_size): (u32, u32),
    ) -> Result<()> {
        let Some(question) = self.answers.question(store).await? else { return Ok(()) };
        self.look_for_missing(store, keys, world_size).await?;
        self.answers.answer(store, rank, question).await
    }

    /// Notes who is missing; whether anybody is.
    async fn look_for_missing(
        &self,
        store: &dyn Store,
        keys: &Keys<'_>,
        world_size: u32,
    ) -> Result<bool> {
        let missing = missing(store, keys, world_size).await?;
        if let Some(missing) = &missing {
            self.meeting.note_missing(&missing.listed, missing.others);
        }
        Ok(missing.is_some())
    }
}
