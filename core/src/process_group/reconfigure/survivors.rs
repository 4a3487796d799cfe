//! What is left of a group of which ranks failed: revoking it, and going on without them. Knows
//! nothing of how members meet.

use std::sync::Arc;
use std::time::Duration;

use super::survivor_call::SurvivorCall;
use super::{ReconfigureOptions, on_thread};
use crate::backend::memberless::Memberless;
use crate::backend::{Backend, IssuedOperation};
use crate::blocking::block_on;
use crate::completion::Completion;
use crate::fnv::Fnv;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;
use crate::work::comm_name::CommName;
use crate::work::{Work, WorkResult};

impl ProcessGroup {
    /// Fails everything in flight and everything later, on all ranks, as MPI's `MPIX_Comm_revoke`:
    /// ranks that wait for one another learn that some of them gave up, and all can come to
    /// [`ProcessGroup::shrink_group`] or [`ProcessGroup::agree`], which work all the same.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if the group was destroyed.
    pub fn revoke(&self) -> Result<()> {
        self.unless_left()?;
        self.abort_because("it revoked the group");
        Ok(())
    }

    /// How the group stands, without asking anybody: [`WorkResult::Success`] as long as it works.
    pub fn get_error(&self) -> WorkResult {
        let failure = self.inner.backends().find_map(|backend| {
            let failure = backend.failure();
            failure.or_else(|| backend.is_broken().then(|| lost(self)))
        });
        failure.map_or(WorkResult::Success, |error| WorkResult::of(&error))
    }

    /// Goes on without some ranks: the others call this with the same list, and are the members
    /// from then on, in their order. It is [`ProcessGroup::reconfigure`], where the ranks exchange
    /// handles themselves: over the stores that members host if the group was reconfigured before,
    /// otherwise over the store in which it was made.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for ranks that are none, and for this one. The work ends as that
    /// of [`ProcessGroup::reconfigure`], and with [`Error::InvalidArgument`] if another rank has
    /// another list; if it ends before members meet, the group has its former ones still, and all
    /// that came get the same error.
    pub fn shrink_group(
        &self,
        ranks_to_exclude: &[u32],
        timeout: Option<Duration>,
    ) -> Result<Work> {
        let survivors = self.survivors(ranks_to_exclude)?;
        let completion = Arc::new(Completion::new());
        let issued = IssuedOperation { sequence: 0, completion: completion.clone() };
        // It only waits for the completion.
        let backend: Arc<dyn Backend> = Arc::new(Memberless::new("", self.group_name(), ""));
        let work = Work::new(self.label("shrink_group"), vec![(issued, backend)], Vec::new());
        let (group, comm_name) = (self.clone(), CommName::current());
        on_thread(move || {
            let shrink = || block_on(group.shrink(&survivors, timeout));
            completion.complete(match comm_name {
                Some(name) => name.apply(shrink),
                None => shrink(),
            });
        })?;
        Ok(work)
    }

    /// As [`ProcessGroup::shrink_group`], until the members are there.
    ///
    /// # Errors
    /// As [`ProcessGroup::shrink_group`] and its work.
    pub async fn shrink_group_async(
        &self,
        ranks_to_exclude: &[u32],
        timeout: Option<Duration>,
    ) -> Result<()> {
        let survivors = self.survivors(ranks_to_exclude)?;
        self.shrink(&survivors, timeout).await
    }

    fn survivors(&self, excluded: &[u32]) -> Result<Vec<u32>> {
        self.require_members("shrink_group")?;
        let size = self.size();
        let wrong = excluded.iter().find(|&&rank| rank >= size || rank == self.rank());
        if let Some(rank) = wrong {
            let message = match *rank < size {
                true => format!(
                    "shrink_group: rank {rank}, which calls it, is to be excluded; only those call \
                     it that stay"
                ),
                false => format!("shrink_group: rank {rank} is not one of the {size} ranks"),
            };
            return Err(Error::InvalidArgument { message });
        }
        Ok((0..size).filter(|rank| !excluded.contains(rank)).collect())
    }

    async fn shrink(&self, survivors: &[u32], timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.unwrap_or_else(|| self.timeout());
        let handle = self.own_handle()?.to_string();
        let call = SurvivorCall {
            group: self,
            name: "shrink_group",
            what: format!("shrink_group, which leaves ranks {survivors:?}"),
            ranks: survivors.to_vec(),
            goes_on: false,
            elsewhere: self.shrinks_elsewhere(survivors),
            timeout,
        };
        let all = |handles: &[Vec<u8>]| handles.join(&b'\n');
        let (handles, number) = call.run(handle.as_bytes(), all).await?;
        let handles = String::from_utf8_lossy(&handles).into_owned();
        let mut hash = Fnv::new();
        hash.bytes(number.to_le_bytes());
        survivors.iter().for_each(|rank| hash.bytes(rank.to_le_bytes()));
        // Numbers below zero are left for this.
        let uuid = -1 - (hash.value() >> 1) as i64;
        let options = ReconfigureOptions::new(uuid, handles.lines()).timeout(timeout);
        self.reconfigure_async(options).await
    }

    /// The rank in whose store those meet that stay, if the one of the group goes: all that were
    /// reconfigured host one.
    fn shrinks_elsewhere(&self, survivors: &[u32]) -> Option<u32> {
        let host = self.inner.origins.as_ref()?.host?;
        (!survivors.contains(&host)).then_some(survivors[0])
    }
}

/// What is wrong with a group whose backend does not say it.
fn lost(group: &ProcessGroup) -> Error {
    let message = format!("group '{}' is broken", group.group_name());
    Error::Network { message }
}
