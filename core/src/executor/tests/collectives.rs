//! Collectives: right results at every size, in every order, many at once.

use std::sync::Arc;

use super::schedules::{barrier, chain_broadcast, direct_allgather, flat_reduce, ring_allreduce};
use super::world::{assert_ok, memory, values};
use super::{Call, SIZES, World, with_seeds};
use crate::executor::{EAGER_BYTES, SEGMENT_BYTES, WINDOW_BYTES};
use crate::tensor::Region;
use crate::wire::frame::Kind;

/// Elements per rank: empty, fewer than ranks, eager, several segments.
const COUNTS: [usize; 6] = [0, 1, 3, 1000, 70_000, 500_003];

/// What rank `rank` contributes at `index`.
fn value(rank: u32, index: usize) -> i32 {
    (rank as i32 + 1) * (index as i32 % 1000 + 1)
}

fn contribution(rank: u32, count: usize) -> Region {
    memory((0..count).map(|index| value(rank, index)))
}

fn sums(size: u32, count: usize) -> Vec<i32> {
    (0..count).map(|index| (0..size).map(|rank| value(rank, index)).sum()).collect()
}

#[test]
fn a_ring_allreduce_is_right_at_every_size() {
    with_seeds(|seed| {
        for size in SIZES {
            for count in COUNTS {
                let mut world = World::new(size, seed);
                let tensors: Vec<_> = (0..size).map(|rank| contribution(rank, count)).collect();
                let calls: Vec<_> = (0..size)
                    .map(|rank| {
                        let output = vec![tensors[rank as usize].clone()];
                        let schedule = ring_allreduce(rank, size);
                        world.issue(rank, Call::new(&schedule, Vec::new(), output))
                    })
                    .collect();
                world.run(&calls);
                assert_ok(&calls);
                for tensor in tensors {
                    assert_eq!(values(&tensor), sums(size, count), "{size} ranks, {count}");
                }
            }
        }
    });
}

#[test]
fn messages_leave_unasked_as_far_as_the_transport_says() {
    with_seeds(|seed| {
        let (size, count) = (4, 70_000);
        // The ring's messages are a quarter of the tensor.
        for (eager_bytes, asks) in [(EAGER_BYTES, true), (count - 1, true), (count, false)] {
            let mut world = World::with_eager_bytes(size, seed, eager_bytes);
            let tensors: Vec<_> = (0..size).map(|rank| contribution(rank, count)).collect();
            let mut calls = Vec::new();
            for rank in 0..size {
                let output = vec![tensors[rank as usize].clone()];
                let call = Call::new(&ring_allreduce(rank, size), Vec::new(), output);
                calls.push(world.issue(rank, call));
                // Some are ahead of others, whose messages then come too early.
                world.step(rank);
            }
            world.run(&calls);
            assert_ok(&calls);
            for tensor in tensors {
                assert_eq!(values(&tensor), sums(size, count), "{eager_bytes} bytes unasked");
            }
            let network = world.network.lock().unwrap();
            assert_eq!(network.delivered.contains_key(&Kind::Ready), asks, "{eager_bytes}");
        }
    });
}

#[test]
fn a_chain_broadcast_is_right_from_every_root() {
    with_seeds(|seed| {
        for size in SIZES {
            for count in [0, 3, 300_000] {
                let root = seed as u32 % size;
                let mut world = World::new(size, seed);
                let tensors: Vec<_> = (0..size).map(|rank| contribution(rank, count)).collect();
                let calls: Vec<_> = (0..size)
                    .map(|rank| {
                        let output = vec![tensors[rank as usize].clone()];
                        let schedule = chain_broadcast(rank, size, root);
                        world.issue(rank, Call::new(&schedule, Vec::new(), output))
                    })
                    .collect();
                world.run(&calls);
                let expected: Vec<_> = (0..count).map(|index| value(root, index)).collect();
                assert!(tensors.iter().all(|tensor| values(tensor) == expected));
            }
        }
    });
}

#[test]
fn scratch_copies_and_local_reductions_work() {
    with_seeds(|seed| {
        for size in SIZES {
            for count in COUNTS {
                let mut world = World::new(size, seed);
                let output = Region::zeroed(count * 4);
                // The second call reuses the scratch memory of the first.
                for _ in 0..2 {
                    let calls: Vec<_> = (0..size)
                        .map(|rank| {
                            let outputs = if rank == 0 { vec![output.clone()] } else { vec![] };
                            let input = vec![contribution(rank, count)];
                            let schedule = flat_reduce(rank, size);
                            world.issue(
                                rank,
                                Call {
                                    fingerprint: Default::default(),
                                    ..Call::new(&schedule, input, outputs)
                                },
                            )
                        })
                        .collect();
                    world.run(&calls);
                    assert_ok(&calls);
                    assert_eq!(values(&output), sums(size, count), "{size} ranks, {count}");
                }
            }
        }
    });
}

#[test]
fn a_gather_in_place_copies_nothing_onto_itself() {
    with_seeds(|seed| {
        let size = 3;
        let mut world = World::new(size, seed);
        let mut calls = Vec::new();
        let mut results = Vec::new();
        for rank in 0..size {
            let whole = Region::zeroed(3 * 40_000);
            let blocks: Vec<_> =
                (0..3).map(|block| whole.slice(block * 40_000..(block + 1) * 40_000)).collect();
            let own = blocks[rank as usize].clone();
            own.write(|into| contribution(rank, 10_000).read(|from| into.copy_from_slice(from)));
            let call = Call::new(&direct_allgather(rank, size), vec![own], blocks.clone());
            calls.push(world.issue(rank, call));
            results.push(blocks);
        }
        world.run(&calls);
        assert_ok(&calls);
        for blocks in results {
            for (rank, block) in blocks.iter().enumerate() {
                let expected: Vec<_> = (0..10_000).map(|i| value(rank as u32, i)).collect();
                assert_eq!(values(block), expected);
            }
        }
    });
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_came() {
    with_seeds(|seed| {
        for size in [2, 3, 5, 8] {
            let mut world = World::new(size, seed);
            let call = |rank| Call::new(&barrier(rank, size), vec![], vec![Region::zeroed(0)]);
            let mut calls: Vec<_> = (1..size).map(|rank| world.issue(rank, call(rank))).collect();
            world.settle();
            assert!(calls.iter().all(|call| !call.is_done()));
            calls.push(world.issue(0, call(0)));
            world.run(&calls);
            assert_ok(&calls);
        }
    });
}

#[test]
fn two_hundred_operations_are_in_flight_at_once() {
    with_seeds(|seed| {
        let size = 3;
        let mut world = World::new(size, seed);
        let schedules: Vec<_> = (0..size).map(|rank| ring_allreduce(rank, size)).collect();
        let counts: Vec<usize> = (0..200).map(|k| COUNTS[k % 5] / 2).collect();
        let mut calls = Vec::new();
        let mut tensors = Vec::new();
        for rank in 0..size {
            for &count in &counts {
                let tensor = contribution(rank, count);
                let schedule = &schedules[rank as usize];
                calls.push(world.issue(rank, Call::new(schedule, vec![], vec![tensor.clone()])));
                tensors.push((tensor, count));
                // Some ranks are far ahead of others.
                if world.random.below(4) == 0 {
                    world.step(rank);
                }
            }
        }
        // Waited for in any order.
        while !calls.is_empty() {
            let next = world.random.below(calls.len());
            let call: Arc<_> = calls.swap_remove(next);
            world.run(std::slice::from_ref(&call));
            assert_ok(&[call]);
        }
        for (tensor, count) in tensors {
            assert_eq!(values(&tensor), sums(size, count));
        }
    });
}

#[test]
fn a_rank_that_is_ahead_is_held_back_by_its_window() {
    with_seeds(|seed| {
        let size = 2;
        let mut world = World::new(size, seed);
        let count = 5000;
        let many = 300;
        let schedules: Vec<_> = (0..size).map(|rank| chain_broadcast(rank, size, 0)).collect();
        let mut calls = Vec::new();
        for _ in 0..many {
            let tensor = contribution(0, count);
            calls.push(world.issue(0, Call::new(&schedules[0], vec![], vec![tensor])));
        }
        world.settle();
        let sent = calls.iter().filter(|call| call.is_done()).count();
        assert!(sent < WINDOW_BYTES / (count * 4) + 1, "{sent} were sent ahead");
        assert!(sent > 10);
        let mut results = Vec::new();
        for _ in 0..many {
            let tensor = Region::zeroed(count * 4);
            calls.push(world.issue(1, Call::new(&schedules[1], vec![], vec![tensor.clone()])));
            results.push(tensor);
            world.step(1);
        }
        world.run(&calls);
        assert_ok(&calls);
        let expected: Vec<_> = (0..count).map(|index| value(0, index)).collect();
        assert!(results.iter().all(|tensor| values(tensor) == expected));
        assert!(world.network.lock().unwrap().delivered[&Kind::Held] > 0);
    });
}

#[test]
fn large_messages_wait_at_the_sender() {
    let mut world = World::new(2, 1);
    let count = 3_000_000;
    let tensor = contribution(0, count);
    let sender = world.issue(0, Call::new(&chain_broadcast(0, 2, 0), vec![], vec![tensor]));
    world.settle();
    assert!(!sender.is_done());
    assert!(!world.network.lock().unwrap().delivered.contains_key(&Kind::Data));
    let result = Region::zeroed(count * 4);
    let call = Call::new(&chain_broadcast(1, 2, 0), vec![], vec![result.clone()]);
    let receiver = world.issue(1, call);
    world.run(&[sender, receiver]);
    assert_eq!(values(&result), (0..count).map(|index| value(0, index)).collect::<Vec<_>>());
    let network = world.network.lock().unwrap();
    assert!(network.delivered[&Kind::Data] >= count * 4 / SEGMENT_BYTES);
}

#[test]
fn memory_is_released_before_the_completion_is_told() {
    with_seeds(|seed| {
        let size = 3;
        let mut world = World::new(size, seed);
        let mut calls = Vec::new();
        for rank in 0..size {
            let tensor = contribution(rank, 70_000);
            let schedule = ring_allreduce(rank, size);
            let call = world.issue(rank, Call::new(&schedule, vec![], vec![tensor.clone()]));
            call.on_done(move |_| assert!(tensor.is_unique()));
            calls.push(call);
        }
        world.run(&calls);
    });
}
