//! The facts about a schedule that the executor needs before it runs it: the order of its steps,
//! and which message each step is. Depends on the schedule alone, so it is made once and cached.

use std::sync::Arc;

use crate::schedule::{Action, Rank, Schedule, Step};
use crate::sorted::sort;

/// Most analysed schedules that are cached.
const MAX_CACHED_ANALYSES: usize = 64;

/// One edge between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    /// The step at the other end.
    pub(super) step: u32,
    /// Whether the later step may follow the earlier one segment by segment, because both use the
    /// same chunk.
    pub(super) overlaps: bool,
}

/// A schedule with its indices.
#[derive(Debug)]
pub(super) struct Analysis {
    pub(super) schedule: Arc<Schedule>,
    /// For each step, which message between the two ranks it is.
    message: Vec<u32>,
    predecessors: Lists<Edge>,
    successors: Lists<Edge>,
    /// The steps that send.
    sends: PeerSteps,
    /// The steps that receive.
    receives: PeerSteps,
}

impl Analysis {
    /// Analyses the schedule of `rank` of `size`; the error says what is wrong with it.
    pub(super) fn new(schedule: Arc<Schedule>, rank: Rank, size: u32) -> Result<Analysis, String> {
        let steps = schedule.steps.len();
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        let mut predecessors = Vec::with_capacity(steps);
        let mut successors = vec![Vec::new(); steps];
        for (index, step) in schedule.steps.iter().enumerate() {
            match peer_of(&step.action) {
                None => {}
                Some((peer, _)) if peer >= size || peer == rank => {
                    return Err(format!("step {index} names rank {peer} of {size}"));
                }
                Some((peer, true)) => sends.push((peer, index as u32)),
                Some((peer, false)) => receives.push((peer, index as u32)),
            }
            let mut edges = Vec::with_capacity(step.after.len());
            for &earlier in &step.after {
                if earlier as usize >= index {
                    return Err(format!("step {index} waits for step {earlier}"));
                }
                let overlaps = may_overlap(&schedule.steps[earlier as usize].action, &step.action);
                edges.push(Edge { step: earlier, overlaps });
                successors[earlier as usize].push(Edge { step: index as u32, overlaps });
            }
            predecessors.push(edges);
        }
        let (sends, receives) = (PeerSteps::new(sends), PeerSteps::new(receives));
        let mut message = vec![0; steps];
        sends.number(&mut message);
        receives.number(&mut message);
        Ok(Analysis {
            message,
            predecessors: Lists::new(predecessors),
            successors: Lists::new(successors),
            sends,
            receives,
            schedule,
        })
    }

    /// Which message between the two ranks the step sends or receives.
    pub(super) fn message(&self, step: u32) -> u32 {
        self.message[step as usize]
    }

    /// The steps that `step` waits for.
    pub(super) fn predecessors(&self, step: u32) -> &[Edge] {
        self.predecessors.get(step as usize)
    }

    /// The steps that wait for `step`.
    pub(super) fn successors(&self, step: u32) -> &[Edge] {
        self.successors.get(step as usize)
    }

    /// Bytes of memory, with the schedule.
    fn memory_bytes(&self) -> usize {
        let each = |step: &Step| size_of::<Step>() + step.after.capacity() * size_of::<u32>();
        let schedule: usize = self.schedule.steps.iter().map(each).sum();
        let by_peer =
            (self.sends.steps.len() + self.receives.steps.len()) * size_of::<(Rank, u32)>();
        schedule
            + self.message.len() * size_of::<u32>()
            + self.predecessors.memory_bytes()
            + self.successors.memory_bytes()
            + by_peer
    }

    /// The step that sends message `message` to `peer`.
    pub(super) fn send_step(&self, peer: Rank, message: u32) -> Option<u32> {
        self.sends.step(peer, message)
    }

    /// The step that receives message `message` from `peer`.
    pub(super) fn receive_step(&self, peer: Rank, message: u32) -> Option<u32> {
        self.receives.step(peer, message)
    }
}

/// Steps by peer; of one peer, in the order of the schedule.
#[derive(Debug)]
struct PeerSteps {
    steps: Vec<(Rank, u32)>,
}

impl PeerSteps {
    fn new(mut steps: Vec<(Rank, u32)>) -> PeerSteps {
        sort(&mut steps);
        steps.shrink_to_fit();
        PeerSteps { steps }
    }

    /// Writes for each step which message of its peer it is.
    fn number(&self, message: &mut [u32]) {
        for of_peer in self.steps.chunk_by(|one, other| one.0 == other.0) {
            for (number, (_, step)) in (0..).zip(of_peer) {
                message[*step as usize] = number;
            }
        }
    }

    /// The step of message `message` of `peer`.
    fn step(&self, peer: Rank, message: u32) -> Option<u32> {
        let first = self.steps.partition_point(|(other, _)| *other < peer);
        let (other, step) = self.steps.get(first.checked_add(message as usize)?)?;
        (*other == peer).then_some(*step)
    }
}

/// The peer of a step, and whether the step sends.
pub(super) fn peer_of(action: &Action) -> Option<(Rank, bool)> {
    match *action {
        Action::Send { peer, .. } => Some((peer, true)),
        Action::Recv { peer, .. } | Action::RecvReduce { peer, .. } => Some((peer, false)),
        Action::Reduce { .. } | Action::Copy { .. } => None,
    }
}

/// Whether segment i of `later` needs no more than segment i of `earlier`: wherever the two touch
/// the same memory, it is the same chunk.
fn may_overlap(earlier: &Action, later: &Action) -> bool {
    let mut shared = false;
    for one in earlier.chunks() {
        for other in later.chunks() {
            if one.same_range(&other) {
                shared = true;
            } else if one.overlaps(&other) {
                return false;
            }
        }
    }
    shared
}

/// Lists of different lengths, stored in one.
#[derive(Debug)]
struct Lists<T> {
    items: Vec<T>,
    ends: Vec<u32>,
}

impl<T> Lists<T> {
    fn new(lists: Vec<Vec<T>>) -> Lists<T> {
        let mut items = Vec::new();
        let mut ends = Vec::with_capacity(lists.len());
        for list in lists {
            items.extend(list);
            ends.push(items.len() as u32);
        }
        Lists { items, ends }
    }

    fn memory_bytes(&self) -> usize {
        self.items.len() * size_of::<T>() + self.ends.len() * size_of::<u32>()
    }

    fn get(&self, index: usize) -> &[T] {
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.items[start as usize..end as usize]
    }
}

/// A cache of the analyses that were used last.
#[derive(Default)]
pub(super) struct Analyses {
    /// Most recently used first.
    kept: Vec<Arc<Analysis>>,
}

impl Analyses {
    /// Bytes of memory, with the schedules.
    pub(super) fn memory_bytes(&self) -> usize {
        self.kept.iter().map(|analysis| analysis.memory_bytes()).sum()
    }

    /// The analysis of `schedule`, from the cache if it is there.
    pub(super) fn get(
        &mut self,
        schedule: &Arc<Schedule>,
        rank: Rank,
        size: u32,
    ) -> Result<Arc<Analysis>, String> {
        match self.kept.iter().position(|known| Arc::ptr_eq(&known.schedule, schedule)) {
            Some(0) => {}
            Some(place) => self.kept[..=place].rotate_right(1),
            None => {
                let analysis = Analysis::new(schedule.clone(), rank, size)?;
                self.kept.truncate(MAX_CACHED_ANALYSES - 1);
                self.kept.insert(0, Arc::new(analysis));
            }
        }
        Ok(self.kept[0].clone())
    }
}
