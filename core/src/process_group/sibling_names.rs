//! The names of a root group and of the groups split from it that this process has, and of those
//! that it is making. Knows nothing of how groups are made.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::generated::error::{Error, Result};
use crate::store::GroupStore;

/// The groups that have names, by their stores: that of a group that was left is closed, and that
/// of one that nobody holds is gone.
#[derive(Default)]
pub(super) struct SiblingNames {
    stores: Mutex<Vec<Weak<GroupStore>>>,
    /// Those of groups that are being made.
    pending: Mutex<Vec<String>>,
}

/// The name of a group that is being made, until it is dropped. Only one call of a process comes to
/// the members of that name.
pub(super) struct PendingName<'a> {
    names: &'a SiblingNames,
    name: String,
}

impl Drop for PendingName<'_> {
    fn drop(&mut self) {
        self.names.pending().retain(|pending| *pending != self.name);
    }
}

impl SiblingNames {
    /// Those of the group whose store this is.
    pub(super) fn of(store: &Arc<GroupStore>) -> Arc<SiblingNames> {
        let names = SiblingNames::default();
        names.add(store);
        Arc::new(names)
    }

    /// Adds the group whose store this is.
    pub(super) fn add(&self, store: &Arc<GroupStore>) {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|known| known.strong_count() > 0);
        stores.push(Arc::downgrade(store));
    }

    /// Notes that a group of this name is being made, unless one is already.
    ///
    /// # Errors
    /// [`Error::DuplicateGroup`].
    pub(super) fn begin(&self, name: &str) -> Result<PendingName<'_>> {
        let mut pending = self.pending();
        if pending.iter().any(|pending| pending == name) {
            return Err(Error::DuplicateGroup { group_name: name.to_owned() });
        }
        pending.push(name.to_owned());
        drop(pending);
        Ok(PendingName { names: self, name: name.to_owned() })
    }

    fn pending(&self) -> MutexGuard<'_, Vec<String>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses the name of another group.
    ///
    /// # Errors
    /// [`Error::DuplicateGroup`].
    pub(super) fn refuse(&self, name: &str) -> Result<()> {
        let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = stores.iter().filter_map(Weak::upgrade);
        if known.any(|known| known.name() == name && !known.is_closed()) {
            return Err(Error::DuplicateGroup { group_name: name.to_owned() });
        }
        Ok(())
    }
}
