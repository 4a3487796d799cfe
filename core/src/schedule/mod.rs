//! What to do: a collective as data. Pure; knows nothing of bytes, transports, clocks or threads.
//!
//! A [`Schedule`] is one rank's list of [`Step`]s over [`Chunk`]s of named buffers. It is built
//! once per (collective, algorithm, rank, size, root) and kept. Each collective's file holds its
//! [`Contract`] and its [`Algorithm`]s; [`check`] proves that the second keep the first.

mod chunk;
mod contract;
mod step;
mod walk;

pub mod builder;
pub mod cache;
pub mod check;
pub mod cost;
pub mod peers;
pub mod select;
pub mod timeline;

// One module for each collective of the IDL: a new one needs no line here.
#[path = "../generated/schedules.rs"]
mod collectives;

pub use collectives::*;

pub use chunk::{Block, Buffer, Chunk};
pub use contract::{Contract, Holds, Origin};
pub use step::{Action, Operands, Schedule, Step};

use cost::Traffic;

/// A rank within the group that runs the schedule.
pub type Rank = u32;

/// Who runs the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// This rank.
    pub rank: Rank,
    /// The number of ranks, at least 1.
    pub size: u32,
    /// The root, 0 where the collective has none.
    pub root: Rank,
}

/// One way to carry out a collective. Every algorithm works for every number of ranks and every
/// root.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// The name that `POLYRANK_ALGORITHM` takes.
    pub name: &'static str,
    /// When it is meant to be used, in one line.
    pub meant_for: &'static str,
    /// Builds the schedule of one rank.
    pub build: fn(Place) -> Schedule,
    /// What it costs for a number of ranks; a test derives the same from the schedules.
    pub traffic: fn(u32) -> Traffic,
}
