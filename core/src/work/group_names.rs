//! The names of this process's groups by their numbers. A work knows only the number of its group:
//! small collectives make works without taking memory.

use std::collections::VecDeque;

use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};
use crate::sorted::SortedMap;

/// How many groups that are gone still have their names: works are shown after their groups.
const MAX_GONE: usize = 1000;

static NAMES: ProcessMutex<GroupNames> = ProcessMutex::new(GroupNames::new());

struct GroupNames {
    /// By the groups' numbers.
    names: SortedMap<u64, String>,
    /// The numbers of groups that are gone, the oldest first.
    gone: VecDeque<u64>,
}

/// Notes the name of a new group.
pub(crate) fn add(group: u64, name: &str) {
    lock().add(group, name);
}

/// Notes that a group is gone.
pub(crate) fn note_gone(group: u64) {
    lock().note_gone(group);
}

/// The name of a group.
pub(super) fn of(group: u64) -> Option<String> {
    lock().of(group).map(str::to_owned)
}

impl GroupNames {
    const fn new() -> GroupNames {
        GroupNames { names: SortedMap::new(), gone: VecDeque::new() }
    }

    fn add(&mut self, group: u64, name: &str) {
        self.names.insert(group, name.to_owned());
    }

    fn of(&self, group: u64) -> Option<&str> {
        self.names.get(&group).map(String::as_str)
    }

    fn note_gone(&mut self, group: u64) {
        self.gone.push_back(group);
        // Programs that make groups in a loop shall not fill the memory.
        if self.gone.len() > MAX_GONE
            && let Some(oldest) = self.gone.pop_front()
        {
            self.names.remove(&oldest);
        }
    }
}

fn lock() -> ProcessMutexGuard<'static, GroupNames> {
    NAMES.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_live_keep_their_names_and_so_do_the_last_that_are_gone() {
        let mut known = GroupNames::new();
        for group in 0..=MAX_GONE as u64 + 1 {
            known.add(group, &format!("g{group}"));
        }
        (1..=MAX_GONE as u64 + 1).for_each(|group| known.note_gone(group));
        assert_eq!(known.of(0), Some("g0"));
        assert_eq!(known.of(1), None);
        assert_eq!(known.of(2), Some("g2"));
    }
}
