//! Groups out of a group. Knows no backend.

use std::time::Duration;

use super::{GroupOptions, ProcessGroup};
use crate::wire::fingerprint::digest;
use crate::{Error, Result};

/// How a group is split off.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SplitOptions {
    /// Limit of the child's operations; the parent's by default.
    pub timeout: Option<Duration>,
    /// Name of the child; made of the parent's name and the members by default.
    pub name: Option<String>,
    /// Free text; the parent's name and `split` by default.
    pub description: Option<String>,
}

impl SplitOptions {
    /// Sets [`SplitOptions::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
    /// Sets [`SplitOptions::name`].
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
    /// Sets [`SplitOptions::description`].
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

impl ProcessGroup {
    /// A group of `ranks` of this one, ranked in that order; `None` on ranks that are not in it.
    /// Only members wait for one another, and groups of different members may be made in any
    /// order: the name follows from the members and from how often they were asked for.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no ranks, ranks given twice or out of range;
    /// [`Error::RendezvousTimeout`] naming members that did not come.
    pub fn split_group(
        &self,
        ranks: &[u32],
        options: SplitOptions,
    ) -> Result<Option<ProcessGroup>> {
        self.check_members(ranks)?;
        let Some(rank) = ranks.iter().position(|&member| member == self.rank()) else {
            return Ok(None);
        };
        let name = options.name.unwrap_or_else(|| {
            let words: Vec<u64> = ranks.iter().map(|&rank| u64::from(rank)).collect();
            let membership = format!("{:016x}", digest(&words));
            let count = self.count_split(&membership);
            format!("{}:split:{membership}:{count}", self.group_name())
        });
        let mut group_options = GroupOptions {
            timeout: Some(options.timeout.unwrap_or(self.timeout())),
            description: options
                .description
                .unwrap_or_else(|| format!("{}:split", self.group_name())),
            ..self.inner.options.clone()
        };
        group_options.device = self.inner.bound_device;
        let members =
            ranks.iter().map(|&rank| self.global_rank(rank)).collect::<Result<Vec<u32>>>()?;
        let store = self.get_group_store();
        let group = ProcessGroup::with_members(store, rank as u32, members, &name, group_options)?;
        Ok(Some(group))
    }

    fn check_members(&self, ranks: &[u32]) -> Result<()> {
        let invalid = |message: String| Err(Error::InvalidArgument { message });
        if ranks.is_empty() {
            return invalid(
                "Split ranks cannot be empty. Please provide a non-empty list of ranks to split \
                 the group."
                    .into(),
            );
        }
        if let Some(&rank) = ranks.iter().find(|&&rank| rank >= self.size()) {
            return invalid(format!(
                "Rank {rank} is out of range. Valid ranks are 0 to {} (world_size={})",
                self.size() - 1,
                self.size()
            ));
        }
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return invalid(format!("Split ranks should not have duplicates, got {ranks:?}"));
        }
        Ok(())
    }
}
