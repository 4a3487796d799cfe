//! What pieces of algorithms cost, as shares of the whole: the figures to [`moves`](super::moves)
//! and to what else several collectives have in common. Knows no steps.

use super::cost::{Average, Load, Phase, Traffic};
use super::{Topology, peers};

/// What reduce-scatter and allgather of equal shares cost in `rounds` rounds.
pub fn shares(size: u32, rounds: u32) -> Traffic {
    let share = 1.0 / f64::from(size);
    let others = f64::from(size - 1) * share;
    Traffic {
        rounds,
        messages: 2 * (size - 1),
        bytes: 2.0 * others,
        message: if size > 1 { share } else { 0.0 },
        local: others,
        average: Average::EVEN,
    }
}

/// What it costs to send n-1 blocks in `rounds` rounds, and to copy one.
pub fn blocks(size: u32, rounds: u32) -> Traffic {
    let share = 1.0 / f64::from(size);
    Traffic {
        rounds,
        messages: size - 1,
        bytes: f64::from(size - 1) * share,
        message: if size > 1 { share } else { 0.0 },
        local: share,
        average: Average::EVEN,
    }
}

/// What recursive exchanges cost, whose `figures` are known for any distances of a power of two of
/// ranks, and `folded` for other numbers of ranks.
pub fn exchanges(
    on: &Topology,
    figures: fn(&[u32], u32) -> Traffic,
    folded: fn(u32) -> Traffic,
) -> Load {
    let size = on.size();
    let (near, far): (Vec<u32>, Vec<u32>) =
        distances(size).into_iter().partition(|&distance| on.near(distance));
    if !size.is_power_of_two() || near.is_empty() || far.is_empty() {
        return Load::everywhere(on, folded(size));
    }
    let near = Phase::host(figures(&near, size), on);
    Load::of([near, Phase::wire(figures(&far, size), on.most())])
}

/// What ranks do on average, if `all` that take part do the same, and the others send one message
/// and get one.
fn folded(all: &Traffic, size: u32) -> Average {
    let core = f64::from(peers::power_of_two_below(size));
    let surplus = f64::from(size) - core;
    let part =
        |each: f64, folds: f64| (core * each + folds * surplus) / (f64::from(size) * (each + 1.0));
    Average {
        messages: part(f64::from(all.messages), 2.0),
        bytes: part(all.bytes, 2.0),
        local: part(all.local, 1.0),
    }
}

fn distances(size: u32) -> Vec<u32> {
    (0..peers::power_of_two_below(size).ilog2()).map(|bit| 1 << bit).collect()
}

/// What exchanges of the whole tensor at these distances cost, of a power of two of ranks.
pub fn doubling(distances: &[u32], size: u32) -> Traffic {
    let rounds = distances.len() as u32;
    // An odd number of exchanges starts with a copy.
    let copy = distances.contains(&1) && size.ilog2() % 2 == 1;
    Traffic {
        rounds,
        messages: rounds,
        bytes: f64::from(rounds),
        message: f64::from(rounds.min(1)),
        local: f64::from(rounds + u32::from(copy)),
        average: Average::EVEN,
    }
}

/// What recursive doubling costs with the ranks beyond a power of two folded away.
pub fn folded_doubling(size: u32) -> Traffic {
    let core = peers::power_of_two_below(size);
    let all = doubling(&distances(core), core);
    if core == size {
        return all;
    }
    Traffic {
        // Unless more than half of those that take part represent two, no message goes from the
        // farthest of these to a rank that hands it on.
        rounds: all.rounds + 1 + u32::from(size - core > core / 2),
        messages: all.messages + 1,
        bytes: all.bytes + 1.0,
        message: 1.0,
        local: all.local + 1.0,
        average: folded(&all, size),
    }
}

/// What halving and doubling at these distances cost, of a power of two of ranks.
pub fn halving(distances: &[u32], size: u32) -> Traffic {
    let share = |distance: &u32| f64::from(*distance) / f64::from(size);
    let moved = distances.iter().map(share).sum();
    let exchanges = distances.len() as u32;
    Traffic {
        rounds: 2 * exchanges,
        messages: 2 * exchanges,
        bytes: 2.0 * moved,
        message: distances.iter().map(share).fold(0.0, f64::max),
        local: moved,
        average: Average::EVEN,
    }
}

/// What halving and doubling cost with the ranks beyond a power of two folded away.
pub fn folded_halving(size: u32) -> Traffic {
    let core = peers::power_of_two_below(size);
    let all = halving(&distances(core), core);
    if core == size {
        return all;
    }
    Traffic {
        rounds: all.rounds + 2,
        messages: all.messages + 1,
        bytes: all.bytes + 1.0,
        message: 1.0,
        local: all.local + 1.0,
        average: folded(&all, size),
    }
}

/// What the circulant exchanges cost in one direction with one message a round, but for local work.
pub fn packed(size: u32) -> Traffic {
    let steps = peers::circulant(size);
    let share = 1.0 / f64::from(size);
    let largest = steps.iter().map(|(_, moved)| *moved).max().unwrap_or(0);
    let core = peers::power_of_two_below(size);
    // The last round moves fewer blocks unless the size is a power of two, and waits only for those
    // that brought them.
    let last = if core == size { 0 } else { 1 + peers::doublings(size - core) };
    Traffic {
        rounds: core.ilog2().max(last),
        messages: steps.len() as u32,
        bytes: f64::from(size - 1) * share,
        message: f64::from(largest) * share,
        local: 0.0,
        average: Average::EVEN,
    }
}

/// What the circulant exchanges of a tensor cost, to reduce it and back.
pub fn circulant(size: u32) -> Traffic {
    let steps = peers::circulant(size);
    let once = packed(size);
    // A message that goes beyond the last part of the tensor is two.
    let two = |first: u32, moved: u32| u32::from(first % size + moved > size);
    let extra = |rank: u32| -> u32 {
        steps.iter().map(|&(distance, moved)| two(rank, moved) + two(rank + distance, moved)).sum()
    };
    Traffic {
        rounds: 2 * once.rounds,
        messages: 2 * once.messages + (0..size).map(extra).max().unwrap_or(0),
        bytes: 2.0 * once.bytes,
        message: once.message,
        local: once.bytes,
        average: Average::EVEN,
    }
}

/// How many times longer bytes take through two trees than over a link that never pauses: two
/// children wait for each other, and so the simulation finds.
pub const DOUBLE_TREE_PACE: f64 = 2.0;

/// What two trees with half of the tensor each cost, up and down.
pub fn double_tree(size: u32) -> Traffic {
    // A rank with two children in one tree hands on what it gets to three, and to one in the other.
    let messages = [0, 2, 3, 4][size.min(4) as usize - 1];
    // Up and down the edges of both; each edge is reduced over once.
    let edges = Average::of_trees(4, size, messages);
    let average = Average { local: Average::of_trees(1, size, 1).local, ..edges };
    Traffic {
        rounds: 2 * peers::double_tree_depth(size),
        messages,
        bytes: f64::from(messages) / 2.0,
        message: if size > 1 { 0.5 } else { 0.0 },
        local: f64::from(size.min(2) - 1),
        average,
    }
}

/// What a binomial tree costs the rank that it leads to or comes from.
pub fn binomial(size: u32, reduces: bool) -> Traffic {
    let messages = peers::doublings(size);
    Traffic {
        rounds: size.ilog2(),
        messages,
        bytes: f64::from(messages),
        message: f64::from(messages.min(1)),
        local: if reduces { f64::from(messages) } else { 0.0 },
        average: Average::of_trees(1, size, messages),
    }
}

/// What it costs to gather equal blocks up a binomial tree, or to hand them down it.
pub fn binomial_blocks(size: u32) -> Traffic {
    let share = 1.0 / f64::from(size);
    let messages = || peers::binomial_children(0, size).map(|(_, blocks)| blocks);
    // The root has a place for a block that travels alone; the others are copied, as is its own.
    let copied = 1 + messages().filter(|&blocks| blocks > 1).sum::<u32>();
    // A block travels as often as its rank has bits, half of them on average. Every other rank has
    // children, and copies its own block to those that it gets from them.
    let doublings = peers::doublings(size);
    let sent = f64::from(doublings) / 2.0 / f64::from(size.max(2) - 1);
    let copies = f64::from(copied + size / 2) * share / f64::from(copied);
    let average = Average { bytes: sent, local: copies, ..Average::of_trees(1, size, doublings) };
    Traffic {
        rounds: size.ilog2(),
        messages: peers::doublings(size),
        bytes: f64::from(size - 1) * share,
        message: f64::from(messages().max().unwrap_or(0)) * share,
        local: f64::from(copied) * share,
        average,
    }
}

/// What it costs to gather each lane's part from the ranks of a host, to carry it `between` hosts,
/// and to hand it out.
pub fn by_lanes(on: &Topology, between: Traffic) -> Load {
    let lanes = on.fewest();
    let (lane, others) = (1.0 / f64::from(lanes), on.most() - 1);
    // Where hosts differ, a rank without a lane sends every part; one with a lane gets from all.
    let sent = if on.most() > lanes { lanes } else { lanes - 1 };
    let round = Traffic {
        average: Average::EVEN,
        rounds: others.min(1),
        messages: others.max(sent),
        bytes: f64::from(others.max(sent)) * lane,
        message: if others > 0 { lane } else { 0.0 },
        local: 0.0,
    };
    let between = Traffic {
        bytes: between.bytes * lane,
        message: between.message * lane,
        local: between.local * lane,
        ..between
    };
    let reduced = Traffic { local: f64::from(others) * lane, ..round };
    Load::of([Phase::host(reduced, on), Phase::wire(between, lanes), Phase::host(round, on)])
}

/// What it costs when each rank hands the whole tensor to the next one, and the busiest reduces and
/// copies `local` of it.
pub fn chain(size: u32, local: f64) -> Traffic {
    let messages = size.min(2) - 1;
    let once = f64::from(messages);
    let average = Average::of_trees(1, size, 1);
    Traffic { rounds: size - 1, messages, bytes: once, message: once, local, average }
}

/// What it costs when what ranks have is doubled from the ranks before them.
pub fn prefix(size: u32) -> Traffic {
    let messages = peers::doublings(size);
    // In round k the first 2^k ranks get nothing.
    let nothing = f64::from(size.max(2).next_power_of_two() - 1);
    let average = 1.0 - nothing / f64::from(size) / f64::from(messages.max(1));
    // Some ranks copy: more on average, but none of them is the busiest.
    let average = Average { local: 1.0, ..Average::all(if size > 1 { average } else { 1.0 }) };
    // A rank that gets nothing in a round has what it sends in the next one already.
    let (rounds, bytes) = (size.ilog2(), f64::from(messages));
    Traffic { rounds, messages, bytes, message: bytes.min(1.0), local: bytes, average }
}

/// As [`prefix`], if ranks need what they have without themselves, too.
pub fn exclusive_prefix(size: u32) -> Traffic {
    let rounds = peers::doublings(size);
    // Two reductions a round, but for the first round and what is not sent any more.
    let far = rounds >= 2 && size > 3 << (rounds - 2);
    let local = (2 * rounds).saturating_sub(if far { 2 } else { 3 });
    Traffic { local: f64::from(local), ..prefix(size) }
}
