//! Allgather: every rank ends with every rank's tensor. Blocks may differ in size.
//!
//! The input and the rank's own output block may be the same memory: nothing but the copy of one
//! to the other writes there, and what is sent to others is the input.

use super::builder::Builder;
use super::cost::{Average, Load, Phase, Traffic};
use super::{
    Algorithm, Block, BlockContent, Build, Chunk, Contract, Place, Schedule, Team, Topology,
    figures, peers,
};

/// One input block, and one output block for each rank.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        (
            vec![BlockContent::One((place.rank, 0))],
            vec![BlockContent::Anything; place.size as usize],
        )
    },
    after: |place| (0..place.size).map(|rank| BlockContent::One((rank, 0))).collect(),
    in_place: |place| Some((0, place.rank)),
    barrier: false,
};

/// The ways to run an allgather.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "direct",
        meant_for: "few ranks: one round, everything to everyone",
        build: Build::Flat(direct),
        load: |on| Load::everywhere(on, figures::blocks(on.size(), on.size().min(2) - 1)),
    },
    Algorithm {
        name: "bruck",
        meant_for: "many ranks, small tensors of different sizes: the fewest rounds and few peers",
        build: Build::Flat(bruck),
        load: |on| {
            let blocks = figures::blocks(on.size(), on.size().ilog2());
            Load::everywhere(on, blocks).to_one_a_round()
        },
    },
    Algorithm {
        name: "ring",
        meant_for: "large tensors: only between neighbours",
        build: Build::Flat(ring),
        load: |on| Load::neighbours(on, figures::blocks(on.size(), on.size() - 1)),
    },
    Algorithm {
        name: "bruck_packed",
        meant_for: "many ranks, small tensors of one size: the fewest rounds and messages",
        build: Build::Equal(bruck_packed),
        load: |on| {
            let size = on.size();
            let copies = if size > 1 { size + 1 } else { 1 };
            let local = f64::from(copies) / f64::from(size);
            Load::everywhere(on, Traffic { local, ..figures::packed(size) })
        },
    },
    Algorithm {
        name: "hierarchical",
        meant_for: "several hosts: each tensor goes once to each host, and there to all ranks",
        build: Build::ByHost(hierarchical),
        load: hierarchical_load,
    },
];

/// What [`hierarchical`] costs a rank of the largest host.
fn hierarchical_load(on: &Topology) -> Load {
    let (lanes, others) = (on.fewest(), on.most() - 1);
    let share = 1.0 / f64::from(on.size());
    let within = figures::blocks(on.most(), on.most().min(2) - 1);
    let scale = f64::from(on.most()) * share;
    let within = Traffic {
        bytes: within.bytes * scale,
        message: within.message * scale,
        local: share,
        ..within
    };
    // What a lane brings: its part of every other host's tensors.
    let brought = (on.hosts() - 1) * on.most().div_ceil(lanes);
    let traffic = |rounds: u32, messages: u32| Traffic {
        rounds,
        messages,
        bytes: f64::from(messages) * share,
        message: if messages > 0 { share } else { 0.0 },
        local: 0.0,
        average: Average::EVEN,
    };
    let received = brought * lanes.min(others);
    let handed_out = traffic(others.min(on.hosts() - 1).min(1), (brought * others).max(received));
    Load::of([
        Phase::host(within, on),
        Phase::wire(traffic(on.hosts() - 1, brought), lanes),
        Phase::host(handed_out, on),
    ])
}

/// Copies the rank's own block, and tells from where to send a block: its own needs no copy first.
fn start(builder: &mut Builder, rank: u32) -> impl Fn(u32) -> Chunk + use<> {
    builder.copy(Block::input(0).whole(), Block::output(rank).whole());
    move |block| {
        if block == rank { Block::input(0).whole() } else { Block::output(block).whole() }
    }
}

/// Everyone sends its block to everyone.
///
/// Rounds: 1. Bytes sent by each rank: (n-1) times its block.
///
/// ```text
///   0 ──▶ 1 2 3      1 ──▶ 2 3 0      2 ──▶ 3 0 1      3 ──▶ 0 1 2
/// ```
fn direct(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let have = start(&mut builder, rank);
    for distance in 1..size {
        let from = peers::before(rank, distance, size);
        builder.send(peers::after(rank, distance, size), have(rank));
        builder.recv(from, Block::output(from).whole());
    }
    builder.build()
}

/// In round k each rank gets as many blocks as it has from the rank 2^k places on.
///
/// Rounds: ⌊log2 n⌋, and a last one that waits for none of them unless n is a power of two. Bytes
/// sent by each rank: all blocks but one; a message for each block, since
/// blocks need not be neighbours in memory. Blocks arrive where they belong: no final rotation.
/// Bruck and others: Efficient Algorithms for All-to-All Communications (1997).
///
/// ```text
///   blocks that a rank has     round 1: from r+1     round 2: from r+2
///   0: 0 . . .                 0 1 . .               0 1 2 3
///   1: . 1 . .                 . 1 2 .               0 1 2 3
///   2: . . 2 .                 . . 2 3               0 1 2 3
///   3: . . . 3                 0 . . 3               0 1 2 3
/// ```
fn bruck(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let have = start(&mut builder, rank);
    let mut blocks = 1;
    while blocks < size {
        let moved = blocks.min(size - blocks);
        for index in 0..moved {
            let block = peers::after(rank, index, size);
            builder.send(peers::before(rank, blocks, size), have(block));
        }
        for index in 0..moved {
            let block = peers::after(rank, blocks + index, size);
            builder.recv(peers::after(rank, blocks, size), Block::output(block).whole());
        }
        blocks += moved;
    }
    builder.build()
}

/// Blocks travel round the ring.
///
/// Rounds: n-1. Bytes sent by each rank: all blocks but one.
///
/// ```text
///   block that rank r sends to r+1 (mod 4)
///   round      1   2   3
///   rank 0     0   3   2
///   rank 1     1   0   3
///   rank 2     2   1   0
///   rank 3     3   2   1
/// ```
fn ring(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    let have = start(&mut builder, rank);
    let next = peers::after(rank, 1, size);
    let previous = peers::before(rank, 1, size);
    for round in 0..size - 1 {
        builder.send(next, have(peers::before(rank, round, size)));
        let block = peers::before(rank, round + 1, size);
        builder.recv(previous, Block::output(block).whole());
    }
    builder.build()
}

/// As [`bruck`], with the blocks of a round in one message: all of them stand side by side in
/// scratch memory, and are copied to where they belong at the end.
///
/// Rounds: ⌈log2 n⌉, one message in each; up to half of the time one less. Bytes sent by each rank:
/// all blocks but one. Bruck and others: Efficient Algorithms for All-to-All Communications (1997).
///
/// ```text
///   scratch memory of rank r        round 1: from r+1     round 2: from r+2
///   r . . .                         r r+1 . .             r r+1 r+2 r+3
/// ```
fn bruck_packed(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    builder.copy(Block::input(0).whole(), Block::output(rank).whole());
    if size == 1 {
        return builder.build();
    }
    let all = builder.scratch_for(Block::input(0), size);
    builder.copy(Block::input(0).whole(), all.part(0, size));
    for (distance, moved) in peers::circulant(size) {
        builder.send(peers::before(rank, distance, size), all.span(0, moved, size));
        builder.recv(peers::after(rank, distance, size), all.span(distance, moved, size));
    }
    for distance in 1..size {
        let block = Block::output(peers::after(rank, distance, size));
        builder.copy(all.part(distance, size), block.whole());
    }
    builder.build()
}

/// On each host everyone sends its block to everyone; then the blocks of each host travel round the
/// hosts, in as many lanes as the smallest host has ranks, and each lane's rank hands what comes to
/// its host.
///
/// Rounds: of H hosts one on the host and H-1 between hosts, which overlap with handing out. Bytes
/// between hosts, sent by each host: all blocks but one host's, the least possible.
///
/// ```text
///   on each host      between hosts, lane by lane         on each host
///   0 ◀─▶ 1           0 ◀─▶ 2: blocks 0 and 2             0 ──▶ 1: block 2
///   2 ◀─▶ 3           1 ◀─▶ 3: blocks 1 and 3             1 ──▶ 0: block 3
/// ```
fn hierarchical(place: Place, on: &Topology) -> Schedule {
    let rank = place.rank;
    let mut builder = Builder::new();
    let have = start(&mut builder, rank);
    let (home, lanes) = (on.host_of(rank), on.fewest());
    let neighbours: Vec<_> = on.members(home).iter().copied().filter(|&it| it != rank).collect();
    for &neighbour in &neighbours {
        builder.send(neighbour, have(rank));
    }
    for &neighbour in &neighbours {
        builder.recv(neighbour, Block::output(neighbour).whole());
    }
    // The blocks of a host that a lane carries.
    let carried = |host: u32, lane: u32| {
        on.members(host).iter().copied().skip(lane as usize).step_by(lanes as usize)
    };
    for round in 0..on.hosts() - 1 {
        let leaving = peers::before(home, round, on.hosts());
        let coming = peers::before(home, round + 1, on.hosts());
        for (lane, &carrier) in (0..lanes).zip(on.members(home)) {
            if carrier != rank {
                for block in carried(coming, lane) {
                    builder.recv(carrier, Block::output(block).whole());
                }
                continue;
            }
            let Some(team) = Team::of_lane(lane, place, on) else { continue };
            for block in carried(leaving, lane) {
                builder.send(team.rank(team.on(1)), have(block));
            }
            for block in carried(coming, lane) {
                builder.recv(team.rank(team.back(1)), Block::output(block).whole());
                for &neighbour in &neighbours {
                    builder.send(neighbour, have(block));
                }
            }
        }
    }
    builder.build()
}
