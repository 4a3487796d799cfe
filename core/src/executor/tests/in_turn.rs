//! Operations that begin when the one before them has ended, and made their input.

use super::schedules::{direct_allgather, ring_allreduce};
use super::world::{assert_ok, memory, values};
use super::{Call, SIZES, World, with_seeds};
use crate::tensor::Region;

/// Elements per rank: empty, eager, several segments.
const COUNTS: [usize; 4] = [0, 1, 1000, 70_000];

fn numbers(rank: u32, count: usize) -> Region {
    memory((0..count).map(|index| (rank as i32 + 1) * (index as i32 % 1000)))
}

#[test]
fn the_second_has_what_the_first_made_at_its_end() {
    with_seeds(|seed| {
        for (size, count) in SIZES.into_iter().flat_map(|s| COUNTS.map(|c| (s, c))) {
            let mut world = World::new(size, seed);
            let mut calls = Vec::new();
            let mut outputs = Vec::new();
            for rank in 0..size {
                let tensor = numbers(rank, count);
                let made = Region::zeroed(4 * count);
                let gathered: Vec<_> = (0..size).map(|_| Region::zeroed(4 * count)).collect();
                let ring = ring_allreduce(rank, size);
                let first = Call::new(&ring, Vec::new(), vec![tensor.clone()]);
                let input = made.clone();
                calls.push(world.issue_with(rank, first, |operation| {
                    operation.finish = Some(Box::new(move || {
                        made.write_from(&tensor, |made, sums| made.copy_from_slice(sums));
                    }));
                }));
                let schedule = direct_allgather(rank, size);
                let second = Call::new(&schedule, vec![input], gathered.clone());
                calls.push(world.issue_with(rank, second, |operation| {
                    operation.after = Some(operation.sequence - 1);
                }));
                // Nothing waits for the two behind them.
                let third = Call::new(&ring, Vec::new(), vec![numbers(rank, 10)]);
                calls.push(world.issue(rank, third));
                outputs.extend(gathered);
                // Some are ahead of others, whose messages then come too early.
                world.step(rank);
            }
            world.run(&calls);
            assert_ok(&calls);
            let ranks: i32 = (1..=size as i32).sum();
            let expected: Vec<i32> = (0..count).map(|it| ranks * (it as i32 % 1000)).collect();
            for output in outputs {
                assert_eq!(values(&output), expected, "{size} ranks, {count}");
            }
        }
    });
}
