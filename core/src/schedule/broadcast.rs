//! Broadcast: every rank ends with the root's tensor, in place.

use super::builder::Builder;
use super::cost::Traffic;
use super::{Algorithm, Block, Contract, Holds, Place, Schedule, peers};

/// One output block everywhere, filled at the root.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let at_root = place.rank == place.root;
        (vec![], vec![if at_root { Holds::One((place.root, 0)) } else { Holds::Anything }])
    },
    after: |place| vec![Holds::One((place.root, 0))],
    in_place: |_| None,
    barrier: false,
};

/// The ways to carry out a broadcast.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "binomial",
        meant_for: "small tensors: the fewest rounds",
        build: binomial,
        traffic: |size| whole(size, size.ilog2(), peers::doublings(size)),
    },
    Algorithm {
        name: "binary_tree",
        meant_for: "many ranks, middle sizes: segments flow down a tree with two children each",
        build: binary_tree,
        traffic: |size| whole(size, size.ilog2(), (size - 1).min(2)),
    },
    Algorithm {
        name: "scatter_allgather",
        meant_for: "many ranks, large tensors: parts first, then round the ring",
        build: scatter_allgather,
        traffic: |size| {
            let share = 1.0 / f64::from(size);
            Traffic {
                rounds: size - 1,
                messages: 2 * (size - 1),
                bytes: f64::from(2 * (size - 1)) * share,
                message: if size > 1 { share } else { 0.0 },
                local: 0.0,
            }
        },
    },
    Algorithm {
        name: "chain",
        meant_for: "large tensors: segments flow from neighbour to neighbour",
        build: chain,
        traffic: |size| whole(size, size - 1, size.min(2) - 1),
    },
];

const TENSOR: Block = Block::output(0);

/// What it costs to send the whole tensor, `copies` times by the busiest rank.
fn whole(size: u32, rounds: u32, copies: u32) -> Traffic {
    Traffic {
        rounds,
        messages: copies,
        bytes: f64::from(copies),
        message: if size > 1 { 1.0 } else { 0.0 },
        local: 0.0,
    }
}

/// A tree in which the rank that the root counts as v receives from v without its lowest bit.
///
/// Rounds: ⌊log2 n⌋. Bytes sent by the root: ⌈log2 n⌉·E.
/// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
/// (2005).
///
/// ```text
///   round 1    0 (root) ──▶ 2
///   round 2    0 ──▶ 1        2 ──▶ 3
/// ```
fn binomial(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let own = peers::relative(place);
    let mut bit = 1;
    while bit < place.size && own & bit == 0 {
        bit *= 2;
    }
    if own != 0 {
        builder.recv(peers::absolute(own - bit, place), TENSOR.whole());
    }
    while bit > 1 {
        bit /= 2;
        if own + bit < place.size {
            builder.send(peers::absolute(own + bit, place), TENSOR.whole());
        }
    }
    builder.build()
}

/// The rank that the root counts as v sends to 2v+1 and 2v+2, segment by segment.
///
/// Rounds: ⌊log2 n⌋, which overlap. Bytes sent by each rank: at most 2·E.
///
/// ```text
///   0 (root) ─┬─▶ 1 ───▶ 3
///             └─▶ 2
/// ```
fn binary_tree(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let own = peers::relative(place);
    if own > 0 {
        builder.recv(peers::absolute((own - 1) / 2, place), TENSOR.whole());
    }
    for child in [2 * own + 1, 2 * own + 2] {
        if child < place.size {
            builder.send(peers::absolute(child, place), TENSOR.whole());
        }
    }
    builder.build()
}

/// The root deals out one part to each rank; then the parts travel round the ring.
///
/// Rounds: n-1. Bytes sent by the root: 2·E·(n-1)/n, by the others E·(n-1)/n.
/// Van de Geijn: Barnett and others, Interprocessor Collective Communication Library (1994).
///
/// ```text
///   deal      0 (root): part 1 ─▶ 1, part 2 ─▶ 2, part 3 ─▶ 3
///   part that rank v sends to v+1; nobody sends to the root
///   round      1   2   3
///   rank 0     0   3   2
///   rank 1     1   0   3
///   rank 2     2   1   0
/// ```
fn scatter_allgather(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let size = place.size;
    let own = peers::relative(place);
    let part = |part: u32| TENSOR.part(part, size);
    if own == 0 {
        for other in 1..size {
            builder.send(peers::absolute(other, place), part(other));
        }
    } else {
        builder.recv(place.root, part(own));
    }
    let next = peers::absolute(peers::after(own, 1, size), place);
    let previous = peers::absolute(peers::before(own, 1, size), place);
    for round in 0..size - 1 {
        if own + 1 < size {
            builder.send(next, part(peers::before(own, round, size)));
        }
        if own > 0 {
            builder.recv(previous, part(peers::before(own, round + 1, size)));
        }
    }
    builder.build()
}

/// From the root on, each rank hands the tensor to the next, segment by segment.
///
/// Rounds: n-1, which overlap. Bytes sent by each rank but the last: E, the least possible.
///
/// ```text
///   0 (root) ──▶ 1 ──▶ 2 ──▶ 3
/// ```
fn chain(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let own = peers::relative(place);
    if own > 0 {
        builder.recv(peers::absolute(own - 1, place), TENSOR.whole());
    }
    if own + 1 < place.size {
        builder.send(peers::absolute(own + 1, place), TENSOR.whole());
    }
    builder.build()
}
