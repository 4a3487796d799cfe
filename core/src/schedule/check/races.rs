//! Steps of one rank that touch the same elements, one of them writing, must be in order. Knows no
//! other rank.
//!
//! Two steps are in order if a path of `after` leads from one to the other. Along a path on which
//! every two neighbours share a chunk, segments overlap: then a segment only waits for its own,
//! which is enough if the two steps meet in one and the same chunk, and not otherwise.

use super::Flaw;
use super::layout::Layout;
use crate::schedule::cost::overlap;
use crate::schedule::walk::StepId;
use crate::schedule::{Action, Chunk, Rank, Schedule};

/// Checks every rank.
pub(super) fn check(layout: &Layout<'_>, schedules: &[Schedule]) -> Result<(), Flaw> {
    for rank in 0..schedules.len() as u32 {
        check_rank(layout, schedules, rank)?;
    }
    Ok(())
}

struct Access {
    step: u32,
    chunk: Chunk,
    cells: std::ops::Range<u32>,
    writes: bool,
}

fn check_rank(layout: &Layout<'_>, schedules: &[Schedule], rank: Rank) -> Result<(), Flaw> {
    let schedule = &schedules[rank as usize];
    let paths = Paths::new(schedule);
    let mut memories: Vec<Vec<Access>> = Vec::new();
    memories.resize_with(layout.before[rank as usize].len(), Vec::new);
    for (step, action) in schedule.steps.iter().map(|step| &step.action).enumerate() {
        if let Action::Copy { from, into } = action
            && layout.locate(rank, from) == layout.locate(rank, into)
        {
            continue; // The caller gave the same memory, so that nothing is touched.
        }
        let step = step as u32;
        let reads = action.reads().map(|chunk| (chunk, false));
        let accesses = reads.chain(action.writes().map(|chunk| (chunk, true)));
        for (chunk, writes) in accesses.filter(|(chunk, _)| !chunk.is_nothing()) {
            let (memory, cells) = layout.locate(rank, &chunk);
            let access = Access { step, chunk, cells, writes };
            for earlier in &memories[memory as usize] {
                let apart = earlier.cells.end <= access.cells.start
                    || access.cells.end <= earlier.cells.start;
                if apart || !(earlier.writes || writes) || earlier.step == step {
                    continue;
                }
                let same = earlier.cells == access.cells;
                if !paths.lead(earlier.step, step, same) {
                    return Err(race(schedules, rank, earlier, &access));
                }
            }
            memories[memory as usize].push(access);
        }
    }
    Ok(())
}

fn race(schedules: &[Schedule], rank: Rank, earlier: &Access, later: &Access) -> Flaw {
    let verb = |writes: bool| if writes { "writes" } else { "reads" };
    let action = schedules[rank as usize].steps[earlier.step as usize].action;
    let what = format!(
        "{} {} without waiting for step {} ({action}), which {} {}",
        verb(later.writes),
        later.chunk,
        earlier.step,
        verb(earlier.writes),
        earlier.chunk
    );
    Flaw::at(schedules, StepId { rank, step: later.step }, what)
}

/// For each step, the set of steps from which a path leads to it.
struct Paths {
    words: usize,
    /// By any path.
    any: Vec<u64>,
    /// By a path on which some two neighbours share no chunk, so that the later waits for all of
    /// the earlier.
    whole: Vec<u64>,
}

impl Paths {
    fn new(schedule: &Schedule) -> Paths {
        let steps = schedule.steps.len();
        let words = steps.div_ceil(64);
        let mut paths = Paths { words, any: vec![0; steps * words], whole: vec![0; steps * words] };
        for (index, step) in schedule.steps.iter().enumerate() {
            for &before in &step.after {
                let earlier = &schedule.steps[before as usize].action;
                let whole = !overlap(earlier, &step.action);
                paths.extend(before as usize, index, whole);
            }
        }
        paths
    }

    /// Adds the edge from `before` to `step`, and every path to `before` with it.
    fn extend(&mut self, before: usize, step: usize, whole: bool) {
        for word in 0..self.words {
            let (from, to) = (before * self.words + word, step * self.words + word);
            self.any[to] |= self.any[from];
            self.whole[to] |= if whole { self.any[from] } else { self.whole[from] };
        }
        let (word, bit) = (step * self.words + before / 64, 1 << (before % 64));
        self.any[word] |= bit;
        if whole {
            self.whole[word] |= bit;
        }
    }

    fn lead(&self, from: u32, to: u32, same_chunk: bool) -> bool {
        let set = if same_chunk { &self.any } else { &self.whole };
        let word = set[to as usize * self.words + from as usize / 64];
        word & (1 << (from % 64)) != 0
    }
}
