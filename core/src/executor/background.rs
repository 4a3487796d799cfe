//! The background thread of the process. It makes groups progress while no thread of the user waits
//! for them, and notices dead ranks while nothing is in flight. Knows of a group what
//! [`GroupProgress`] says.
//!
//! A thread that issued an operation may be about to wait for it, and moves it sooner than another
//! thread could be woken, which would take the executor's lock away from it. So it has a grace to
//! begin. Where somebody is to be told of the end, nobody waits: such a group is urgent, and the
//! thread polls it immediately, for as long as that has paid lately and no other needs the core.
//!
//! It starts with the first group of a process that has other ranks: also a rank that was in no
//! operation yet, or is in none any more, hears why a group broke, and has to tell the others when
//! it sees that one died. A forked child starts one of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::limits::SPIN_LIMITS;
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::spin::{AdaptiveSpin, BusyPoll, SpinPolicy, WakeCost};
use crate::transport::{Bell, Endings, Interest, wait};

/// How long a thread that issued an operation has to begin to wait for it itself.
const ISSUER_GRACE: Duration = Duration::from_micros(100);

/// The same, after operations that were all waited for within their grace: in a loop that issues
/// and waits, waking this thread for each operation would cost more than a small operation.
const MAX_ISSUER_GRACE: Duration = Duration::from_millis(1);

/// How long an idle group must be left alone until its connections are watched: watching a group
/// that a thread drives would wake this thread with every message.
const QUIET_AFTER: Duration = Duration::from_millis(100);

/// How often the thread checks whether groups have become quiet or operations late.
const CHECK_INTERVAL: Duration = Duration::from_millis(150);

/// How long the thread helps a new group to open its connections, which takes descriptors that it
/// does not need later, if the process has other groups.
const JOINING_LIMIT: Duration = Duration::from_secs(1);

/// A process with more groups than this gives back the memory of those that are idle. A few keep
/// theirs, since the system clears what it provides anew.
const FEW_GROUPS: usize = 8;

/// Turns that one group gets before the others get theirs.
const MAX_TURNS: usize = 16;

/// Sleeps that may end without anything to do before the thread pauses.
const MAX_FRUITLESS_TURNS: u32 = 16;

/// The time of a bell that was not rung.
const NOT_RUNG: u64 = u64::MAX;

/// What the background thread sees of a group.
pub(super) trait GroupProgress: Send + Sync {
    /// Whether everything is closed.
    fn has_ended(&self) -> bool;

    /// Whether anything is in flight.
    fn is_busy(&self) -> bool;

    /// Whether a thread of the user waits.
    fn has_waiters(&self) -> bool;

    /// How many times threads of the user have issued or waited.
    fn activity(&self) -> u64;

    /// Whether somebody waits for the group to break.
    fn is_watched(&self) -> bool;

    /// Whether its connections are being opened.
    fn is_joining(&self) -> bool;

    /// Gives memory back to the system that an idle group does not need.
    fn release_idle_memory(&self);

    /// Notes whether the background thread drives it, or sleeps until something arrives for it.
    fn set_driven_in_background(&self, is_driven: bool);

    /// Whether somebody is to be told of the end of what is in flight, and no thread waits for it.
    fn is_urgent(&self) -> bool;

    /// Moves what can be moved, although no thread waits for it; whether anything moved.
    fn turn_in_background(&self) -> bool;

    /// The same, by a thread that does not sleep between two turns, so that no rank wakes it.
    fn poll_in_background(&self) -> bool;

    /// What to wait for, and until when at most.
    fn background_interests(&self, interests: &mut Vec<Interest>) -> Option<Instant>;

    /// Calls the group's stall hook, if the oldest operation has not moved for `limit`.
    fn report_stall(&self, limit: Duration);
}

/// The background of the process that started with `main`.
static FIRST: OnceLock<Box<Background>> = OnceLock::new();

/// The background thread of a process, started or not.
pub(super) struct Background {
    process_id: u32,
    bell: Bell,
    started: AtomicBool,
    /// Whether the thread waits for a grace to end, after which it checks all groups.
    in_grace: AtomicBool,
    /// When the bell was rung, in nanoseconds since `began`, if the thread has not heard it.
    rung_at: AtomicU64,
    began: Instant,
    wake_cost: WakeCost,
    /// Groups that the thread does not know yet.
    newcomers: Mutex<Vec<Weak<dyn GroupProgress>>>,
    /// The background of a child of this process, in the child's copy of this memory.
    heir: OnceLock<Box<Background>>,
}

/// What the thread knows of a group. The reference is weak: a group ends when its user drops it.
struct Entry {
    group: Weak<dyn GroupProgress>,
    activity: u64,
    quiet_since: Instant,
    /// Until when the thread helps it to open its connections.
    joins_until: Instant,
    /// Whether it was idle when it was last checked, and so has given its memory back.
    has_rested: bool,
}

/// What the check of a group found.
enum GroupActivity {
    /// The group is gone.
    Gone,
    /// Something moved.
    Moved,
    /// Nothing to do; the thread may sleep until this time.
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
            rung_at: AtomicU64::new(NOT_RUNG),
            began: Instant::now(),
            wake_cost: WakeCost::new(),
            newcomers: Mutex::default(),
            heir: OnceLock::new(),
        })
    }

    /// Adds a group. Does not start the thread.
    pub(super) fn register(&self, group: Weak<dyn GroupProgress>) {
        {
            let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
            newcomers.retain(|known| known.strong_count() > 0);
            newcomers.push(group);
        }
        // While it sleeps for other groups, the thread would not notice deaths in this one.
        self.refresh();
    }

    /// Makes the thread release what groups have closed since it fell asleep.
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
        // What the process opens for good is open when a group is there, not some time later.
        let endings = Endings::of_this_process();
        let thread = std::thread::Builder::new().name("polyrank".to_owned());
        if let Err(error) = thread.spawn(move || self.run(endings)) {
            tracing::warn!(%error, "no background thread: operations move only when waited for");
        }
    }

    /// Asks the thread to drive what is urgent, and to check all groups after a grace.
    pub(super) fn request_check(&'static self) {
        self.start();
        let _ = self.rung_at.compare_exchange(
            NOT_RUNG,
            self.began.elapsed().as_nanos() as u64,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        self.bell.ring();
    }

    /// Whether the thread will check all groups without being asked, which it has to be only for
    /// what is urgent. If this is true, the check sees everything that the caller did before: the
    /// grace ends before the check begins.
    pub(super) fn is_in_grace(&self) -> bool {
        self.in_grace.load(Ordering::SeqCst)
    }

    /// How long it takes to wake the thread, as far as is known, but at most `limit`.
    pub(super) fn wake_cost(&self, limit: Duration) -> Duration {
        self.wake_cost.at_most(limit)
    }

    /// Runs the thread. Groups that are not watched, too, hear at once when a rank dies, by
    /// `endings`.
    fn run(&self, endings: Option<&'static Endings>) {
        let mut entries: Vec<Entry> = Vec::new();
        let mut interests = Vec::new();
        let mut fruitless = 0;
        let mut grace = ISSUER_GRACE;
        let spinning = AdaptiveSpin::new(SpinPolicy::Yield(SPIN_LIMITS.spin));
        let mut moved = false;
        let mut has_ending = false;
        loop {
            self.take_newcomers(&mut entries);
            if moved {
                poll_urgent(&entries, spinning.duration());
            }
            interests.clear();
            interests.extend(self.bell.interest());
            interests.extend(endings.and_then(Endings::interest));
            let until;
            (moved, until) = check_all(&mut entries, has_ending, &mut interests);
            if moved {
                fruitless = 0;
                continue;
            }
            let asleep = Instant::now();
            let timeout = until.map(|until| until.saturating_duration_since(asleep));
            let woken = wait::wait(&interests, timeout);
            spinning.note_sleep(asleep.elapsed());
            has_ending = woken && endings.is_some_and(Endings::take);
            if self.hear(asleep) {
                // The groups for which it was rung are checked after this.
                self.in_grace.store(true, Ordering::SeqCst);
                self.wait_for_issuers(&mut entries, grace, &spinning);
                self.in_grace.store(false, Ordering::SeqCst);
                grace = match entries.iter().any(Entry::is_left_alone) {
                    true => ISSUER_GRACE,
                    false => MAX_ISSUER_GRACE.min(2 * grace),
                };
            } else if woken {
                fruitless += 1;
                if fruitless > MAX_FRUITLESS_TURNS {
                    // A descriptor stays readable although nothing moves; do not burn a core.
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    /// Gives threads that issued operations a grace, in which they may begin to wait for these, and
    /// drives what is urgent meanwhile. It ends when that takes longer than polling pays.
    fn wait_for_issuers(&self, entries: &mut Vec<Entry>, grace: Duration, spin: &AdaptiveSpin) {
        let bell: Vec<_> = self.bell.interest().into_iter().collect();
        let end = Instant::now() + grace;
        loop {
            self.take_newcomers(entries);
            if poll_urgent(entries, spin.duration()) {
                return;
            }
            let asleep = Instant::now();
            let left = end.saturating_duration_since(asleep);
            if left.is_zero() || !wait::wait(&bell, Some(left)) {
                return;
            }
            self.hear(asleep);
        }
    }

    /// Silences the bell, and returns whether it was rung; `asleep` is when the thread began to
    /// wait for it.
    fn hear(&self, asleep: Instant) -> bool {
        let rung_at = self.rung_at.swap(NOT_RUNG, Ordering::Relaxed);
        let rung_at = self.began + Duration::from_nanos(rung_at.min(u64::MAX / 2));
        let now = Instant::now();
        if asleep < rung_at && rung_at < now {
            self.wake_cost.note(now - rung_at);
        }
        self.bell.heard()
    }

    fn take_newcomers(&self, entries: &mut Vec<Entry>) {
        let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet_since = Instant::now();
        // The first one is about to be used.
        let limit = if entries.is_empty() { Duration::ZERO } else { JOINING_LIMIT };
        let joins_until = quiet_since + limit;
        let entry =
            |group| Entry { group, activity: 0, quiet_since, joins_until, has_rested: false };
        entries.extend(newcomers.drain(..).map(entry));
    }
}

/// Checks all groups; whether anything moved, and until when the thread may sleep otherwise.
fn check_all(
    entries: &mut Vec<Entry>,
    has_ending: bool,
    interests: &mut Vec<Interest>,
) -> (bool, Option<Instant>) {
    let now = Instant::now();
    let mut moved = false;
    let mut until: Option<Instant> = None;
    let are_many = entries.len() > FEW_GROUPS;
    entries.retain_mut(|entry| match entry.check(now, (has_ending, are_many), interests) {
        GroupActivity::Gone => false,
        GroupActivity::Moved => {
            moved = true;
            true
        }
        GroupActivity::Idle(limit) => {
            until = until.into_iter().chain(limit).min();
            true
        }
    });
    (moved, until)
}

/// Drives the groups in which something is urgent for up to `limit`, while no other thread needs
/// the core. Whether something urgent is left.
fn poll_urgent(entries: &[Entry], limit: Duration) -> bool {
    let groups = entries.iter().filter_map(|entry| entry.group.upgrade());
    let mut urgent: Vec<_> = groups.filter(|group| group.is_urgent()).collect();
    if urgent.is_empty() {
        return false;
    }
    let Some(poll) = BusyPoll::start(limit) else { return true };
    loop {
        let mut moved = false;
        urgent.retain(|group| {
            moved |= group.poll_in_background();
            group.is_urgent()
        });
        if urgent.is_empty() || !(if moved { poll.is_in_time() } else { poll.goes_on() }) {
            return !urgent.is_empty();
        }
    }
}

impl Entry {
    /// Whether it has something to do and no thread waits for it.
    fn is_left_alone(&self) -> bool {
        self.group.upgrade().is_some_and(|group| group.is_busy() && !group.has_waiters())
    }

    /// Drives the group if this thread has to; otherwise adds what to wait for. `has_ending` says
    /// that a connection has ended, which may be one of the group's, and `are_many` that the
    /// process has many groups.
    fn check(
        &mut self,
        now: Instant,
        (has_ending, are_many): (bool, bool),
        interests: &mut Vec<Interest>,
    ) -> GroupActivity {
        let Some(group) = self.group.upgrade().filter(|group| !group.has_ended()) else {
            return GroupActivity::Gone;
        };
        // This comes first: a thread that leaves work during the check then sees that it has to
        // request another one.
        group.set_driven_in_background(false);
        let activity = group.activity();
        let active = std::mem::replace(&mut self.activity, activity) != activity;
        if active {
            self.quiet_since = now;
            self.has_rested = false;
        }
        if group.has_waiters() {
            return GroupActivity::Idle(Some(now + CHECK_INTERVAL));
        }
        if group.is_busy() {
            group.set_driven_in_background(true);
            return self.drive(&*group, now, interests);
        }
        let is_joining = now < self.joins_until && group.is_joining();
        if now - self.quiet_since < QUIET_AFTER && !has_ending && !is_joining && !group.is_watched()
        {
            return GroupActivity::Idle(Some(now + CHECK_INTERVAL));
        }
        // What arrives for an idle group is kept for its next operation, or says that it broke.
        if group.turn_in_background() || group.is_busy() {
            return GroupActivity::Moved;
        }
        let is_quiet = now - self.quiet_since >= QUIET_AFTER;
        if are_many && is_quiet && !std::mem::replace(&mut self.has_rested, true) {
            group.release_idle_memory();
        }
        group.set_driven_in_background(true);
        GroupActivity::Idle(group.background_interests(interests))
    }

    fn drive(
        &self,
        group: &dyn GroupProgress,
        now: Instant,
        interests: &mut Vec<Interest>,
    ) -> GroupActivity {
        for turn in 0..MAX_TURNS {
            if group.has_waiters() {
                return GroupActivity::Moved;
            }
            if !group.turn_in_background() {
                if turn > 0 {
                    return GroupActivity::Moved;
                }
                break;
            }
            if turn + 1 == MAX_TURNS {
                return GroupActivity::Moved;
            }
        }
        group.report_stall(2 * CHECK_INTERVAL);
        let known = interests.len();
        let deadline = group.background_interests(interests);
        // A transport without descriptors has to be asked again and again.
        let tick = if interests.len() == known { ISSUER_GRACE } else { CHECK_INTERVAL };
        GroupActivity::Idle(deadline.into_iter().chain([now + tick]).min())
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

        fn is_joining(&self) -> bool {
            false
        }

        fn release_idle_memory(&self) {}

        fn is_urgent(&self) -> bool {
            false
        }

        fn poll_in_background(&self) -> bool {
            false
        }

        fn set_driven_in_background(&self, _: bool) {}

        fn turn_in_background(&self) -> bool {
            false
        }

        fn background_interests(&self, _: &mut Vec<Interest>) -> Option<Instant> {
            None
        }

        fn report_stall(&self, _: Duration) {}
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
