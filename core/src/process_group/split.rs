//! Groups out of a group. Knows no backend.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::create::{Origin, Stores, own_connection};
use super::group_calls::GroupCall;
use super::{GroupOptions, ProcessGroup, deadline};
use crate::backend::registry::BackendSpec;
use crate::backend::{Backend, BackendOptions, Share, SplitRequest};
use crate::blocking::{Caller, block_on, unblock};
use crate::generated::error::{Error, Result};
use crate::rendezvous::keys_of_group;
use crate::sorted::sort;
use crate::store::{Bound, Store};
use crate::tensor::Device;
use crate::wire::fingerprint::digest;

/// How a group is split off.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SplitOptions {
    /// Limit of the child's operations; the parent's by default.
    pub timeout: Option<Duration>,
    /// Name of the child; made of the parent's name and the members by default.
    pub name: Option<String>,
    /// Free text. Without it, [`ProcessGroup::group_desc`] says the parent's name and `split`.
    pub description: Option<String>,
    /// Which backend serves which device; the parent's by default.
    pub backend: Option<BackendSpec>,
    /// The device that the child is bound to; the parent's by default, if a backend serves it.
    pub device: Option<Device>,
    /// What is chosen about one of its backends, as `NcclOptions`; the parent's by default.
    pub backend_options: Option<BackendOptions>,
}

setters! {
    SplitOptions {
        timeout: Duration => Some(timeout),
        name: impl Into<String> => Some(name.into()),
        description: impl Into<String> => Some(description.into()),
        backend: BackendSpec => Some(backend),
        device: Device => Some(device),
        backend_options: impl Into<BackendOptions> => Some(backend_options.into()),
    }
}

/// The function of the program that makes a group out of another.
#[derive(Clone, Copy)]
pub(crate) enum Maker {
    /// `new_group`
    NewGroup,
    /// `split_group`
    SplitGroup,
}

impl Maker {
    fn function(self) -> &'static str {
        match self {
            Maker::NewGroup => "new_group",
            Maker::SplitGroup => "split_group",
        }
    }

    /// What a group that it has made out of `parent` is said to be if nobody has said it: PyTorch's
    /// words.
    fn undescribed(self, parent: &ProcessGroup) -> String {
        match self {
            Maker::NewGroup => "undefined".to_owned(),
            Maker::SplitGroup => format!("{}:split", parent.group_name()),
        }
    }
}

impl ProcessGroup {
    /// A group of `ranks` of this one, ranked in that order; `None` on ranks that are not in it.
    /// Only members wait for one another; ranks that are in several new groups make them in the
    /// same order, or at the same time. The name follows from the members and from how often they
    /// were asked for.
    ///
    /// A group that is bound to a CUDA device splits its communicator for a group in which the same
    /// backend serves CUDA tensors: then all its ranks call this, members or not.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no ranks, ranks given twice or out of range, and for options
    /// that are wrong or of a backend that the group does not have; [`Error::DuplicateGroup`] for
    /// the name of a group from the same root that this process has;
    /// [`Error::RendezvousTimeout`] naming members that did not come.
    pub fn split_group(
        &self,
        ranks: &[u32],
        options: SplitOptions,
    ) -> Result<Option<ProcessGroup>> {
        block_on(self.split_group_async(ranks, options))
    }

    /// As [`ProcessGroup::split_group`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::split_group`].
    pub async fn split_group_async(
        &self,
        ranks: &[u32],
        options: SplitOptions,
    ) -> Result<Option<ProcessGroup>> {
        self.split_by(Maker::SplitGroup, ranks, options).await
    }

    /// As [`ProcessGroup::split_group_async`], called by the user as `maker`.
    pub(crate) async fn split_by(
        &self,
        maker: Maker,
        ranks: &[u32],
        options: SplitOptions,
    ) -> Result<Option<ProcessGroup>> {
        self.require_members(maker.function())?;
        self.among_members(maker.function(), self.split_among(maker, ranks, options)).await
    }

    /// As [`ProcessGroup::split_by`], as long as the members stay.
    async fn split_among(
        &self,
        maker: Maker,
        ranks: &[u32],
        options: SplitOptions,
    ) -> Result<Option<ProcessGroup>> {
        self.check_members(ranks)?;
        let timeout = options.timeout.unwrap_or_else(|| self.timeout());
        let description = options.description.clone().unwrap_or_default();
        let group_options = self.options_of_child(&options, description.clone(), timeout);
        // A backend that is not there is an error on all ranks, members or not.
        let possible = group_options.check().and_then(|()| group_options.backend.available());
        let rank = ranks.iter().position(|&member| member == self.rank()).map(|rank| rank as u32);
        let Some(rank) = rank else {
            possible?;
            self.split_communicator(ranks, None, &group_options, timeout).await?;
            return Ok(None);
        };
        let is_free =
            options.name.as_deref().map_or(Ok(()), |name| self.inner.siblings.refuse(name));
        let call = GroupCall {
            function: maker.function().to_owned(),
            // Before anything is waited for: calls that are under way together begin in an order.
            group: options.name.unwrap_or_else(|| self.name_of_split(ranks)),
            ranks: ranks.to_vec(),
        };
        // The members of that name are told nothing: they meet in the other call.
        let _name = self.inner.siblings.begin(&call.group)?;
        // Until it is said that the call is over, and from before the first wait on: a call that
        // is still on its way to the store is one in which this rank waits.
        let begin = || self.inner.group_calls.begin(&Caller::current());
        let _pending = (ranks.len() > 1).then(begin);
        let bound = Bound::after(timeout);
        let group = bound.of(&self.inner.store.underlying()?);
        let watch = self.watch_for_loss_of(&call.ranks, &call.neighbours(rank));
        let own = watch.or_failure(own_connection(&group, ranks.len() as u32)).await;
        let own = own.map_err(|error| self.error_of(&call, error, false))?;
        if let Err(why) = is_free.and(possible) {
            self.refuse(&*own, &call, rank, &why, timeout).await;
            return Err(why);
        }
        if !self.is_alone() {
            let call = (&call, description.as_str());
            self.assemble(&*own, call, rank, timeout, &watch).await?;
        }
        let share = self.split_communicator(ranks, Some(rank), &group_options, timeout).await?;
        let members =
            ranks.iter().map(|&rank| self.global_rank(rank)).collect::<Result<Vec<u32>>>()?;
        let stores = Stores { group, own };
        let name = &call.group;
        let open_comparisons = self.inner.open_comparisons.clone();
        let siblings = self.inner.siblings.clone();
        let (store_prefix, liveness) = (self.child_prefix(name), self.inner.liveness.clone());
        let origin = Origin {
            obstacle: None,
            share,
            open_comparisons,
            siblings,
            store_prefix,
            liveness,
            undescribed: maker.undescribed(self),
        };
        let made = ProcessGroup::with_members(stores, rank, members, name, group_options, origin);
        let made = watch.or_failure(self.meeting_for(&call, &description, made)).await;
        let made = made.inspect(|_| bound.lift());
        made.map(Some).map_err(|error| self.error_of(&call, error, false))
    }

    /// Does not take part in a split because of `why`, which only this rank may find, and tells the
    /// other members; the error of this rank.
    pub(crate) async fn refuse_split(
        &self,
        maker: Maker,
        ranks: &[u32],
        options: SplitOptions,
        why: Error,
    ) -> Error {
        let rank = ranks.iter().position(|&member| member == self.rank());
        let (Ok(()), Some(rank)) = (self.check_members(ranks), rank) else { return why };
        let call = GroupCall {
            function: maker.function().to_owned(),
            // The next group of these ranks has the next number, on this rank as on the others.
            group: options.name.unwrap_or_else(|| self.name_of_split(ranks)),
            ranks: ranks.to_vec(),
        };
        let Ok(_name) = self.inner.siblings.begin(&call.group) else { return why };
        let Ok(group) = self.inner.store.underlying() else { return why };
        let timeout = options.timeout.unwrap_or_else(|| self.timeout());
        if let Ok(own) = own_connection(&group, ranks.len() as u32).await {
            self.refuse(&*own, &call, rank as u32, &why, timeout).await;
        }
        why
    }

    /// How many groups of these members were split off, with this one.
    fn count_split(&self, membership: &str) -> u32 {
        let mut splits = self.inner.splits.lock().unwrap_or_else(PoisonError::into_inner);
        let count = splits.entry(membership.into()).or_insert(0);
        *count += 1;
        *count
    }

    /// As [`ProcessGroup::split_by`], a group without members.
    pub(crate) fn split_without_members(&self, options: SplitOptions) -> Result<ProcessGroup> {
        let timeout = options.timeout.unwrap_or_else(|| self.timeout());
        let description = options.description.clone().unwrap_or_default();
        let count = self.count_split("");
        let name = options.name.clone();
        name.as_deref().map_or(Ok(()), |name| self.inner.siblings.refuse(name))?;
        let name = name.unwrap_or_else(|| format!("{}:new:{count}", self.group_name()));
        let options = self.options_of_child(&options, description, timeout);
        let site = self.inner.site.again(&*self.inner.store);
        ProcessGroup::without_members_at(site, &name, options, Maker::NewGroup.undescribed(self))
    }

    /// What the new group of `ranks` shares with this one, where all ranks split a communicator.
    async fn split_communicator(
        &self,
        ranks: &[u32],
        rank: Option<u32>,
        options: &GroupOptions,
        timeout: Duration,
    ) -> Result<Option<Share>> {
        let Some(cuda) = self.split_for(&options.backend).cloned() else { return Ok(None) };
        let color = ranks.iter().min().copied().filter(|_| rank.is_some());
        let (key, chosen) = (rank.unwrap_or(0), options.backend_options.clone());
        let until = deadline(timeout);
        let split = move || {
            let request = SplitRequest { color, key, options: chosen.as_ref() };
            cuda.split_off(request, until)
        };
        unblock(split).await
    }

    /// Prefix of the keys of a group that is split off this one, in the root group's store.
    fn child_prefix(&self, name: &str) -> String {
        let below = keys_of_group(name);
        let prefix = &self.inner.store_prefix;
        if prefix.is_empty() { below } else { format!("{prefix}/{below}") }
    }

    /// A name for a new group of `ranks`, from the members and how often they were asked for.
    fn name_of_split(&self, ranks: &[u32]) -> String {
        let words: Vec<u64> = ranks.iter().map(|&rank| u64::from(rank)).collect();
        let membership = format!("{:016x}", digest(&words));
        let count = self.count_split(&membership);
        format!("{}:split:{membership}:{count}", self.inner.shared_name)
    }

    /// Takes part in a split of which no group has this rank, where all ranks have to: in a group
    /// that is bound to a CUDA device. The others split it with the same `options`.
    ///
    /// # Errors
    /// [`Error::RendezvousTimeout`] if the others did not come within the timeout.
    pub fn stay_out_of_split(&self, options: &SplitOptions) -> Result<()> {
        let backend = options.backend.as_ref().unwrap_or(&self.inner.options.backend);
        let Some(cuda) = self.split_for(backend) else { return Ok(()) };
        let until = deadline(options.timeout.unwrap_or_else(|| self.timeout()));
        let request = SplitRequest { color: None, key: 0, options: None };
        cuda.split_off(request, until).map(drop)
    }

    /// Whether groups of some of its ranks may be made by splitting a communicator, which all its
    /// ranks do in the same order.
    pub(crate) fn splits_communicators(&self) -> bool {
        self.split_for(&self.inner.options.backend).is_some()
    }

    /// The backend whose communicator is split for groups with these backends. All ranks of a group
    /// that is bound to devices split it together, and ranks of one color come into one group.
    fn split_for(&self, backend: &BackendSpec) -> Option<&Arc<dyn Backend>> {
        let cuda = self.inner.cuda.as_ref()?;
        let is_bound = matches!(self.inner.bound_device, Some(Device::Cuda(_)));
        let is_same = backend
            .devices
            .iter()
            .any(|(device, name)| device == "cuda" && name.as_str() == cuda.name());
        (is_bound && is_same).then_some(cuda)
    }

    /// How a group is made out of this one: as this one was, but for what was given and what its
    /// backends do not have.
    fn options_of_child(
        &self,
        options: &SplitOptions,
        description: String,
        timeout: Duration,
    ) -> GroupOptions {
        let ours = &self.inner.options;
        let backend = options.backend.clone().unwrap_or_else(|| ours.backend.clone());
        let inherited =
            ours.backend_options.clone().filter(|it| ours.backend.hands_on(it, &backend));
        let cuda = |device: &Device| matches!(device, Device::Cuda(_));
        let bound = self.inner.bound_device.filter(|it| !cuda(it) || backend.serves("cuda"));
        GroupOptions {
            timeout: Some(timeout),
            description,
            backend,
            device: options.device.or(bound),
            backend_options: options.backend_options.clone().or(inherited),
        }
    }

    /// Joins this group and others into one of `size` ranks: every rank of each of them calls it,
    /// with a store of which nobody else uses the keys. Ranks of the new group are given in the
    /// order in which they come; the name is that of the first one's group and `merge`, with a
    /// number from its second merge on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if more than `size` ranks come; [`Error::DuplicateGroup`] for the
    /// name of a group that this process has, which the others learn; [`Error::RendezvousTimeout`]
    /// naming those that did not come.
    pub fn merge_remote_group(
        &self,
        store: Arc<dyn Store>,
        size: u32,
        options: SplitOptions,
    ) -> Result<ProcessGroup> {
        block_on(self.merge_remote_group_async(store, size, options))
    }

    /// As [`ProcessGroup::merge_remote_group`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::merge_remote_group`].
    pub async fn merge_remote_group_async(
        &self,
        store: Arc<dyn Store>,
        size: u32,
        options: SplitOptions,
    ) -> Result<ProcessGroup> {
        self.unless_left()?;
        let timeout = options.timeout.unwrap_or(super::DEFAULT_TIMEOUT);
        if size == 0 {
            let message = "a merged group of 0 ranks was asked for; expected the number of ranks \
                           that come together, 1 or more";
            return Err(Error::InvalidArgument { message: message.into() });
        }
        let came = store.add_async("polyrank/merge/ranks", 1).await?;
        let rank = u32::try_from(came - 1).ok().filter(|&rank| rank < size);
        let Some(rank) = rank else {
            let message = format!(
                "{came} ranks came to a merged group of {size}: more than {size} called \
                 merge_remote_group, or a merge was made in this store before. A store serves one \
                 merge; give the next one a PrefixStore of it with another prefix"
            );
            return Err(Error::InvalidArgument { message });
        };
        // Merged groups of one group are told apart, as those that are split off it.
        let name = options.name.clone().unwrap_or_else(|| match self.count_split("merge") {
            1 => format!("{}:merge", self.group_name()),
            count => format!("{}:merge:{count}", self.group_name()),
        });
        // All ranks know the group by one name, wherever they come from.
        let name = store.compare_set_async("polyrank/merge/name", b"", name.as_bytes()).await?;
        let name = String::from_utf8_lossy(&name).into_owned();
        let description = options.description.clone().unwrap_or_else(|| name.clone());
        let group_options = self.options_of_child(&options, description, timeout);
        let is_free = self.inner.siblings.refuse(&name);
        let ranks = (rank, size);
        let made = ProcessGroup::new_if(is_free, store, ranks, &name, group_options).await;
        made.inspect(|made| self.inner.siblings.add(&made.inner.store))
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
        sort(&mut sorted);
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return invalid(format!("Split ranks should not have duplicates, got {ranks:?}"));
        }
        Ok(())
    }
}
