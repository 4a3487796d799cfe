//! Alltoall: each rank sends a block to, and gets a block from, every rank. Each pair has its own
//! size, so no rank can hold a block of others on the way, unless the caller knows that all blocks
//! have one size.

use super::builder::Builder;
use super::cost::{Average, Load, Traffic};
use super::{
    Algorithm, Block, BlockContent, Build, Chunk, Contract, Place, Schedule, figures, peers,
};

/// One input block for each receiver, and one output block for each sender.
pub const CONTRACT: Contract = Contract {
    before: |place| {
        let input = (0..place.size).map(|block| BlockContent::One((place.rank, block))).collect();
        (input, vec![BlockContent::Anything; place.size as usize])
    },
    after: |place| (0..place.size).map(|sender| BlockContent::One((sender, place.rank))).collect(),
    in_place: |place| Some((place.rank, place.rank)),
    barrier: false,
};

/// The ways to run an alltoall.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "direct",
        meant_for: "few ranks: all messages at once",
        build: Build::Flat(direct),
        load: |on| Load::everywhere(on, figures::blocks(on.size(), on.size().min(2) - 1)),
    },
    Algorithm {
        name: "pairwise",
        meant_for: "many ranks: one message in and one out at a time",
        build: Build::Flat(pairwise),
        load: |on| Load::everywhere(on, figures::blocks(on.size(), on.size() - 1)),
    },
    Algorithm {
        name: "bruck",
        meant_for: "many ranks, tiny blocks of one size: few messages, each block goes far",
        build: Build::Equal(bruck),
        load: |on| Load::everywhere(on, bruck_traffic(on.size())),
    },
];

/// For each round of [`bruck`]: the bit of the distance that selects the blocks which are sent, as
/// a distance, and the number of these blocks.
fn bruck_rounds(size: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..peers::doublings(size)).map(move |bit| {
        let with = (0..size).filter(|distance| distance >> bit & 1 == 1);
        (1 << bit, with.count() as u32)
    })
}

/// What [`bruck`] costs.
fn bruck_traffic(size: u32) -> Traffic {
    let share = 1.0 / f64::from(size);
    let sent: u32 = bruck_rounds(size).map(|(_, blocks)| blocks).sum();
    let largest = bruck_rounds(size).map(|(_, blocks)| blocks).max().unwrap_or(0);
    // A round waits for those before that brought one of its blocks.
    let mut depths = vec![0; size as usize];
    for (bit, _) in bruck_rounds(size) {
        let moved = || (0..size).filter(|distance| distance & bit != 0);
        let depth = 1 + moved().map(|distance| depths[distance as usize]).max().unwrap_or(0);
        moved().for_each(|distance| depths[distance as usize] = depth);
    }
    Traffic {
        rounds: depths.into_iter().max().unwrap_or(0),
        messages: peers::doublings(size),
        bytes: f64::from(sent) * share,
        message: f64::from(largest) * share,
        local: 1.0 + f64::from(sent) * share,
        average: Average::EVEN,
    }
}

/// All messages at once.
///
/// Rounds: 1. Bytes sent by each rank: all blocks but its own.
///
/// ```text
///   0 ──▶ 1 2 3      1 ──▶ 2 3 0      2 ──▶ 3 0 1      3 ──▶ 0 1 2
/// ```
fn direct(place: Place) -> Schedule {
    exchange(place, false)
}

/// In round k each rank sends to the rank k places on and receives from the one k places back.
///
/// Rounds: n-1. Bytes sent by each rank: all blocks but its own.
/// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
/// (2005).
///
/// ```text
///   to whom rank r sends
///   round      1   2   3
///   rank 0     1   2   3
///   rank 1     2   3   0
///   rank 2     3   0   1
///   rank 3     0   1   2
/// ```
fn pairwise(place: Place) -> Schedule {
    exchange(place, true)
}

/// In round k each rank sends the rank 2^k places on, in one message, all the blocks that have to
/// go a way with bit k in its length: its own and those that it got before.
///
/// Rounds: ⌈log2 n⌉. Bytes sent by each rank: half of all its blocks in each round.
/// Bruck and others: Efficient Algorithms for All-to-All Communications (1997).
///
/// ```text
///   how far the blocks of a message have to go, all n of the sender's and of others'
///   round 1    r ─▶ r+1: those for 1 and 3 places on
///   round 2    r ─▶ r+2: those for 2 and 3 places on
/// ```
fn bruck(place: Place) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    // By distance still to go: where that block lies. It comes from as far away as it has
    // travelled.
    let mut blocks: Vec<Chunk> =
        (0..size).map(|way| Block::input(peers::after(rank, way, size)).whole()).collect();
    for (bit, count) in bruck_rounds(size) {
        let [packed, arrived] = [0, 1].map(|_| builder.scratch_for(Block::input(0), count));
        let moved = (0..size).filter(|way| way & bit != 0);
        for (part, way) in (0..).zip(moved) {
            builder.copy(blocks[way as usize], packed.part(part, count));
            blocks[way as usize] = arrived.part(part, count);
        }
        builder.send(peers::after(rank, bit, size), packed.span(0, count, count));
        builder.recv(peers::before(rank, bit, size), arrived.span(0, count, count));
    }
    for (way, block) in (0..).zip(blocks) {
        builder.copy(block, Block::output(peers::before(rank, way, size)).whole());
    }
    builder.build()
}

fn exchange(place: Place, one_by_one: bool) -> Schedule {
    let Place { rank, size, .. } = place;
    let mut builder = Builder::new();
    builder.copy(Block::input(rank).whole(), Block::output(rank).whole());
    let mut round_before = None;
    for distance in 1..size {
        let to = peers::after(rank, distance, size);
        let from = peers::before(rank, distance, size);
        let send = builder.send(to, Block::input(to).whole());
        let recv = builder.recv(from, Block::output(from).whole());
        if let Some(earlier) = round_before.filter(|_| one_by_one) {
            for (before, step) in [(0, send), (1, send), (0, recv), (1, recv)] {
                builder.order(earlier + before, step);
            }
        }
        round_before = Some(send);
    }
    builder.build()
}
