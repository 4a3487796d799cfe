//! Sorting short lists. Knows nothing of what is sorted.

use std::collections::BinaryHeap;

/// Sorts as `sort_unstable` does. In a browser by a heap, whose code is a tenth as long: a page has
/// to load it once for every type that is sorted.
pub(crate) fn sort<T: Ord>(items: &mut Vec<T>) {
    if cfg!(target_family = "wasm") {
        *items = BinaryHeap::from(std::mem::take(items)).into_sorted_vec();
    } else {
        items.sort_unstable();
    }
}
