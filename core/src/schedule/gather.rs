//! Gather: the root ends with every rank's tensor. Blocks may differ in size, and only the root
//! knows the sizes, so no rank can hold another's block on the way, unless somebody says that all
//! have one size.
//!
//! At the root, the input and its own output block may be the same memory.

use super::builder::Builder;
use super::cost::{Average, Load, Traffic};
use super::{Algorithm, Block, BlockContent, Build, Contract, Place, Schedule, figures, peers};

/// One input block everywhere, one output block for each rank at the root.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let blocks = if place.rank == place.root { place.size as usize } else { 0 };
        (vec![BlockContent::One((place.rank, 0))], vec![BlockContent::Anything; blocks])
    },
    after: |place| {
        let blocks = if place.rank == place.root { place.size } else { 0 };
        (0..blocks).map(|rank| BlockContent::One((rank, 0))).collect()
    },
    in_place: |place| (place.rank == place.root).then_some((0, place.root)),
    barrier: false,
};

/// The ways to run a gather.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        meant_for: "everything: everyone sends to the root",
        build: Build::Flat(linear),
        load: |on| {
            let blocks = figures::blocks(on.size(), on.size().min(2) - 1);
            let average = Average::of_trees(1, on.size(), on.size() - 1);
            Load::everywhere(on, Traffic { average, ..blocks })
        },
    },
    Algorithm {
        name: "binomial",
        meant_for: "many ranks, small blocks of one size: few messages at the root",
        build: Build::Equal(binomial),
        load: |on| Load::everywhere(on, figures::binomial_blocks(on.size())),
    },
];

/// Everyone sends its block to the root, all at once.
///
/// Rounds: 1. Bytes sent by each rank but the root: its block.
///
/// ```text
///   1 ──▶ 0 (root)      2 ──▶ 0      3 ──▶ 0
/// ```
fn linear(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let own = Block::input(0).whole();
    if place.rank != place.root {
        builder.send(place.root, own);
        return builder.build();
    }
    for relative in 1..place.size {
        let from = peers::absolute(relative, place);
        builder.recv(from, Block::output(from).whole());
    }
    builder.copy(own, Block::output(place.root).whole());
    builder.build()
}

/// A tree in which the rank that the root counts as v sends to v without its lowest bit, together
/// with its own block those of the ranks below it.
///
/// Rounds: ⌊log2 n⌋. Bytes received by the root: all blocks but its own, in ⌈log2 n⌉ messages.
///
/// ```text
///   round 1    1: x1 ──▶ 0        3: x3 ──▶ 2
///   round 2    2: x2 x3 ──▶ 0 (root)
/// ```
fn binomial(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let (own, input) = (peers::relative(place), Block::input(0));
    let ranks = peers::binomial_ranks(own, place.size);
    let at = |relative| peers::absolute(relative, place);
    let mut gathered = input.whole();
    if place.rank == place.root {
        builder.copy(gathered, Block::output(place.root).whole());
        for (distance, blocks) in peers::binomial_children(own, place.size) {
            if blocks == 1 {
                builder.recv(at(distance), Block::output(at(distance)).whole());
                continue;
            }
            let arrived = builder.scratch_for(input, blocks);
            builder.recv(at(distance), arrived.span(0, blocks, blocks));
            for block in 0..blocks {
                let output = Block::output(at(distance + block));
                builder.copy(arrived.part(block, blocks), output.whole());
            }
        }
        return builder.build();
    }
    if ranks > 1 {
        let all = builder.scratch_for(input, ranks);
        builder.copy(gathered, all.part(0, ranks));
        for (distance, blocks) in peers::binomial_children(own, place.size) {
            builder.recv(at(own + distance), all.span(distance, blocks, ranks));
        }
        gathered = all.span(0, ranks, ranks);
    }
    builder.send(at(peers::binomial_parent(own)), gathered);
    builder.build()
}
