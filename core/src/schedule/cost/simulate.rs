//! All ranks' schedules run in model time. Knows no collective, and reads no clock.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{LinkCosts, blocks_moved, overlap};
use crate::schedule::walk::{StepId, Walk};
use crate::schedule::{Action, Schedule, Step, Topology};

/// Seconds until the last rank is done, if the schedules fit together. Every block has
/// `block_bytes`; `on` tells which ranks share a host.
pub fn simulate(
    schedules: &[Schedule],
    block_bytes: f64,
    link_costs: &LinkCosts,
    on: &Topology,
) -> Option<f64> {
    let walk = Walk::new(schedules).ok()?;
    walk.order().ok()?;
    let times = simulate_steps(&walk, block_bytes, link_costs, on);
    Some(times.iter().map(|times| times.finish).fold(0.0, f64::max))
}

/// For each step of schedules that fit together, when it happens.
pub(in crate::schedule) fn simulate_steps(
    walk: &Walk,
    block_bytes: f64,
    link_costs: &LinkCosts,
    on: &Topology,
) -> Vec<Times> {
    let schedules = walk.schedules;
    let mut simulation = Simulation {
        missing: walk.all().map(|at| step(schedules, at).after.len() as u32).collect(),
        next: vec![Vec::new(); walk.steps()],
        times: vec![Times::default(); walk.steps()],
        heap: BinaryHeap::new(),
        ports: vec![[0.0; 2]; schedules.len()],
        wires: vec![[0.0; 2]; on.hosts() as usize],
        walk,
        block_bytes,
        link_costs,
        on,
    };
    for at in walk.all() {
        for &before in &step(schedules, at).after {
            simulation.next[walk.index(StepId { step: before, ..at })].push(at);
        }
    }
    walk.all().for_each(|at| simulation.consider(at));
    while let Some(ReadyStep { at, .. }) = simulation.heap.pop() {
        simulation.run(at);
    }
    simulation.times
}

/// When a step began, when its first segment was done, and when all of it.
#[derive(Clone, Copy, Default)]
pub(in crate::schedule) struct Times {
    /// When a message left its sender, or began to arrive; when local work began.
    pub(in crate::schedule) begin: f64,
    first: f64,
    pub(in crate::schedule) finish: f64,
    done: bool,
}

struct Simulation<'a> {
    walk: &'a Walk<'a>,
    link_costs: &'a LinkCosts,
    on: &'a Topology,
    block_bytes: f64,
    /// For each step, how many of those it waits for are not done.
    missing: Vec<u32>,
    /// For each step, those of the same rank that wait for it.
    next: Vec<Vec<StepId>>,
    times: Vec<Times>,
    heap: BinaryHeap<ReadyStep>,
    /// For each rank, until when it is busy sending, and receiving.
    ports: Vec<[f64; 2]>,
    /// For each host, until when its wire is busy with what leaves, and with what comes.
    wires: Vec<[f64; 2]>,
}

impl Simulation<'_> {
    /// Puts a step on the heap if it can run, a message under its sender.
    fn consider(&mut self, at: StepId) {
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
        self.heap.push(ReadyStep { time, at: sender });
    }

    /// When a step can begin, and before when it cannot end.
    fn begin(&self, at: StepId) -> (f64, f64) {
        let own = step(self.walk.schedules, at);
        let (mut begin, mut end) = (0.0f64, 0.0f64);
        for &before in &own.after {
            let earlier = &self.walk.schedules[at.rank as usize].steps[before as usize];
            let times = self.times[self.walk.index(StepId { step: before, ..at })];
            if overlap(&earlier.action, &own.action) {
                begin = begin.max(times.first);
                end = end.max(times.finish + (times.first - times.finish).max(0.0));
            } else {
                begin = begin.max(times.finish);
            }
        }
        (begin, end)
    }

    fn run(&mut self, at: StepId) {
        let action = step(self.walk.schedules, at).action;
        let moved = blocks_moved(&self.walk.schedules[at.rank as usize], &action);
        let bytes = moved * self.block_bytes;
        let segment = bytes.min(self.link_costs.segment_bytes);
        let (begin, end) = self.begin(at);
        let Some(partner) = self.walk.partner(at) else {
            let first = begin + segment * self.link_costs.local_byte_s;
            let finish = (begin + bytes * self.link_costs.local_byte_s).max(end);
            return self.finish(at, begin, first, finish);
        };
        let near = self.on.together(at.rank, partner.rank);
        let link = if near { self.link_costs.within } else { self.link_costs.between };
        let (partner_begin, partner_end) = self.begin(partner);
        let out = self.ports[at.rank as usize][0];
        let into = self.ports[partner.rank as usize][1];
        let wire = self.wire(at, partner, begin.max(out), bytes);
        let sent = begin.max(out).max(wire) + link.overhead_s;
        self.ports[at.rank as usize][0] = sent + bytes * link.byte_s;
        let arrives = (sent + link.latency_s).max(into + link.overhead_s).max(partner_begin);
        self.ports[partner.rank as usize][1] = arrives + bytes * link.byte_s;
        let reduces =
            matches!(step(self.walk.schedules, partner).action, Action::RecvReduce { .. });
        let local_byte_s = if reduces { self.link_costs.local_byte_s } else { 0.0 };
        let segment_s = segment * link.byte_s.max(local_byte_s);
        let first = arrives + segment_s;
        let finish = (arrives + bytes * (link.byte_s + local_byte_s))
            .max(end + link.latency_s + segment_s)
            .max(partner_end);
        self.finish(at, begin.max(out), sent, sent.max(finish - link.latency_s));
        self.finish(partner, arrives, first, finish);
    }

    /// Occupies the wires of both hosts; when both are free for a message that is there `from`
    /// some time on. Messages of one host share its wire as if they went one after the other.
    fn wire(&mut self, at: StepId, partner: StepId, from: f64, bytes: f64) -> f64 {
        if self.on.together(at.rank, partner.rank) {
            return from;
        }
        let (own, other) = (self.on.host_of(at.rank), self.on.host_of(partner.rank));
        let free = self.wires[own as usize][0].max(self.wires[other as usize][1]);
        let free = free.max(from);
        let busy_until = free + bytes * self.link_costs.wire_byte_s;
        self.wires[own as usize][0] = busy_until;
        self.wires[other as usize][1] = busy_until;
        free
    }

    fn finish(&mut self, at: StepId, begin: f64, first: f64, finish: f64) {
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
struct ReadyStep {
    time: f64,
    at: StepId,
}

impl Ord for ReadyStep {
    fn cmp(&self, other: &ReadyStep) -> Ordering {
        let place = |ready: &ReadyStep| (ready.at.step, ready.at.rank);
        other.time.total_cmp(&self.time).then_with(|| place(other).cmp(&place(self)))
    }
}

impl PartialOrd for ReadyStep {
    fn partial_cmp(&self, other: &ReadyStep) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ReadyStep {
    fn eq(&self, other: &ReadyStep) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ReadyStep {}

fn step(schedules: &[Schedule], at: StepId) -> &Step {
    &schedules[at.rank as usize].steps[at.step as usize]
}
