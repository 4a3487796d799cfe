//! The groups of short calls, by the numbers by which a language names them. Knows no methods.

use crate::distributed;
use crate::process_group::ProcessGroup;
use crate::sorted::SortedMap;

/// The groups on which a language has handles: an event loop keeps its own.
#[derive(Debug, Default)]
pub struct ShortGroups {
    known: SortedMap<u64, KnownGroup>,
}

#[derive(Debug)]
struct KnownGroup {
    group: ProcessGroup,
    handles: usize,
}

impl ShortGroups {
    /// None yet.
    pub const fn new() -> ShortGroups {
        ShortGroups { known: SortedMap::new() }
    }

    /// Notes a new handle on `group`.
    pub fn add(&mut self, group: &ProcessGroup) {
        let first = KnownGroup { group: group.clone(), handles: 0 };
        self.known.entry(group.identity()).or_insert(first).handles += 1;
    }

    /// Forgets a handle; the group, if that was the last one.
    pub fn remove(&mut self, group: &ProcessGroup) {
        let identity = group.identity();
        let Some(known) = self.known.get_mut(&identity) else { return };
        known.handles -= 1;
        if known.handles == 0 {
            self.known.remove(&identity);
        }
    }

    /// The group of this number; 0 stands for the default group.
    pub fn get(&self, number: f64) -> Option<ProcessGroup> {
        if number == 0.0 {
            return distributed::default_group().ok();
        }
        self.known.get(&(number as u64)).map(|known| known.group.clone())
    }
}
