//! What is said of waits that are long: after how long, again after twice as long, and to whom.
//! Knows nothing of what is waited for.

use std::sync::Once;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::{PublishedStall, StallReport};
use crate::clock::{self, Instant};
use crate::env::variable;
use crate::standard_error::write_line;

/// After how long it is said who is missing, unless the environment says otherwise.
const STALL: Duration = Duration::from_secs(10);
const MIN_STALL: Duration = Duration::from_millis(50);
/// As good as never.
pub(crate) const MAX_STALL: Duration = Duration::from_secs(100 * 365 * 86_400);

/// After how long a wait is reported; none if none is.
#[must_use]
pub fn stall_limit() -> Option<Duration> {
    let text = variable::POLYRANK_STALL_REPORT.text();
    let seconds = match text.as_deref().map(str::parse::<f64>) {
        None => return Some(STALL),
        Some(Ok(seconds)) => seconds,
        Some(Err(_)) => {
            let name = variable::POLYRANK_STALL_REPORT;
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                tracing::warn!("{name} is not a number of seconds: stalls are reported after 10 s");
            });
            return Some(STALL);
        }
    };
    let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
    limit.map(|limit| limit.clamp(MIN_STALL, MAX_STALL))
}

/// Warns; on standard error where no program listens to what libraries log, so that nobody waits
/// in silence.
pub(crate) fn say(text: &str) {
    tracing::warn!(target: "polyrank::stall", "{text}");
    say_aloud(text);
}

/// Says it on standard error where no program listens.
pub(crate) fn say_aloud(text: &str) {
    if LevelFilter::current() == LevelFilter::OFF {
        write_line(&format!("polyrank: {text}"));
    }
}

/// That a rank waits no longer for `subject`, after so long.
#[must_use]
pub fn taken_back(subject: &str, waited: Duration) -> String {
    format!("{subject} waits no longer, after {}", seconds(waited))
}

/// "10 s", "1.5 s".
pub(crate) fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 9.95 => format!("{seconds:.1} s").replace(".0 s", " s"),
        seconds => format!("{seconds:.0} s"),
    }
}

/// A wait of this rank that no group knows of yet.
pub(crate) struct ReportedWait {
    began: Instant,
    /// None if it is never said.
    pause: Option<Duration>,
    next: Instant,
    /// What was said last, and how often something was.
    said: Option<(PublishedStall, u32)>,
}

impl ReportedWait {
    /// One that begins now.
    pub(crate) fn new() -> ReportedWait {
        ReportedWait::after(stall_limit())
    }

    /// One that is said after so long, or never.
    pub(super) fn after(pause: Option<Duration>) -> ReportedWait {
        let began = Instant::now();
        let next = clock::after(pause.unwrap_or_default());
        ReportedWait { began, pause, next, said: None }
    }

    /// Whether it is to be said now: when this rank has waited for long, and after twice as long
    /// again. True once each time.
    pub(crate) fn is_due(&mut self) -> bool {
        let Some(pause) = self.pause.filter(|_| Instant::now() >= self.next) else { return false };
        let pause = pause.saturating_mul(2);
        (self.pause, self.next) = (Some(pause), clock::after(pause));
        true
    }

    /// How long it has lasted, in words.
    pub(crate) fn waited(&self) -> String {
        seconds(self.began.elapsed())
    }

    /// How long may be waited until it is looked whether it is due: `pause` at most.
    pub(crate) fn until_next(&self, pause: Duration) -> Duration {
        let left = self.next.saturating_duration_since(Instant::now());
        match self.pause {
            // Zero would be no limit.
            Some(_) => left.clamp(Duration::from_millis(1).min(pause), pause),
            None => pause,
        }
    }

    /// Says `text` here, and has the launcher say what is in `report` of all that wait for its
    /// subject. Who waits may be left out, where ranks are those of a group that nobody else knows
    /// by these numbers.
    pub(crate) fn say(&mut self, text: &str, report: StallReport) {
        say(text);
        let published = PublishedStall::new(self.counted(report));
        self.note(published);
    }

    /// `report`, with how often this was said and how long it has lasted.
    pub(super) fn counted(&self, report: StallReport) -> StallReport {
        let times = self.said.as_ref().map_or(1, |(_, times)| times.saturating_add(1));
        let waited_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        StallReport { times, waited_ms, ..report }
    }

    /// Notes that it was said; what was said before.
    pub(super) fn note(&mut self, published: PublishedStall) -> Option<PublishedStall> {
        let times = self.said.as_ref().map_or(1, |(_, times)| times.saturating_add(1));
        self.said.replace((published, times)).map(|(former, _)| former)
    }

    /// Takes it back, if it was said.
    pub(crate) fn end(&self, subject: &str) {
        if let Some(text) = self.last_words(subject) {
            say(&text);
        }
    }

    /// That this rank waits no longer, if it was said that it waits.
    pub(super) fn last_words(&self, subject: &str) -> Option<String> {
        self.said.as_ref().map(|_| taken_back(subject, self.began.elapsed()))
    }
}
