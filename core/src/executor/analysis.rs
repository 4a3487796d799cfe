//! What the executor wants to know of a schedule before it runs it: who follows whom, and which
//! message each step is. Depends on the schedule alone, so it is made once and kept.

use std::sync::Arc;

use crate::schedule::{Action, Rank, Schedule};

/// How many analysed schedules are kept.
const KEPT: usize = 64;

/// One edge between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    /// The step at the other end.
    pub(super) step: u32,
    /// Whether the later step may follow segment by segment, because both use the same chunk.
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
    /// For each peer, the steps that send to it.
    sends: Lists<u32>,
    /// For each peer, the steps that receive from it.
    receives: Lists<u32>,
}

impl Analysis {
    /// Analyses the schedule of `rank` of `size`; the error says what is wrong with it.
    pub(super) fn new(schedule: Arc<Schedule>, rank: Rank, size: u32) -> Result<Analysis, String> {
        let steps = schedule.steps.len();
        let mut message = Vec::with_capacity(steps);
        let mut sends = vec![Vec::new(); size as usize];
        let mut receives = vec![Vec::new(); size as usize];
        let mut predecessors = Vec::with_capacity(steps);
        let mut successors = vec![Vec::new(); steps];
        for (index, step) in schedule.steps.iter().enumerate() {
            message.push(match peer_of(&step.action) {
                None => 0,
                Some((peer, _)) if peer >= size || peer == rank => {
                    return Err(format!("step {index} names rank {peer} of {size}"));
                }
                Some((peer, sending)) => {
                    let list = if sending { &mut sends } else { &mut receives };
                    let list = &mut list[peer as usize];
                    list.push(index as u32);
                    list.len() as u32 - 1
                }
            });
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
        Ok(Analysis {
            message,
            predecessors: Lists::new(predecessors),
            successors: Lists::new(successors),
            sends: Lists::new(sends),
            receives: Lists::new(receives),
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

    /// The step that sends message `message` to `peer`.
    pub(super) fn send_step(&self, peer: Rank, message: u32) -> Option<u32> {
        self.sends.get(peer as usize).get(message as usize).copied()
    }

    /// The step that receives message `message` from `peer`.
    pub(super) fn receive_step(&self, peer: Rank, message: u32) -> Option<u32> {
        self.receives.get(peer as usize).get(message as usize).copied()
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

    fn get(&self, index: usize) -> &[T] {
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.items[start as usize..end as usize]
    }
}

/// The schedules that were analysed last.
#[derive(Default)]
pub(super) struct Analyses {
    /// Most recently used first.
    kept: Vec<Arc<Analysis>>,
}

impl Analyses {
    /// The analysis of `schedule`, from memory if it is there.
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
                self.kept.truncate(KEPT - 1);
                self.kept.insert(0, Arc::new(analysis));
            }
        }
        Ok(self.kept[0].clone())
    }
}
