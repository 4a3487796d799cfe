//! Who looks for the reason when an operation stands still: the waiting thread, or a thread of its
//! own where nobody waits. Knows the driver and the store; nothing of schedules.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::inspect::{self, Comparison};
use crate::Result;
use crate::executor::Driver;
use crate::store::Store;

/// How long an operation may stand still before ranks compare through the store what they run.
pub(super) const STALL: Duration = Duration::from_millis(300);

/// Compares through the store when the oldest operation of a driver stands still.
pub(super) struct StallInspector {
    rank: u32,
    size: u32,
    driver: Weak<Driver>,
    state: Mutex<State>,
}

struct State {
    store: Arc<dyn Store>,
    /// A connection of its own, made when it is first needed: the user's may be waiting.
    own: Option<Arc<dyn Store>>,
    next: Instant,
}

impl StallInspector {
    /// The inspector of `driver`, which the background thread then calls where nobody waits.
    pub(super) fn install(
        driver: &Arc<Driver>,
        store: &Arc<dyn Store>,
        rank: u32,
        size: u32,
    ) -> Arc<StallInspector> {
        let state = State { store: store.clone(), own: None, next: Instant::now() };
        let driver_of_it = Arc::downgrade(driver);
        let inspector = StallInspector { rank, size, driver: driver_of_it, state: state.into() };
        let inspector = Arc::new(inspector);
        let called = inspector.clone();
        driver.set_stall_hook(move || called.inspect_elsewhere());
        inspector
    }

    /// Looks for the reason if the oldest operation stands still, at most once in a while.
    pub(super) fn inspect(&self) {
        let Some(driver) = self.driver.upgrade() else { return };
        let Some(report) = driver.stalled().filter(|report| report.stalled_for >= STALL) else {
            return;
        };
        let Ok(mut state) = self.state.try_lock() else { return };
        if Instant::now() < state.next {
            return;
        }
        match state.compare(self.rank, self.size, &driver.history()) {
            Ok(Comparison { mismatch: Some(mismatch), .. }) => driver.break_with(mismatch),
            Ok(Comparison { elsewhere, .. }) => driver.note_elsewhere(report.sequence, elsewhere),
            // Without a store there is nothing to compare with; deadlines and deaths still count.
            Err(error) => tracing::debug!(%error, "cannot compare operations through the store"),
        }
        state.next = Instant::now() + STALL;
    }

    /// As [`StallInspector::inspect`], without making the caller wait for the store.
    fn inspect_elsewhere(self: &Arc<Self>) {
        let due = self.state.try_lock().is_ok_and(|state| Instant::now() >= state.next);
        if !due {
            return;
        }
        let inspector = self.clone();
        let thread = std::thread::Builder::new().name("polyrank-stall".to_owned());
        if let Err(error) = thread.spawn(move || inspector.inspect()) {
            tracing::debug!(%error, "no thread to look for the reason of a stall");
        }
    }
}

impl State {
    fn compare(&mut self, rank: u32, size: u32, ours: &[inspect::Numbered]) -> Result<Comparison> {
        let store = match &self.own {
            Some(store) => store.clone(),
            None => {
                let store = self.store.clone_store()?;
                store.set_timeout(Duration::from_secs(1));
                self.own.insert(store).clone()
            }
        };
        inspect::compare(&store, rank, size, ours)
    }
}
