//! Every algorithm of every collective, on the imagined network, against the collective's contract.

use std::sync::Arc;

use super::world::{assert_ok, memory, values};
use super::{Call, SIZES, World, with_seeds};
use crate::generated::collective::Collective;
use crate::schedule::{BlockContent, Origin, Place, Topology};
use crate::tensor::Region;
use crate::transport::sim::Options;

/// A collective, and whether all its blocks have one size.
#[derive(Clone, Copy)]
struct Case {
    collective: Collective,
    equal_blocks: bool,
}

/// Elements of the data that `origin` came with: uneven where the case allows it.
fn elements(case: Case, (rank, block): Origin, count: usize) -> usize {
    let more = match case.collective {
        _ if case.equal_blocks => 0,
        Collective::Allgather | Collective::Gather => rank,
        Collective::ReduceScatter | Collective::Scatter => block,
        Collective::Alltoall => 3 * rank + block,
        _ => 0,
    };
    count + more as usize
}

fn data(case: Case, origin: Origin, count: usize) -> Vec<i32> {
    let seed = origin.0 as i32 * 7 + origin.1 as i32 * 3 + 1;
    let elements = elements(case, origin, count);
    (0..elements as i32).map(|index| seed * (index % 1000 + 1)).collect()
}

/// What a block holds; `None` where nothing is promised.
fn expected(case: Case, holds: &BlockContent, count: usize) -> Option<Vec<i32>> {
    match holds {
        BlockContent::Anything => None,
        BlockContent::One(origin) => Some(data(case, *origin, count)),
        BlockContent::Reduction(origins) | BlockContent::InOrder(origins) => {
            let mut parts = origins.iter().map(|origin| data(case, *origin, count));
            let mut sum = parts.next()?;
            for part in parts {
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
            Some(sum)
        }
    }
}

/// Memory for the blocks of a buffer, with what the contract says is in them, and the lengths of
/// what will be in them.
fn blocks(
    case: Case,
    before: &[BlockContent],
    after: Option<&[BlockContent]>,
    count: usize,
) -> Vec<Region> {
    let block = |(index, holds): (usize, &BlockContent)| match expected(case, holds, count) {
        Some(values) => memory(values),
        None => {
            let after = after.and_then(|after| expected(case, &after[index], count));
            memory(after.unwrap_or_else(|| vec![0; count]).iter().map(|_| -1))
        }
    };
    before.iter().enumerate().map(block).collect()
}

fn run(world: &mut World, collective: Collective, algorithm: usize, count: usize, seed: u64) {
    let size = world.size();
    // Two ranks on each host.
    let on = Topology::by_host((0..size).map(|rank| rank / 2));
    let way = &collective.algorithms()[algorithm];
    let case = Case { collective, equal_blocks: way.needs_equal_blocks() };
    let root = if collective.facts().rooted { seed as u32 % size } else { 0 };
    let mut calls = Vec::new();
    let mut results = Vec::new();
    for rank in 0..size {
        let place = Place { rank, size, root };
        let contract = collective.contract();
        let (input, output) = (contract.before)(place);
        let after = (contract.after)(place);
        let input = blocks(case, &input, None, count);
        let output = blocks(case, &output, Some(&after), count);
        let schedule = Arc::new(way.schedule(place, &on));
        let mut call = Call::new(&schedule, input, output.clone());
        call.fingerprint = Default::default();
        calls.push(world.issue(rank, call));
        results.push((after, output));
    }
    world.run(&calls);
    assert_ok(&calls);
    for (rank, (after, output)) in results.iter().enumerate() {
        for (holds, block) in after.iter().zip(output) {
            if let Some(expected) = expected(case, holds, count) {
                assert!(values(block) == expected, "rank {rank}");
            }
        }
    }
}

#[test]
fn every_algorithm_keeps_its_contract_when_executed() {
    with_seeds(|seed| {
        for collective in Collective::ALL {
            for algorithm in 0..collective.algorithms().len() {
                for size in SIZES {
                    for count in [0, 1, 3, 1000, 70_001] {
                        // The large size once for each; small ones find order, not volume.
                        if count < 70_000 || seed == u64::from(size) % 6 {
                            let mut world = World::new(size, seed);
                            run(&mut world, collective, algorithm, count, seed);
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn every_algorithm_keeps_its_contract_on_the_simulated_network() {
    with_seeds(|seed| {
        for collective in Collective::ALL {
            for algorithm in 0..collective.algorithms().len() {
                for size in SIZES {
                    let mut world = World::simulated(size, &Options { seed, ..Options::default() });
                    // One after the other in the same group: the sizes mix large and small.
                    for count in [3, 20_000, 0, 1] {
                        run(&mut world, collective, algorithm, count, seed);
                    }
                }
            }
        }
    });
}
