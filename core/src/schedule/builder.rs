//! Appends steps, and derives from their chunks which others each must wait for. Knows no
//! algorithm.
//!
//! Steps are added in an order in which they could run one by one. The builder lets two of them
//! overlap unless one changes memory that the other uses. Any other order (of messages without
//! data) is added with [`Builder::order`].

use super::uses::{BlockUses, Use};
use super::{Action, Block, Buffer, Chunk, Operands, Rank, Schedule, Scratch, Step};
use crate::sorted::{LargeMap, sort};

/// A schedule in the making.
#[derive(Debug, Default)]
pub struct Builder {
    schedule: Schedule,
    /// For each block, the uses that a later step may have to wait for.
    uses: LargeMap<Block, BlockUses>,
}

impl Builder {
    /// No steps yet.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// A new block of scratch memory, of the size of `like`.
    pub fn scratch(&mut self, like: Block) -> Block {
        self.scratch_for(like, 1)
    }

    /// A new block of scratch memory, of `times` times the size of `like`.
    pub fn scratch_for(&mut self, like: Block, times: u32) -> Block {
        let index = self.schedule.scratch.len() as u32;
        self.schedule.scratch.push(Scratch { like, times });
        Block { buffer: Buffer::Scratch, index }
    }

    /// Sends `from` to `peer`.
    pub fn send(&mut self, peer: Rank, from: Chunk) -> u32 {
        self.push(Action::Send { peer, from })
    }

    /// Receives into `into` from `peer`.
    pub fn recv(&mut self, peer: Rank, into: Chunk) -> u32 {
        self.push(Action::Recv { peer, into })
    }

    /// Writes the reduction of `local` and what `peer` sends into `into`.
    pub fn recv_reduce(
        &mut self,
        peer: Rank,
        local: Chunk,
        into: Chunk,
        operands: Operands,
    ) -> u32 {
        self.push(Action::RecvReduce { peer, local, into, operands })
    }

    /// Reduces `from` into `into`.
    pub fn reduce(&mut self, from: Chunk, into: Chunk, operands: Operands) -> u32 {
        self.push(Action::Reduce { from, into, operands })
    }

    /// Copies `from` to `into`.
    pub fn copy(&mut self, from: Chunk, into: Chunk) -> u32 {
        self.push(Action::Copy { from, into })
    }

    /// Makes `later` wait for `earlier`, which was appended before it.
    pub fn order(&mut self, earlier: u32, later: u32) {
        let after = &mut self.schedule.steps[later as usize].after;
        if !after.contains(&earlier) {
            after.push(earlier);
            sort(after);
        }
    }

    /// The schedule.
    pub fn build(self) -> Schedule {
        self.schedule
    }

    fn push(&mut self, action: Action) -> u32 {
        let step = self.schedule.steps.len() as u32;
        let mut after = Vec::new();
        for chunk in action.reads() {
            self.wait_for(&chunk, |earlier| earlier.writes, &mut after);
        }
        if let Some(chunk) = action.writes() {
            self.wait_for(&chunk, |_| true, &mut after);
        }
        let uses = action.reads().map(|chunk| (chunk, false));
        for (chunk, writes) in uses.chain(action.writes().map(|chunk| (chunk, true))) {
            if !chunk.is_nothing() {
                self.uses.entry(chunk.block).or_default().add(&chunk, Use { step, writes });
            }
        }
        self.schedule.steps.push(Step { action, after: self.without_implied(after) });
        step
    }

    fn wait_for(&self, chunk: &Chunk, conflicts: impl Fn(&Use) -> bool, after: &mut Vec<u32>) {
        if let Some(uses) = self.uses.get(&chunk.block).filter(|_| !chunk.is_nothing()) {
            let earlier = uses.of(chunk).filter(|earlier| conflicts(earlier));
            after.extend(earlier.map(|earlier| earlier.step));
        }
    }

    /// Drops the steps that come before another one of `after` anyway.
    fn without_implied(&self, mut after: Vec<u32>) -> Vec<u32> {
        sort(&mut after);
        after.dedup();
        after.iter().copied().filter(|&step| !self.implied(step, &after)).collect()
    }

    /// Whether a path of dependencies leads from `step` to a later one of `after`.
    fn implied(&self, step: u32, after: &[u32]) -> bool {
        let mut open: Vec<u32> = after.iter().copied().filter(|&other| other > step).collect();
        let mut seen = LargeMap::new();
        while let Some(later) = open.pop() {
            for &before in &self.schedule.steps[later as usize].after {
                if before == step {
                    return true;
                }
                if before > step && seen.insert(before, ()).is_none() {
                    open.push(before);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(schedule: &Schedule) -> Vec<&[u32]> {
        schedule.steps.iter().map(|step| &step.after[..]).collect()
    }

    #[test]
    fn readers_wait_for_the_writer_and_a_writer_for_the_readers() {
        let mut builder = Builder::new();
        let chunk = Block::output(0).part(1, 2);
        builder.recv(1, chunk);
        builder.send(2, chunk);
        builder.send(3, chunk);
        builder.send(3, Block::output(0).part(0, 2));
        builder.recv(1, Block::output(0).whole());
        assert_eq!(after(&builder.build()), [&[][..], &[0], &[0], &[], &[1, 2, 3]]);
    }

    #[test]
    fn nothing_waits_only_when_told() {
        let mut builder = Builder::new();
        builder.send(1, Chunk::NOTHING);
        let first = builder.recv(1, Chunk::NOTHING);
        let second = builder.send(2, Chunk::NOTHING);
        builder.order(first, second);
        builder.order(first, second);
        assert_eq!(after(&builder.build()), [&[][..], &[], &[1]]);
    }

    #[test]
    fn scratch_blocks_are_numbered() {
        let mut builder = Builder::new();
        assert_eq!(builder.scratch(Block::input(4)).index, 0);
        assert_eq!(builder.scratch_for(Block::input(2), 3).index, 1);
        let expected = [(Block::input(4), 1), (Block::input(2), 3)];
        let expected = expected.map(|(like, times)| Scratch { like, times });
        assert_eq!(builder.build().scratch, expected);
    }
}
