//! What to do: a collective as data. Pure; knows nothing of bytes, transports, clocks or threads.
//!
//! A [`Schedule`] is one rank's list of [`Step`]s over [`Chunk`]s of named buffers. It is built
//! once per (collective, algorithm, rank, root) of a group and kept. Each collective's file holds
//! its [`Contract`] and its [`Algorithm`]s; [`check`] proves that the second keep the first.
//! Algorithms that follow the hosts learn from a [`Topology`] who shares one.

mod chunk;
mod contract;
mod facts;
mod step;
mod team;
mod topology;
mod uses;
mod walk;

pub mod builder;
pub mod cache;
pub mod check;
pub mod cost;
pub mod drawing;
pub mod figures;
pub mod moves;
pub mod peers;
pub mod select;
pub mod timeline;

// One module for each collective of the IDL: a new one needs no line here.
#[path = "../generated/schedules.rs"]
mod collectives;

pub use collectives::*;

pub use chunk::{Block, Buffer, Chunk};
pub use contract::{BlockContent, Contract, Origin};
pub use step::{Action, Operands, Schedule, Scratch, Step};
pub use team::{Share, Team};
pub use topology::Topology;

use cost::Load;

/// A rank within the group that runs the schedule.
pub type Rank = u32;

/// The rank that runs the schedule, and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// This rank.
    pub rank: Rank,
    /// The number of ranks, at least 1.
    pub size: u32,
    /// The root, 0 where the collective has none.
    pub root: Rank,
}

/// One way to run a collective. Every algorithm works for every number of ranks, every root
/// and every topology.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// The name that `POLYRANK_ALGORITHM` takes.
    pub name: &'static str,
    /// When it is meant to be used, in one line.
    pub meant_for: &'static str,
    /// How it makes a schedule.
    pub build: Build,
    /// What it costs; a test derives the same from the schedules.
    pub load: fn(&Topology) -> Load,
}

/// How an algorithm makes the schedule of one rank.
#[derive(Clone, Copy, Debug)]
pub enum Build {
    /// In the same way wherever the ranks are.
    Flat(fn(Place) -> Schedule),
    /// According to which ranks share a host.
    ByHost(fn(Place, &Topology) -> Schedule),
    /// In the same way wherever the ranks are, if all blocks have one size. Where ranks cannot know
    /// that they have, it is used only on request.
    Equal(fn(Place) -> Schedule),
}

impl Algorithm {
    /// The schedule of one rank of a group whose ranks are `on` these hosts.
    pub fn schedule(&self, place: Place, on: &Topology) -> Schedule {
        match self.build {
            Build::Flat(build) | Build::Equal(build) => build(place),
            Build::ByHost(build) => build(place, on),
        }
    }

    /// Whether all blocks must have one size.
    pub const fn needs_equal_blocks(&self) -> bool {
        matches!(self.build, Build::Equal(_))
    }

    /// The schedules of all ranks.
    pub fn schedules(&self, root: Rank, on: &Topology) -> Vec<Schedule> {
        let size = on.size();
        (0..size).map(|rank| self.schedule(Place { rank, size, root }, on)).collect()
    }
}
