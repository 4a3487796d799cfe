//! The one thread of the process that makes groups move while nobody waits for them, and that hears
//! of deaths while nothing is in flight. Knows drivers; nothing of operations.
//!
//! It starts when it is first needed: when an operation is left to it, or when a rank first has to
//! sleep for another. A forked child has no such thread and starts one of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::driver::Driver;
use crate::clock::Instant;
use crate::transport::{Bell, Interest, wait};
use crate::{Error, Result};

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

/// The background of the process that started with `main`.
static FIRST: OnceLock<Box<Background>> = OnceLock::new();

/// The background thread of a process, started or not.
pub(super) struct Background {
    process_id: u32,
    bell: Bell,
    started: AtomicBool,
    /// Whether the thread is in a grace, at whose end it looks at all drivers.
    in_grace: AtomicBool,
    /// Drivers that the thread does not know yet.
    newcomers: Mutex<Vec<Weak<Driver>>>,
    /// The background of a child of this process, in the child's copy of this memory.
    heir: OnceLock<Box<Background>>,
}

/// What the thread knows of a driver. It is held weakly: a group ends when its user lets go.
struct Entry {
    driver: Weak<Driver>,
    activity: u64,
    quiet_since: Instant,
}

/// What came of looking at a driver.
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

    /// Makes a driver known. Starts nothing.
    pub(super) fn register(&self, driver: &Arc<Driver>) {
        {
            let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
            newcomers.retain(|known| known.strong_count() > 0);
            newcomers.push(Arc::downgrade(driver));
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

    /// Asks the thread to look at all drivers, after a grace.
    pub(super) fn attend(&'static self) {
        self.start();
        self.bell.ring();
    }

    /// Whether the thread will look at all drivers without being asked. Who has left something to
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
        let entry = |driver| Entry { driver, activity: 0, quiet_since };
        entries.extend(newcomers.drain(..).map(entry));
    }
}

impl Entry {
    /// Whether it has something to do and nobody waits for it.
    fn is_left_alone(&self) -> bool {
        self.driver.upgrade().is_some_and(|driver| driver.is_busy() && !driver.has_waiters())
    }

    /// Moves the driver if it is this thread's turn; else adds what to wait for.
    fn look(&mut self, now: Instant, interests: &mut Vec<Interest>) -> Look {
        let Some(driver) = self.driver.upgrade().filter(|driver| !driver.has_ended()) else {
            return Look::Gone;
        };
        // In this order: who leaves something to do while this looks sees that nobody attends.
        driver.set_attended(false);
        let activity = driver.activity();
        let active = std::mem::replace(&mut self.activity, activity) != activity;
        if active {
            self.quiet_since = now;
        }
        if driver.has_waiters() {
            return Look::Idle(Some(now + TICK));
        }
        if driver.is_busy() {
            driver.set_attended(true);
            return self.drive(&driver, now, interests);
        }
        if now - self.quiet_since < QUIET && !driver.is_watched() {
            return Look::Idle(Some(now + TICK));
        }
        // What came for an idle group is kept for its next operation, or is bad news.
        if driver.turn_in_background() || driver.is_busy() {
            return Look::Moved;
        }
        Look::Idle(driver.background_interests(interests))
    }

    fn drive(&self, driver: &Driver, now: Instant, interests: &mut Vec<Interest>) -> Look {
        for turn in 0..TURNS {
            if driver.has_waiters() {
                return Look::Moved;
            }
            if !driver.turn_in_background() {
                if turn > 0 {
                    return Look::Moved;
                }
                break;
            }
            if turn + 1 == TURNS {
                return Look::Moved;
            }
        }
        driver.tell_of_stall(2 * TICK);
        let known = interests.len();
        let deadline = driver.background_interests(interests);
        // A transport without descriptors has to be asked again and again.
        let tick = if interests.len() == known { GRACE } else { TICK };
        Look::Idle(deadline.into_iter().chain([now + tick]).min())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::sync::mpsc;

    use super::*;
    use crate::executor::{Executor, GroupIdentity};
    use crate::spin::SpinPolicy;
    use crate::transport::inproc;

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
        background.newcomers.lock().unwrap().push(Weak::new());
        background.start();
        until_all_are_known(background);
        let group = GroupIdentity { name: "new".to_owned(), generation: 0 };
        let transport = Box::new(inproc::connect(1).remove(0));
        let executor = Executor::new(transport, group, Instant::now());
        let driver = Driver::new(executor, SpinPolicy::Sleep).unwrap();
        background.register(&driver);
        until_all_are_known(background);
    }
}
