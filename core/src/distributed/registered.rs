//! The default group, for those that only look at it. Every call that names no group does, so a
//! look takes no lock. Knows nothing of how the group is made and left.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::process_group::ProcessGroup;

/// The group of the world of this process; changed under the world's lock.
static REGISTERED: ArcSwapOption<Registered> = ArcSwapOption::const_empty();

struct Registered {
    process_id: u32,
    group: ProcessGroup,
}

/// Calls `f` with the default group, if this process has one. The group is lent: a handle of one's
/// own, as [`default_group`](super::default_group) returns it, costs more than a look.
pub fn with_default_group<R>(f: impl FnOnce(&ProcessGroup) -> R) -> Option<R> {
    let registered = REGISTERED.load();
    let mine = |it: &&Arc<Registered>| it.process_id == crate::clock::process_id();
    registered.as_ref().filter(mine).map(|it| f(&it.group))
}

/// Makes `group` the default group of the process `process_id`, which is this one.
pub(super) fn set(process_id: u32, group: ProcessGroup) {
    REGISTERED.store(Some(Arc::new(Registered { process_id, group })));
}

/// There is no default group any more.
pub(super) fn clear() {
    REGISTERED.store(None);
}

/// Forgets the default group of a parent process, untouched.
pub(super) fn forget() {
    std::mem::forget(REGISTERED.swap(None));
}
