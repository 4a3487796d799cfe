//! What a program has said of symmetric memory, as c10d asks it. Knows no windows.

use std::sync::atomic::Ordering;

use super::ProcessGroup;

impl ProcessGroup {
    /// Whether symmetric memory exchanges its handles through this group: what was set last, false
    /// at first. Windows, which are polyrank's symmetric memory, always do.
    pub fn use_pg_for_symm_mem_rendezvous(&self) -> bool {
        self.inner.exchanges_handles.load(Ordering::Relaxed)
    }

    /// Sets [`ProcessGroup::use_pg_for_symm_mem_rendezvous`].
    pub fn set_use_pg_for_symm_mem_rendezvous(&self, value: bool) {
        self.inner.exchanges_handles.store(value, Ordering::Relaxed);
    }
}
