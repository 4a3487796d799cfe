//! Broadcast: every rank ends with the root's tensor, in place.

use super::builder::Builder;
use super::cost::{Average, Load, Phase, Traffic};
use super::{
    Algorithm, Block, BlockContent, Build, Contract, Place, Schedule, Share, Team, Topology,
    figures, moves, peers,
};

/// One output block everywhere, filled at the root.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let at_root = place.rank == place.root;
        (
            vec![],
            vec![if at_root { BlockContent::One((place.root, 0)) } else { BlockContent::Anything }],
        )
    },
    after: |place| vec![BlockContent::One((place.root, 0))],
    in_place: |_| None,
    barrier: false,
};

/// The ways to run a broadcast.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "binomial",
        meant_for: "small tensors: the fewest rounds",
        build: Build::Flat(binomial),
        load: |on| Load::everywhere(on, figures::binomial(on.size(), false)),
    },
    Algorithm {
        name: "binary_tree",
        meant_for: "many ranks, middle sizes: segments flow down a tree with two children each",
        build: Build::Flat(binary_tree),
        load: |on| {
            let rounds = on.size().ilog2();
            Load::everywhere(on, whole(on.size(), rounds, (on.size() - 1).min(2)))
                .with_turns(rounds)
        },
    },
    Algorithm {
        name: "scatter_allgather",
        meant_for: "many ranks, large tensors: parts first, then round the ring",
        build: Build::Flat(scatter_allgather),
        load: |on| {
            let shares = figures::shares(on.size(), on.size() - 1);
            Load::everywhere(on, Traffic { local: 0.0, ..shares })
        },
    },
    Algorithm {
        name: "chain",
        meant_for: "large tensors: segments flow from neighbour to neighbour",
        build: Build::Flat(chain),
        load: |on| Load::neighbours(on, whole(on.size(), on.size() - 1, on.size().min(2) - 1)),
    },
    Algorithm {
        name: "double_tree",
        meant_for: "many ranks, large tensors: segments of each half flow down a tree of its own",
        build: Build::Flat(double_tree),
        load: |on| {
            let halves = if on.size() > 1 { 2 } else { 0 };
            let bytes = f64::from(halves) / 2.0;
            let (rounds, message) = (peers::double_tree_depth(on.size()), bytes / 2.0);
            let average = Average::of_trees(2, on.size(), halves);
            let (messages, local) = (halves, 0.0);
            let traffic = Traffic { rounds, messages, bytes, message, local, average };
            let load = Load::everywhere(on, traffic).with_turns(rounds);
            load.at_pace(figures::DOUBLE_TREE_PACE)
        },
    },
    Algorithm {
        name: "hierarchical",
        meant_for: "several hosts, small tensors: one rank of each hears from another host",
        build: Build::ByHost(hierarchical),
        load: |on| {
            let between = figures::binomial(on.hosts(), false);
            let within = figures::binomial(on.most(), false);
            Load::of([Phase::wire(between, 1), Phase::host(within, on)])
        },
    },
    Algorithm {
        name: "hierarchical_chain",
        meant_for: "several hosts, large tensors: segments flow through one host after the other",
        build: Build::ByHost(hierarchical_chain),
        load: |on| {
            let traffic = whole(on.size(), on.size() - 1, on.size().min(2) - 1);
            match on.hosts() {
                1 => Load::of([Phase::host(traffic, on)]),
                _ => Load::of([Phase::wire(traffic, 1)]),
            }
        },
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
        average: Average::of_trees(1, size, copies),
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
    from_root(place, moves::binomial_broadcast)
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
    from_root(place, moves::chain)
}

/// Half of the tensor goes down one tree, half down another in which the leaves of the first have
/// the work, segment by segment.
///
/// Rounds: 1 + ⌊log2 (n-1)⌋, which overlap. Bytes sent by each rank: at most E, the least possible.
/// Sanders, Speck, Träff: Two-tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan
/// (2009).
///
/// ```text
///   first half                    second half
///   0 (root) ──▶ 2 ──▶ 1          0 (root) ──▶ 3 ──▶ 2
///                  ──▶ 3                         ──▶ 1
/// ```
fn double_tree(place: Place) -> Schedule {
    let mut builder = Builder::new();
    for tree in [0, 1] {
        let branch = peers::double_tree(tree, peers::relative(place), place.size);
        let half = TENSOR.part(tree, 2);
        if let Some(parent) = branch.parent {
            builder.recv(peers::absolute(parent, place), half);
        }
        for child in branch.children.into_iter().flatten() {
            builder.send(peers::absolute(child, place), half);
        }
    }
    builder.build()
}

/// A binomial tree of the root and one rank of each other host, and one on each host.
///
/// Rounds: of k ranks on each of H hosts ⌊log2 H⌋ between hosts and ⌊log2 k⌋ on the host. Bytes
/// between hosts, sent by the root: ⌈log2 H⌉·E.
///
/// ```text
///   between hosts       on each host
///   0 (root) ──▶ 2      0 ──▶ 1  2 ──▶ 3
/// ```
fn hierarchical(place: Place, on: &Topology) -> Schedule {
    let mut builder = Builder::new();
    if let Some(leaders) = Team::of_leaders(place, on) {
        moves::binomial_broadcast(&mut builder, &leaders, Share::all(TENSOR));
    }
    let host = Team::of_host(place, on);
    moves::binomial_broadcast(&mut builder, &host, Share::all(TENSOR));
    builder.build()
}

/// From the root on, each rank hands the tensor to the next of its host, and the last one to the
/// next host, segment by segment.
///
/// Rounds: n-1, which overlap. Bytes sent by each rank but the last: E, the least possible.
///
/// ```text
///   0 (root) ──▶ 1 ──▶ (next host) 2 ──▶ 3
/// ```
fn hierarchical_chain(place: Place, on: &Topology) -> Schedule {
    let home = on.host_of(place.root);
    let hosts = (0..on.hosts()).map(|host| (home + host) % on.hosts());
    let mut ranks: Vec<_> = hosts.flat_map(|host| on.members(host).iter().copied()).collect();
    // The root is the first of its own host.
    ranks.retain(|&rank| rank != place.root);
    ranks.insert(0, place.root);
    let mut builder = Builder::new();
    if let Some(team) = Team::of(ranks, place.rank) {
        moves::chain(&mut builder, &team, Share::all(TENSOR));
    }
    builder.build()
}

fn from_root(place: Place, piece: moves::Piece) -> Schedule {
    let mut builder = Builder::new();
    piece(&mut builder, &Team::from_root(place), Share::all(TENSOR));
    builder.build()
}
