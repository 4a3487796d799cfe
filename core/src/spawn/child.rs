//! What a process does that `spawn` started: calls the function, tells how that ended, and ends.
//! Knows not the other ranks.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::{HOST, STORE_TIMEOUT};
use crate::env::variable;
use crate::store::{Store, TcpStore, TcpStoreOptions};

/// Which call of `spawn` it is: where it stands, and how often that was called. It is the same one
/// in every process of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(String);

/// How often each line has called.
static CALLS: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// Whether this process is a rank, and has come to its function.
static RUNNING: AtomicBool = AtomicBool::new(false);

impl Place {
    /// The one that is called now.
    pub(super) fn next(site: &Location<'_>) -> Place {
        let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        let count = calls.entry(site.to_string()).or_default();
        *count += 1;
        Place(format!("{site}#{count}"))
    }
}

impl Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Whether this is called within the function of a rank.
pub(super) fn is_running() -> bool {
    RUNNING.load(Ordering::Relaxed)
}

/// The key of a counter: who failed before whom.
const ORDER: &str = "polyrank/spawn/order";

/// Keys under which ranks tell the process that started them how they fare.
pub(super) fn key_of(rank: u32, what: &str) -> String {
    format!("polyrank/spawn/{rank}/{what}")
}

/// This process, as one of those that `spawn` started.
pub(super) struct RankOfSpawn {
    pub(super) place: Place,
    parent: u32,
    rank: u32,
    port: u16,
}

impl RankOfSpawn {
    /// None if it was started otherwise; what a rank has started is not a rank. It ends this
    /// process if the one is gone that started it as a rank.
    pub(super) fn of_this_process() -> Option<RankOfSpawn> {
        let text = variable::POLYRANK_SPAWN.text()?;
        let mut parts = text.splitn(4, ' ');
        let mut number = || parts.next()?.parse::<u32>().ok();
        let (parent, rank, port) = (number()?, number()?, u16::try_from(number()?).ok()?);
        let place = Place(parts.next()?.to_owned());
        let this = RankOfSpawn { place, parent, rank, port };
        if this.has_its_parent() {
            return Some(this);
        }
        if !is_alive(parent) {
            // It would start all ranks once more, for nobody.
            tracing::error!(rank, parent, "the process that started this rank is gone");
            exit(1);
        }
        None
    }

    fn has_its_parent(&self) -> bool {
        std::os::unix::process::parent_id() == self.parent
    }

    /// What tells a process that it is one.
    pub(super) fn variable(place: &Place, rank: u32, port: u16) -> String {
        format!("{} {rank} {port} {place}", std::process::id())
    }

    /// Calls the function, and ends this process.
    pub(super) fn run<E: Display>(self, f: impl FnOnce(u32) -> Result<(), E>) -> ! {
        RUNNING.store(true, Ordering::Relaxed);
        self.end_with_parent();
        self.tell("called", "");
        match catch_unwind(AssertUnwindSafe(|| f(self.rank))) {
            Ok(Ok(())) => exit(0),
            Ok(Err(error)) => {
                self.tell("failed", &error.to_string());
                exit(1)
            }
            Err(panic) => {
                self.tell("panicked", &text_of(&*panic));
                exit(101)
            }
        }
    }

    /// Lets the kernel end this process when the one is gone that started it, however it went.
    fn end_with_parent(&self) {
        #[cfg(target_os = "linux")]
        {
            use rustix::process::{Signal, set_parent_process_death_signal};
            if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
                tracing::warn!(%error, "this rank does not end with the process that started it");
            }
        }
        // It may have gone before.
        if !self.has_its_parent() {
            exit(1);
        }
    }

    /// Says how it fares, and in which order. Nobody listens any more where the store is gone.
    fn tell(&self, what: &str, text: &str) {
        let options = TcpStoreOptions::new(HOST, self.port).wait_for_workers(false);
        let store = TcpStore::new(options.timeout(STORE_TIMEOUT));
        let told = store.and_then(|store| {
            let told = format!("{}\n{text}", store.add(ORDER, 1)?);
            store.set(&key_of(self.rank, what), told.as_bytes())
        });
        if let Err(error) = told {
            tracing::warn!(%error, rank = self.rank, "cannot tell that it {what}: {text}");
        }
    }
}

/// Whether there is such a process, though it may be somebody else's.
fn is_alive(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// What somebody panicked with.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".into())
}
