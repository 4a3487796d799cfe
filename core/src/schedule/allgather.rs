//! Allgather: every rank ends with every rank's tensor. Blocks may differ in size.
//!
//! The input and the rank's own output block may be the same memory: nothing but the copy of one
//! to the other writes there, and what is sent to others is the input.

use super::builder::Builder;
use super::cost::Traffic;
use super::{Algorithm, Block, Chunk, Contract, Holds, Place, Schedule, peers};

/// One input block, and one output block for each rank.
pub const CONTRACT: Contract = Contract {
    before: |place| (vec![Holds::One((place.rank, 0))], vec![Holds::Anything; place.size as usize]),
    after: |place| (0..place.size).map(|rank| Holds::One((rank, 0))).collect(),
    in_place: |place| Some((0, place.rank)),
    barrier: false,
};

/// The ways to carry out an allgather.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "direct",
        meant_for: "few ranks: one round, everything to everyone",
        build: direct,
        traffic: |size| blocks(size, size.min(2) - 1),
    },
    Algorithm {
        name: "bruck",
        meant_for: "many ranks, small tensors: the fewest rounds and few peers",
        build: bruck,
        traffic: |size| blocks(size, size.ilog2()),
    },
    Algorithm {
        name: "ring",
        meant_for: "large tensors: only between neighbours",
        build: ring,
        traffic: |size| blocks(size, size - 1),
    },
];

/// What it costs to send n-1 blocks in `rounds` rounds.
fn blocks(size: u32, rounds: u32) -> Traffic {
    let share = 1.0 / f64::from(size);
    Traffic {
        rounds,
        messages: size - 1,
        bytes: f64::from(size - 1) * share,
        message: if size > 1 { share } else { 0.0 },
        local: share,
    }
}

/// Copies the rank's own block, and tells from where to send a block: its own needs no copy first.
fn start(builder: &mut Builder, rank: u32) -> impl Fn(u32) -> Chunk + use<> {
    builder.copy(Block::input(0).whole(), Block::output(rank).whole());
    move |block| {
        if block == rank { Block::input(0).whole() } else { Block::output(block).whole() }
    }
}

/// Everyone sends its block to everyone.
///
/// Rounds: 1. Bytes sent by each rank: (n-1) times its block.
///
/// ```text
///   0 ──▶ 1 2 3      1 ──▶ 2 3 0      2 ──▶ 3 0 1      3 ──▶ 0 1 2
/// ```
fn direct(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let have = start(&mut builder, rank);
    for distance in 1..size {
        let from = peers::before(rank, distance, size);
        builder.send(peers::after(rank, distance, size), have(rank));
        builder.recv(from, Block::output(from).whole());
    }
    builder.build()
}

/// In round k each rank gets as many blocks as it has from the rank 2^k places on.
///
/// Rounds: ⌊log2 n⌋, and a last one that waits for none of them unless n is a power of two. Bytes
/// sent by each rank: all blocks but one; a message for each block, since
/// blocks need not be neighbours in memory. Blocks arrive where they belong: no final rotation.
/// Bruck and others: Efficient Algorithms for All-to-All Communications (1997).
///
/// ```text
///   blocks that a rank has     round 1: from r+1     round 2: from r+2
///   0: 0 . . .                 0 1 . .               0 1 2 3
///   1: . 1 . .                 . 1 2 .               0 1 2 3
///   2: . . 2 .                 . . 2 3               0 1 2 3
///   3: . . . 3                 0 . . 3               0 1 2 3
/// ```
fn bruck(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let have = start(&mut builder, rank);
    let mut blocks = 1;
    while blocks < size {
        let moved = blocks.min(size - blocks);
        for index in 0..moved {
            let block = peers::after(rank, index, size);
            builder.send(peers::before(rank, blocks, size), have(block));
        }
        for index in 0..moved {
            let block = peers::after(rank, blocks + index, size);
            builder.recv(peers::after(rank, blocks, size), Block::output(block).whole());
        }
        blocks += moved;
    }
    builder.build()
}

/// Blocks travel round the ring.
///
/// Rounds: n-1. Bytes sent by each rank: all blocks but one.
///
/// ```text
///   block that rank r sends to r+1 (mod 4)
///   round      1   2   3
///   rank 0     0   3   2
///   rank 1     1   0   3
///   rank 2     2   1   0
///   rank 3     3   2   1
/// ```
fn ring(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let have = start(&mut builder, rank);
    let next = peers::after(rank, 1, size);
    let previous = peers::before(rank, 1, size);
    for round in 0..size - 1 {
        builder.send(next, have(peers::before(rank, round, size)));
        let block = peers::before(rank, round + 1, size);
        builder.recv(previous, Block::output(block).whole());
    }
    builder.build()
}
