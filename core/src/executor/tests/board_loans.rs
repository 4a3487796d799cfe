//! An allreduce whose tensor lies in lent memory that is taken back under way: what others read of
//! it is right whenever that is, and however late who took it back says so.

use std::sync::Arc;

use super::network::Random;
use super::world::{assert_ok, memory, values};
use super::{Call, World, with_seeds};
use crate::executor::SmallCollective;
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::schedule::cache::{Cache, Key};
use crate::schedule::{Place, Topology};
use crate::tensor::{Loan, Region};
use crate::wire::frame::Fingerprint;

/// More than is read in one turn.
const ELEMENTS: usize = 700_001;

/// A rank's half of them is more than it reduces before it returns to its caller.
const MANY_ELEMENTS: usize = 9_000_001;

fn value(rank: u32, index: usize) -> i32 {
    (rank as i32 + 1) * 1_000_000 + index as i32
}

fn allreduce((rank, size): (u32, u32), elements: usize) -> Call {
    let collective = Collective::Allreduce;
    let mut schedules = Cache::new(Arc::new(Topology::one_host(size)));
    let place = Place { rank, size, root: 0 };
    let schedule = schedules.get(Key { collective, algorithm: 0, place }).unwrap();
    let (dtype, reduce_op) = (DType::I32, ReduceOp::Sum);
    let fingerprint = Fingerprint {
        collective: collective as u8,
        dtype: dtype as u8,
        elements: elements as u64,
        ..Fingerprint::default()
    };
    let output = vec![memory((0..elements).map(|index| value(rank, index)))];
    let small = Some(SmallCollective { collective, dtype, reduce_op, root: 0, rank, size });
    Call { fingerprint, small, fits: false, ..Call::new(&schedule, Vec::new(), output) }
}

#[test]
fn a_result_is_read_where_it_lies_though_its_memory_has_just_moved() {
    with_seeds(|seed| {
        let mut random = Random::new(seed);
        for size in [2, 3] {
            let mut world = World::with_board_of_readers(size, seed, true);
            let calls: Vec<_> = (0..size).map(|rank| allreduce((rank, size), ELEMENTS)).collect();
            let outputs: Vec<Region> = calls.iter().map(|call| call.output[0].clone()).collect();
            let lent = memory((0..ELEMENTS).map(|index| value(0, index)));
            let loan = Loan::between(&outputs[0], &lent).unwrap();
            let completions: Vec<_> =
                (0..).zip(calls).map(|(rank, call)| world.issue(rank, call)).collect();
            for _ in 0..random.below(20) {
                world.step(random.below(size as usize) as u32);
            }
            drop(loan);
            // Others go on before who has taken the memory back comes to say so.
            for _ in 0..random.below(20) {
                world.step(random.below(size as usize) as u32);
            }
            world.executor(0).note_moved(1);
            lent.write(|bytes| bytes.fill(0xee));
            world.run(&completions);
            assert_ok(&completions);
            let expected: Vec<i32> =
                (0..ELEMENTS).map(|index| (0..size).map(|rank| value(rank, index)).sum()).collect();
            for (rank, output) in outputs.iter().enumerate() {
                assert!(values(output) == expected, "rank {rank} of {size}, seed {seed}");
            }
        }
    });
}

#[test]
fn a_result_is_read_where_it_lies_though_its_memory_moved_amid_the_reduction() {
    let size = 2;
    let mut world = World::with_board_of_readers(size, 0, true);
    let calls: Vec<_> = (0..size).map(|rank| allreduce((rank, size), MANY_ELEMENTS)).collect();
    let outputs: Vec<Region> = calls.iter().map(|call| call.output[0].clone()).collect();
    let lent = memory((0..MANY_ELEMENTS).map(|index| value(0, index)));
    let loan = Loan::between(&outputs[0], &lent).unwrap();
    let completions: Vec<_> =
        (0..).zip(calls).map(|(rank, call)| world.issue(rank, call)).collect();
    let sum = |index| value(0, index) + value(1, index);
    let at = |index: usize| {
        lent.read(|bytes| bytes[4 * index..].first_chunk().copied().map(i32::from_ne_bytes))
    };
    while at(0) != Some(sum(0)) {
        (0..size).for_each(|rank| world.step(rank));
    }
    let last = MANY_ELEMENTS / 2 - 100;
    assert_eq!(at(last), Some(value(0, last)), "rank 0 has reduced a part of its half");
    drop(loan);
    // Rank 1 reads what rank 0 has reduced before anybody says that the memory has moved.
    for _ in 0..8 {
        (0..size).for_each(|rank| world.step(rank));
    }
    world.executor(0).note_moved(1);
    lent.write(|bytes| bytes.fill(0xee));
    world.run(&completions);
    assert_ok(&completions);
    for output in &outputs {
        let wrong = (0..).zip(values(output)).find(|(index, value)| *value != sum(*index));
        assert_eq!(wrong, None);
    }
}
