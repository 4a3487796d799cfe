//! The names of the groups that this process is in, for groups that are made over a store of the
//! user's. Ranks may be threads of one process, each with handles of its own: a group of the same
//! name is another rank's unless it has the same rank in the same store. Knows no backend.

use std::sync::{Arc, Weak};

use super::ProcessGroup;
use super::sibling_names::SiblingNames;
use crate::clock::process_id;
use crate::generated::error::{Error, Result};
use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};
use crate::rendezvous;
use crate::store::{GroupStore, PrefixStore, Store};

/// A group that has a name, until it is left or nobody holds it.
struct HeldName {
    process_id: u32,
    holder: Holder,
}

enum Holder {
    /// A group that the process keeps itself, with those that were split off it: there is one of
    /// each name, whatever the rank.
    Process(Weak<SiblingNames>),
    /// A group that was made over this handle on a store.
    Store { rank: u32, group: Weak<GroupStore>, store: Weak<dyn Store> },
}

static HELD: ProcessMutex<Vec<HeldName>> = ProcessMutex::new(Vec::new());

impl ProcessGroup {
    /// Refuses the name of this group, and of all that are split from the same root, to groups that
    /// are made over a store.
    pub(crate) fn hold_name(&self) {
        add(Holder::Process(Arc::downgrade(&self.inner.siblings)));
    }

    /// Notes that this group was made over `store`.
    pub(super) fn hold_name_in(&self, store: &Arc<dyn Store>) {
        let (rank, group) = (self.rank(), Arc::downgrade(&self.inner.store));
        add(Holder::Store { rank, group, store: Arc::downgrade(store) });
    }
}

/// Refuses the name of a group that this process keeps, or that it is in as `rank` in `store`.
///
/// # Errors
/// [`Error::DuplicateGroup`]; those of the store, which is asked only if this process has a group
/// of this name and rank.
pub(super) async fn refuse(name: &str, rank: u32, store: &Arc<dyn Store>) -> Result<()> {
    let duplicate = || Err(Error::DuplicateGroup { group_name: name.to_owned() });
    let mut may_be_same = false;
    for held in held().iter() {
        match &held.holder {
            Holder::Process(names) => {
                names.upgrade().map_or(Ok(()), |names| names.refuse(name))?;
            }
            Holder::Store { rank: theirs, group, store: known } => {
                let group = group.upgrade();
                let is_live = group.is_some_and(|it| it.name() == name && !it.is_closed());
                if is_live && *theirs == rank {
                    if std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(store)) {
                        return duplicate();
                    }
                    may_be_same = true;
                }
            }
        }
    }
    if !may_be_same {
        return Ok(());
    }
    // Another handle may lead to the same store: there, this rank has come.
    let below = PrefixStore::new(rendezvous::keys_of_group(name), store.clone());
    match rendezvous::has_come(&below, name, rank).await? {
        true => duplicate(),
        false => Ok(()),
    }
}

impl Holder {
    fn is_there(&self) -> bool {
        match self {
            Holder::Process(names) => names.strong_count() > 0,
            Holder::Store { group, .. } => group.strong_count() > 0,
        }
    }
}

fn add(holder: Holder) {
    let mut held = held();
    held.retain(|held| held.holder.is_there());
    held.push(HeldName { process_id: process_id(), holder });
}

/// What this process has: what a parent process had before a fork does not count.
fn held() -> ProcessMutexGuard<'static, Vec<HeldName>> {
    let mut held = HELD.lock();
    let ours = process_id();
    if held.iter().any(|held| held.process_id != ours) {
        std::mem::forget(std::mem::take(&mut *held));
    }
    held
}
