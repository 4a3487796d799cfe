//! The one thread of the process that makes groups move while nobody waits for them, and that hears
//! of deaths while nothing is in flight. Knows of a group what [`GroupProgress`] says.
//!
//! It starts when it is first needed: when an operation is left to it, or when a rank first has to
//! sleep for another. A forked child has no such thread and starts one of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::transport::{Bell, Interest, wait};

/// How long a thread that issued an operation may take until it waits for it itself.
const GRACE: Duration = Duration::from_micros(100);

/// The same, after operations that were all waited for within their grace: in a loop that starts
/// and waits, being told of each operation would cost more than many an operation.
const MAX_GRACE: Duration = Duration::from_millis(1);

/// How long an idle group must be left alone until its connections are watched: watching a group
/// that a thread drives would wake this thread with every message.
const QUIET: Duration = Duration::from_millis(100);

/// How often it is looked whether groups have become quiet or operations late.
const TICK: Duration = Duration::from_millis(150);

/// Turns of one group before the others have theirs.
const TURNS: usize = 16;

/// Sleeps that end without anything to do before a pause is made.
const FRUITLESS: u32 = 16;

/// What the background thread sees of a group.
pub(super) trait GroupProgress: Send + Sync {
    /// Whether everything is closed.
    fn has_ended(&self) -> bool;

    /// Whether anything is in flight.
    fn is_busy(&self) -> bool;

    /// Whether a thread of the user waits.
    fn has_waiters(&self) -> bool;

    /// How often threads of the user have issued or waited.
    fn activity(&self) -> u64;

    /// Whether somebody waits for the group to break.
    fn is_watched(&self) -> bool;

    /// Notes whether the background thread looks after it.
    fn set_attended(&self, attended: bool);

    /// Moves what can be moved, on behalf of nobody who waits; whether anything moved.
    fn turn_in_background(&self) -> bool;

    /// What to wait for, and until when at most.
    fn background_interests(&self, interests: &mut Vec<Interest>) -> Option<Instant>;

    /// Tells who wants to know, if the oldest operation has not moved for `limit`.
    fn tell_of_stall(&self, limit: Duration);
}

/// The background of the process that started with `main`.
static FIRST: OnceLock<Box<Background>> = OnceLock::new();

/// The background thread of a process, started or not.
pub(super) struct Background {
    process_id: u32,
    bell: Bell,
    started: AtomicBool,
    /// Whether the thread is in a grace, at whose end it looks at all groups.
    in_grace: AtomicBool,
    /// Groups that the thread does not know yet.
    newcomers: Mutex<Vec<Weak<dyn GroupProgress>>>,
    /// The background of a child of this process, in the child's copy of this memory.
    heir: OnceLock<Box<Background>>,
}

/// What the thread knows of a group. It is held weakly: a group ends when its user lets go.
struct Entry {
    group: Weak<dyn GroupProgress>,
    activity: u64,
    quiet_since: Instant,
}

/// What came of looking at a group.
enum Look {
    /// It is gone.
    Gone,
    /// It moved.
    Moved,
    /// A sleep may go on until this time.
    Idle(Option<Instant>),
}

impl Background {
    /// The background of this process.
    ///
    /// # Errors
    /// [`Error::Network`] if the system has no descriptor left.
    pub(super) fn of_this_process() -> Result<&'static Background> {
        let mut place: &'static OnceLock<Box<Background>> = &FIRST;
        loop {
            if place.get().is_none() {
                // If another thread was faster, its background counts.
                let _ = place.set(Box::new(Background::new()?));
            }
            match place.get() {
                Some(found) if found.process_id == crate::clock::process_id() => return Ok(found),
                Some(ancestor) => place = &ancestor.heir,
                None => {
                    let message = "the background thread cannot be registered".to_owned();
                    return Err(Error::Network { message });
                }
            }
        }
    }

    fn new() -> Result<Background> {
        Ok(Background {
            process_id: crate::clock::process_id(),
            bell: Bell::new()?,
            started: AtomicBool::new(false),
            in_grace: AtomicBool::new(false),
            newcomers: Mutex::default(),
            heir: OnceLock::new(),
        })
    }

    /// Makes a group known. Starts nothing.
    pub(super) fn register(&self, group: Weak<dyn GroupProgress>) {
        {
            let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
            newcomers.retain(|known| known.strong_count() > 0);
            newcomers.push(group);
        }
        // A thread that sleeps for other groups would not hear of deaths in this one.
        self.refresh();
    }

    /// Has the thread release what groups have closed since it fell asleep.
    pub(super) fn refresh(&self) {
        if self.started.load(Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// Starts the thread, if it does not run.
    pub(super) fn start(&'static self) {
        if self.started.load(Ordering::Relaxed) || self.started.swap(true, Ordering::SeqCst) {
            return;
        }
        let thread = std::thread::Builder::new().name("polyrank".to_owned());
        if let Err(error) = thread.spawn(move || self.run()) {
            tracing::warn!(%error, "no background thread: operations move only when waited for");
        }
    }

    /// Asks the thread to look at all groups, after a grace.
    pub(super) fn attend(&'static self) {
        self.start();
        self.bell.ring();
    }

    /// Whether the thread will look at all groups without being asked. Who has left something to
    /// do before it asks this, and hears yes, is seen: the grace ends before that look.
    pub(super) fn looks_soon(&self) -> bool {
        self.in_grace.load(Ordering::SeqCst)
    }

    fn run(&self) {
        let mut entries: Vec<Entry> = Vec::new();
        let mut interests = Vec::new();
        let mut fruitless = 0;
        let mut grace = GRACE;
        loop {
            self.welcome(&mut entries);
            interests.clear();
            interests.extend(self.bell.interest());
            let now = Instant::now();
            let mut moved = false;
            let mut until: Option<Instant> = None;
            entries.retain_mut(|entry| match entry.look(now, &mut interests) {
                Look::Gone => false,
                Look::Moved => {
                    moved = true;
                    true
                }
                Look::Idle(limit) => {
                    until = until.into_iter().chain(limit).min();
                    true
                }
            });
            if moved {
                fruitless = 0;
                continue;
            }
            let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
            let woken = wait::wait(&interests, timeout);
            if self.bell.heard() {
                // What it was rung for is looked at after this.
                self.in_grace.store(true, Ordering::SeqCst);
                std::thread::sleep(grace);
                self.in_grace.store(false, Ordering::SeqCst);
                grace = match entries.iter().any(Entry::is_left_alone) {
                    true => GRACE,
                    false => MAX_GRACE.min(2 * grace),
                };
            } else if woken {
                fruitless += 1;
                if fruitless > FRUITLESS {
                    // A descriptor stays readable although nothing moves; do not burn a core.
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    fn welcome(&self, entries: &mut Vec<Entry>) {
        let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet_since = Instant::now();
        let entry = |group| Entry { group, activity: 0, quiet_since };
        entries.extend(newcomers.drain(..).map(entry));
    }
}

impl Entry {
    /// Whether it has something to do and nobody waits for it.
    fn is_left_alone(&self) -> bool {
        self.group.upgrade().is_some_and(|group| group.is_busy() && !group.has_waiters())
    }

    /// Moves the group if it is this thread's turn; else adds what to wait for.
    fn look(&mut self, now: Instant, interests: &mut Vec<Interest>) -> Look {
        let Some(group) = self.group.upgrade().filter(|group| !group.has_ended()) else {
            return Look::Gone;
        };
        // In this order: who leaves something to do while this looks sees that nobody attends.
        group.set_attended(false);
        let activity = group.activity();
        let active = std::mem::replace(&mut self.activity, activity) != activity;
        if active {
            self.quiet_since = now;
        }
        if group.has_waiters() {
            return Look::Idle(Some(now + TICK));
        }
        if group.is_busy() {
            group.set_attended(true);
            return self.drive(&*group, now, interests);
        }
        if now - self.quiet_since < QUIET && !group.is_watched() {
            return Look::Idle(Some(now + TICK));
        }
        // What came for an idle group is kept for its next operation, or is bad news.
        if group.turn_in_background() || group.is_busy() {
            return Look::Moved;
        }
        Look::Idle(group.background_interests(interests))
    }

    fn drive(
        &self,
        group: &dyn GroupProgress,
        now: Instant,
        interests: &mut Vec<Interest>,
    ) -> Look {
        for turn in 0..TURNS {
            if group.has_waiters() {
                return Look::Moved;
            }
            if !group.turn_in_background() {
                if turn > 0 {
                    return Look::Moved;
                }
                break;
            }
            if turn + 1 == TURNS {
                return Look::Moved;
            }
        }
        group.tell_of_stall(2 * TICK);
        let known = interests.len();
        let deadline = group.background_interests(interests);
        // A transport without descriptors has to be asked again and again.
        let tick = if interests.len() == known { GRACE } else { TICK };
        Look::Idle(deadline.into_iter().chain([now + tick]).min())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::sync::{Arc, mpsc};

    use super::*;

    /// A group that is over.
    struct EndedGroup;

    impl GroupProgress for EndedGroup {
        fn has_ended(&self) -> bool {
            true
        }

        fn is_busy(&self) -> bool {
            false
        }

        fn has_waiters(&self) -> bool {
            false
        }

        fn activity(&self) -> u64 {
            0
        }

        fn is_watched(&self) -> bool {
            false
        }

        fn set_attended(&self, _: bool) {}

        fn turn_in_background(&self) -> bool {
            false
        }

        fn background_interests(&self, _: &mut Vec<Interest>) -> Option<Instant> {
            None
        }

        fn tell_of_stall(&self, _: Duration) {}
    }

    /// Far beyond what this takes; a hang shows instead of lasting.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn until_all_are_known(background: &'static Background) {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            while !background.newcomers.lock().unwrap().is_empty() {
                std::thread::yield_now();
            }
            let _ = tell.send(());
        });
        told.recv_timeout(PATIENCE).expect("the thread sleeps and knows nothing of a group");
    }

    #[test]
    fn a_thread_that_sleeps_hears_of_new_groups() {
        let background: &'static Background = Box::leak(Box::new(Background::new().unwrap()));
        // Of a group that is gone; nothing limits the sleep that follows.
        background.newcomers.lock().unwrap().push(Weak::<EndedGroup>::new());
        background.start();
        until_all_are_known(background);
        let group: Arc<dyn GroupProgress> = Arc::new(EndedGroup);
        background.register(Arc::downgrade(&group));
        until_all_are_known(background);
    }
}
