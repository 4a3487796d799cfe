//! What a handle on a group leads to: the members as of now. Reconfiguring a group replaces them
//! under all its handles. Knows neither how members meet nor what they run.
//!
//! A call reads the members once or several times, and they may be replaced in between: whoever
//! needs that they are the same compares [`Inner::epoch`]. The former members stay as long as the
//! group does, because calls may be under way in them; they have closed what they had open, and
//! what is left of them are some kilobytes. So a call costs one load more than in a group whose
//! members never change.

#![allow(unsafe_code)]

use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::reconfigure::Site;
use super::{Inner, ProcessGroup};
use crate::completion::inherited_error;
use crate::generated::error::{Error, Result};
#[cfg(feature = "tcp")]
use crate::recorder::{GroupFacts, watch};
use crate::store::GroupStore;
#[cfg(feature = "tcp")]
use crate::store::Store;
use crate::work::group_names;

/// The members of a group, those before them, and where new ones meet this process.
pub(super) struct Memberships {
    current: AtomicPtr<Inner>,
    /// All there ever were, the current ones last. It only grows.
    all: Mutex<Vec<Arc<Inner>>>,
    pub(super) site: Site,
    /// The process that is a rank of it; forked children are none.
    process_id: u32,
}

impl Memberships {
    /// A group that begins with these members.
    pub(super) fn new(first: Inner, site: Site) -> Memberships {
        first.describe_to_recorder();
        let first = Arc::new(first);
        let current = AtomicPtr::new(Arc::as_ptr(&first).cast_mut());
        let process_id = crate::clock::process_id();
        Memberships { current, all: Mutex::new(vec![first]), site, process_id }
    }

    /// Whether this process is a forked child of the one that has the group.
    pub(super) fn is_inherited(&self) -> bool {
        self.process_id != crate::clock::process_id()
    }

    /// Makes these the members, from now on.
    pub(super) fn replace(&self, next: Inner) {
        next.describe_to_recorder();
        let next = Arc::new(next);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let pointer = Arc::as_ptr(&next).cast_mut();
        all.push(next);
        self.current.store(pointer, Ordering::Release);
    }

    /// The rank of this process among the members of `epoch`.
    fn rank_in(&self, epoch: u64) -> u32 {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|members| members.epoch == epoch).map_or(0, |members| members.rank)
    }
}

impl Deref for Memberships {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: it points to what an `Arc` in `all` holds, from which nothing is ever taken while
        // `self` lives, and nobody has a mutable reference to it.
        unsafe { &*current }
    }
}

impl ProcessGroup {
    /// A group that begins with these members.
    pub(super) fn of(first: Inner, site: Site) -> ProcessGroup {
        ProcessGroup {
            inner: Arc::new(Memberships::new(first, site)),
            #[cfg(not(target_family = "wasm"))]
            wrapper: None,
        }
    }

    /// Whether the operations of this handle are the group's, so that they may take fast paths.
    pub(crate) fn is_unwrapped(&self) -> bool {
        #[cfg(not(target_family = "wasm"))]
        return self.wrapper.is_none();
        #[cfg(target_family = "wasm")]
        true
    }

    /// Refuses operations of a group that was left, and of one without members.
    pub(crate) fn require_members(&self, name: &str) -> Result<()> {
        self.present_members(name).map(drop)
    }

    /// The members as of now, for the operation `name`.
    ///
    /// # Errors
    /// As [`ProcessGroup::require_members`].
    pub(super) fn present_members(&self, name: &str) -> Result<&Inner> {
        self.unless_left()?;
        let members = &**self.inner;
        #[cfg(not(target_family = "wasm"))]
        if self.is_managers(name) {
            return Ok(members);
        }
        match members.cpu.refusal(name) {
            #[cfg(not(target_family = "wasm"))]
            Some(refusal) if self.keeps_refusal(&refusal, members.epoch) => Ok(members),
            Some(refusal) => Err(refusal),
            None => Ok(members),
        }
    }

    /// Says whether the group was left, or is a parent process's, for calls that ask something of
    /// it.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if it was, or is.
    #[doc(hidden)]
    pub fn unless_left(&self) -> Result<()> {
        self.unless_inherited()?;
        let Inner { store, members, name, epoch, .. } = &**self.inner;
        // One without members has no store. That of members whose place others take is closed after
        // these are there.
        if members.is_empty() || !store.is_closed() || *epoch != self.epoch() {
            return Ok(());
        }
        Err(Error::InvalidGroup { message: format!("group '{name}' was destroyed") })
    }

    /// Says whether the group is a parent process's, from which this one was forked.
    pub(super) fn unless_inherited(&self) -> Result<()> {
        if self.inner.is_inherited() { Err(inherited_error()) } else { Ok(()) }
    }

    /// How often the members were replaced.
    #[doc(hidden)]
    pub fn epoch(&self) -> u64 {
        self.inner.epoch
    }

    /// Refuses what was checked for members that have been replaced since. Before this, the
    /// backend was chosen: it is that of the members of `epoch`, then.
    pub(crate) fn check_epoch(&self, epoch: u64, name: &str) -> Result<()> {
        self.inner.check_epoch(epoch, name, &self.inner)
    }
}

impl Inner {
    /// Refuses what was checked for other members of `memberships` than these.
    pub(super) fn check_epoch(
        &self,
        epoch: u64,
        name: &str,
        memberships: &Memberships,
    ) -> Result<()> {
        if self.epoch == epoch {
            return Ok(());
        }
        Err(Error::Reconfigured {
            group: self.name.clone(),
            rank: memberships.rank_in(epoch),
            collective: name.to_owned(),
            sequence: 0,
        })
    }

    /// Tells the recorder whose operations come from now on. In groups that are not made out of
    /// others, somebody watches over them.
    fn describe_to_recorder(&self) {
        #[cfg(feature = "tcp")]
        {
            let backend = Arc::downgrade(&self.cpu);
            let waits = move || backend.upgrade().map(|it| it.waits()).unwrap_or_default();
            self.recorder.describe(self.facts(), Arc::new(waits));
            if self.store_prefix.is_empty() && self.members.len() > 1 {
                watch::watch(&self.recorder, self.store.shared_connection());
            }
            self.recorder.begin_telling();
        }
    }

    #[cfg(feature = "tcp")]
    fn facts(&self) -> GroupFacts {
        GroupFacts {
            name: self.name.clone(),
            description: self.description.clone(),
            rank: self.rank,
            members: self.members.clone(),
            backend: self.spec.to_string(),
            epoch: self.epoch,
        }
    }

    /// Ends what waits in the store of these members, and keeps nothing open.
    pub(super) fn close_stores(&self) {
        self.close_stores_as(GroupStore::close);
    }

    /// As [`Inner::close_stores`]; `close` closes the store of the group itself.
    pub(super) fn close_stores_as(&self, close: impl FnOnce(&GroupStore)) {
        if !self.store.is_closed()
            && let Some(liveness) = &self.liveness
        {
            liveness.close();
        }
        close(&self.store);
        let mut barriers = self.barrier_store.lock().unwrap_or_else(PoisonError::into_inner);
        let open = barriers.take();
        drop(barriers);
        drop(open);
    }
}

impl Drop for Memberships {
    fn drop(&mut self) {
        group_names::note_gone(self.identity);
        #[cfg(feature = "tcp")]
        watch::forget(&self.recorder);
        if self.origins.as_ref().is_some_and(|origins| origins.is_hosted_by(self.rank)) {
            // Others may have come as far as this rank, and not have learned that yet.
            self.site.let_go();
        }
        if self.store_prefix.is_empty() {
            // Groups split off it that are left later must do the comparing themselves.
            self.open_comparisons.end();
        }
    }
}
