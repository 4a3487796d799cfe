//! Arithmetic of ranks: who stands next to whom. Knows no steps and no collective.

use super::{Place, Rank};

/// The rank `distance` places after `rank` on the ring of `size` ranks.
pub fn after(rank: Rank, distance: u32, size: u32) -> Rank {
    ((u64::from(rank) + u64::from(distance)) % u64::from(size)) as Rank
}

/// The rank `distance` places before `rank` on the ring of `size` ranks.
pub fn before(rank: Rank, distance: u32, size: u32) -> Rank {
    after(rank, size - distance % size, size)
}

/// The rank as the root counts: the root is 0, its successor 1.
pub fn relative(place: Place) -> Rank {
    before(place.rank, place.root, place.size)
}

/// The rank that the root counts as `relative`.
pub fn absolute(relative: Rank, place: Place) -> Rank {
    after(relative, place.root, place.size)
}

/// The largest power of two that is not larger than `size`, which is at least 1.
pub fn power_of_two_below(size: u32) -> u32 {
    1 << size.max(1).ilog2()
}

/// The smallest number of doublings that reach `size` from 1.
pub fn doublings(size: u32) -> u32 {
    size.max(1).next_power_of_two().ilog2()
}

/// Where a rank stands when the ranks beyond a power of two are folded away, as MPICH does: of the
/// first pairs of neighbours the even one hands its data to the odd one and waits for the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Waits, represented by `partner`.
    Out {
        /// The rank above.
        partner: Rank,
    },
    /// Takes part.
    In {
        /// Its number among those that take part, which keeps the order of the ranks.
        index: u32,
        /// The rank that it represents besides itself, the one below.
        partner: Option<Rank>,
    },
}

/// Folds `size` ranks to [`power_of_two_below`] that many.
pub fn fold(rank: Rank, size: u32) -> Fold {
    let surplus = size - power_of_two_below(size);
    if rank >= 2 * surplus {
        Fold::In { index: rank - surplus, partner: None }
    } else if rank.is_multiple_of(2) {
        Fold::Out { partner: rank + 1 }
    } else {
        Fold::In { index: rank / 2, partner: Some(rank - 1) }
    }
}

/// The rank that takes part as number `index` when `size` ranks are folded.
pub fn unfold(index: u32, size: u32) -> Rank {
    let surplus = size - power_of_two_below(size);
    if index < surplus { 2 * index + 1 } else { index + surplus }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_closes() {
        assert_eq!((after(3, 1, 4), before(0, 1, 4)), (0, 3));
        assert_eq!((after(0, 0, 1), before(0, 0, 1)), (0, 0));
        assert_eq!(after(u32::MAX - 1, 1, u32::MAX), 0);
        for size in 1..20 {
            for rank in 0..size {
                for root in 0..size {
                    let place = Place { rank, size, root };
                    assert_eq!(absolute(relative(place), place), rank);
                }
            }
        }
    }

    #[test]
    fn folding_keeps_the_order_and_loses_nobody() {
        for size in 1..200 {
            let members: Vec<u32> =
                (0..power_of_two_below(size)).map(|index| unfold(index, size)).collect();
            assert!(members.is_sorted());
            let mut seen = members.clone();
            for (index, &rank) in members.iter().enumerate() {
                let Fold::In { index: found, partner } = fold(rank, size) else {
                    panic!("rank {rank} of {size} is folded away");
                };
                assert_eq!(found as usize, index);
                if let Some(partner) = partner {
                    assert_eq!(fold(partner, size), Fold::Out { partner: rank });
                    seen.push(partner);
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..size).collect::<Vec<_>>());
        }
    }

    #[test]
    fn doublings_reach_the_size() {
        assert_eq!([1, 2, 3, 4, 5, 8, 9].map(doublings), [0, 1, 2, 2, 3, 3, 4]);
    }
}
