//! Scan: rank r ends with the reduction of the tensors of ranks 0 to r, in this order, in place.

use super::builder::Builder;
use super::cost::Load;
use super::{
    Algorithm, Block, BlockContent, Build, Contract, Operands, Place, Schedule, figures, peers,
};

/// One block, which is input and output.
pub const CONTRACT: Contract = Contract {
    before: |place| (vec![], vec![BlockContent::One((place.rank, 0))]),
    after: |place| vec![BlockContent::InOrder((0..=place.rank).map(|rank| (rank, 0)).collect())],
    in_place: |_| None,
    barrier: false,
};

/// The ways to run a scan.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "doubling",
        meant_for: "small tensors: the fewest rounds",
        build: Build::Flat(doubling),
        load: |on| Load::everywhere(on, figures::prefix(on.size())),
    },
    Algorithm {
        name: "chain",
        meant_for: "large tensors: segments flow from neighbour to neighbour",
        build: Build::Flat(chain),
        load: |on| {
            let local = f64::from(on.size().min(2) - 1);
            Load::neighbours(on, figures::chain(on.size(), local))
        },
    },
];

const OUTPUT: Block = Block::output(0);

/// In round k each rank sends what it has to the rank 2^k places on, which puts it before its own:
/// then it has the reduction over twice as many ranks.
///
/// Rounds: ⌊log2 n⌋. Bytes sent by each rank: at most ⌈log2 n⌉·E.
/// Hillis, Steele: Data Parallel Algorithms (1986).
///
/// A rank cannot receive into what it still sends, so the output and scratch memory take turns; it
/// ends in the output.
///
/// ```text
///   round 1    0 ─▶ 1 ─▶ 2 ─▶ 3      1: x0+x1    2: x1+x2       3: x2+x3
///   round 2    0 ─▶ 2      1 ─▶ 3                2: x0+(x1+x2)  3: (x0+x1)+(x2+x3)
/// ```
fn doubling(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let (sends, receives) = (peers::doublings(size - rank), peers::doublings(rank + 1));
    let both = sends.min(receives);
    // The last round that only receives can bring the result back into the output.
    let starts_with_copy = both % 2 == 1 && receives <= sends;
    let mut sum = OUTPUT;
    let mut other = if both > 0 { builder.scratch(OUTPUT) } else { OUTPUT };
    for round in 0..sends.max(receives) {
        let distance = 1 << round;
        let is_last = round + 1 == receives;
        let mut into = if is_last { OUTPUT } else { sum };
        let mut from = sum;
        if round < both {
            into = other;
            if round == 0 && starts_with_copy {
                builder.copy(sum.whole(), other.whole());
                (from, into) = (other, sum);
            }
            other = if into == sum { other } else { sum };
        }
        if round < sends {
            builder.send(rank + distance, from.whole());
        }
        if round < receives {
            let peer = rank - distance;
            builder.recv_reduce(peer, sum.whole(), into.whole(), Operands::IncomingFirst);
            sum = into;
        }
    }
    builder.build()
}

/// Each rank puts what the one before it has before its own, and hands that on, segment by segment.
///
/// Rounds: n-1, which overlap. Bytes sent by each rank: E, the least possible.
///
/// ```text
///   0: x0 ──▶ 1: x0+x1 ──▶ 2: (x0+x1)+x2 ──▶ 3: ((x0+x1)+x2)+x3
/// ```
fn chain(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let (mut builder, own) = (Builder::new(), OUTPUT.whole());
    if rank > 0 {
        builder.recv_reduce(rank - 1, own, own, Operands::IncomingFirst);
    }
    if rank + 1 < size {
        builder.send(rank + 1, own);
    }
    builder.build()
}
