//! Who looks for the reason when an operation stands still: the waiting thread, a thread of its own
//! where nobody waits, or the event loop. Knows the driver and the store; nothing of schedules.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::inspect::{self, Comparison};
use crate::blocking::block_on;
use crate::clock::Instant;
use crate::completion::collective_name;
use crate::executor::Driver;
use crate::generated::error::Result;
use crate::store::{GroupStore, Store};
use crate::wire::abort::Abort;
use crate::wire::channel::presence_key;

/// How long an operation may stand still before ranks compare through the store what they run.
const STALL: Duration = Duration::from_millis(300);
/// How long after a look the next one begins. Less than [`STALL`], for of ranks that look at once
/// the first learns from the others only by looking again, and its deadline may be near.
pub(super) const AGAIN: Duration = Duration::from_millis(150);

/// Compares through the store when the oldest operation of a driver stands still.
pub(super) struct StallInspector {
    rank: u32,
    size: u32,
    /// The ranks that have a session with the store's server, and its number.
    sessions: Vec<(u32, u64)>,
    driver: Weak<Driver>,
    /// A connection that only groups use, and none of them for long: the user's may be waiting, and
    /// it may be too late for another when something is wrong.
    store: Mutex<Arc<dyn Store>>,
    /// When to look again; `None` while somebody looks.
    next: Mutex<Option<Instant>>,
}

impl StallInspector {
    /// The inspector of `driver`, which calls it where nobody waits. Nobody waits long in `store`.
    pub(super) fn install(
        driver: &Arc<Driver>,
        store: &Arc<dyn Store>,
        (rank, size): (u32, u32),
        sessions: Vec<(u32, u64)>,
    ) -> Arc<StallInspector> {
        if size > 1 {
            store.set_timeout(Duration::from_secs(1));
        }
        let inspector = Arc::new(StallInspector {
            rank,
            size,
            sessions,
            driver: Arc::downgrade(driver),
            store: Mutex::new(store.clone()),
            next: Mutex::new(Some(Instant::now())),
        });
        driver.set_stall_hook(elsewhere::hook(&inspector));
        inspector
    }

    /// Looks for the reason if the oldest operation stands still, at most once in a while. Blocks
    /// until the store has answered.
    pub(super) fn inspect(&self) {
        // A store that cannot block does not answer here, but where the event loop asks.
        let _ = block_on(async {
            self.look().await;
            Ok(())
        });
    }

    async fn look(&self) {
        if self.size == 1 {
            return;
        }
        let Some(driver) = self.driver.upgrade() else { return };
        let Some(report) = driver.stalled().filter(|report| report.stalled_for >= STALL) else {
            return;
        };
        let Some(_look) = self.begin() else { return };
        let history = driver.history();
        // The driver may hold this future: it must not be held by it.
        drop(driver);
        let compared = self.compare(&history).await;
        let gone = self.first_gone(&report.unheard_of).await;
        let Some(driver) = self.driver.upgrade() else { return };
        let (rank, sequence) = (u64::from(self.rank), report.sequence);
        let operation = collective_name(&report.fingerprint);
        match gone {
            Ok(Some(gone)) => return driver.break_with(gone),
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(rank, operation, sequence, %error, "cannot ask for other ranks");
            }
        }
        match compared {
            Ok(Comparison { mismatch: Some(mismatch), .. }) => driver.break_with(mismatch),
            Ok(Comparison { elsewhere, .. }) => driver.note_elsewhere(report.sequence, elsewhere),
            // Without a store there is nothing to compare with; deadlines and deaths still count.
            Err(error) => {
                tracing::debug!(rank, operation, sequence, %error, "cannot compare operations");
            }
        }
    }

    /// Looks no more: the group was left, and its connection to the store is to end.
    pub(super) fn close(&self, group: &str) {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = Arc::new(GroupStore::closed(group));
        let open = std::mem::replace(&mut *store, closed);
        drop(store);
        drop(open);
    }

    /// The store that it asks, over a connection of its own.
    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is time to look, and nobody looks.
    fn is_due(&self) -> bool {
        self.lock().is_some_and(|next| Instant::now() >= next)
    }

    fn begin(&self) -> Option<Look<'_>> {
        let now = Instant::now();
        self.lock().take_if(|next| now >= *next).map(|_| Look { inspector: self, began: now })
    }

    async fn compare(&self, history: &[inspect::NumberedFingerprint]) -> Result<Comparison> {
        inspect::compare(&*self.store(), "stalled", (self.rank, self.size), history).await
    }

    /// The first of `ranks` that is gone, as far as the store's server knows: it has a session with
    /// each browser, and so learns of an end before anybody else was connected.
    async fn first_gone(&self, ranks: &[u32]) -> Result<Option<Abort>> {
        let concerned = self.sessions.iter().filter(|(rank, _)| ranks.contains(rank));
        let concerned: Vec<_> = concerned.collect();
        if concerned.is_empty() {
            return Ok(None);
        }
        let store = self.store();
        // Not every store has such a server.
        if !store.check_async(&[&presence_key(0)]).await? {
            return Ok(None);
        }
        for &&(rank, session) in &concerned {
            if !store.check_async(&[&presence_key(session)]).await? {
                let why = "its connection to the store's server ended before it reached this rank";
                return Ok(Some(Abort::Failed { rank, why: why.to_owned() }));
            }
        }
        Ok(None)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody looks. When it is dropped, also in the middle, others may look again after a while.
struct Look<'a> {
    inspector: &'a StallInspector,
    began: Instant,
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        *self.inspector.lock() = Some(self.began + AGAIN);
    }
}

/// Where there are threads, one looks, so that the caller need not wait for the store.
#[cfg(feature = "tcp")]
mod elsewhere {
    use super::*;

    pub(super) fn hook(inspector: &Arc<StallInspector>) -> impl Fn() + Send + Sync + use<> {
        let inspector = inspector.clone();
        move || {
            if !inspector.is_due() {
                return;
            }
            let inspector = inspector.clone();
            let thread = std::thread::Builder::new().name("polyrank-stall".to_owned());
            if let Err(error) = thread.spawn(move || inspector.inspect()) {
                tracing::debug!(%error, "no thread to look for the reason of a stall");
            }
        }
    }
}

/// Where there are none, each call continues with the look, as far as the store has answered.
#[cfg(not(feature = "tcp"))]
mod elsewhere {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::*;

    type InspectFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

    pub(super) fn hook(inspector: &Arc<StallInspector>) -> impl Fn() + Send + Sync + use<> {
        let inspector = inspector.clone();
        let pending: Mutex<Option<InspectFuture>> = Mutex::new(None);
        move || {
            // The thread that holds it polls it already.
            let Ok(mut pending) = pending.try_lock() else { return };
            if pending.is_none() && inspector.is_due() {
                let inspector = inspector.clone();
                let look = async move { inspector.look().await };
                *pending = Some(Box::pin(look));
            }
            if let Some(look) = &mut *pending
                && look.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
            {
                *pending = None;
            }
        }
    }
}
