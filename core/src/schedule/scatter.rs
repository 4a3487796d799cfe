//! Scatter: each rank ends with its block of the root's. Blocks may differ in size, and only the
//! root knows the sizes, so no rank can hold another's block on the way, unless somebody says that
//! all have one size.
//!
//! At the root, its own input block and the output may be the same memory.

use super::builder::Builder;
use super::cost::{Average, Load, Traffic};
use super::{Algorithm, Block, BlockContent, Build, Contract, Place, Schedule, figures, peers};

/// One input block for each rank at the root, one output block everywhere.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let blocks = if place.rank == place.root { place.size } else { 0 };
        let input = (0..blocks).map(|block| BlockContent::One((place.root, block))).collect();
        (input, vec![BlockContent::Anything])
    },
    after: |place| vec![BlockContent::One((place.root, place.rank))],
    in_place: |place| (place.rank == place.root).then_some((place.root, 0)),
    barrier: false,
};

/// The ways to run a scatter.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        meant_for: "everything: the root sends to everyone",
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

/// The root sends each rank its block, all at once.
///
/// Rounds: 1. Bytes sent by the root: all blocks but its own.
///
/// ```text
///   0 (root) ──▶ 1      0 ──▶ 2      0 ──▶ 3
/// ```
fn linear(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let own = Block::output(0).whole();
    if place.rank != place.root {
        builder.recv(place.root, own);
        return builder.build();
    }
    for relative in 1..place.size {
        let to = peers::absolute(relative, place);
        builder.send(to, Block::input(to).whole());
    }
    builder.copy(Block::input(place.root).whole(), own);
    builder.build()
}

/// A tree in which the rank that the root counts as v receives from v without its lowest bit,
/// together with its own block those of the ranks below it.
///
/// Rounds: ⌊log2 n⌋. Bytes sent by the root: all blocks but its own, in ⌈log2 n⌉ messages.
///
/// ```text
///   round 1    0 (root) ──▶ 2: x2 x3
///   round 2    0 ──▶ 1: x1        2 ──▶ 3: x3
/// ```
fn binomial(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let (own, output) = (peers::relative(place), Block::output(0));
    let ranks = peers::binomial_ranks(own, place.size);
    let at = |relative| peers::absolute(relative, place);
    // The farthest first: they hand on the most.
    let children = peers::binomial_children(own, place.size).rev();
    if place.rank == place.root {
        for (distance, blocks) in children {
            if blocks == 1 {
                builder.send(at(distance), Block::input(at(distance)).whole());
                continue;
            }
            let packed = builder.scratch_for(output, blocks);
            for block in 0..blocks {
                let input = Block::input(at(distance + block));
                builder.copy(input.whole(), packed.part(block, blocks));
            }
            builder.send(at(distance), packed.span(0, blocks, blocks));
        }
        builder.copy(Block::input(place.root).whole(), output.whole());
        return builder.build();
    }
    let parent = at(peers::binomial_parent(own));
    if ranks == 1 {
        builder.recv(parent, output.whole());
        return builder.build();
    }
    let all = builder.scratch_for(output, ranks);
    builder.recv(parent, all.span(0, ranks, ranks));
    for (distance, blocks) in children {
        builder.send(at(own + distance), all.span(distance, blocks, ranks));
    }
    builder.copy(all.part(0, ranks), output.whole());
    builder.build()
}
