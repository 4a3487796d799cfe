//! Gather: the root ends with every rank's tensor. Blocks may differ in size, and only the root
//! knows the sizes, so no rank can hold another's block on the way.
//!
//! At the root, the input and its own output block may be the same memory.

use super::builder::Builder;
use super::cost::Load;
use super::{Algorithm, Block, Build, Contract, Holds, Place, Schedule, figures, peers};

/// One input block everywhere, one output block for each rank at the root.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let blocks = if place.rank == place.root { place.size as usize } else { 0 };
        (vec![Holds::One((place.rank, 0))], vec![Holds::Anything; blocks])
    },
    after: |place| {
        let blocks = if place.rank == place.root { place.size } else { 0 };
        (0..blocks).map(|rank| Holds::One((rank, 0))).collect()
    },
    in_place: |place| (place.rank == place.root).then_some((0, place.root)),
    barrier: false,
};

/// The ways to carry out a gather.
pub const ALGORITHMS: &[Algorithm] = &[Algorithm {
    name: "linear",
    meant_for: "everything: everyone sends to the root",
    build: Build::Flat(linear),
    load: |on| Load::everywhere(on, figures::blocks(on.size(), on.size().min(2) - 1)),
}];

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
