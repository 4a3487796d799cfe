//! Which ranks of this process a debugger holds, for those who ask why others wait. Knows no
//! debugger.

use crate::process_mutex::ProcessMutex;

/// The ranks of this process that a debugger holds, by global number, and where.
static HELD: ProcessMutex<Vec<(u32, String)>> = ProcessMutex::new(Vec::new());

/// A rank of this process is held by a debugger, until this is dropped.
#[derive(Debug)]
pub struct HeldRank(u32);

impl HeldRank {
    /// The one with this global number, at `site` in the program: `train.py:17`.
    pub fn new(rank: u32, site: &str) -> HeldRank {
        hold(rank, Some(site));
        HeldRank(rank)
    }
}

impl Drop for HeldRank {
    fn drop(&mut self) {
        hold(self.0, None);
    }
}

/// A debugger holds the rank with this global number at `site`, or, with none, no longer.
pub fn hold(rank: u32, site: Option<&str>) {
    let mut held = HELD.lock();
    held.retain(|(known, _)| *known != rank);
    held.extend(site.map(|site| (rank, site.to_owned())));
}

/// Where a debugger holds the rank with this global number, if one does.
pub(crate) fn held_at(rank: u32) -> Option<String> {
    HELD.lock().iter().find(|(known, _)| *known == rank).map(|(_, site)| site.clone())
}
