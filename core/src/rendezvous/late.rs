//! Says who has not come to a group that others wait for, to the program and to who asks. Knows
//! nothing of how ranks meet.

use std::time::Duration;

use super::join::Keys;
use super::missing::missing;
use crate::blocking::unblock;
use crate::call_site::call_site;
use crate::clock::{self, Instant};
use crate::generated::error::Result;
use crate::recorder::meetings::{Meeting, OpenMeeting};
use crate::recorder::stall_report::{PublishedStall, StallReport, taken_back};
use crate::recorder::watch::{JoinAnswers, listen, look_after_process, say, seconds, stall_limit};
use crate::store::Store;

/// When it is said next who is missing.
pub(super) struct LateReport {
    began: Instant,
    /// None if it is never said.
    pause: Option<Duration>,
    next: Instant,
    /// What was said last, of what, and how often something was.
    said: Option<(PublishedStall, String, u32)>,
    meeting: OpenMeeting,
    answers: JoinAnswers,
}

impl LateReport {
    /// For a wait of this of so many ranks, which begins now.
    pub(super) fn new(keys: &Keys<'_>, ranks: (u32, u32)) -> LateReport {
        listen();
        let (began, pause) = (Instant::now(), stall_limit());
        let next = clock::after(pause.unwrap_or_default());
        let meeting = OpenMeeting::begin(keys.group_name, ranks);
        LateReport { began, pause, next, said: None, meeting, answers: JoinAnswers::default() }
    }

    /// How long may be waited before the next look: `pause` at most.
    pub(super) fn until_next(&self, pause: Duration) -> Duration {
        let left = self.next.saturating_duration_since(Instant::now());
        match self.pause {
            // Zero would be no limit.
            Some(_) => left.clamp(Duration::from_millis(1).min(pause), pause),
            None => pause,
        }
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
        let Some(pause) = self.pause.filter(|_| Instant::now() >= self.next) else { return };
        let pause = pause.saturating_mul(2);
        (self.pause, self.next) = (Some(pause), clock::after(pause));
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
        let (subject, waited) = (meeting.subject(), self.began.elapsed());
        let who = match obstacle {
            None => format!("{} not come to the rendezvous", meeting.who_has()),
            Some(why) => {
                format!("ranks have not come, and the store does not say which ({why})")
            }
        };
        let text = format!("{subject}: {who}; waited for {}", seconds(waited));
        let at = |who: &str| {
            let site = site.as_ref().map(|site| format!("; {who} is at {site}"));
            format!("{text}{}", site.unwrap_or_default())
        };
        say(&at("this rank"));
        let times = self.said.as_ref().map_or(1, |(.., times)| times.saturating_add(1));
        let what = meeting.what();
        let report = StallReport {
            subject: what.clone(),
            group: meeting.group_name().to_owned(),
            text: at(&format!("rank {}", meeting.rank)),
            times,
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            ..StallReport::default()
        };
        self.said = Some((PublishedStall::new(report), what, times));
    }

    /// Says that all have come, if it was said that some had not.
    pub(super) fn end(&self) {
        if let Some((_, what, _)) = &self.said {
            let is_first = self.meeting.meeting().is_some_and(|meeting| meeting.is_first());
            let what = if is_first { "the rendezvous" } else { what };
            say(&taken_back(what, self.began.elapsed()));
        }
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
