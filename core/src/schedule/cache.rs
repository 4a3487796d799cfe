//! Keeps schedules, so that a repeated call builds nothing. Knows no algorithm.

use std::sync::Arc;

use super::{Place, Schedule, Topology};
use crate::generated::collective::Collective;
use crate::sorted::LargeMap;

/// The most steps that a cache keeps, about 64 MiB.
const STEPS_MAX: usize = 1 << 19;

/// What a schedule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The collective.
    pub collective: Collective,
    /// The index into its `ALGORITHMS`, as
    /// [`Selector::choose`](super::select::Selector::choose) returns it.
    pub algorithm: usize,
    /// The rank that runs it.
    pub place: Place,
}

/// A [`Key`] as numbers, which have an order.
type KeyParts = (u8, usize, [u32; 3]);

impl Key {
    fn parts(&self) -> KeyParts {
        let Place { rank, size, root } = self.place;
        (self.collective as u8, self.algorithm, [rank, size, root])
    }
}

/// Schedules of one group by what they are for; those not used for longest are forgotten first.
#[derive(Debug)]
pub struct Cache {
    /// The hosts of the group's ranks, which never change.
    topology: Arc<Topology>,
    kept: LargeMap<KeyParts, CacheEntry>,
    /// Steps of all that is kept.
    steps: usize,
    uses: u64,
}

#[derive(Debug)]
struct CacheEntry {
    schedule: Arc<Schedule>,
    used: u64,
}

impl Cache {
    /// Nothing kept yet, of a group whose ranks are on these hosts.
    pub fn new(topology: Arc<Topology>) -> Cache {
        Cache { topology, kept: LargeMap::new(), steps: 0, uses: 0 }
    }

    /// The schedule for `key`, built if it is not here; none if there is no such algorithm.
    pub fn get(&mut self, key: Key) -> Option<Arc<Schedule>> {
        self.uses += 1;
        let used = self.uses;
        if let Some(kept) = self.kept.get_mut(&key.parts()) {
            kept.used = used;
            return Some(kept.schedule.clone());
        }
        let algorithm = key.collective.algorithms().get(key.algorithm)?;
        let schedule = Arc::new(algorithm.schedule(key.place, &self.topology));
        self.make_room(weight(&schedule));
        self.steps += weight(&schedule);
        self.kept.insert(key.parts(), CacheEntry { schedule: schedule.clone(), used });
        Some(schedule)
    }

    fn make_room(&mut self, steps: usize) {
        while self.steps + steps > STEPS_MAX {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key);
            let Some(kept) = oldest.and_then(|key| self.kept.remove(&key)) else { return };
            self.steps -= weight(&kept.schedule);
        }
    }
}

/// What a schedule counts for; one without steps is not free.
fn weight(schedule: &Schedule) -> usize {
    schedule.steps.len() + 8
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(rank: u32, size: u32) -> Key {
        let ring = Collective::Allreduce.algorithms().iter().position(|a| a.name == "ring");
        let place = Place { rank, size, root: 0 };
        Key { collective: Collective::Allreduce, algorithm: ring.unwrap(), place }
    }

    #[test]
    fn a_repeated_call_builds_nothing() {
        let mut cache = Cache::new(Arc::new(Topology::one_host(4096)));
        let first = cache.get(key(1, 4)).unwrap();
        assert!(Arc::ptr_eq(&first, &cache.get(key(1, 4)).unwrap()));
        assert!(!Arc::ptr_eq(&first, &cache.get(key(2, 4)).unwrap()));
        assert!(cache.get(Key { algorithm: 99, ..key(0, 4) }).is_none());
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let mut cache = Cache::new(Arc::new(Topology::one_host(4096)));
        let first = cache.get(key(0, 4096)).unwrap();
        let mut rank = 1;
        while cache.steps + weight(&first) <= STEPS_MAX {
            cache.get(key(rank, 4096)).unwrap();
            rank += 1;
        }
        assert!(Arc::ptr_eq(&first, &cache.get(key(0, 4096)).unwrap()));
        cache.get(key(rank, 4096)).unwrap();
        assert!(cache.steps <= STEPS_MAX);
        let has = |rank| cache.kept.contains_key(&key(rank, 4096).parts());
        assert!(has(0) && !has(1));
    }
}
