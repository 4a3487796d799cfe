//! The average of parameters, once in many steps.

use std::fmt;

use super::SyncOutcome;
use super::average::Average;
use super::real::Real;
use super::rounds::{Common, Rounds, until_committed, wrong};
use crate::error::ManagerError;
use crate::manager::Manager;
use crate::state::StateError;

/// Averages parameters every so many inner steps. See [the module](super).
pub struct LocalSgd<'a, T: Real> {
    rounds: Rounds<'a, CommittedAverage<T>>,
    sync_every: u32,
    count: usize,
}

/// The last average that was committed.
struct CommittedAverage<T>(Vec<T>);

impl<T: Real> Common for CommittedAverage<T> {
    fn save(&self) -> Vec<u8> {
        T::to_bytes(&self.0)
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        self.0 = as_many(T::from_bytes(bytes)?, self.0.len())?;
        Ok(())
    }
}

/// The numbers, if they are as many as here.
pub(super) fn as_many<T>(numbers: Vec<T>, count: usize) -> Result<Vec<T>, StateError> {
    let found = numbers.len();
    if found == count {
        return Ok(numbers);
    }
    Err(StateError::new(format!("the state has {found} parameters, and this replica {count}")))
}

impl<T: Real> fmt::Debug for LocalSgd<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("LocalSgd");
        shown.field("parameters", &self.count).field("sync_every", &self.sync_every);
        shown.finish_non_exhaustive()
    }
}

impl<'a, T: Real> LocalSgd<'a, T> {
    /// For these parameters.
    ///
    /// # Errors
    /// [`ManagerError::Option`] for 0 steps; [`ManagerError::Order`] if the manager has another
    /// layer: each step of a manager is an average of its layer.
    pub fn new(
        manager: &'a Manager,
        parameters: &[T],
        sync_every: u32,
    ) -> Result<LocalSgd<'a, T>, ManagerError> {
        if sync_every == 0 {
            return Err(wrong("LocalSgd: sync_every must be at least 1".to_owned()));
        }
        let rounds = Rounds::new(manager, CommittedAverage(parameters.to_vec()))?;
        Ok(LocalSgd { rounds, sync_every, count: parameters.len() })
    }

    /// Begins with the others: waits until they average, and takes what they have.
    ///
    /// # Errors
    /// Those of [`Manager::start_quorum`] and [`Manager::should_commit`]. After
    /// [`ManagerError::Quorum`] it may be called again.
    pub fn join(&mut self, parameters: &mut [T]) -> Result<(), ManagerError> {
        self.rounds.begin_join();
        let outcome = until_committed(|| self.sync(parameters));
        self.rounds.end_join(outcome.is_ok());
        outcome
    }

    /// Call it after each inner step.
    ///
    /// # Errors
    /// [`ManagerError::Order`] before [`LocalSgd::join`]; those of [`LocalSgd::sync`].
    pub fn step(&mut self, parameters: &mut [T]) -> Result<SyncOutcome, ManagerError> {
        match self.rounds.count("LocalSgd")? >= self.sync_every {
            true => self.sync(parameters),
            false => Ok(SyncOutcome::NotDue),
        }
    }

    /// Averages now, as all replicas must at the same place. If that is lost, the parameters are
    /// what they were.
    ///
    /// # Errors
    /// [`ManagerError::Option`] for another number of parameters than at first; those of
    /// [`Manager::should_commit`].
    pub fn sync(&mut self, parameters: &mut [T]) -> Result<SyncOutcome, ManagerError> {
        same_count("LocalSgd", parameters.len(), self.count)?;
        self.rounds.local_step = 0;
        let manager = self.rounds.manager;
        let mut average = None;
        if self.rounds.begin()? {
            self.take_state(parameters);
            let counts = self.rounds.counts();
            average =
                Average::begin(manager, parameters.to_vec(), counts, None)?.wait::<T>(manager);
        }
        let is_committed = manager.should_commit(None)?;
        self.take_state(parameters);
        if !is_committed {
            return Ok(SyncOutcome::Lost);
        }
        if let Some(average) = average {
            parameters.copy_from_slice(&average);
            self.rounds.common().0 = average;
        }
        Ok(SyncOutcome::Committed)
    }

    /// The last average that was committed: the same on all replicas.
    #[must_use]
    pub fn shared_parameters(&self) -> Vec<T> {
        self.rounds.common().0.clone()
    }

    fn take_state(&self, parameters: &mut [T]) {
        if self.rounds.is_new() {
            parameters.copy_from_slice(&self.rounds.common().0);
        }
    }
}

/// Refuses another number of parameters.
pub(super) fn same_count(layer: &str, found: usize, count: usize) -> Result<(), ManagerError> {
    if found == count {
        return Ok(());
    }
    Err(wrong(format!("{layer}: it was made for {count} parameters, and these are {found}")))
}
