//! Exclusive scan: rank r ends with the reduction of the tensors of the ranks before it, in their
//! order, in place. Rank 0 keeps its own.

use super::builder::Builder;
use super::cost::Load;
use super::{
    Algorithm, Block, BlockContent, Build, Contract, Operands, Place, Schedule, figures, peers,
};

/// One block, which is input and output.
pub const CONTRACT: Contract = Contract {
    before: |place| (vec![], vec![BlockContent::One((place.rank, 0))]),
    after: |place| {
        let reduced = 0..place.rank.max(1);
        vec![BlockContent::InOrder(reduced.map(|rank| (rank, 0)).collect())]
    },
    in_place: |_| None,
    barrier: false,
};

/// The ways to run an exclusive scan.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "doubling",
        meant_for: "small tensors: the fewest rounds",
        build: Build::Flat(doubling),
        load: |on| Load::everywhere(on, figures::exclusive_prefix(on.size())),
    },
    Algorithm {
        name: "chain",
        meant_for: "large tensors: segments flow from neighbour to neighbour",
        build: Build::Flat(chain),
        load: |on| {
            let local = if on.size() > 2 { 2.0 } else { 0.0 };
            Load::neighbours(on, figures::chain(on.size(), local))
        },
    },
];

const OUTPUT: Block = Block::output(0);

/// In round k each rank sends the reduction over itself and the ranks before it, as far as it has
/// it, to the rank 2^k places on. That rank puts it before what it has of the ranks before it,
/// which becomes its result, and before what it has with itself, which it sends next.
///
/// Rounds: ⌊log2 n⌋. Bytes sent by each rank: at most ⌈log2 n⌉·E.
/// As the inclusive scan by Hillis and Steele (1986); with both reductions as in MPICH.
///
/// ```text
///   round 1    0 ─▶ 1 ─▶ 2 ─▶ 3    1: x0   2: x1, to send: x1+x2      3: x2
///   round 2    0 ─▶ 2      1 ─▶ 3          2: x0+x1                   3: (x0+x1)+x2
/// ```
fn doubling(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let (sends, receives) = (peers::doublings(size - rank), peers::doublings(rank + 1));
    // What is to be sent stands in the output, until nothing is left to send.
    let both = sends.min(receives);
    let before = if both > 0 { builder.scratch(OUTPUT) } else { OUTPUT };
    let incoming = if both > 1 { builder.scratch(OUTPUT) } else { before };
    let mut result = before;
    for round in 0..sends.max(receives) {
        let distance = 1 << round;
        if round < sends {
            builder.send(rank + distance, OUTPUT.whole());
        }
        if round >= receives {
            continue;
        }
        let (peer, sends_more) = (rank - distance, round + 1 < sends);
        match (round, sends_more) {
            (0, _) => {
                builder.recv(peer, before.whole());
                if sends_more {
                    builder.reduce(before.whole(), OUTPUT.whole(), Operands::IncomingFirst);
                }
            }
            (_, true) => {
                builder.recv(peer, incoming.whole());
                builder.reduce(incoming.whole(), before.whole(), Operands::IncomingFirst);
                builder.reduce(incoming.whole(), OUTPUT.whole(), Operands::IncomingFirst);
            }
            (_, false) => {
                let into = if round < sends { before } else { OUTPUT };
                let local = result.whole();
                builder.recv_reduce(peer, local, into.whole(), Operands::IncomingFirst);
                result = into;
            }
        }
    }
    if receives > 0 && result != OUTPUT {
        builder.copy(result.whole(), OUTPUT.whole());
    }
    builder.build()
}

/// Each rank takes what the ranks before it have together, which is its result, and hands it on
/// with its own, segment by segment.
///
/// Rounds: n-1, which overlap. Bytes sent by each rank: E, the least possible.
///
/// ```text
///   0 ── x0 ──▶ 1: x0 ── x0+x1 ──▶ 2: x0+x1 ── (x0+x1)+x2 ──▶ 3: (x0+x1)+x2
/// ```
fn chain(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let (mut builder, own) = (Builder::new(), OUTPUT.whole());
    let (is_first, is_last) = (rank == 0, rank + 1 == size);
    if is_last && !is_first {
        builder.recv(rank - 1, own);
    } else if !is_first {
        let before = builder.scratch(OUTPUT).whole();
        builder.recv(rank - 1, before);
        builder.reduce(before, own, Operands::IncomingFirst);
        builder.send(rank + 1, own);
        builder.copy(before, own);
    } else if !is_last {
        builder.send(rank + 1, own);
    }
    builder.build()
}
