//! Where chunks lie: cells of symbolic memory, and the symbolic sizes of blocks. Knows no order.

use std::collections::HashMap;
use std::ops::Range;

use super::{Flaw, Sizes};
use crate::schedule::walk::{StepId, Walk};
use crate::schedule::{
    Action, Block, BlockContent, Buffer, Chunk, Contract, Origin, Place, Rank, Schedule, Scratch,
};

/// The memory of all ranks.
///
/// Blocks are cut into [`Layout::cells`] cells, the least common multiple of all cuts, so that
/// every chunk is a range of cells exactly, whatever the block's size: a boundary `i/parts` is the
/// cell boundary `i*cells/parts`, and equal fractions are cut at the same element. Scratch memory
/// of several times a block has as many times the cells, and cuts that keep the blocks whole.
pub(super) struct Layout<'a> {
    schedules: &'a [Schedule],
    ranks: Vec<Memory>,
    /// Cells of each block.
    pub(super) cells: u32,
    /// What each rank's memories hold at the start, and how many blocks' sizes each has.
    pub(super) before: Vec<Vec<(BlockContent, u32)>>,
    /// The rank that runs.
    pub(super) places: Vec<Place>,
}

/// One rank's blocks: input, output, scratch. A slot is a piece of memory.
struct Memory {
    input: Vec<Slot>,
    output: Vec<Slot>,
    scratch: Vec<Slot>,
}

/// Which memory a block is, and the symbol of its size.
#[derive(Clone, Copy)]
struct Slot {
    memory: u32,
    size: u32,
    /// How many times the size.
    times: u32,
}

impl<'a> Layout<'a> {
    /// Lays out the blocks, and checks that every step names blocks and ranks that exist, writes no
    /// input, and has operands of one size. `aliased` returns the blocks that share memory by the
    /// contract.
    pub(super) fn new(
        contract: &Contract,
        root: Rank,
        schedules: &'a [Schedule],
        sizes: Sizes,
        aliased: bool,
    ) -> Result<Layout<'a>, Flaw> {
        let size = schedules.len() as u32;
        let places: Vec<Place> = (0..size).map(|rank| Place { rank, size, root }).collect();
        let mut symbols = Symbols::new(contract, &places, sizes);
        let mut layout =
            Layout { schedules, ranks: Vec::new(), cells: 1, before: Vec::new(), places };
        for (place, schedule) in layout.places.iter().zip(schedules) {
            let (memory, before) = lay_out(contract, *place, schedule, aliased, &mut symbols)?;
            layout.ranks.push(memory);
            layout.before.push(before);
        }
        layout.cells = cells(schedules)?;
        for (rank, schedule) in schedules.iter().enumerate() {
            for step in 0..schedule.steps.len() {
                layout.check_step(StepId { rank: rank as u32, step: step as u32 })?;
            }
        }
        Ok(layout)
    }

    /// Checks that both ends of every message have the same size.
    pub(super) fn check_messages(&self, walk: &Walk<'_>) -> Result<(), Flaw> {
        for at in walk.all() {
            let action = self.action(at);
            let Action::Send { from, .. } = action else { continue };
            let Some(partner) = walk.partner(at) else { continue };
            let Some(into) = self.action(partner).writes() else { continue };
            if !self.same_size((at.rank, &from), (partner.rank, &into)) {
                let what = format!(
                    "sends {from}, but rank {} step {} receives {into}, which has another size",
                    partner.rank, partner.step
                );
                return Err(Flaw::at(self.schedules, at, what));
            }
        }
        Ok(())
    }

    /// The memory and the cells of a chunk.
    pub(super) fn locate(&self, rank: Rank, chunk: &Chunk) -> (u32, Range<u32>) {
        if chunk.is_nothing() {
            return (0, 0..0);
        }
        let slot = self.slot(rank, chunk.block);
        let per_part = self.cells * slot.map_or(1, |slot| slot.times) / chunk.parts;
        let cells = chunk.part * per_part..(chunk.part + chunk.count) * per_part;
        (slot.map_or(0, |slot| slot.memory), cells)
    }

    pub(super) fn action(&self, at: StepId) -> Action {
        self.schedules[at.rank as usize].steps[at.step as usize].action
    }

    fn slot(&self, rank: Rank, block: Block) -> Option<Slot> {
        let memory = &self.ranks[rank as usize];
        let slots = match block.buffer {
            Buffer::Input => &memory.input,
            Buffer::Output => &memory.output,
            Buffer::Scratch => &memory.scratch,
        };
        slots.get(block.index as usize).copied()
    }

    fn check_step(&self, at: StepId) -> Result<(), Flaw> {
        let flaw = |what: String| Err(Flaw::at(self.schedules, at, what));
        let action = self.action(at);
        let step = &self.schedules[at.rank as usize].steps[at.step as usize];
        if let Some(later) = step.after.iter().find(|&&before| before >= at.step) {
            return flaw(format!("waits for step {later}, which does not come before it"));
        }
        if let Some(peer) = action.receiver().or(action.sender())
            && (peer == at.rank || peer as usize >= self.ranks.len())
        {
            return flaw(format!("rank {peer} is not a peer of it"));
        }
        let mut first: Option<Chunk> = None;
        for chunk in action.chunks() {
            if chunk.part.checked_add(chunk.count).is_none_or(|end| end > chunk.parts) {
                return flaw(format!("{chunk}: there are no such parts"));
            }
            let slot = self.slot(at.rank, chunk.block);
            if !chunk.is_nothing() && slot.is_none() {
                return flaw(format!("{chunk}: there is no such block"));
            }
            if slot.is_some_and(|slot| !chunk.parts.is_multiple_of(slot.times)) {
                return flaw(format!("{chunk}: a cut that divides one of its blocks"));
            }
            let first = first.get_or_insert(chunk);
            if !self.same_size((at.rank, first), (at.rank, &chunk)) {
                return flaw(format!("{first} and {chunk} have different sizes"));
            }
        }
        match action.writes() {
            Some(chunk) if chunk.block.buffer == Buffer::Input => {
                flaw(format!("writes {chunk}, which belongs to the caller"))
            }
            _ => Ok(()),
        }
    }

    /// Whether two chunks have equally many elements, however large the blocks: they do if they
    /// are the same range of blocks of one size, or as many such blocks, or nothing.
    fn same_size(&self, a: (Rank, &Chunk), b: (Rank, &Chunk)) -> bool {
        if a.1.is_nothing() || b.1.is_nothing() {
            return a.1.is_nothing() && b.1.is_nothing();
        }
        let symbol = |(rank, chunk): (Rank, &Chunk)| self.slot(rank, chunk.block).map(|s| s.size);
        let in_block = |(rank, chunk): (Rank, &Chunk)| {
            let cells = self.locate(rank, chunk).1;
            (cells.start % self.cells, cells.end - cells.start)
        };
        symbol(a) == symbol(b) && in_block(a) == in_block(b)
    }
}

/// The blocks of one rank, and what they hold at the start.
fn lay_out(
    contract: &Contract,
    place: Place,
    schedule: &Schedule,
    aliased: bool,
    symbols: &mut Symbols,
) -> Result<(Memory, Vec<(BlockContent, u32)>), Flaw> {
    let (input, output) = (contract.before)(place);
    let after = (contract.after)(place);
    let mut before = Vec::new();
    let mut memory = Memory { input: Vec::new(), output: Vec::new(), scratch: Vec::new() };
    for holds in input {
        let size = symbols.size(&[&holds]);
        memory.input.push(Slot { memory: before.len() as u32, size, times: 1 });
        before.push((holds, 1));
    }
    for (index, holds) in output.into_iter().enumerate() {
        let size = match after.get(index) {
            Some(after) => symbols.size(&[&holds, after]),
            None => symbols.size(&[&holds]),
        };
        let same = (contract.in_place)(place).filter(|&(_, out)| aliased && out as usize == index);
        let shared = same.and_then(|(input, _)| memory.input.get(input as usize).copied());
        memory.output.push(match shared {
            Some(slot) => Slot { size, ..slot },
            None => {
                before.push((holds, 1));
                Slot { memory: before.len() as u32 - 1, size, times: 1 }
            }
        });
    }
    for Scratch { like: block, times } in &schedule.scratch {
        let slots = match block.buffer {
            Buffer::Input => &memory.input,
            Buffer::Output => &memory.output,
            Buffer::Scratch => &[][..],
        };
        let Some(size) = slots.get(block.index as usize).map(|slot| slot.size) else {
            let what = format!("scratch memory has the size of {block}, which does not exist");
            return Err(Flaw { rank: Some(place.rank), step: None, what });
        };
        memory.scratch.push(Slot { memory: before.len() as u32, size, times: (*times).max(1) });
        before.push((BlockContent::Anything, (*times).max(1)));
    }
    Ok((memory, before))
}

/// The least common multiple of the numbers of parts into which blocks are cut.
fn cells(schedules: &[Schedule]) -> Result<u32, Flaw> {
    let mut cells = 1u32;
    for (rank, schedule) in schedules.iter().enumerate() {
        for (step, chunks) in schedule.steps.iter().map(|step| step.action.chunks()).enumerate() {
            for chunk in chunks {
                let parts = chunk.parts / greatest_divisor(chunk.parts, schedule.times(&chunk));
                if parts != 0 && cells.is_multiple_of(parts) {
                    continue;
                }
                let multiple = (parts != 0)
                    .then(|| cells / greatest_divisor(cells, parts))
                    .and_then(|cells| cells.checked_mul(parts))
                    .filter(|&cells| cells < 1 << 20);
                let Some(multiple) = multiple else {
                    let at = StepId { rank: rank as u32, step: step as u32 };
                    return Err(Flaw::at(schedules, at, format!("{chunk}: cannot be cut so")));
                };
                cells = multiple;
            }
        }
    }
    Ok(cells)
}

fn greatest_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// Which origins have the same size: those in one block, or in one reduction.
struct Symbols {
    sizes: Sizes,
    numbers: HashMap<Origin, u32>,
    /// A symbol that has the same size, itself if it is the first of its kind.
    same: Vec<u32>,
}

impl Symbols {
    fn new(contract: &Contract, places: &[Place], sizes: Sizes) -> Symbols {
        let mut symbols = Symbols { sizes, numbers: HashMap::new(), same: Vec::new() };
        for &place in places {
            let (input, output) = (contract.before)(place);
            for holds in &input {
                symbols.size(&[holds]);
            }
            let after = (contract.after)(place);
            for (index, holds) in output.iter().enumerate() {
                match after.get(index) {
                    Some(after) => symbols.size(&[holds, after]),
                    None => symbols.size(&[holds]),
                };
            }
        }
        symbols
    }

    /// The symbol of a block that holds these at different times.
    fn size(&mut self, holds: &[&BlockContent]) -> u32 {
        if self.sizes == Sizes::Equal {
            return 0;
        }
        let mut first = None;
        for holds in holds {
            let origins = match holds {
                BlockContent::Anything => &[][..],
                BlockContent::One(origin) => std::slice::from_ref(origin),
                BlockContent::Reduction(origins) | BlockContent::InOrder(origins) => origins,
            };
            for &origin in origins {
                let symbol = self.symbol(origin);
                match first {
                    None => first = Some(symbol),
                    Some(first) => self.same[symbol as usize] = self.find(first),
                }
                // Joining may have changed the representative of the first.
                first = first.map(|first| self.find(first));
            }
        }
        first.unwrap_or(u32::MAX)
    }

    fn symbol(&mut self, origin: Origin) -> u32 {
        let next = self.same.len() as u32;
        let symbol = *self.numbers.entry(origin).or_insert(next);
        if symbol == next {
            self.same.push(next);
        }
        self.find(symbol)
    }

    fn find(&self, mut symbol: u32) -> u32 {
        while self.same[symbol as usize] != symbol {
            symbol = self.same[symbol as usize];
        }
        symbol
    }
}
