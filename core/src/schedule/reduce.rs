//! Reduce: the root ends with the reduction of all ranks' tensors; inputs stay as they are.
//!
//! Partial sums of the other ranks live in scratch memory. At the root, input and output may be the
//! same memory.

use super::builder::Builder;
use super::contract::everyone;
use super::cost::Traffic;
use super::{Algorithm, Block, Contract, Holds, Operands, Place, Schedule, peers};

/// One input block everywhere, one output block at the root.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let output = if is_root(place) { vec![Holds::Anything] } else { vec![] };
        (vec![Holds::One((place.rank, 0))], output)
    },
    after: |place| if is_root(place) { vec![everyone(0, place.size)] } else { vec![] },
    in_place: |place| is_root(place).then_some((0, 0)),
    barrier: false,
};

/// The ways to carry out a reduce.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        meant_for: "few ranks: everyone sends to the root",
        build: linear,
        traffic: |size| Traffic {
            rounds: size.min(2) - 1,
            messages: size - 1,
            bytes: f64::from(size - 1),
            message: if size > 1 { 1.0 } else { 0.0 },
            local: f64::from((size - 1).max(1)),
        },
    },
    Algorithm {
        name: "binomial",
        meant_for: "small tensors: the fewest rounds",
        build: binomial,
        traffic: |size| {
            let children = peers::doublings(size);
            Traffic {
                rounds: size.ilog2(),
                messages: children,
                bytes: f64::from(children),
                message: if size > 1 { 1.0 } else { 0.0 },
                local: f64::from(children.max(1)),
            }
        },
    },
    Algorithm {
        name: "chain",
        meant_for: "large tensors: segments flow from neighbour to neighbour",
        build: chain,
        traffic: |size| {
            let once = if size > 1 { 1.0 } else { 0.0 };
            Traffic {
                rounds: size - 1,
                messages: size.min(2) - 1,
                bytes: once,
                message: once,
                local: 1.0,
            }
        },
    },
];

const INPUT: Block = Block::input(0);
const OUTPUT: Block = Block::output(0);

fn is_root(place: Place) -> bool {
    place.rank == place.root
}

/// Everyone sends its tensor to the root, which adds them in the order in which it counts.
///
/// Rounds: 1. Bytes sent by each rank but the root: E; the root receives (n-1)·E.
///
/// ```text
///   0 (root): ((x0 + x1) + x2) + x3        1 ──▶ 0
///                                          2 ──▶ 0
///                                          3 ──▶ 0
/// ```
fn linear(place: Place) -> Schedule {
    let mut builder = Builder::new();
    if !is_root(place) {
        builder.send(place.root, INPUT.whole());
        return builder.build();
    }
    let mut sum = INPUT;
    for relative in 1..place.size {
        let from = peers::absolute(relative, place);
        builder.recv_reduce(from, sum.whole(), OUTPUT.whole(), Operands::LocalFirst);
        sum = OUTPUT;
    }
    finish(builder, place)
}

/// A tree in which the rank that the root counts as v sends to v without its lowest bit.
///
/// Rounds: ⌊log2 n⌋. Bytes sent by each rank but the root: E; the root receives ⌈log2 n⌉·E.
/// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
/// (2005).
///
/// ```text
///   round 1    1: x1 ──▶ 0        3: x3 ──▶ 2
///   round 2    2: x2+x3 ──▶ 0                     0 (root): (x0+x1) + (x2+x3)
/// ```
fn binomial(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let own = peers::relative(place);
    let mut sum = INPUT;
    let mut bit = 1;
    while bit < place.size && own & bit == 0 {
        if own + bit < place.size {
            let into = match (is_root(place), sum) {
                (true, _) => OUTPUT,
                (false, INPUT) => builder.scratch(INPUT),
                (false, scratch) => scratch,
            };
            let child = peers::absolute(own + bit, place);
            builder.recv_reduce(child, sum.whole(), into.whole(), Operands::LocalFirst);
            sum = into;
        }
        bit *= 2;
    }
    if !is_root(place) {
        builder.send(peers::absolute(own - bit, place), sum.whole());
    }
    finish(builder, place)
}

/// From the rank before the root, each adds its tensor and hands the sum on, segment by segment.
///
/// Rounds: n-1, which overlap. Bytes sent by each rank but the root: E, the least possible, and no
/// rank receives more.
///
/// ```text
///   3: x3 ──▶ 2: x2+x3 ──▶ 1: x1+(x2+x3) ──▶ 0 (root): x0+(x1+(x2+x3))
/// ```
fn chain(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let own = peers::relative(place);
    let mut sum = INPUT;
    if own + 1 < place.size {
        let into = if is_root(place) { OUTPUT } else { builder.scratch(INPUT) };
        let from = peers::absolute(own + 1, place);
        builder.recv_reduce(from, INPUT.whole(), into.whole(), Operands::LocalFirst);
        sum = into;
    }
    if !is_root(place) {
        builder.send(peers::absolute(own - 1, place), sum.whole());
    }
    finish(builder, place)
}

/// A root that is alone has nothing to receive and copies.
fn finish(mut builder: Builder, place: Place) -> Schedule {
    if place.size == 1 {
        builder.copy(INPUT.whole(), OUTPUT.whole());
    }
    builder.build()
}
