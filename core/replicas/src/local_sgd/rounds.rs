//! What both layers have alike: what is registered with the manager, who counts, and when a round
//! begins.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::SyncOutcome;
use crate::error::ManagerError;
use crate::manager::{Manager, StartQuorum};
use crate::state::StateError;

/// What its state is called at the manager. There is one layer at a manager: replicas that join
/// must not land in the average of another one.
const KEY: &str = "local_sgd";

/// What all replicas share.
pub(super) trait Common: Send + 'static {
    fn save(&self) -> Vec<u8>;
    /// Takes all of it, or nothing.
    fn load(&mut self, bytes: &[u8]) -> Result<(), StateError>;
}

struct Registered<S> {
    common: Mutex<S>,
    /// Whether a state was taken in this round: what it replaced is no part of an average.
    has_healed: AtomicBool,
    /// Whether the program's parameters are not yet those of that state.
    is_new: AtomicBool,
}

impl<S> Registered<S> {
    fn lock(&self) -> MutexGuard<'_, S> {
        self.common.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rounds of a layer: each is a step of the manager.
pub(super) struct Rounds<'a, S> {
    pub(super) manager: &'a Manager,
    registered: Arc<Registered<S>>,
    has_joined: bool,
    is_joining: bool,
    /// Inner steps since the last round.
    pub(super) local_step: u32,
}

impl<'a, S: Common> Rounds<'a, S> {
    pub(super) fn new(manager: &'a Manager, common: S) -> Result<Rounds<'a, S>, ManagerError> {
        let (has_healed, is_new) = (AtomicBool::new(false), AtomicBool::new(false));
        let registered = Arc::new(Registered { common: Mutex::new(common), has_healed, is_new });
        let (saving, loading) = (registered.clone(), registered.clone());
        manager.register_state(
            KEY,
            move || Ok(saving.lock().save()),
            move |bytes| {
                loading.lock().load(bytes)?;
                loading.has_healed.store(true, Ordering::SeqCst);
                loading.is_new.store(true, Ordering::SeqCst);
                Ok(())
            },
        )?;
        Ok(Rounds { manager, registered, has_joined: false, is_joining: false, local_step: 0 })
    }

    /// What is shared. The program never waits for the manager with it.
    pub(super) fn common(&self) -> MutexGuard<'_, S> {
        self.registered.lock()
    }

    /// Whether there is a quorum. If not, the round is lost, as by any other failure.
    pub(super) fn begin(&self) -> Result<bool, ManagerError> {
        self.registered.has_healed.store(false, Ordering::SeqCst);
        let quorum = self.manager.start_quorum(StartQuorum::default());
        // Also if it comes while a program computes: which step it is, and so which fragment, is
        // not known before.
        match quorum.and_then(|()| self.manager.wait_quorum()) {
            Ok(()) => Ok(true),
            Err(error) if error.is_retryable() && !self.is_joining => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether what this replica has is its own.
    pub(super) fn counts(&self) -> bool {
        !self.is_joining && !self.registered.has_healed.load(Ordering::SeqCst)
    }

    /// Whether a state has come that the program's parameters are not yet; asked once for each.
    pub(super) fn is_new(&self) -> bool {
        self.registered.is_new.swap(false, Ordering::SeqCst)
    }

    /// Rounds in which this replica does not count follow.
    pub(super) fn begin_join(&mut self) {
        self.is_joining = true;
    }

    /// They are over, with one that was committed or with an error.
    pub(super) fn end_join(&mut self, is_committed: bool) {
        self.is_joining = false;
        self.local_step = 0;
        self.has_joined |= is_committed;
    }

    /// Counts an inner step.
    pub(super) fn count(&mut self, layer: &str) -> Result<u32, ManagerError> {
        if !self.has_joined {
            return Err(ManagerError::Order(format!("{layer}: call join before step")));
        }
        self.local_step += 1;
        Ok(self.local_step)
    }
}

/// Does a round again and again until it is committed.
pub(super) fn until_committed(
    mut round: impl FnMut() -> Result<SyncOutcome, ManagerError>,
) -> Result<(), ManagerError> {
    while round()? != SyncOutcome::Committed {}
    Ok(())
}

/// What cannot be, as the program is told.
pub(super) fn wrong(what: String) -> ManagerError {
    ManagerError::Option(what)
}
