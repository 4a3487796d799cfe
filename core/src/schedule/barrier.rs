//! Barrier: no data, and nobody leaves before everybody came. Messages carry nothing.

use super::builder::Builder;
use super::cost::Traffic;
use super::{Algorithm, Chunk, Contract, Place, Schedule, peers};

/// No buffers.
pub const CONTRACT: Contract =
    Contract { before: |_| (vec![], vec![]), after: |_| vec![], in_place: |_| None, barrier: true };

/// The ways to carry out a barrier.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "direct",
        meant_for: "few ranks: everyone tells everyone",
        build: direct,
        traffic: |size| nothing(size.min(2) - 1, size - 1),
    },
    Algorithm {
        name: "dissemination",
        meant_for: "many ranks: the news doubles in every round",
        build: dissemination,
        traffic: |size| nothing(peers::doublings(size), peers::doublings(size)),
    },
];

/// What messages without data cost.
fn nothing(rounds: u32, messages: u32) -> Traffic {
    Traffic { rounds, messages, bytes: 0.0, message: 0.0, local: 0.0 }
}

/// Everyone tells everyone that it came.
///
/// Rounds: 1. Messages sent by each rank: n-1.
///
/// ```text
///   0 ──▶ 1 2 3      1 ──▶ 2 3 0      2 ──▶ 3 0 1      3 ──▶ 0 1 2
/// ```
fn direct(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    for distance in 1..size {
        builder.send(peers::after(rank, distance, size), Chunk::NOTHING);
        builder.recv(peers::before(rank, distance, size), Chunk::NOTHING);
    }
    builder.build()
}

/// In round k each rank tells the rank 2^k places on of all that it has heard of.
///
/// Rounds: ⌈log2 n⌉. Messages sent by each rank: ⌈log2 n⌉.
/// Hensgen, Finkel, Manber: Two Algorithms for Barrier Synchronization (1988).
///
/// ```text
///   round 1    0 ─▶ 1 ─▶ 2 ─▶ 3 ─▶ 0         each has heard of itself and the one before
///   round 2    0 ◀─▶ 2      1 ◀─▶ 3          each has heard of all
/// ```
fn dissemination(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let mut heard: Vec<u32> = Vec::new();
    for round in 0..peers::doublings(size) {
        let send = builder.send(peers::after(rank, 1 << round, size), Chunk::NOTHING);
        for &earlier in &heard {
            builder.order(earlier, send);
        }
        heard.push(builder.recv(peers::before(rank, 1 << round, size), Chunk::NOTHING));
    }
    builder.build()
}
