//! Reduce-scatter: each rank ends with its block of the reduction. Blocks may differ in size, and
//! every rank knows all sizes.
//!
//! The rank's own input block and the output may be the same memory: nobody else needs that block.

use super::builder::Builder;
use super::contract::everyone;
use super::cost::Traffic;
use super::{Algorithm, Block, Contract, Holds, Operands, Place, Schedule, peers};

/// One input block for each rank, and one output block.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let input = (0..place.size).map(|block| Holds::One((place.rank, block))).collect();
        (input, vec![Holds::Anything])
    },
    after: |place| vec![everyone(place.rank, place.size)],
    in_place: |place| Some((place.rank, 0)),
    barrier: false,
};

/// The ways to carry out a reduce-scatter.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "direct",
        meant_for: "few ranks: the least bytes in one round, and no scratch memory",
        build: direct,
        traffic: |size| blocks(size, size.min(2) - 1),
    },
    Algorithm {
        name: "ring",
        meant_for: "many ranks, large tensors: only between neighbours",
        build: ring,
        traffic: |size| blocks(size, size - 1),
    },
];

/// What it costs to send and reduce n-1 blocks in `rounds` rounds.
fn blocks(size: u32, rounds: u32) -> Traffic {
    let share = 1.0 / f64::from(size);
    Traffic {
        rounds,
        messages: size - 1,
        bytes: f64::from(size - 1) * share,
        message: if size > 1 { share } else { 0.0 },
        local: f64::from((size - 1).max(1)) * share,
    }
}

/// Everyone sends to each rank that rank's block; each adds what it gets.
///
/// Rounds: 1. Bytes sent by each rank: all blocks but one, the least possible.
///
/// ```text
///   0: block 1 ─▶ 1, block 2 ─▶ 2, 3 ─▶ 3        0: ((x0 + x3) + x2) + x1
///   1: block 2 ─▶ 2, block 3 ─▶ 3, 0 ─▶ 0        1: ((x1 + x0) + x3) + x2
///   2: block 3 ─▶ 3, block 0 ─▶ 0, 1 ─▶ 1        2: ((x2 + x1) + x0) + x3
///   3: block 0 ─▶ 0, block 1 ─▶ 1, 2 ─▶ 2        3: ((x3 + x2) + x1) + x0
/// ```
fn direct(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let mut sum = Block::input(rank);
    for distance in 1..size {
        let to = peers::after(rank, distance, size);
        let from = peers::before(rank, distance, size);
        builder.send(to, Block::input(to).whole());
        let into = Block::output(0);
        builder.recv_reduce(from, sum.whole(), into.whole(), Operands::LocalFirst);
        sum = into;
    }
    finish(builder, place)
}

/// Block b starts at rank b+1 and is summed on its way round the ring, until rank b has it.
///
/// Rounds: n-1. Bytes sent by each rank: all blocks but one, the least possible. Scratch memory:
/// n-2 blocks, one for each that only passes. Patarasuk, Yuan: Bandwidth optimal all-reduce
/// algorithms for clusters of workstations (2009).
///
/// ```text
///   block that rank r sends to r+1 (mod 4)
///   round      1   2   3      then
///   rank 0     3   2   1      has 0
///   rank 1     0   3   2      has 1
///   rank 2     1   0   3      has 2
///   rank 3     2   1   0      has 3
/// ```
fn ring(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let next = peers::after(rank, 1, size);
    let previous = peers::before(rank, 1, size);
    let mut sum = Block::input(previous);
    for round in 0..size - 1 {
        builder.send(next, sum.whole());
        let block = Block::input(peers::before(rank, round + 2, size));
        let into = if block.index == rank { Block::output(0) } else { builder.scratch(block) };
        builder.recv_reduce(previous, block.whole(), into.whole(), Operands::IncomingFirst);
        sum = into;
    }
    finish(builder, place)
}

/// A rank that is alone has nothing to receive and copies.
fn finish(mut builder: Builder, place: Place) -> Schedule {
    if place.size == 1 {
        builder.copy(Block::input(0).whole(), Block::output(0).whole());
    }
    builder.build()
}
