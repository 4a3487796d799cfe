//! Allreduce: every rank ends with the reduction of all ranks' tensors, in place, with equal bits.
//!
//! Bits are equal because every rank's result is the same expression: either it is computed once
//! and handed out, or all ranks put the operands in the same order.

use super::builder::Builder;
use super::contract::everyone;
use super::cost::{Average, Load, Phase, Traffic};
use super::peers::{self, Fold};
use super::{
    Algorithm, Block, BlockContent, Build, Chunk, Contract, Operands, Place, Schedule, Share, Team,
    Topology,
};
use super::{figures, moves};

/// The output block is each rank's tensor before, and the reduction of all after.
pub const CONTRACT: Contract = Contract {
    before: |place| (vec![], vec![BlockContent::One((place.rank, 0))]),
    after: |place| vec![everyone(0, place.size)],
    in_place: |_| None,
    barrier: false,
};

/// The ways to run an allreduce.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "one_shot",
        meant_for: "tiny tensors of a few ranks: one round, everything to everyone",
        build: Build::Flat(one_shot),
        load: |on| {
            let others = on.size() - 1;
            let (peers, once) = (f64::from(others), f64::from(others.min(1)));
            let (bytes, message, local) = (peers, once, peers + once);
            let rounds = others.min(1);
            let (messages, average) = (others, Average::EVEN);
            Load::everywhere(on, Traffic { rounds, messages, bytes, message, local, average })
        },
    },
    Algorithm {
        name: "two_shot",
        meant_for: "large tensors of a few ranks: the least bytes in two rounds",
        build: Build::Flat(two_shot),
        load: |on| Load::everywhere(on, figures::shares(on.size(), 2 * (on.size().min(2) - 1))),
    },
    Algorithm {
        name: "recursive_doubling",
        meant_for: "small tensors: the fewest rounds with one message each",
        build: Build::Flat(recursive_doubling),
        load: |on| figures::exchanges(on, figures::doubling, figures::folded_doubling),
    },
    Algorithm {
        name: "halving_doubling",
        meant_for: "middle sizes, a power of two of ranks: the least bytes in few rounds",
        build: Build::Flat(halving_doubling),
        load: |on| figures::exchanges(on, figures::halving, figures::folded_halving),
    },
    Algorithm {
        name: "ring",
        meant_for: "large tensors: the least bytes, and only between neighbours",
        build: Build::Flat(ring),
        load: |on| Load::neighbours(on, figures::shares(on.size(), 2 * (on.size() - 1))),
    },
    Algorithm {
        name: "circulant",
        meant_for: "middle sizes, any number of ranks: the least bytes in few rounds",
        build: Build::Flat(circulant),
        load: |on| Load::everywhere(on, figures::circulant(on.size())),
    },
    Algorithm {
        name: "double_tree",
        meant_for: "many ranks, large tensors: segments flow through two trees, few rounds",
        build: Build::Flat(double_tree),
        load: |on| {
            let traffic = figures::double_tree(on.size());
            let load = Load::everywhere(on, traffic).with_turns(traffic.rounds);
            load.at_pace(figures::DOUBLE_TREE_PACE)
        },
    },
    Algorithm {
        name: "hierarchical",
        meant_for: "several hosts, small tensors: one rank of each talks to the other hosts",
        build: Build::ByHost(hierarchical),
        load: |on| {
            let into = figures::binomial(on.most(), true);
            let between = figures::folded_doubling(on.hosts());
            let out = figures::binomial(on.most(), false);
            Load::of([Phase::host(into, on), Phase::wire(between, 1), Phase::host(out, on)])
        },
    },
    Algorithm {
        name: "hierarchical_circulant",
        meant_for: "many hosts, middle sizes: each rank carries its part to the other hosts",
        build: Build::ByHost(hierarchical_circulant),
        load: |on| figures::by_lanes(on, figures::circulant(on.hosts())),
    },
    Algorithm {
        name: "hierarchical_ring",
        meant_for: "several hosts, large tensors: each rank carries its part round the hosts",
        build: Build::ByHost(hierarchical_ring),
        load: |on| figures::by_lanes(on, figures::shares(on.hosts(), 2 * (on.hosts() - 1))),
    },
];

const TENSOR: Block = Block::output(0);

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
fn recursive_doubling(place: Place) -> Schedule {
    over_all(place, moves::recursive_doubling)
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
        builder.recv_reduce(peer, kept, kept, moves::by_rank(index, peer_index));
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
    over_all(place, moves::ring)
}

/// Reduce-scatter and then allgather, each in rounds that double the distance. For any number of
/// ranks what [`halving_doubling`] is for a power of two.
///
/// Rounds: 2·⌈log2 n⌉. Bytes sent by each rank: 2·E·(n-1)/n, the least possible.
/// Träff: Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms (2024).
///
/// ```text
///   parts that rank r still reduces, counted from its own           parts that it has
///   r: r r+1 r+2 r+3 ─▶ r r+1 . . ─▶ r . . .            ─▶ r r+1 . . ─▶ r r+1 r+2 r+3
///      r+2, r+3 to r+2     r+1 to r+1                   r to r-1        r, r+1 to r-2
/// ```
fn circulant(place: Place) -> Schedule {
    over_all(place, moves::circulant)
}

/// Half of the tensor goes up one tree to rank 0 and down again, half through another tree in which
/// the leaves of the first have the work: segment by segment, everybody sends and receives.
///
/// Rounds: 2·(1 + ⌊log2 (n-1)⌋), which overlap. Bytes sent by each rank: at most 2·E, whatever the
/// number of ranks. Sanders, Speck, Träff: Two-tree Algorithms for Full Bandwidth Broadcast,
/// Reduction and Scan (2009).
///
/// ```text
///   first half                  second half
///   0 ◀─▶ 2 ◀─▶ 1               0 ◀─▶ 3 ◀─▶ 2
///           ◀─▶ 3                       ◀─▶ 1
/// ```
fn double_tree(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let halves = [0, 1].map(|tree| {
        let half = TENSOR.part(tree, 2);
        (peers::double_tree(tree, place.rank, place.size), half)
    });
    for (branch, half) in &halves {
        for child in branch.children.into_iter().flatten() {
            builder.recv_reduce(child, *half, *half, Operands::LocalFirst);
        }
        if let Some(parent) = branch.parent {
            builder.send(parent, *half);
        }
    }
    for (branch, half) in &halves {
        if let Some(parent) = branch.parent {
            builder.recv(parent, *half);
        }
        for child in branch.children.into_iter().flatten() {
            builder.send(child, *half);
        }
    }
    builder.build()
}

/// The ranks of each host reduce to its first one by a binomial tree; these exchange what they have
/// by recursive doubling and hand the result out.
///
/// Rounds: of k ranks on each of H hosts ⌊log2 k⌋ on the host, ⌈log2 H⌉ between hosts or one more,
/// ⌊log2 k⌋ on the host. Bytes between hosts, sent by each host: E in each round.
///
/// ```text
///   on each host         between hosts              on each host
///   0 ◀── 1  2 ◀── 3     0: x0+x1 ◀─▶ 2: x2+x3      0 ──▶ 1  2 ──▶ 3
/// ```
fn hierarchical(place: Place, on: &Topology) -> Schedule {
    let mut builder = Builder::new();
    let place = Place { root: 0, ..place };
    let host = Team::of_host(place, on);
    moves::binomial_reduce(&mut builder, &host, Share::all(TENSOR));
    if let Some(leaders) = Team::of_leaders(place, on) {
        moves::recursive_doubling(&mut builder, &leaders, Share::all(TENSOR));
    }
    moves::binomial_broadcast(&mut builder, &host, Share::all(TENSOR));
    builder.build()
}

/// As [`hierarchical_ring`], with the [`circulant`] exchange between hosts.
///
/// Rounds: one on the host, 2·⌈log2 H⌉ between H hosts, one on the host. Bytes between hosts, sent
/// by each host: 2·E·(H-1)/H, the least possible.
///
/// ```text
///   on each host          between hosts                 on each host
///   0: part 0 ◀── 1       0 ◀─▶ 2: halves of part 0     0: part 0 ──▶ 1
///   1: part 1 ◀── 0       1 ◀─▶ 3: halves of part 1     1: part 1 ──▶ 0
/// ```
fn hierarchical_circulant(place: Place, on: &Topology) -> Schedule {
    by_lanes(place, on, moves::circulant)
}

/// On each host every rank reduces one part of the tensor, carries it round a ring of the hosts,
/// and
/// hands the result out. Where hosts have different numbers of ranks, there are as many parts as
/// the smallest has ranks.
///
/// Rounds: one on the host, 2·(H-1) between H hosts, one on the host. Bytes between hosts, sent by
/// each host: 2·E·(H-1)/H, the least possible, and all its ranks send at once.
/// Jia and others: Highly Scalable Deep Learning Training System (2018).
///
/// ```text
///   on each host          between hosts                 on each host
///   0: part 0 ◀── 1       0 ◀─▶ 2: halves of part 0     0: part 0 ──▶ 1
///   1: part 1 ◀── 0       1 ◀─▶ 3: halves of part 1     1: part 1 ──▶ 0
/// ```
fn hierarchical_ring(place: Place, on: &Topology) -> Schedule {
    by_lanes(place, on, moves::ring)
}

fn over_all(place: Place, piece: moves::Piece) -> Schedule {
    let mut builder = Builder::new();
    piece(&mut builder, &Team::all(place), Share::all(TENSOR));
    builder.build()
}

fn by_lanes(place: Place, on: &Topology, between: moves::Piece) -> Schedule {
    let mut builder = Builder::new();
    moves::by_lanes(&mut builder, place, on, TENSOR, between);
    builder.build()
}
