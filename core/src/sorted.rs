//! Sorting short lists, and maps that are sorted lists. Knows nothing of what is sorted.

use std::borrow::Borrow;
use std::collections::BinaryHeap;
use std::ops::Index;

/// Sorts as `sort_unstable` does. In a browser by a heap, whose code is a tenth as long: a page has
/// to load it once for every type that is sorted.
pub(crate) fn sort<T: Ord>(items: &mut Vec<T>) {
    if cfg!(target_family = "wasm") {
        *items = BinaryHeap::from(std::mem::take(items)).into_sorted_vec();
    } else {
        items.sort_unstable();
    }
}

/// A map whose entries are a list, sorted by their keys. The code of a hash map or of a tree is
/// several times as long, and a page has to load it once for every type of entry; few entries are
/// found as fast here. Inserting moves all greater ones.
#[derive(Clone, Debug)]
pub(crate) struct SortedMap<K, V> {
    entries: Vec<(K, V)>,
}

/// A map of which there may be very many entries where no page has to load its code.
#[cfg(not(target_family = "wasm"))]
pub(crate) type LargeMap<K, V> = std::collections::HashMap<K, V>;
#[cfg(target_family = "wasm")]
pub(crate) type LargeMap<K, V> = SortedMap<K, V>;

/// As [`LargeMap`], by rising keys.
#[cfg(not(target_family = "wasm"))]
pub(crate) type LargeSortedMap<K, V> = std::collections::BTreeMap<K, V>;
#[cfg(target_family = "wasm")]
pub(crate) type LargeSortedMap<K, V> = SortedMap<K, V>;

/// The place of a key in a map, with a value or without.
pub(crate) struct SortedEntry<'a, K, V> {
    map: &'a mut SortedMap<K, V>,
    key: K,
}

#[cfg_attr(
    not(target_family = "wasm"),
    allow(dead_code, reason = "some of it is for maps that are large elsewhere")
)]
impl<K: Ord, V> SortedMap<K, V> {
    /// An empty map.
    pub(crate) const fn new() -> SortedMap<K, V> {
        SortedMap { entries: Vec::new() }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where the entry of `key` is, or else where it would be.
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.entries.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    /// The value of `key`.
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().map(|at| &self.entries[at].1)
    }

    /// The value of `key`, to be changed.
    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().map(|at| &mut self.entries[at].1)
    }

    /// Whether `key` has a value.
    pub(crate) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).is_ok()
    }

    /// Sets the value of `key`; the one that it had.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                self.entries.insert(at, (key, value));
                None
            }
        }
    }

    /// The place of `key`.
    pub(crate) fn entry(&mut self, key: K) -> SortedEntry<'_, K, V> {
        SortedEntry { map: self, key }
    }

    /// Removes `key`; its value.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().map(|at| self.entries.remove(at).1)
    }

    /// Removes all entries but those that are to `stay`.
    pub(crate) fn retain(&mut self, mut stay: impl FnMut(&K, &mut V) -> bool) {
        self.entries.retain_mut(|(key, value)| stay(key, value));
    }

    /// Keys and values, by rising keys; so are the others.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// Keys and values, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// The keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.iter().map(|(key, _)| key)
    }

    /// The values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The values, to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|(_, value)| value)
    }
}

impl<K: Ord, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        SortedMap::new()
    }
}

impl<'a, K: Ord, V> SortedEntry<'a, K, V> {
    /// The value, which is `value` if there was none.
    pub(crate) fn or_insert(self, value: V) -> &'a mut V {
        let SortedEntry { map, key } = self;
        let at = map.place(&key).unwrap_or_else(|at| {
            map.entries.insert(at, (key, value));
            at
        });
        &mut map.entries[at].1
    }

    /// The value, which is the default if there was none.
    pub(crate) fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert(V::default())
    }
}

impl<K: Ord, V> Index<&K> for SortedMap<K, V> {
    type Output = V;

    /// The value of a key that has one, as maps of the standard library have it.
    fn index(&self, key: &K) -> &V {
        match self.get(key) {
            Some(value) => value,
            None => panic!("the key has no value"),
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let mut map = SortedMap::new();
        entries.into_iter().for_each(|(key, value)| drop(map.insert(key, value)));
        map
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::SortedMap;

    #[test]
    fn it_is_a_map() {
        let (mut map, mut expected) = (SortedMap::new(), BTreeMap::new());
        for step in 0..500_u32 {
            let (key, value) = (step.wrapping_mul(0x9E37_79B9) >> 26, step);
            if step % 3 == 0 {
                assert_eq!(map.remove(&key), expected.remove(&key));
            } else {
                assert_eq!(map.insert(key, value), expected.insert(key, value));
            }
            *map.entry(key / 2).or_default() += 1;
            *expected.entry(key / 2).or_default() += 1;
            assert_eq!((map.get(&key), map.len()), (expected.get(&key), expected.len()));
            assert_eq!(map.contains_key(&(key + 1)), expected.contains_key(&(key + 1)));
        }
        assert!(map.iter().eq(expected.iter()));
        map.retain(|key, value| key % 2 == 0 && *value > 9);
        expected.retain(|key, value| key % 2 == 0 && *value > 9);
        map.values_mut().chain(expected.values_mut()).for_each(|value| *value += 1);
        if let Some((key, value)) = map.iter_mut().next() {
            assert_eq!(expected.get_mut(key), Some(value));
        }
        assert!(map.keys().eq(expected.keys()) && map.values().eq(expected.values()));
        assert!(!map.is_empty() && SortedMap::<u32, u32>::default().is_empty());
    }
}
