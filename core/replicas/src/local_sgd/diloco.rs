//! Outer steps by the average of what replicas changed, a part of the parameters at a time.

use std::fmt;
use std::ops::Range;

use super::SyncOutcome;
use super::average::Average;
use super::local::{as_many, same_count};
use super::outer::OuterOptimizer;
use super::real::Real;
use super::rounds::{Common, Rounds, until_committed, wrong};
use crate::error::ManagerError;
use crate::manager::Manager;
use crate::state::StateError;

/// How a [`Diloco`] averages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DilocoOptions {
    /// How many inner steps there are between two outer steps of a fragment: a multiple of the
    /// number of fragments.
    pub sync_every: u32,
    /// Parts of the parameters, of which one after the other is averaged; none: all at once.
    pub fragments: Vec<Range<usize>>,
    /// How many inner steps are made while a fragment is averaged.
    pub fragment_sync_delay: u32,
    /// How much remains of a replica's own parameters when the shared ones come: 0 is nothing, 1
    /// all.
    pub fragment_update_alpha: f64,
    /// Whether changes travel as 8 bit integers, with a scale for each 256.
    pub should_quantize: bool,
}

impl DilocoOptions {
    /// All parameters at once, every so many inner steps.
    #[must_use]
    pub fn new(sync_every: u32) -> DilocoOptions {
        DilocoOptions {
            sync_every,
            fragments: Vec::new(),
            fragment_sync_delay: 0,
            fragment_update_alpha: 0.0,
            should_quantize: false,
        }
    }

    /// Sets [`DilocoOptions::fragments`].
    #[must_use]
    pub fn fragments(mut self, fragments: impl Into<Vec<Range<usize>>>) -> DilocoOptions {
        self.fragments = fragments.into();
        self
    }

    /// Sets [`DilocoOptions::fragment_sync_delay`].
    #[must_use]
    pub fn fragment_sync_delay(mut self, steps: u32) -> DilocoOptions {
        self.fragment_sync_delay = steps;
        self
    }

    /// Sets [`DilocoOptions::fragment_update_alpha`].
    #[must_use]
    pub fn fragment_update_alpha(mut self, alpha: f64) -> DilocoOptions {
        self.fragment_update_alpha = alpha;
        self
    }

    /// Sets [`DilocoOptions::should_quantize`].
    #[must_use]
    pub fn should_quantize(mut self, should_quantize: bool) -> DilocoOptions {
        self.should_quantize = should_quantize;
        self
    }

    /// With the fragments of `count` parameters; an error for what cannot be.
    fn checked(mut self, count: usize) -> Result<DilocoOptions, ManagerError> {
        let refuse = |what: String| Err(wrong(format!("Diloco: {what}")));
        if self.fragments.is_empty() {
            self.fragments.push(0..count);
        }
        let mut ordered: Vec<_> = self.fragments.iter().collect();
        ordered.sort_by_key(|fragment| fragment.start);
        let mut end = 0;
        for fragment in ordered {
            if fragment.start != end || fragment.end < fragment.start {
                return refuse(format!(
                    "fragments must be all of the {count} parameters, each once, not {:?}",
                    self.fragments
                ));
            }
            end = fragment.end;
        }
        if end != count {
            return refuse(format!("fragments end at {end}, and there are {count} parameters"));
        }
        let (every, parts) = (self.sync_every, self.fragments.len() as u32);
        if every == 0 || !every.is_multiple_of(parts) {
            return refuse(format!(
                "sync_every must be a multiple of the number of fragments, {parts}, of which one \
                 at a time is averaged; not {every}"
            ));
        }
        let (delay, interval) = (self.fragment_sync_delay, self.interval());
        if delay >= interval {
            return refuse(format!(
                "fragment_sync_delay must be less than {interval}, the inner steps between two \
                 fragments, not {delay}: a fragment has come before the next one goes"
            ));
        }
        if !(0.0..=1.0).contains(&self.fragment_update_alpha) {
            let alpha = self.fragment_update_alpha;
            return refuse(format!("fragment_update_alpha must be from 0 to 1, not {alpha}"));
        }
        Ok(self)
    }

    /// Inner steps from one fragment's outer step to the next one's.
    fn interval(&self) -> u32 {
        self.sync_every / self.fragments.len() as u32
    }
}

/// Steps by the average of what replicas changed in so many inner steps. See [the module](super).
pub struct Diloco<'a, T: Real> {
    rounds: Rounds<'a, Shared<T>>,
    options: DilocoOptions,
    count: usize,
    /// The fragment that is averaged, and its average unless there was no quorum.
    begun: Option<(usize, Option<Average>)>,
}

/// What all replicas have alike.
struct Shared<T> {
    kept: Vec<T>,
    outer: Box<dyn OuterOptimizer<T>>,
}

impl<T: Real> Common for Shared<T> {
    fn save(&self) -> Vec<u8> {
        let kept = T::to_bytes(&self.kept);
        [&(kept.len() as u64).to_le_bytes(), &kept[..], &self.outer.save()].concat()
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        let cut_off = || StateError::new("the state of a Diloco is cut off");
        let (length, rest) = bytes.split_first_chunk().ok_or_else(cut_off)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (kept, outer) = rest.split_at_checked(length).ok_or_else(cut_off)?;
        let kept = as_many(T::from_bytes(kept)?, self.kept.len())?;
        self.outer.load(outer)?;
        self.kept = kept;
        Ok(())
    }
}

impl<T: Real> fmt::Debug for Diloco<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Diloco");
        shown.field("parameters", &self.count).field("options", &self.options);
        shown.finish_non_exhaustive()
    }
}

impl<'a, T: Real> Diloco<'a, T> {
    /// For these parameters.
    ///
    /// # Errors
    /// [`ManagerError::Option`] for options that cannot be; [`ManagerError::Order`] if the manager
    /// has another layer: each step of a manager is an average of its layer.
    pub fn new(
        manager: &'a Manager,
        parameters: &[T],
        outer: impl OuterOptimizer<T> + 'static,
        options: DilocoOptions,
    ) -> Result<Diloco<'a, T>, ManagerError> {
        let options = options.checked(parameters.len())?;
        let shared = Shared { kept: parameters.to_vec(), outer: Box::new(outer) };
        let rounds = Rounds::new(manager, shared)?;
        Ok(Diloco { rounds, options, count: parameters.len(), begun: None })
    }

    /// Begins with the others: waits until they average, and takes what they share.
    ///
    /// # Errors
    /// Those of [`Manager::start_quorum`] and [`Manager::should_commit`]. After
    /// [`ManagerError::Quorum`] it may be called again.
    pub fn join(&mut self, parameters: &mut [T]) -> Result<(), ManagerError> {
        same_count("Diloco", parameters.len(), self.count)?;
        self.rounds.begin_join();
        let outcome = until_committed(|| {
            self.begin(parameters)?;
            self.finish(parameters)
        });
        self.rounds.end_join(outcome.is_ok());
        outcome
    }

    /// Call it after each inner step. If an outer step is lost, the parameters of the fragment are
    /// what is shared.
    ///
    /// # Errors
    /// [`ManagerError::Order`] before [`Diloco::join`]; [`ManagerError::Option`] for another number
    /// of parameters than at first; those of [`Manager::should_commit`].
    pub fn step(&mut self, parameters: &mut [T]) -> Result<SyncOutcome, ManagerError> {
        same_count("Diloco", parameters.len(), self.count)?;
        let (local_step, interval) = (self.rounds.count("Diloco")?, self.options.interval());
        if self.begun.is_none() && local_step >= interval - self.options.fragment_sync_delay {
            self.begin(parameters)?;
        }
        match local_step >= interval {
            true => self.finish(parameters),
            false => Ok(SyncOutcome::NotDue),
        }
    }

    /// Waits for a fragment that is being averaged: at the end of training, where its result would
    /// be lost otherwise.
    ///
    /// # Errors
    /// Those of [`Diloco::step`].
    pub fn end(&mut self, parameters: &mut [T]) -> Result<SyncOutcome, ManagerError> {
        same_count("Diloco", parameters.len(), self.count)?;
        match self.begun {
            Some(_) => self.finish(parameters),
            None => Ok(SyncOutcome::NotDue),
        }
    }

    /// What all replicas share, to the last bit.
    #[must_use]
    pub fn shared_parameters(&self) -> Vec<T> {
        self.rounds.common().kept.clone()
    }

    fn begin(&mut self, parameters: &mut [T]) -> Result<(), ManagerError> {
        let (manager, has_quorum) = (self.rounds.manager, self.rounds.begin()?);
        self.take_state(parameters);
        // All are at the same step, and so at the same fragment. If its outer step is lost, it is
        // the next one again.
        let fragments = &self.options.fragments;
        let current = manager.current_step().rem_euclid(fragments.len() as i64) as usize;
        let mut average = None;
        if has_quorum {
            let fragment = fragments[current].clone();
            let change: Vec<T> = {
                let kept = &self.rounds.common().kept[fragment.clone()];
                kept.iter().zip(&parameters[fragment]).map(|(kept, local)| *kept - *local).collect()
            };
            let compress = self.options.should_quantize.then_some("int8");
            average = Some(Average::begin(manager, change, self.rounds.counts(), compress)?);
        }
        self.begun = Some((current, average));
        Ok(())
    }

    fn finish(&mut self, parameters: &mut [T]) -> Result<SyncOutcome, ManagerError> {
        let manager = self.rounds.manager;
        self.rounds.local_step = 0;
        let Some((current, average)) = self.begun.take() else { return Ok(SyncOutcome::NotDue) };
        let gradient = average.and_then(|average| average.wait::<T>(manager));
        let is_committed = manager.should_commit(None)?;
        self.take_state(parameters);
        let fragment = self.options.fragments[current].clone();
        let mut alpha = T::from_f64(self.options.fragment_update_alpha);
        if !self.rounds.counts() {
            // Who has taken a state by now has nothing of its own.
            alpha = T::default();
        }
        let common = &mut *self.rounds.common();
        let (kept, local) = (&mut common.kept[fragment.clone()], &mut parameters[fragment.clone()]);
        if !is_committed {
            local.copy_from_slice(kept);
            return Ok(SyncOutcome::Lost);
        }
        let Some(gradient) = gradient else { return Ok(SyncOutcome::Committed) };
        common.outer.step(fragment.start, kept, &gradient);
        if alpha == T::default() {
            local.copy_from_slice(kept);
        } else {
            let mix = |(local, kept): (&mut T, &T)| *local = *kept + (*local - *kept) * alpha;
            local.iter_mut().zip(&*kept).for_each(mix);
        }
        Ok(SyncOutcome::Committed)
    }

    fn take_state(&self, parameters: &mut [T]) {
        if self.rounds.is_new() {
            parameters.copy_from_slice(&self.rounds.common().kept);
        }
    }
}
