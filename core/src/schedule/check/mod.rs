//! Proves that schedules keep their contract, without running them. Knows no algorithm.
//!
//! The schedules of all ranks are looked at together. In this order it is proved that
//! 1. every block and every rank that a step names exists, and operands have equal sizes
//!    (`layout`);
//! 2. every send matches a receive of the same size (`layout`, over `walk`);
//! 3. steps of a rank that touch the same elements, one of them writing, are in order (`races`);
//! 4. no rank waits for itself, even if no message is buffered (`walk`);
//! 5. run on symbols, every output holds what the contract says, and reductions that several ranks
//!    hold are the same expression, hence the same bits (`values`).
//!
//! Order and races are about *all* ways in which the steps can run, so the one run of symbols
//! stands for all of them. Sizes are symbols too: blocks that the contract lets differ are
//! different.

mod layout;
mod races;
mod values;

#[cfg(test)]
mod mutations;
#[cfg(test)]
mod proofs;

use std::fmt;

use super::walk::{StepId, Walk};
use super::{Action, Algorithm, Contract, Place, Rank, Schedule, Topology};
use layout::Layout;

/// Why schedules do not keep a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The rank at which it shows.
    pub rank: Option<Rank>,
    /// The step at which it shows, and what it does.
    pub step: Option<(u32, Action)>,
    /// What is wrong.
    pub what: String,
}

/// Checks the schedules that an algorithm builds for ranks `on` these hosts, with separate inputs
/// and outputs and, where the contract allows it, in place.
///
/// # Errors
/// The first flaw found.
pub fn check(
    contract: &Contract,
    algorithm: &Algorithm,
    root: Rank,
    on: &Topology,
) -> Result<(), Flaw> {
    let sizes = if algorithm.needs_equal_blocks() { Sizes::Equal } else { Sizes::AnyAgreed };
    check_schedules(contract, root, &algorithm.schedules(root, on), sizes)
}

/// Which sizes blocks may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Different ones wherever the contract lets them differ.
    AnyAgreed,
    /// All the same.
    Equal,
}

/// Checks the schedules of all ranks: see [`check`].
///
/// # Errors
/// The first flaw found.
pub fn check_schedules(
    contract: &Contract,
    root: Rank,
    schedules: &[Schedule],
    sizes: Sizes,
) -> Result<(), Flaw> {
    let size = schedules.len() as u32;
    let places = (0..size).map(|rank| Place { rank, size, root });
    let in_place = places.clone().any(|place| (contract.in_place)(place).is_some());
    for aliased in [false, true].into_iter().take(1 + usize::from(in_place)) {
        let layout = Layout::new(contract, root, schedules, sizes, aliased)?;
        let walk = Walk::new(schedules).map_err(|at| {
            Flaw::at(
                schedules,
                at,
                "has no partner: the other rank has fewer messages of this pair",
            )
        })?;
        layout.check_messages(&walk)?;
        races::check(&layout, schedules)?;
        let order = walk.order().map_err(|circle| deadlock(schedules, &circle))?;
        values::check(contract, &layout, &walk, &order)?;
    }
    Ok(())
}

fn deadlock(schedules: &[Schedule], circle: &[StepId]) -> Flaw {
    let names: Vec<String> = circle
        .iter()
        .map(|at| {
            let action = schedules[at.rank as usize].steps[at.step as usize].action;
            format!("rank {} step {} ({action})", at.rank, at.step)
        })
        .collect();
    let what = format!("deadlock: {}, which waits for the first", names.join(", which waits for "));
    match circle.first() {
        Some(&at) => Flaw::at(schedules, at, what),
        None => Flaw { rank: None, step: None, what },
    }
}

impl Flaw {
    fn at(schedules: &[Schedule], at: StepId, what: impl Into<String>) -> Flaw {
        let step = schedules.get(at.rank as usize).and_then(|s| s.steps.get(at.step as usize));
        Flaw {
            rank: Some(at.rank),
            step: step.map(|step| (at.step, step.action)),
            what: what.into(),
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank {
            write!(f, "rank {rank}")?;
        }
        if let Some((step, action)) = &self.step {
            write!(f, " step {step} ({action})")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for Flaw {}
