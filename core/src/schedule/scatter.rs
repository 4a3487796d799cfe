//! Scatter: each rank ends with its block of the root's. Blocks may differ in size, and only the
//! root knows the sizes, so no rank can hold another's block on the way.
//!
//! At the root, its own input block and the output may be the same memory.

use super::builder::Builder;
use super::cost::Load;
use super::{Algorithm, Block, Build, Contract, Holds, Place, Schedule, figures, peers};

/// One input block for each rank at the root, one output block everywhere.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let blocks = if place.rank == place.root { place.size } else { 0 };
        let input = (0..blocks).map(|block| Holds::One((place.root, block))).collect();
        (input, vec![Holds::Anything])
    },
    after: |place| vec![Holds::One((place.root, place.rank))],
    in_place: |place| (place.rank == place.root).then_some((place.root, 0)),
    barrier: false,
};

/// The ways to carry out a scatter.
pub const ALGORITHMS: &[Algorithm] = &[Algorithm {
    name: "linear",
    meant_for: "everything: the root sends to everyone",
    build: Build::Flat(linear),
    load: |on| Load::everywhere(on, figures::blocks(on.size(), on.size().min(2) - 1)),
}];

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
