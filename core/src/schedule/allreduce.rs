//! Allreduce: every rank ends with the reduction of all ranks' tensors, in place, with equal bits.
//!
//! Bits are equal because every rank's result is the same expression: either it is computed once
//! and handed out, or all ranks put the operands in the same order.

use super::builder::Builder;
use super::contract::everyone;
use super::cost::Traffic;
use super::peers::{self, Fold};
use super::{Algorithm, Block, Chunk, Contract, Holds, Operands, Place, Schedule};

/// The output block is each rank's tensor before, and the reduction of all after.
pub const CONTRACT: Contract = Contract {
    before: |place| (vec![], vec![Holds::One((place.rank, 0))]),
    after: |place| vec![everyone(0, place.size)],
    in_place: |_| None,
    barrier: false,
};

/// The ways to carry out an allreduce.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "one_shot",
        meant_for: "tiny tensors of a few ranks: one round, everything to everyone",
        build: one_shot,
        traffic: |size| {
            let peers = f64::from(size - 1);
            let once = f64::from(u8::from(size > 1));
            Traffic {
                rounds: size.min(2) - 1,
                messages: size - 1,
                bytes: peers,
                message: once,
                local: peers + once,
            }
        },
    },
    Algorithm {
        name: "two_shot",
        meant_for: "large tensors of a few ranks: the least bytes in two rounds",
        build: two_shot,
        traffic: |size| shares(size, 2 * (size.min(2) - 1)),
    },
    Algorithm {
        name: "recursive_doubling",
        meant_for: "small tensors: the fewest rounds with one message each",
        build: recursive_doubling,
        traffic: |size| {
            let core = peers::power_of_two_below(size);
            let folds = u32::from(core != size);
            let rounds = core.ilog2();
            let messages = rounds + folds;
            Traffic {
                // Unless more than half of those that take part represent two, no message goes
                // from the farthest of these to a rank that hands it on.
                rounds: rounds + folds + u32::from(size - core > core / 2),
                messages,
                bytes: f64::from(messages),
                message: f64::from(u8::from(size > 1)),
                // An odd number of exchanges starts with a copy.
                local: f64::from(messages + rounds % 2),
            }
        },
    },
    Algorithm {
        name: "halving_doubling",
        meant_for: "middle sizes, a power of two of ranks: the least bytes in few rounds",
        build: halving_doubling,
        traffic: |size| {
            let core = peers::power_of_two_below(size);
            let folds = f64::from(u8::from(core != size));
            let share = 1.0 - 1.0 / f64::from(core);
            Traffic {
                rounds: 2 * core.ilog2() + 2 * (folds as u32),
                messages: 2 * core.ilog2() + (folds as u32),
                bytes: 2.0 * share + folds,
                message: if folds > 0.0 {
                    1.0
                } else if size > 1 {
                    0.5
                } else {
                    0.0
                },
                local: share + folds,
            }
        },
    },
    Algorithm {
        name: "ring",
        meant_for: "large tensors: the least bytes, and only between neighbours",
        build: ring,
        traffic: |size| shares(size, 2 * (size - 1)),
    },
];

const TENSOR: Block = Block::output(0);

/// What reduce-scatter and allgather of equal shares cost in `rounds` rounds.
fn shares(size: u32, rounds: u32) -> Traffic {
    let share = 1.0 / f64::from(size);
    let others = f64::from(size - 1) * share;
    Traffic {
        rounds,
        messages: 2 * (size - 1),
        bytes: 2.0 * others,
        message: if size > 1 { share } else { 0.0 },
        local: others,
    }
}

/// Everyone sends its tensor to everyone, and reduces what came in the order of the ranks.
///
/// Rounds: 1. Bytes sent by each rank: (n-1)·E. PyTorch's symmetric memory calls it so.
///
/// ```text
///   0 ──▶ 1 2 3        every rank, in a scratch block:   ((x0 + x1) + x2) + x3
///   1 ──▶ 2 3 0
///   2 ──▶ 3 0 1
///   3 ──▶ 0 1 2
/// ```
fn one_shot(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    if size == 1 {
        return builder.build();
    }
    let own = TENSOR.whole();
    for distance in 1..size {
        builder.send(peers::after(rank, distance, size), own);
    }
    let sum = builder.scratch(TENSOR).whole();
    match rank {
        0 => builder.recv_reduce(1, own, sum, Operands::LocalFirst),
        1 => builder.recv_reduce(0, own, sum, Operands::IncomingFirst),
        _ => {
            builder.recv(0, sum);
            builder.recv_reduce(1, sum, sum, Operands::LocalFirst)
        }
    };
    for next in 2..size {
        if next == rank {
            builder.reduce(own, sum, Operands::LocalFirst);
        } else {
            builder.recv_reduce(next, sum, sum, Operands::LocalFirst);
        }
    }
    builder.copy(sum, own);
    builder.build()
}

/// Each rank reduces one part, which all others send it, and sends the result to all others.
///
/// Rounds: 2. Bytes sent by each rank: 2·E·(n-1)/n, the least possible. PyTorch's symmetric memory
/// calls it so.
///
/// ```text
///   first round                              second round
///   0: part 1 ─▶ 1, part 2 ─▶ 2, 3 ─▶ 3      0: sum of part 0 ─▶ 1 2 3
///   1: part 2 ─▶ 2, part 3 ─▶ 3, 0 ─▶ 0      1: sum of part 1 ─▶ 2 3 0
///   2: part 3 ─▶ 3, part 0 ─▶ 0, 1 ─▶ 1      2: sum of part 2 ─▶ 3 0 1
///   3: part 0 ─▶ 0, part 1 ─▶ 1, 2 ─▶ 2      3: sum of part 3 ─▶ 0 1 2
/// ```
fn two_shot(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let part = |part: u32| TENSOR.part(part, size);
    for distance in 1..size {
        let to = peers::after(rank, distance, size);
        let from = peers::before(rank, distance, size);
        builder.send(to, part(to));
        builder.recv_reduce(from, part(rank), part(rank), Operands::LocalFirst);
    }
    for distance in 1..size {
        let from = peers::before(rank, distance, size);
        builder.send(peers::after(rank, distance, size), part(rank));
        builder.recv(from, part(from));
    }
    builder.build()
}

/// In round k each rank exchanges what it has with the rank whose number differs in bit k. Ranks
/// beyond a power of two are folded into a neighbour before, and get the result after.
///
/// Rounds: ⌊log2 n⌋, and up to 2 more unless n is a power of two. Bytes sent by each rank: E in
/// each. Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
/// (2005).
///
/// ```text
///   0: x0 ◀─▶ 1: x1      2: x2 ◀─▶ 3: x3        bit 0
///   0: x0+x1 ◀───────────▶ 2: x2+x3             bit 1: the lower rank's operand is the left one,
///   1: x0+x1 ◀───────────▶ 3: x2+x3             so all end with (x0+x1) + (x2+x3)
/// ```
///
/// A rank cannot receive into what it still sends, so two blocks take turns; it ends in the output.
fn recursive_doubling(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let own = TENSOR.whole();
    let (index, partner) = match peers::fold(rank, size) {
        Fold::Out { partner } => {
            builder.send(partner, own);
            builder.recv(partner, own);
            return builder.build();
        }
        Fold::In { index, partner } => (index, partner),
    };
    if let Some(partner) = partner {
        builder.recv_reduce(partner, own, own, Operands::IncomingFirst);
    }
    let rounds = peers::power_of_two_below(size).ilog2();
    if rounds > 0 {
        let (mut sum, mut other) = (own, builder.scratch(TENSOR).whole());
        for round in 0..rounds {
            let peer_index = index ^ (1 << round);
            let peer = peers::unfold(peer_index, size);
            let operands = by_rank(index, peer_index);
            if round == 0 && rounds % 2 == 1 {
                builder.copy(own, other);
                builder.send(peer, other);
                builder.recv_reduce(peer, own, own, operands);
            } else {
                builder.send(peer, sum);
                builder.recv_reduce(peer, sum, other, operands);
                (sum, other) = (other, sum);
            }
        }
    }
    if let Some(partner) = partner {
        builder.send(partner, own);
    }
    builder.build()
}

/// Reduce-scatter by halves, then allgather by doubles (Rabenseifner). Ranks beyond a power of two
/// are folded as in recursive doubling.
///
/// Rounds: 2·⌊log2 n⌋, and 2 more unless n is a power of two. Bytes sent by each rank: 2·E·(n-1)/n
/// for a power of two, the least possible; up to 3·E otherwise. Thakur, Rabenseifner, Gropp:
/// Optimization of Collective Communication Operations in MPICH (2005).
///
/// ```text
///   parts that a rank still reduces            parts that a rank has
///   0: 0 1 2 3 ─▶ 0 1 . . ─▶ 0 . . .          ─▶ 0 1 . . ─▶ 0 1 2 3
///   1: 0 1 2 3 ─▶ 0 1 . . ─▶ . 1 . .          ─▶ 0 1 . . ─▶ 0 1 2 3
///   2: 0 1 2 3 ─▶ . . 2 3 ─▶ . . 2 .          ─▶ . . 2 3 ─▶ 0 1 2 3
///   3: 0 1 2 3 ─▶ . . 2 3 ─▶ . . . 3          ─▶ . . 2 3 ─▶ 0 1 2 3
///        0◀▶2 1◀▶3   0◀▶1 2◀▶3             0◀▶1 2◀▶3   0◀▶2 1◀▶3
/// ```
fn halving_doubling(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let own = TENSOR.whole();
    let (index, partner) = match peers::fold(rank, size) {
        Fold::Out { partner } => {
            builder.send(partner, own);
            builder.recv(partner, own);
            return builder.build();
        }
        Fold::In { index, partner } => (index, partner),
    };
    if let Some(partner) = partner {
        builder.recv_reduce(partner, own, own, Operands::IncomingFirst);
    }
    let parts = peers::power_of_two_below(size);
    // The parts that a rank shares with those that agree with it in all bits above `distance`.
    let range = |index: u32, distance: u32| -> Chunk {
        TENSOR.span(index & !(distance - 1), distance, parts)
    };
    let distances = (0..parts.ilog2()).map(|bit| 1 << bit);
    for distance in distances.clone().rev() {
        let peer_index = index ^ distance;
        let peer = peers::unfold(peer_index, size);
        let kept = range(index, distance);
        builder.send(peer, range(peer_index, distance));
        builder.recv_reduce(peer, kept, kept, by_rank(index, peer_index));
    }
    for distance in distances {
        let peer_index = index ^ distance;
        let peer = peers::unfold(peer_index, size);
        builder.send(peer, range(index, distance));
        builder.recv(peer, range(peer_index, distance));
    }
    if let Some(partner) = partner {
        builder.send(partner, own);
    }
    builder.build()
}

/// Parts travel round the ring: once to be summed, once more to be handed out.
///
/// Rounds: 2·(n-1). Bytes sent by each rank: 2·E·(n-1)/n, the least possible.
/// Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations (2009).
///
/// ```text
///   part that rank r sends to r+1 (mod 4); `*` marks a finished sum
///   round      1   2   3      4   5   6
///   rank 0     0   3   2      1*  0*  3*
///   rank 1     1   0   3      2*  1*  0*
///   rank 2     2   1   0      3*  2*  1*
///   rank 3     3   2   1      0*  3*  2*
/// ```
fn ring(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let next = peers::after(rank, 1, size);
    let previous = peers::before(rank, 1, size);
    let part = |back: u32| TENSOR.part(peers::before(rank, back, size), size);
    for round in 0..size - 1 {
        builder.send(next, part(round));
        let summed = part(round + 1);
        builder.recv_reduce(previous, summed, summed, Operands::IncomingFirst);
    }
    for round in 0..size - 1 {
        builder.send(next, part(round + size - 1));
        builder.recv(previous, part(round));
    }
    builder.build()
}

/// The operand of the lower rank stands on the left.
fn by_rank(local: u32, incoming: u32) -> Operands {
    if local < incoming { Operands::LocalFirst } else { Operands::IncomingFirst }
}
