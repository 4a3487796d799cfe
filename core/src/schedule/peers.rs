//! Arithmetic of ranks: which are neighbours, parents, children. Knows no steps and no collective.

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

/// The size of the subtree, in a binomial tree, of the rank that the root counts as `relative`: of
/// that rank, and of those after it up to the next one of the same height.
pub fn binomial_ranks(relative: Rank, size: u32) -> u32 {
    match relative {
        0 => size,
        _ => (1 << relative.trailing_zeros()).min(size - relative),
    }
}

/// The children, in a binomial tree, of the rank that the root counts as `relative`, nearest first:
/// the distance to each, and its [`binomial_ranks`].
pub fn binomial_children(relative: Rank, size: u32) -> impl DoubleEndedIterator<Item = (u32, u32)> {
    let ranks = binomial_ranks(relative, size);
    let distances = (0..doublings(ranks)).map(|bit| 1 << bit);
    distances.map(move |distance| (distance, binomial_ranks(relative + distance, size)))
}

/// The parent in a binomial tree of the rank that the root counts as `relative`, which is not 0.
pub fn binomial_parent(relative: Rank) -> Rank {
    relative & (relative - 1)
}

/// The role of a rank when the ranks beyond a power of two are folded away, as in MPICH: of the
/// first pairs of neighbours, the even rank hands its data to the odd one and waits for the result.
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

/// The exchanges by which what each of `size` ranks has reaches all, in the fewest rounds (Bruck):
/// a rank that has the pieces of itself and of the `distance - 1` ranks after it gets the first
/// `moved` pieces of the rank `distance` places on. Gives (distance, moved).
pub fn circulant(size: u32) -> Vec<(u32, u32)> {
    let mut steps = Vec::new();
    let mut distance = 1;
    while distance < size {
        steps.push((distance, distance.min(size - distance)));
        distance += distance.min(size - distance);
    }
    steps
}

/// A rank's neighbours in one of two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The rank above; none at the root.
    pub parent: Option<Rank>,
    /// The ranks below, in the order of what hangs from them.
    pub children: [Option<Rank>; 2],
}

/// A rank's neighbours in tree 0 or 1 of the double binary tree below the root: a rank that has
/// children in one has none in the other. Ranks are as the root counts them: the root is 0, and has
/// one child in each tree.
///
/// Tree 0 is in order, with odd numbers as leaves; tree 1 is its mirror image, or, if the others
/// are odd in number, the same tree one place further.
pub fn double_tree(tree: u32, relative: Rank, size: u32) -> Branch {
    let nodes = size - 1;
    let label = |node: u32| match (tree, nodes % 2) {
        (0, _) => node,
        (_, 0) => nodes + 1 - node,
        _ => node % nodes + 1,
    };
    if relative == 0 {
        let child = (nodes > 0).then(|| label(power_of_two_below(nodes)));
        return Branch { parent: None, children: [child, None] };
    }
    let node = match (tree, nodes % 2) {
        (0, _) => relative,
        (_, 0) => nodes + 1 - relative,
        _ => (relative + nodes - 2) % nodes + 1,
    };
    // The lowest bit is a node's height: its children are half of that away.
    let bit = node & node.wrapping_neg();
    let parent = if node == power_of_two_below(nodes) {
        0
    } else {
        let above = (node ^ bit) | (bit << 1);
        label(if above <= nodes { above } else { node ^ bit })
    };
    let left = (bit > 1).then(|| label(node - bit / 2));
    let mut half = bit / 2;
    while half > 0 && node + half > nodes {
        half /= 2;
    }
    let right = (half > 0).then(|| label(node + half));
    Branch { parent: Some(parent), children: [left, right] }
}

/// The edges from the root of a [`double_tree`] of `size` ranks to its deepest leaf.
pub fn double_tree_depth(size: u32) -> u32 {
    if size < 2 { 0 } else { 1 + power_of_two_below(size - 1).ilog2() }
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
    fn the_circulant_rounds_are_the_fewest_and_reach_all() {
        for size in 1..200 {
            let steps = circulant(size);
            assert_eq!(steps.len() as u32, doublings(size));
            assert_eq!(1 + steps.iter().map(|(_, moved)| moved).sum::<u32>(), size);
        }
    }

    #[test]
    fn inner_nodes_of_one_tree_are_leaves_of_the_other() {
        for size in 1..300 {
            let mut depth = 0;
            for tree in [0, 1] {
                let branch = |rank| double_tree(tree, rank, size);
                for rank in 0..size {
                    for child in branch(rank).children.into_iter().flatten() {
                        assert_eq!(branch(child).parent, Some(rank), "{size}: {child} of {rank}");
                    }
                    let mut above = std::iter::successors(Some(rank), |&rank| branch(rank).parent);
                    let root = above.by_ref().take(40).enumerate().last().unwrap_or_default();
                    assert_eq!(root.1, 0, "{size}: rank {rank} hangs in the air");
                    depth = depth.max(root.0 as u32);
                }
                let children = (0..size).flat_map(|rank| branch(rank).children).flatten().count();
                assert_eq!(children as u32, size - 1);
            }
            assert_eq!(depth, double_tree_depth(size));
            for rank in 1..size {
                let inner = |tree| double_tree(tree, rank, size).children != [None; 2];
                assert!(!(inner(0) && inner(1)), "{size}: rank {rank} works in both trees");
            }
        }
    }

    #[test]
    fn doublings_reach_the_size() {
        assert_eq!([1, 2, 3, 4, 5, 8, 9].map(doublings), [0, 1, 2, 2, 3, 3, 4]);
    }
}
