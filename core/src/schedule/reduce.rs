//! Reduce: the root ends with the reduction of all ranks' tensors; inputs stay as they are.
//!
//! Partial sums of the other ranks live in scratch memory. At the root, input and output may be the
//! same memory.

use super::builder::Builder;
use super::contract::everyone;
use super::cost::{Average, Load, Phase, Traffic};
use super::{
    Algorithm, Block, BlockContent, Build, Contract, Operands, Place, Schedule, Team, Topology,
    figures, peers,
};

/// One input block everywhere, one output block at the root.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let output = if is_root(place) { vec![BlockContent::Anything] } else { vec![] };
        (vec![BlockContent::One((place.rank, 0))], output)
    },
    after: |place| if is_root(place) { vec![everyone(0, place.size)] } else { vec![] },
    in_place: |place| is_root(place).then_some((0, 0)),
    barrier: false,
};

/// The ways to run a reduce.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        meant_for: "few ranks: everyone sends to the root",
        build: Build::Flat(linear),
        load: |on| {
            let others = on.size() - 1;
            let (bytes, message) = (f64::from(others), f64::from(others.min(1)));
            let (rounds, local) = (others.min(1), bytes.max(1.0));
            let average = Average::of_trees(1, on.size(), others);
            let messages = others;
            Load::everywhere(on, Traffic { rounds, messages, bytes, message, local, average })
        },
    },
    Algorithm {
        name: "binomial",
        meant_for: "small tensors: the fewest rounds",
        build: Build::Flat(binomial),
        load: |on| Load::everywhere(on, tree(on.size())),
    },
    Algorithm {
        name: "chain",
        meant_for: "large tensors: segments flow from neighbour to neighbour",
        build: Build::Flat(chain),
        load: |on| {
            let (rounds, messages) = (on.size() - 1, on.size().min(2) - 1);
            let once = f64::from(messages);
            let average = Average::of_trees(1, on.size(), 1);
            let (bytes, message, local) = (once, once, 1.0);
            let traffic = Traffic { rounds, messages, bytes, message, local, average };
            Load::neighbours(on, traffic)
        },
    },
    Algorithm {
        name: "double_tree",
        meant_for: "many ranks, large tensors: segments of each half flow up a tree of its own",
        build: Build::Flat(double_tree),
        load: |on| {
            let halves = if on.size() > 1 { 2 } else { 0 };
            let bytes = f64::from(halves) / 2.0;
            let (rounds, message) = (peers::double_tree_depth(on.size()), bytes / 2.0);
            let average = Average::of_trees(2, on.size(), halves);
            let (messages, local) = (halves, 1.0);
            let traffic = Traffic { rounds, messages, bytes, message, local, average };
            let load = Load::everywhere(on, traffic).with_turns(rounds);
            load.at_pace(figures::DOUBLE_TREE_PACE)
        },
    },
    Algorithm {
        name: "hierarchical",
        meant_for: "several hosts, small tensors: one rank of each sends to another host",
        build: Build::ByHost(hierarchical),
        load: |on| Load::of([Phase::host(tree(on.most()), on), Phase::wire(tree(on.hosts()), 1)]),
    },
];

/// What a binomial tree costs its root, which copies if it is alone.
fn tree(size: u32) -> Traffic {
    let traffic = figures::binomial(size, true);
    Traffic { local: traffic.local.max(1.0), ..traffic }
}

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
    climb(&mut builder, &Team::from_root(place), place, INPUT);
    finish(builder, place)
}

/// A binomial tree over a team, to its first rank. Gives where this rank's sum stands, which was in
/// `sum` before.
fn climb(builder: &mut Builder, team: &Team, place: Place, mut sum: Block) -> Block {
    let mut bit = 1;
    while bit < team.size() && team.index & bit == 0 {
        if team.index + bit < team.size() {
            let into = match (is_root(place), sum) {
                (true, _) => OUTPUT,
                (false, INPUT) => builder.scratch(INPUT),
                (false, scratch) => scratch,
            };
            let child = team.rank(team.index + bit);
            builder.recv_reduce(child, sum.whole(), into.whole(), Operands::LocalFirst);
            sum = into;
        }
        bit *= 2;
    }
    if team.index != 0 {
        builder.send(team.rank(team.index - bit), sum.whole());
    }
    sum
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

/// Half of the tensor goes up one tree, half up another in which the leaves of the first have the
/// work, segment by segment.
///
/// Rounds: 1 + ⌊log2 (n-1)⌋, which overlap. Bytes sent by each rank but the root: E, the least
/// possible, and no rank receives more. Sanders, Speck, Träff: Two-tree Algorithms for Full
/// Bandwidth Broadcast, Reduction and Scan (2009).
///
/// ```text
///   first half                    second half
///   0 (root) ◀── 2 ◀── 1          0 (root) ◀── 3 ◀── 2
///                  ◀── 3                         ◀── 1
/// ```
fn double_tree(place: Place) -> Schedule {
    let mut builder = Builder::new();
    let mut scratch = None;
    for tree in [0, 1] {
        let branch = peers::double_tree(tree, peers::relative(place), place.size);
        let half = |block: Block| block.part(tree, 2);
        let mut sum = INPUT;
        for child in branch.children.into_iter().flatten() {
            let into = match is_root(place) {
                true => OUTPUT,
                false => *scratch.get_or_insert_with(|| builder.scratch(INPUT)),
            };
            let child = peers::absolute(child, place);
            builder.recv_reduce(child, half(sum), half(into), Operands::LocalFirst);
            sum = into;
        }
        if let Some(parent) = branch.parent {
            builder.send(peers::absolute(parent, place), half(sum));
        }
    }
    finish(builder, place)
}

/// A binomial tree on each host, and one of the root and one rank of each other host.
///
/// Rounds: of k ranks on each of H hosts ⌊log2 k⌋ on the host and ⌊log2 H⌋ between hosts. Bytes
/// between hosts, sent by each host but the root's: E.
///
/// ```text
///   on each host                  between hosts
///   0 (root) ◀── 1  2 ◀── 3       0 (root): x0+x1 ◀── 2: x2+x3
/// ```
fn hierarchical(place: Place, on: &Topology) -> Schedule {
    let mut builder = Builder::new();
    let sum = climb(&mut builder, &Team::of_host(place, on), place, INPUT);
    if let Some(leaders) = Team::of_leaders(place, on) {
        climb(&mut builder, &leaders, place, sum);
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
