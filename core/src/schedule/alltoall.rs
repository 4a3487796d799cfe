//! Alltoall: each rank sends a block to, and gets a block from, every rank. Each pair has its own
//! size, so no rank can hold a block of others on the way.

use super::builder::Builder;
use super::cost::Traffic;
use super::{Algorithm, Block, Contract, Holds, Place, Schedule, peers};

/// One input block for each receiver, and one output block for each sender.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let input = (0..place.size).map(|block| Holds::One((place.rank, block))).collect();
        (input, vec![Holds::Anything; place.size as usize])
    },
    after: |place| (0..place.size).map(|sender| Holds::One((sender, place.rank))).collect(),
    in_place: |_| None,
    barrier: false,
};

/// The ways to carry out an alltoall.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "direct",
        meant_for: "few ranks: all messages at once",
        build: direct,
        traffic: |size| blocks(size, size.min(2) - 1),
    },
    Algorithm {
        name: "pairwise",
        meant_for: "many ranks: one message in and one out at a time",
        build: pairwise,
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

/// All messages at once.
///
/// Rounds: 1. Bytes sent by each rank: all blocks but its own.
///
/// ```text
///   0 ──▶ 1 2 3      1 ──▶ 2 3 0      2 ──▶ 3 0 1      3 ──▶ 0 1 2
/// ```
fn direct(place: Place) -> Schedule {
    exchange(place, false)
}

/// In round k each rank sends to the rank k places on and receives from the one k places back.
///
/// Rounds: n-1. Bytes sent by each rank: all blocks but its own.
/// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
/// (2005).
///
/// ```text
///   to whom rank r sends
///   round      1   2   3
///   rank 0     1   2   3
///   rank 1     2   3   0
///   rank 2     3   0   1
///   rank 3     0   1   2
/// ```
fn pairwise(place: Place) -> Schedule {
    exchange(place, true)
}

fn exchange(place: Place, one_by_one: bool) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    builder.copy(Block::input(rank).whole(), Block::output(rank).whole());
    let mut round_before = None;
    for distance in 1..size {
        let to = peers::after(rank, distance, size);
        let from = peers::before(rank, distance, size);
        let send = builder.send(to, Block::input(to).whole());
        let recv = builder.recv(from, Block::output(from).whole());
        if let Some(earlier) = round_before.filter(|_| one_by_one) {
            for (before, step) in [(0, send), (1, send), (0, recv), (1, recv)] {
                builder.order(earlier + before, step);
            }
        }
        round_before = Some(send);
    }
    builder.build()
}
