//! Reduce-scatter: each rank ends with its block of the reduction. Blocks may differ in size, and
//! every rank knows all sizes.
//!
//! The rank's own input block and the output may be the same memory: nobody else needs that block.

use super::builder::Builder;
use super::contract::everyone;
use super::cost::{Average, Load, Phase, Traffic};
use super::{
    Algorithm, Block, BlockContent, Buffer, Build, Contract, Operands, Place, Rank, Schedule, Team,
    Topology, figures, peers,
};
use crate::sorted::LargeMap;

/// One input block for each rank, and one output block.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let input = (0..place.size).map(|block| BlockContent::One((place.rank, block))).collect();
        (input, vec![BlockContent::Anything])
    },
    after: |place| vec![everyone(place.rank, place.size)],
    in_place: |place| Some((place.rank, 0)),
    barrier: false,
};

/// The ways to run a reduce-scatter.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "direct",
        meant_for: "few ranks: the least bytes in one round, and no scratch memory",
        build: Build::Flat(direct),
        load: |on| Load::everywhere(on, blocks(on.size(), on.size().min(2) - 1)),
    },
    Algorithm {
        name: "ring",
        meant_for: "many ranks, large tensors: only between neighbours",
        build: Build::Flat(ring),
        load: |on| Load::neighbours(on, blocks(on.size(), on.size() - 1)),
    },
    Algorithm {
        name: "halving",
        meant_for: "many ranks, small blocks of different sizes: the fewest rounds and few peers",
        build: Build::Flat(halving),
        load: |on| {
            let blocks = blocks(on.size(), on.size().ilog2());
            Load::everywhere(on, blocks).to_one_a_round()
        },
    },
    Algorithm {
        name: "halving_packed",
        meant_for: "many ranks, small blocks of one size: the fewest rounds and messages",
        build: Build::Equal(halving_packed),
        load: |on| {
            let local = if on.size() > 1 { 2.0 } else { 1.0 };
            Load::everywhere(on, Traffic { local, ..figures::packed(on.size()) })
        },
    },
    Algorithm {
        name: "hierarchical",
        meant_for: "several hosts: each host sends one sum of its ranks for each block",
        build: Build::ByHost(hierarchical),
        load: hierarchical_load,
    },
];

/// What it costs to send and reduce n-1 blocks in `rounds` rounds.
fn blocks(size: u32, rounds: u32) -> Traffic {
    let local = f64::from((size - 1).max(1)) / f64::from(size);
    Traffic { local, ..figures::blocks(size, rounds) }
}

/// What [`hierarchical`] costs a rank of the largest host.
fn hierarchical_load(on: &Topology) -> Load {
    let (lanes, others) = (on.fewest(), on.most() - 1);
    let share = 1.0 / f64::from(on.size());
    let traffic = |rounds: u32, messages: u32, reduced: u32| Traffic {
        rounds,
        messages,
        bytes: f64::from(messages) * share,
        message: if messages > 0 { share } else { 0.0 },
        local: f64::from(reduced) * share,
        average: Average::EVEN,
    };
    // The blocks of each host for which a lane's rank sums up.
    let carried = on.most().div_ceil(lanes);
    let (gathered, sent) = (carried * on.hosts() * others, on.size());
    let within = traffic(others.min(1), gathered.max(if others > 0 { sent } else { 0 }), gathered);
    let between = (on.hosts() - 1) * carried;
    let last = u32::from(on.most() > lanes) * carried;
    let alone = u32::from(on.size() == 1);
    Load::of([
        Phase::host(within, on),
        Phase::wire(traffic(on.hosts() - 1, between, between), lanes),
        Phase::host(traffic(last.min(1), last, alone), on),
    ])
}

/// Everyone sends to each rank that rank's block; each adds what it gets.
///
/// Rounds: 1. Bytes sent by each rank: all blocks but one, the least possible.
///
/// ```text
///   0: block 1 ─▶ 1, block 2 ─▶ 2, 3 ─▶ 3        0: ((x0 + x3) + x2) + x1
///   1: block 2 ─▶ 2, block 3 ─▶ 3, 0 ─▶ 0        1: ((x1 + x0) + x3) + x2
///   2: block 3 ─▶ 3, block 0 ─▶ 0, 1 ─▶ 1        2: ((x2 + x1) + x0) + x3
///   3: block 0 ─▶ 0, block 1 ─▶ 1, 2 ─▶ 2        3: ((x3 + x2) + x1) + x0
/// ```
fn direct(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let mut sum = Block::input(rank);
    for distance in 1..size {
        let to = peers::after(rank, distance, size);
        let from = peers::before(rank, distance, size);
        builder.send(to, Block::input(to).whole());
        let into = Block::output(0);
        builder.recv_reduce(from, sum.whole(), into.whole(), Operands::LocalFirst);
        sum = into;
    }
    finish(builder, place)
}

/// Block b starts at rank b+1 and is summed on its way round the ring, until rank b has it.
///
/// Rounds: n-1. Bytes sent by each rank: all blocks but one, the least possible. Scratch memory:
/// n-2 blocks, one for each that only passes. Patarasuk, Yuan: Bandwidth optimal all-reduce
/// algorithms for clusters of workstations (2009).
///
/// ```text
///   block that rank r sends to r+1 (mod 4)
///   round      1   2   3      then
///   rank 0     3   2   1      has 0
///   rank 1     0   3   2      has 1
///   rank 2     1   0   3      has 2
///   rank 3     2   1   0      has 3
/// ```
fn ring(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let next = peers::after(rank, 1, size);
    let previous = peers::before(rank, 1, size);
    let mut sum = Block::input(previous);
    for round in 0..size - 1 {
        builder.send(next, sum.whole());
        let block = Block::input(peers::before(rank, round + 2, size));
        let into = if block.index == rank { Block::output(0) } else { builder.scratch(block) };
        builder.recv_reduce(previous, block.whole(), into.whole(), Operands::IncomingFirst);
        sum = into;
    }
    finish(builder, place)
}

/// Sums go round in steps that halve: in the first, each rank hands over what it has for the half
/// of the ranks that are farthest.
///
/// Rounds: ⌊log2 n⌋, and a first one for which none of them waits unless n is a power of two. Bytes
/// sent by each rank: all blocks but one, the least possible; a message for each block, since
/// blocks need not be neighbours in memory. Scratch memory: for half of the blocks. Träff: Optimal,
/// Non-pipelined Reduce-scatter and Allreduce Algorithms (2024).
///
/// ```text
///   blocks for which a rank still sums     round 1: to r+2     round 2: to r+1
///   0: 0 1 2 3                             0 1 . .             0 . . .
///   1: 0 1 2 3                             . 1 2 .             . 1 . .
///   2: 0 1 2 3                             . . 2 3             . . 2 .
///   3: 0 1 2 3                             0 . . 3             . . . 3
/// ```
fn halving(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    // By distance: where the sum for the rank at that distance lies.
    let mut sums: Vec<Block> =
        (0..size).map(|way| Block::input(peers::after(rank, way, size))).collect();
    for (distance, moved) in peers::circulant(size).into_iter().rev() {
        for way in distance..distance + moved {
            builder.send(peers::after(rank, distance, size), sums[way as usize].whole());
        }
        for way in 0..moved {
            let from = peers::before(rank, distance, size);
            let sum = sums[way as usize];
            let into = target(&mut builder, sum, way == 0);
            builder.recv_reduce(from, sum.whole(), into.whole(), Operands::LocalFirst);
            sums[way as usize] = into;
        }
    }
    finish(builder, place)
}

/// Where the next sum of the one in `sum` goes: into the output at the end, never into the input.
fn target(builder: &mut Builder, sum: Block, own: bool) -> Block {
    match sum.buffer {
        _ if own => Block::output(0),
        Buffer::Input => builder.scratch(sum),
        _ => sum,
    }
}

/// As [`halving`], with the blocks of a round in one message: all of them are copied side by side
/// into scratch memory before.
///
/// Rounds: ⌈log2 n⌉, one message in each; up to half of the time one less. Bytes sent by each rank:
/// all blocks but one, the least possible. Scratch memory: n blocks.
/// Träff: Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms (2024).
///
/// ```text
///   scratch memory of rank r      round 1: to r+2     round 2: to r+1
///   r r+1 r+2 r+3                 r r+1 . .           r . . .
/// ```
fn halving_packed(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    if size > 1 {
        let all = builder.scratch_for(Block::input(rank), size);
        for way in 0..size {
            let block = Block::input(peers::after(rank, way, size));
            builder.copy(block.whole(), all.part(way, size));
        }
        for (distance, moved) in peers::circulant(size).into_iter().rev() {
            builder.send(peers::after(rank, distance, size), all.span(distance, moved, size));
            let (from, kept) = (peers::before(rank, distance, size), all.span(0, moved, size));
            builder.recv_reduce(from, kept, kept, Operands::LocalFirst);
        }
        builder.copy(all.part(0, size), Block::output(0).whole());
    }
    finish(builder, place)
}

/// On each host, in as many lanes as the smallest host has ranks, a rank sums up what its host has
/// for a block; the sums go round the hosts, and at home to the rank of the block.
///
/// Rounds: of H hosts one on the host, H-1 between hosts, and one on the host where hosts have
/// different numbers of ranks. Bytes between hosts, sent by each host: all blocks but its own, the
/// least possible.
///
/// ```text
///   on each host                      between hosts
///   0: blocks 0 and 2 ◀── 1           0 ──▶ 2: block 2      2 ──▶ 0: block 0
///   1: blocks 1 and 3 ◀── 0           1 ──▶ 3: block 3      3 ──▶ 1: block 1
/// ```
fn hierarchical(place: Place, on: &Topology) -> Schedule {
    let rank = place.rank;
    let mut builder = Builder::new();
    let (home, hosts, lanes) = (on.host_of(rank), on.hosts(), on.fewest());
    let members = on.members(home);
    let carried = |host: u32, lane: u32| {
        on.members(host).iter().copied().skip(lane as usize).step_by(lanes as usize)
    };
    let mut sums: LargeMap<Rank, Block> = LargeMap::new();
    // The blocks that travel farthest come first, those of this host last.
    let by_distance = (0..hosts).map(|round| peers::before(home, round + 1, hosts));
    let mut own_sent = None;
    for (host, lane) in by_distance.flat_map(|host| (0..lanes).map(move |lane| (host, lane))) {
        let carrier = members[lane as usize];
        for block in carried(host, lane) {
            if carrier != rank {
                let sent = builder.send(carrier, Block::input(block).whole());
                own_sent = own_sent.or((block == rank).then_some(sent));
                continue;
            }
            let mut sum = Block::input(block);
            for &neighbour in members.iter().filter(|&&neighbour| neighbour != rank) {
                let into = target(&mut builder, sum, block == rank);
                builder.recv_reduce(neighbour, sum.whole(), into.whole(), Operands::LocalFirst);
                sum = into;
            }
            sums.insert(block, sum);
        }
    }
    let lane = members.iter().position(|&member| member == rank).unwrap_or_default() as u32;
    if let Some(team) = Team::of_lane(lane, place, on) {
        for round in 0..hosts - 1 {
            for block in carried(peers::before(home, round + 1, hosts), lane) {
                builder.send(team.rank(team.on(1)), sums[&block].whole());
            }
            for block in carried(peers::before(home, round + 2, hosts), lane) {
                let (sum, from) = (sums[&block], team.rank(team.back(1)));
                let into = target(&mut builder, sum, block == rank);
                builder.recv_reduce(from, sum.whole(), into.whole(), Operands::IncomingFirst);
                sums.insert(block, into);
            }
        }
        for block in carried(home, lane).filter(|&block| block != rank) {
            builder.send(block, sums[&block].whole());
        }
    }
    if let Some(sent) = own_sent {
        let carrier = members[(lane % lanes) as usize];
        let result = builder.recv(carrier, Block::output(0).whole());
        // The output may be the memory of the block that was sent.
        builder.order(sent, result);
    }
    finish(builder, place)
}

/// A rank that is alone has nothing to receive and copies.
fn finish(mut builder: Builder, place: Place) -> Schedule {
    if place.size == 1 {
        builder.copy(Block::input(0).whole(), Block::output(0).whole());
    }
    builder.build()
}
