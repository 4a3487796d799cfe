//! Barrier: no data, and nobody leaves before everybody came. Messages carry nothing.

use super::builder::Builder;
use super::cost::{Average, Load, Phase, Traffic};
use super::{Algorithm, Build, Chunk, Contract, Place, Rank, Schedule, Team, Topology, peers};

/// No buffers.
pub const CONTRACT: Contract =
    Contract { before: |_| (vec![], vec![]), after: |_| vec![], in_place: |_| None, barrier: true };

/// The ways to run a barrier.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "direct",
        meant_for: "few ranks: everyone tells everyone",
        build: Build::Flat(direct),
        load: |on| Load::everywhere(on, nothing(on.size().min(2) - 1, on.size() - 1)),
    },
    Algorithm {
        name: "dissemination",
        meant_for: "many ranks: the news doubles in every round",
        build: Build::Flat(dissemination),
        load: |on| Load::everywhere(on, doublings(on.size())),
    },
    Algorithm {
        name: "hierarchical",
        meant_for: "several hosts: one rank of each tells the other hosts",
        build: Build::ByHost(hierarchical),
        load: |on| {
            let doublings_of_host = peers::doublings(on.most());
            let average = Average::of_trees(1, on.most(), doublings_of_host);
            let tree = nothing(on.most().ilog2(), doublings_of_host);
            let tree = Traffic { average, ..tree };
            Load::of([
                Phase::host(tree, on),
                Phase::wire(doublings(on.hosts()), 1),
                Phase::host(tree, on),
            ])
        },
    },
];

/// What news that doubles in every round costs.
fn doublings(size: u32) -> Traffic {
    nothing(peers::doublings(size), peers::doublings(size))
}

/// What messages without data cost.
fn nothing(rounds: u32, messages: u32) -> Traffic {
    Traffic { rounds, messages, ..Traffic::default() }
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

/// In round k each rank tells the rank 2^k places on of all that it has learned of.
///
/// Rounds: ⌈log2 n⌉. Messages sent by each rank: ⌈log2 n⌉.
/// Hensgen, Finkel, Manber: Two Algorithms for Barrier Synchronization (1988).
///
/// ```text
///   round 1    0 ─▶ 1 ─▶ 2 ─▶ 3 ─▶ 0         each has learned of itself and the one before
///   round 2    0 ◀─▶ 2      1 ◀─▶ 3          each has learned of all
/// ```
fn dissemination(place: Place) -> Schedule {
    let mut builder = Builder::new();
    disseminate(&mut builder, &Team::all(place), &mut Vec::new());
    builder.build()
}

/// The ranks of each host tell its first one by a binomial tree; these tell each other by
/// dissemination, and then their hosts.
///
/// Rounds: of k ranks on each of H hosts ⌊log2 k⌋ on the host, ⌈log2 H⌉ between hosts, ⌊log2 k⌋ on
/// the host. Messages between hosts, sent by each host: ⌈log2 H⌉.
///
/// ```text
///   on each host         between hosts     on each host
///   0 ◀── 1  2 ◀── 3     0 ◀─▶ 2           0 ──▶ 1  2 ──▶ 3
/// ```
fn hierarchical(place: Place, on: &Topology) -> Schedule {
    let mut builder = Builder::new();
    let host = Team::of_host(place, on);
    let (mut heard, mut bit) = (Vec::new(), 1);
    while bit < host.size() && host.index & bit == 0 {
        if host.index + bit < host.size() {
            heard.push(builder.recv(host.rank(host.index + bit), Chunk::NOTHING));
        }
        bit *= 2;
    }
    if host.index != 0 {
        let parent = host.rank(host.index - bit);
        tell(&mut builder, parent, &heard);
        heard.push(builder.recv(parent, Chunk::NOTHING));
    }
    if let Some(leaders) = Team::of_leaders(place, on) {
        disseminate(&mut builder, &leaders, &mut heard);
    }
    while bit > 1 {
        bit /= 2;
        if host.index + bit < host.size() {
            tell(&mut builder, host.rank(host.index + bit), &heard);
        }
    }
    builder.build()
}

/// Tells a rank, once all that is awaited has been heard.
fn tell(builder: &mut Builder, rank: Rank, heard: &[u32]) {
    let send = builder.send(rank, Chunk::NOTHING);
    heard.iter().for_each(|&earlier| builder.order(earlier, send));
}

/// Adds to what has been `heard` the news of the whole team.
fn disseminate(builder: &mut Builder, team: &Team, heard: &mut Vec<u32>) {
    for round in 0..peers::doublings(team.size()) {
        tell(builder, team.rank(team.on(1 << round)), heard);
        heard.push(builder.recv(team.rank(team.back(1 << round)), Chunk::NOTHING));
    }
}
