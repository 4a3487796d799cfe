//! Which state holds, and who sends which part of it to whom: the same on all ranks, from the same
//! digests. Knows no messages.

use std::cmp::Reverse;
use std::ops::Range;

use crate::sorted::SortedMap;

/// Of one tensor's bytes: BLAKE3.
pub(super) type Digest = [u8; 32];

/// Parts of less than this are not worth a message of their own, bytes.
const MIN_PART: usize = 256 << 10;

/// What one rank has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) revision: i64,
    /// Of each tensor.
    pub(super) digests: Vec<Digest>,
}

/// A part of a tensor that goes from one rank to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) tensor: usize,
    pub(super) bytes: Range<usize>,
}

/// What is to be done, by the digests of all ranks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The ranks that have the state which holds.
    pub(super) holders: Vec<u32>,
    /// Tensor by tensor; of each tensor, a rank sends one at most to another.
    pub(super) parts: Vec<Part>,
}

impl Plan {
    /// `states` are the revision and the digests of each rank's tensors, which have these `sizes`
    /// in bytes.
    pub(super) fn new(states: &[State], sizes: &[usize]) -> Plan {
        let holders = holders(states);
        let right = holders.first().map_or(&[][..], |first| &states[*first as usize].digests);
        let mut plan = Plan { holders, parts: Vec::new() };
        // Each holder has its turn, so that small tensors do not all come from one.
        let mut turns = vec![0; states.len()];
        for (tensor, ours) in right.iter().enumerate() {
            let differing = states.iter().zip(&mut turns).enumerate();
            let differing = differing.filter(|(_, (state, _))| state.digests[tensor] != *ours);
            for (to, (_, turn)) in differing {
                for bytes in parts(sizes[tensor], plan.holders.len()) {
                    let from = plan.holders[(to + *turn) % plan.holders.len()];
                    *turn += 1;
                    plan.parts.push(Part { from, to: to as u32, tensor, bytes });
                }
            }
        }
        plan
    }
}

/// The ranks with the most frequent state of the highest revision; of several, with that of the
/// lowest rank.
fn holders(states: &[State]) -> Vec<u32> {
    let newest = states.iter().map(|state| state.revision).max();
    // A digest of the digests is compared in their place: there may be many ranks.
    let mut ranks_of: SortedMap<Digest, Vec<u32>> = SortedMap::default();
    for (rank, state) in (0..).zip(states).filter(|(_, it)| Some(it.revision) == newest) {
        let state = blake3::hash(state.digests.as_flattened()).into();
        match ranks_of.get_mut(&state) {
            Some(ranks) => ranks.push(rank),
            None => drop(ranks_of.insert(state, vec![rank])),
        }
    }
    let all = ranks_of.iter().map(|(_, ranks)| ranks);
    let found = all.min_by_key(|ranks| (Reverse(ranks.len()), ranks.first().copied()));
    found.cloned().unwrap_or_default()
}

/// Cuts so many bytes into parts of about one size, for so many senders.
fn parts(bytes: usize, senders: usize) -> impl Iterator<Item = Range<usize>> {
    let count = (bytes / MIN_PART).clamp(1, senders.max(1));
    // Without overflow, and the parts differ by at most one byte.
    let (size, larger) = (bytes / count, bytes % count);
    let start = move |index: usize| index * size + index.min(larger);
    (0..count).map(move |index| start(index)..start(index + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(revision: i64, numbers: &[u8]) -> State {
        State { revision, digests: numbers.iter().map(|number| [*number; 32]).collect() }
    }

    #[test]
    fn the_most_frequent_state_holds_and_of_several_that_of_the_lowest_rank() {
        let holders = |states: &[&[u8]]| {
            holders(&states.iter().map(|numbers| state(0, numbers)).collect::<Vec<_>>())
        };
        assert_eq!(holders(&[&[1]]), [0]);
        assert_eq!(holders(&[&[1], &[2]]), [0]);
        assert_eq!(holders(&[&[1], &[2], &[2]]), [1, 2]);
        assert_eq!(holders(&[&[3], &[2], &[1], &[1], &[2]]), [1, 4]);
        // A state is all tensors together: each of the two is more frequent alone.
        assert_eq!(holders(&[&[1, 1], &[1, 2], &[2, 2], &[1, 2]]), [1, 3]);
        assert_eq!(holders(&[&[], &[], &[]]), [0, 1, 2]);
    }

    #[test]
    fn only_the_highest_revision_counts() {
        let states = [state(-1, &[1]), state(4, &[2]), state(-1, &[1]), state(4, &[3])];
        assert_eq!(holders(&states), [1]);
        // One of an older revision is not asked, though it has the same tensors.
        let states = [state(3, &[2]), state(4, &[2])];
        assert_eq!(holders(&states), [1]);
        assert_eq!(Plan::new(&states, &[7]).parts, []);
    }

    #[test]
    fn only_what_differs_travels_and_every_byte_of_it_once() {
        let sizes = [10 * MIN_PART + 1, 5, 0];
        let all: [&[u8]; 4] = [&[9, 1, 2], &[1, 1, 2], &[1, 1, 2], &[1, 7, 8]];
        let plan = Plan::new(&all.map(|numbers| state(0, numbers)), &sizes);
        assert_eq!(plan.holders, [1, 2]);
        assert!(plan.parts.is_sorted_by_key(|it| it.tensor));
        for (to, tensor) in [(0, 0), (3, 1), (3, 2)] {
            let parts = plan.parts.iter().filter(|it| it.to == to && it.tensor == tensor);
            let mut end = 0;
            for part in parts {
                assert_eq!(part.bytes.start, end);
                assert!(plan.holders.contains(&part.from));
                end = part.bytes.end;
            }
            assert_eq!(end, sizes[tensor], "rank {to}, tensor {tensor}");
        }
        assert_eq!(plan.parts.len(), 4, "the large one comes from both holders");
        let (first, second) = (&plan.parts[0], &plan.parts[1]);
        assert_ne!(first.from, second.from);
        assert!(first.bytes.len().abs_diff(second.bytes.len()) <= 1);
    }

    #[test]
    fn of_each_tensor_a_rank_sends_one_part_at_most_to_another() {
        let sizes = [7 * MIN_PART, 1, 3 * MIN_PART];
        let mut all = vec![state(1, &[1, 1, 1]); 4];
        all.extend(vec![state(0, &[2, 2, 2]); 4]);
        let plan = Plan::new(&all, &sizes);
        assert!(plan.parts.is_sorted_by_key(|it| it.tensor));
        let mut pairs: Vec<_> = plan.parts.iter().map(|it| (it.tensor, it.from, it.to)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), plan.parts.len());
        assert_eq!(plan.parts.len(), 4 * (4 + 1 + 3));
        // All holders have work.
        let of = |from| plan.parts.iter().filter(|it| it.from == from).count();
        assert!((0..4).all(|from| of(from) == 8), "{:?}", [0, 1, 2, 3].map(of));
    }
}
