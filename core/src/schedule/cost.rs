//! What schedules cost: a price by a few figures of an algorithm, and a simulation of all ranks'
//! schedules. Knows no collective; seconds are model seconds, nothing here reads a clock.
//!
//! The model is LogGP's: a message occupies its sender and its receiver for an overhead and a time
//! per byte, and arrives a latency later. Messages are cut into segments, which overlap where one
//! step hands on what another is still receiving.
//! Alexandrov, Ionescu, Schauser, Scheiman: LogGP (1995).

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::walk::{At, Event, Walk};
use super::{Action, Chunk, Rank, Schedule, Step};

/// What an algorithm sends, for a number of ranks. Bytes are fractions of the whole: of the tensor
/// in an allreduce, reduce or broadcast, of all blocks together elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Messages that follow one another on the longest path.
    pub rounds: u32,
    /// The most messages that one rank sends, or receives.
    pub messages: u32,
    /// The most that one rank sends, or receives.
    pub bytes: f64,
    /// The largest message.
    pub message: f64,
    /// The most that one rank reduces and copies.
    pub local: f64,
}

/// What a link between two ranks costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds from the end of sending to the end of receiving (α).
    pub latency_s: f64,
    /// Seconds for which a message occupies each end, besides its bytes.
    pub overhead_s: f64,
    /// Seconds for which a byte occupies each end (β).
    pub byte_s: f64,
}

/// What a group of ranks costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Every link, or the worst one.
    pub link: Link,
    /// Seconds to reduce or copy a byte (γ).
    pub local_byte_s: f64,
    /// Seconds that each further message in flight at one rank adds to a message: many senders to
    /// one receiver get in each other's way.
    pub crowd_s: f64,
    /// The size at which messages are cut.
    pub segment_bytes: f64,
}

impl Prices {
    /// TCP over loopback on a busy two-core virtual machine: 64-byte round trips took 4.7 µs, of
    /// which a write took 1.3 to 4.3 µs, and 256 KiB segments went at 3 GB/s; f32 sums in the cache
    /// went at 10 to 20 GB/s. The executor's share is added to the first two by estimate; so is the
    /// crowd.
    pub const LOOPBACK: Prices = Prices {
        link: Link { latency_s: 6e-6, overhead_s: 3e-6, byte_s: 0.33e-9 },
        local_byte_s: 0.08e-9,
        crowd_s: 0.05e-6,
        segment_bytes: 262_144.0,
    };
}

impl Traffic {
    /// Seconds for `whole_bytes`. A segmented pipeline is as slow as its busiest rank, or as long
    /// as its longest path, whichever is more.
    pub fn price(&self, whole_bytes: f64, prices: &Prices) -> f64 {
        let message = self.message * whole_bytes;
        let before_the_last = f64::from(self.rounds.saturating_sub(1));
        let path = before_the_last * message.min(prices.segment_bytes) + message;
        let busiest = self.bytes * whole_bytes;
        let messages = f64::from(self.messages);
        let at_once = (messages / f64::from(self.rounds.max(1)) - 1.0).max(0.0);
        let Link { latency_s, overhead_s, byte_s } = prices.link;
        let one_by_one = f64::from(self.rounds) * (latency_s + overhead_s);
        let all_at_once = f64::from(self.rounds.min(1)) * latency_s + messages * overhead_s;
        one_by_one.max(all_at_once)
            + messages * at_once * prices.crowd_s
            + busiest.max(path) * byte_s
            + self.local * whole_bytes * prices.local_byte_s
    }

    /// Derives the figures from the schedules of all ranks, if they fit together. The whole is
    /// `blocks` blocks of equal size.
    pub fn of(schedules: &[Schedule], blocks: u32) -> Option<Traffic> {
        let mut traffic = Traffic {
            rounds: rounds(schedules)?,
            messages: 0,
            bytes: 0.0,
            message: 0.0,
            local: 0.0,
        };
        for schedule in schedules {
            let (mut sent, mut received) = ((0, 0.0), (0, 0.0));
            let mut local = 0.0;
            for Step { action, .. } in &schedule.steps {
                let share = share(action) / f64::from(blocks.max(1));
                let side = if action.receiver().is_some() { &mut sent } else { &mut received };
                if action.receiver().is_some() || action.sender().is_some() {
                    side.0 += 1;
                    side.1 += share;
                    traffic.message = traffic.message.max(share);
                }
                if !matches!(action, Action::Send { .. } | Action::Recv { .. }) {
                    local += share;
                }
            }
            traffic.messages = traffic.messages.max(sent.0).max(received.0);
            traffic.bytes = traffic.bytes.max(sent.1).max(received.1);
            traffic.local = traffic.local.max(local);
        }
        Some(traffic)
    }
}

/// The number of messages that follow one another on the longest path through the schedules of all
/// ranks; none if they do not fit together.
pub fn rounds(schedules: &[Schedule]) -> Option<u32> {
    let walk = Walk::new(schedules).ok()?;
    let order = walk.order().ok()?;
    Some(depths(&walk, &order).into_iter().max().unwrap_or(0))
}

/// For each step, the messages that follow one another until it has ended, its own among them if
/// it receives.
pub(super) fn depths(walk: &Walk, order: &[(At, Event)]) -> Vec<u32> {
    let mut depths = vec![0; walk.steps()];
    for &(at, event) in order {
        let own = walk.index(at);
        let step = step(walk.schedules, at);
        match event {
            Event::Start => {
                let before = step.after.iter().map(|&step| walk.index(At { step, ..at }));
                depths[own] = before.map(|before| depths[before]).max().unwrap_or(0);
            }
            Event::Finish if step.action.sender().is_some() => {
                let sent = walk.partner(at).map_or(0, |partner| depths[walk.index(partner)]);
                depths[own] = depths[own].max(sent + 1);
            }
            Event::Finish => {}
        }
    }
    depths
}

/// Seconds until the last rank is done, if the schedules fit together. Every block has
/// `block_bytes`; `link` tells what it costs from one rank to another, so that hosts and wide-area
/// networks can differ.
pub fn simulate(
    schedules: &[Schedule],
    block_bytes: f64,
    prices: &Prices,
    link: impl Fn(Rank, Rank) -> Link,
) -> Option<f64> {
    let walk = Walk::new(schedules).ok()?;
    walk.order().ok()?;
    let times = simulate_steps(&walk, block_bytes, prices, link);
    Some(times.iter().map(|times| times.finish).fold(0.0, f64::max))
}

/// For each step of schedules that fit together, when it happens.
pub(super) fn simulate_steps(
    walk: &Walk,
    block_bytes: f64,
    prices: &Prices,
    link: impl Fn(Rank, Rank) -> Link,
) -> Vec<Times> {
    let schedules = walk.schedules;
    let mut simulation = Simulation {
        missing: walk.all().map(|at| step(schedules, at).after.len() as u32).collect(),
        next: vec![Vec::new(); walk.steps()],
        times: vec![Times::default(); walk.steps()],
        heap: BinaryHeap::new(),
        ports: vec![[0.0; 2]; schedules.len()],
        walk,
        block_bytes,
        prices,
    };
    for at in walk.all() {
        for &before in &step(schedules, at).after {
            simulation.next[walk.index(At { step: before, ..at })].push(at);
        }
    }
    walk.all().for_each(|at| simulation.consider(at));
    while let Some(Ready { at, .. }) = simulation.heap.pop() {
        simulation.run(at, &link);
    }
    simulation.times
}

/// When a step began, when its first segment was done, and when all of it.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    /// When a message left its sender, or began to arrive; when local work began.
    pub(super) begin: f64,
    first: f64,
    pub(super) finish: f64,
    done: bool,
}

struct Simulation<'a> {
    walk: &'a Walk<'a>,
    prices: &'a Prices,
    block_bytes: f64,
    /// For each step, how many of those it waits for are not done.
    missing: Vec<u32>,
    /// For each step, those of the same rank that wait for it.
    next: Vec<Vec<At>>,
    times: Vec<Times>,
    heap: BinaryHeap<Ready>,
    /// For each rank, until when it is busy sending, and receiving.
    ports: Vec<[f64; 2]>,
}

impl Simulation<'_> {
    /// Puts a step on the heap if it can run, a message under its sender.
    fn consider(&mut self, at: At) {
        let own = self.walk.index(at);
        let partner = self.walk.partner(at);
        let waits = self.missing[own] > 0
            || partner.is_some_and(|partner| self.missing[self.walk.index(partner)] > 0);
        if waits || self.times[own].done {
            return;
        }
        let schedules = self.walk.schedules;
        let sender = match partner {
            Some(partner) if step(schedules, at).action.sender().is_some() => partner,
            _ => at,
        };
        let queued = self.walk.index(sender);
        self.times[queued].done = true;
        self.times[own].done = true;
        if let Some(partner) = partner {
            self.times[self.walk.index(partner)].done = true;
        }
        let time = self.begin(sender).0;
        self.heap.push(Ready { time, at: sender });
    }

    /// When a step can begin, and before when it cannot end.
    fn begin(&self, at: At) -> (f64, f64) {
        let own = step(self.walk.schedules, at);
        let (mut begin, mut end) = (0.0f64, 0.0f64);
        for &before in &own.after {
            let earlier = &self.walk.schedules[at.rank as usize].steps[before as usize];
            let times = self.times[self.walk.index(At { step: before, ..at })];
            if overlap(&earlier.action, &own.action) {
                begin = begin.max(times.first);
                end = end.max(times.finish + (times.first - times.finish).max(0.0));
            } else {
                begin = begin.max(times.finish);
            }
        }
        (begin, end)
    }

    fn run(&mut self, at: At, link: impl Fn(Rank, Rank) -> Link) {
        let action = step(self.walk.schedules, at).action;
        let bytes = share(&action) * self.block_bytes;
        let segment = bytes.min(self.prices.segment_bytes);
        let (begin, end) = self.begin(at);
        let Some(partner) = self.walk.partner(at) else {
            let first = begin + segment * self.prices.local_byte_s;
            let finish = (begin + bytes * self.prices.local_byte_s).max(end);
            return self.finish(at, begin, first, finish);
        };
        let link = link(at.rank, partner.rank);
        let (partner_begin, partner_end) = self.begin(partner);
        let [out, _] = self.ports[at.rank as usize];
        let [_, into] = self.ports[partner.rank as usize];
        let sent = begin.max(out) + link.overhead_s;
        self.ports[at.rank as usize][0] = sent + bytes * link.byte_s;
        let arrives = (sent + link.latency_s).max(into + link.overhead_s).max(partner_begin);
        self.ports[partner.rank as usize][1] = arrives + bytes * link.byte_s;
        let reduces =
            matches!(step(self.walk.schedules, partner).action, Action::RecvReduce { .. });
        let local_byte_s = if reduces { self.prices.local_byte_s } else { 0.0 };
        let segment_s = segment * link.byte_s.max(local_byte_s);
        let first = arrives + segment_s;
        let finish = (arrives + bytes * (link.byte_s + local_byte_s))
            .max(end + link.latency_s + segment_s)
            .max(partner_end);
        self.finish(at, begin.max(out), sent, sent.max(finish - link.latency_s));
        self.finish(partner, arrives, first, finish);
    }

    fn finish(&mut self, at: At, begin: f64, first: f64, finish: f64) {
        let own = self.walk.index(at);
        self.times[own] = Times { begin, first: first.min(finish), finish, done: true };
        for next in std::mem::take(&mut self.next[own]) {
            let next_index = self.walk.index(next);
            self.missing[next_index] -= 1;
            if self.missing[next_index] == 0 {
                self.consider(next);
            }
        }
    }
}

/// A step that can run at a time; the earliest is the greatest.
struct Ready {
    time: f64,
    at: At,
}

impl Ord for Ready {
    fn cmp(&self, other: &Ready) -> Ordering {
        let place = |ready: &Ready| (ready.at.step, ready.at.rank);
        other.time.total_cmp(&self.time).then_with(|| place(other).cmp(&place(self)))
    }
}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Ready) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ready {
    fn eq(&self, other: &Ready) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ready {}

fn step(schedules: &[Schedule], at: At) -> &Step {
    &schedules[at.rank as usize].steps[at.step as usize]
}

/// Whether segments of a step may overlap with those of an earlier one.
pub(super) fn overlap(earlier: &Action, later: &Action) -> bool {
    let same = |a: Chunk| !a.is_nothing() && later.chunks().any(|b| a == b);
    earlier.chunks().any(same)
}

/// How much of a block a step moves.
fn share(action: &Action) -> f64 {
    let chunk = action.chunks().last().unwrap_or(Chunk::NOTHING);
    f64::from(chunk.count) / f64::from(chunk.parts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::schedule::Place;
    use crate::schedule::select::{Overrides, select};
    use crate::{Blocks, Collective};

    /// Round figures, to be reckoned with by hand: 10 s latency, 1 s overhead, 1 s a byte.
    const ROUND: Prices = Prices {
        link: Link { latency_s: 10.0, overhead_s: 1.0, byte_s: 1.0 },
        local_byte_s: 0.0,
        crowd_s: 0.0,
        segment_bytes: 4.0,
    };

    fn schedules(collective: Collective, algorithm: usize, size: u32) -> Vec<Schedule> {
        let build = collective.algorithms()[algorithm].build;
        (0..size).map(|rank| build(Place { rank, size, root: 0 })).collect()
    }

    fn named(collective: Collective, name: &str, size: u32) -> Vec<Schedule> {
        let found = collective.algorithms().iter().position(|known| known.name == name);
        schedules(collective, found.unwrap(), size)
    }

    fn simulated(schedules: &[Schedule], block_bytes: f64, prices: &Prices) -> f64 {
        simulate(schedules, block_bytes, prices, |_, _| prices.link).unwrap()
    }

    #[test]
    fn one_message_takes_overhead_latency_and_its_bytes() {
        let pair = named(Collective::Broadcast, "binomial", 2);
        assert_eq!(simulated(&pair, 100.0, &ROUND), 1.0 + 10.0 + 100.0);
    }

    #[test]
    fn a_sender_sends_one_byte_at_a_time() {
        // The last of three messages leaves after three overheads and the bytes of the first two.
        let all = named(Collective::Reduce, "linear", 4);
        let to_root = simulated(&all, 100.0, &ROUND);
        assert!((311.0..=330.0).contains(&to_root), "{to_root}");
        let all = named(Collective::Scatter, "linear", 4);
        assert_eq!(simulated(&all, 100.0, &ROUND), 3.0 + 10.0 + 300.0);
    }

    #[test]
    fn segments_of_a_chain_overlap() {
        let chain = named(Collective::Broadcast, "chain", 5);
        let once = simulated(&named(Collective::Broadcast, "chain", 2), 1000.0, &ROUND);
        let whole = simulated(&chain, 1000.0, &ROUND);
        // Three more hops cost a latency, an overhead and a segment each, not the tensor again.
        assert!(whole > once && whole <= once + 3.0 * (10.0 + 1.0 + 2.0 * 4.0), "{whole} {once}");
    }

    #[test]
    fn links_may_differ() {
        let far = Link { latency_s: 1000.0, ..ROUND.link };
        let ring = named(Collective::Allgather, "ring", 4);
        let wide = |from: u32, to: u32| if from / 2 == to / 2 { ROUND.link } else { far };
        let near = simulated(&ring, 1.0, &ROUND);
        let apart = simulate(&ring, 1.0, &ROUND, wide).unwrap();
        assert!(apart > near + 1000.0 && apart < near + 3000.0, "{apart} {near}");
    }

    #[test]
    fn schedules_that_do_not_fit_have_no_price() {
        let ring = named(Collective::Allgather, "ring", 4);
        assert_eq!(simulate(&ring[..3], 1.0, &ROUND, |_, _| ROUND.link), None);
        assert_eq!(rounds(&ring[..3]), None);
        assert_eq!(Traffic::of(&ring[1..], 4), None);
    }

    #[test]
    fn the_choice_by_price_is_near_the_best_by_simulation() {
        for collective in Collective::ALL {
            let facts = collective.facts();
            let many = facts.input == Blocks::All || facts.output == Blocks::All;
            for size in [2, 3, 4, 5, 8, 13, 16, 32] {
                for bytes in [0u64, 4, 1 << 10, 1 << 16, 1 << 20, 1 << 26] {
                    let block_bytes = bytes as f64 / if many { f64::from(size) } else { 1.0 };
                    let seconds: Vec<f64> = (0..collective.algorithms().len())
                        .map(|way| schedules(collective, way, size))
                        .map(|all| simulated(&all, block_bytes, &Prices::LOOPBACK))
                        .collect();
                    let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
                    let chosen = select(collective, size, Some(bytes), &Overrides::none());
                    let names: Vec<_> = collective.algorithms().iter().map(|a| a.name).collect();
                    assert!(
                        seconds[chosen] <= 2.0 * best,
                        "{} of {bytes} bytes, {size} ranks: chose {} of {names:?} {seconds:?}",
                        facts.name,
                        names[chosen]
                    );
                }
            }
        }
    }
}
