//! All ranks' schedules together: which send matches which receive, and the order of their steps.
//! Knows no contract and no link costs.

use super::{Rank, Schedule};
use crate::sorted::sort;

/// A step of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepId {
    pub(super) rank: Rank,
    pub(super) step: u32,
}

/// What happens to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Start,
    Finish,
}

/// The schedules of all ranks, with the steps numbered through.
pub(super) struct Walk<'a> {
    pub(super) schedules: &'a [Schedule],
    /// For each rank, the number of its first step; one more entry for the end.
    first: Vec<usize>,
    /// For each step, the step at the other end of its message.
    partners: Vec<Option<StepId>>,
}

impl<'a> Walk<'a> {
    /// Pairs sends with receives. Fails with a step that has no partner.
    pub(super) fn new(schedules: &'a [Schedule]) -> Result<Walk<'a>, StepId> {
        let mut first = vec![0];
        for schedule in schedules {
            first.push(first[first.len() - 1] + schedule.steps.len());
        }
        let total = first[schedules.len()];
        let mut walk = Walk { schedules, first, partners: vec![None; total] };
        walk.pair()?;
        Ok(walk)
    }

    pub(super) fn index(&self, at: StepId) -> usize {
        self.first[at.rank as usize] + at.step as usize
    }

    /// The step at the other end of this step's message.
    pub(super) fn partner(&self, at: StepId) -> Option<StepId> {
        self.partners[self.index(at)]
    }

    /// The number of steps of all ranks.
    pub(super) fn steps(&self) -> usize {
        self.partners.len()
    }

    /// Every step, rank by rank.
    pub(super) fn all(&self) -> impl Iterator<Item = StepId> + use<'a> {
        let lists = self.schedules.iter().enumerate();
        lists.flat_map(|(rank, schedule)| {
            (0..schedule.steps.len())
                .map(move |step| StepId { rank: rank as u32, step: step as u32 })
        })
    }

    fn pair(&mut self) -> Result<(), StepId> {
        // (sender, receiver) and the place in the list, sorted, bring the k-th send to (a, b) to
        // the place of the k-th receive.
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        for at in self.all() {
            let action = &self.schedules[at.rank as usize].steps[at.step as usize].action;
            if let Some(to) = action.receiver() {
                sends.push((at.rank, to, at.step));
            }
            if let Some(from) = action.sender() {
                recvs.push((from, at.rank, at.step));
            }
        }
        sort(&mut sends);
        sort(&mut recvs);
        let ends = |&(from, to, _): &(Rank, Rank, u32)| (from, to);
        for at in 0..sends.len().max(recvs.len()) {
            let (send, recv) = (sends.get(at), recvs.get(at));
            let (Some(send), Some(recv)) = (send, recv) else {
                return Err(send.map_or_else(
                    || {
                        recv.map_or(StepId { rank: 0, step: 0 }, |r| StepId {
                            rank: r.1,
                            step: r.2,
                        })
                    },
                    |s| StepId { rank: s.0, step: s.2 },
                ));
            };
            let sender = StepId { rank: send.0, step: send.2 };
            let receiver = StepId { rank: recv.1, step: recv.2 };
            if ends(send) != ends(recv) {
                return Err(if ends(send) < ends(recv) { sender } else { receiver });
            }
            let (from, to) = (self.index(sender), self.index(receiver));
            self.partners[from] = Some(receiver);
            self.partners[to] = Some(sender);
        }
        Ok(())
    }

    /// All events in an order in which they can happen if no message is buffered: a send ends only
    /// when its receive has started. Fails with steps that wait for one another, each for the next.
    ///
    /// An order that is possible without buffers is possible with them. Every other legal order has
    /// the same relevant events before each event, so it suffices to check this one.
    pub(super) fn order(&self) -> Result<Vec<(StepId, Event)>, Vec<StepId>> {
        let nodes = 2 * self.steps();
        let mut missing = vec![0u32; nodes];
        let mut edges: Vec<(u32, u32)> = Vec::with_capacity(2 * nodes);
        for at in self.all() {
            self.requirements(at, |before, after| {
                missing[after] += 1;
                edges.push((before as u32, after as u32));
            });
        }
        let mut begin = vec![0u32; nodes + 1];
        for &(before, _) in &edges {
            begin[before as usize + 1] += 1;
        }
        for node in 0..nodes {
            begin[node + 1] += begin[node];
        }
        let mut fill = begin.clone();
        let mut next = vec![0u32; edges.len()];
        for &(before, after) in &edges {
            next[fill[before as usize] as usize] = after;
            fill[before as usize] += 1;
        }
        let places: Vec<StepId> = self.all().collect();
        let mut ready: Vec<u32> =
            (0..nodes as u32).filter(|&node| missing[node as usize] == 0).collect();
        let mut order = Vec::with_capacity(nodes);
        while let Some(node) = ready.pop() {
            let node = node as usize;
            let event = if node.is_multiple_of(2) { Event::Start } else { Event::Finish };
            order.push((places[node / 2], event));
            for &after in &next[begin[node] as usize..begin[node + 1] as usize] {
                missing[after as usize] -= 1;
                if missing[after as usize] == 0 {
                    ready.push(after);
                }
            }
        }
        if order.len() == nodes { Ok(order) } else { Err(self.circle(&missing, &places)) }
    }

    /// Tells `edge` every pair of nodes (start is twice the step's number, finish one more) of
    /// which the first comes before the second, the second being of this step.
    fn requirements(&self, at: StepId, mut edge: impl FnMut(usize, usize)) {
        let own = self.index(at);
        let step = &self.schedules[at.rank as usize].steps[at.step as usize];
        edge(2 * own, 2 * own + 1);
        for &before in &step.after {
            edge(2 * self.index(StepId { rank: at.rank, step: before }) + 1, 2 * own);
        }
        if let Some(partner) = self.partners[own] {
            edge(2 * self.index(partner), 2 * own + 1);
        }
    }

    /// A circle among the events that could not happen.
    fn circle(&self, missing: &[u32], places: &[StepId]) -> Vec<StepId> {
        let stuck = |node: usize| missing[node] > 0;
        let Some(mut node) = (0..missing.len()).find(|&node| stuck(node)) else {
            return Vec::new();
        };
        let mut seen = vec![usize::MAX; missing.len()];
        let mut path = Vec::new();
        while seen[node] == usize::MAX {
            seen[node] = path.len();
            path.push(node);
            let mut before = node;
            self.requirements(places[node / 2], |from, to| {
                if to == node && stuck(from) {
                    before = from;
                }
            });
            node = before;
        }
        let mut steps: Vec<StepId> =
            path[seen[node]..].iter().map(|&node| places[node / 2]).collect();
        steps.dedup();
        steps
    }
}
