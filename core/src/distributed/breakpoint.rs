//! Stops one rank of a group while the others wait in a barrier. Knows no debugger: each language
//! has its own, that of Rust is waited for in `hold.rs`.

#[cfg(feature = "tcp")]
mod hold;

use std::time::Duration;

#[cfg(feature = "tcp")]
pub use hold::{BreakpointOptions, breakpoint};

use super::{default_group, joined_groups, world};
use crate::generated::error::Result;
use crate::process_group::ProcessGroup;

/// A call of `breakpoint` that was not skipped, on one rank: for who holds the rank in a language's
/// debugger.
#[doc(hidden)]
#[derive(Debug)]
pub struct Breakpoint {
    group: ProcessGroup,
    limit: Option<Duration>,
    is_held: bool,
}

impl Breakpoint {
    /// That of the ranks of `group`, or else the default group, at which the global rank `rank` is
    /// held, and the others wait for `limit`: zero is none, and without one the group's counts.
    /// Shorter limits of groups of this process are raised to it: one steps on slowly.
    ///
    /// # Errors
    /// [`Error::RankNotInGroup`](crate::Error::RankNotInGroup); [`Error::NotInitialized`](
    /// crate::Error::NotInitialized); [`Error::InvalidGroup`](crate::Error::InvalidGroup).
    pub fn new(
        group: Option<ProcessGroup>,
        rank: u32,
        limit: Option<Duration>,
    ) -> Result<Breakpoint> {
        let group = group.map_or_else(default_group, Ok)?;
        group.require_members("breakpoint")?;
        let is_held = group.group_rank(rank)? == group.rank();
        if let Some(limit) = limit {
            raise_limits(&group, limit);
        }
        Ok(Breakpoint { group, limit, is_held })
    }

    /// Whether this rank is the one that is held.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// This rank goes on, when all have come. Blocks until then.
    ///
    /// # Errors
    /// Those of a barrier.
    pub fn pass_here(self) -> Result<()> {
        let Breakpoint { group, limit, .. } = self;
        limit.map_or_else(|| group.barrier(()), |limit| group.barrier(limit))
    }

    /// As [`Breakpoint::pass_here`], without blocking.
    ///
    /// # Errors
    /// Those of a barrier.
    pub async fn pass(self) -> Result<()> {
        let Breakpoint { group, limit, .. } = self;
        let barrier =
            limit.map_or_else(|| group.barrier_async(()), |limit| group.barrier_async(limit));
        barrier?.settle().await
    }
}

/// Gives the groups of this process that have a shorter limit than `limit` this one.
fn raise_limits(group: &ProcessGroup, limit: Duration) {
    let mut groups = vec![group.clone()];
    groups.extend(world().iter().flat_map(|world| world.groups.clone()));
    groups.extend(joined_groups::all());
    for group in groups {
        let timeout = group.timeout();
        if !timeout.is_zero() && (limit.is_zero() || timeout < limit) {
            // One that was left has no operations that could take long.
            let _ = group.set_timeout(limit);
        }
    }
}
