//! Runs all ranks' schedules on symbols and compares what they end with to the contract. Knows
//! nothing of order: events come in an order that can happen.

use std::collections::HashMap;

use super::Flaw;
use super::layout::Layout;
use crate::schedule::walk::{Event, StepId, Walk};
use crate::schedule::{Action, Block, BlockContent, Chunk, Contract, Operands, Origin, Rank};
use crate::sorted::sort;

/// The number of an expression.
type Value = u32;

/// Memory that was never written.
const UNKNOWN: Value = u32::MAX;

/// Runs the events and checks the ends.
pub(super) fn check(
    contract: &Contract,
    layout: &Layout<'_>,
    walk: &Walk<'_>,
    order: &[(StepId, Event)],
) -> Result<(), Flaw> {
    let mut run = Run::new(layout, walk);
    for &(at, event) in order {
        match event {
            Event::Start => run.start(at)?,
            Event::Finish => run.finish(at)?,
        }
    }
    if contract.barrier {
        return hearsay(walk, order);
    }
    run.compare(contract)
}

/// Expressions over origins; equal ones have equal numbers.
#[derive(Default)]
struct Expressions {
    nodes: Vec<Node>,
    numbers: HashMap<Node, Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    Origin(Origin),
    Reduction(Value, Value),
}

impl Expressions {
    fn number(&mut self, node: Node) -> Value {
        let next = self.nodes.len() as Value;
        let number = *self.numbers.entry(node).or_insert(next);
        if number == next {
            self.nodes.push(node);
        }
        number
    }

    /// The origins in an expression, from left to right; about `most` at most.
    fn origins(&self, value: Value, most: usize) -> Vec<Origin> {
        let (mut found, mut open) = (Vec::new(), vec![value]);
        while let Some(value) = open.pop() {
            match self.nodes[value as usize] {
                Node::Origin(origin) => found.push(origin),
                Node::Reduction(left, right) => open.extend([right, left]),
            }
            if found.len() > most {
                break;
            }
        }
        found
    }
}

/// The origins that an output must hold.
#[derive(PartialEq, Eq, Hash)]
enum Wanted {
    /// In any order; they are sorted here.
    Sorted(Vec<Origin>),
    /// In this order.
    InOrder(Vec<Origin>),
}

struct Run<'a> {
    layout: &'a Layout<'a>,
    walk: &'a Walk<'a>,
    expressions: Expressions,
    /// For each rank, the cells of all its memories.
    cells: Vec<Vec<Value>>,
    /// For each rank, where the cells of each memory start.
    starts: Vec<Vec<usize>>,
    /// For each step that sends, what it sends.
    sent: Vec<Vec<Value>>,
}

impl<'a> Run<'a> {
    fn new(layout: &'a Layout<'a>, walk: &'a Walk<'a>) -> Run<'a> {
        let mut expressions = Expressions::default();
        let mut cells = Vec::new();
        let mut starts = Vec::new();
        for before in &layout.before {
            let (mut values, mut own_starts) = (Vec::new(), Vec::new());
            for (holds, times) in before {
                let value = match holds {
                    BlockContent::One(origin) => expressions.number(Node::Origin(*origin)),
                    _ => UNKNOWN,
                };
                own_starts.push(values.len());
                values.resize(values.len() + (layout.cells * times) as usize, value);
            }
            cells.push(values);
            starts.push(own_starts);
        }
        Run { layout, walk, expressions, cells, starts, sent: vec![Vec::new(); walk.steps()] }
    }

    /// Notes what is sent when the send starts; nothing may change it before the send ends.
    fn start(&mut self, at: StepId) -> Result<(), Flaw> {
        if let Action::Send { from, .. } = self.layout.action(at) {
            self.sent[self.walk.index(at)] = self.read(at, &from)?.to_vec();
        }
        Ok(())
    }

    fn finish(&mut self, at: StepId) -> Result<(), Flaw> {
        match self.layout.action(at) {
            Action::Send { .. } => {}
            Action::Recv { into, .. } => {
                let incoming = self.incoming(at);
                self.write(at.rank, &into, &incoming);
            }
            Action::RecvReduce { local, into, operands, .. } => {
                let incoming = self.incoming(at);
                let local = self.read(at, &local)?.to_vec();
                let sum = self.reduce(&local, &incoming, operands);
                self.write(at.rank, &into, &sum);
            }
            Action::Reduce { from, into, operands } => {
                let from = self.read(at, &from)?.to_vec();
                let local = self.read(at, &into)?.to_vec();
                let sum = self.reduce(&local, &from, operands);
                self.write(at.rank, &into, &sum);
            }
            Action::Copy { from, into } => {
                let from = self.read(at, &from)?.to_vec();
                self.write(at.rank, &into, &from);
            }
        }
        Ok(())
    }

    fn incoming(&mut self, at: StepId) -> Vec<Value> {
        let sender = self.walk.partner(at).map(|partner| self.walk.index(partner));
        sender.map(|sender| std::mem::take(&mut self.sent[sender])).unwrap_or_default()
    }

    fn reduce(&mut self, local: &[Value], incoming: &[Value], operands: Operands) -> Vec<Value> {
        let pairs = local.iter().zip(incoming);
        pairs
            .map(|(&local, &incoming)| {
                self.expressions.number(match operands {
                    Operands::LocalFirst => Node::Reduction(local, incoming),
                    Operands::IncomingFirst => Node::Reduction(incoming, local),
                })
            })
            .collect()
    }

    fn read(&self, at: StepId, chunk: &Chunk) -> Result<&[Value], Flaw> {
        let values = &self.cells[at.rank as usize][self.range(at.rank, chunk)];
        if values.contains(&UNKNOWN) {
            let what = format!("reads {chunk}, where nothing has been written yet");
            return Err(Flaw::at(self.walk.schedules, at, what));
        }
        Ok(values)
    }

    fn write(&mut self, rank: Rank, chunk: &Chunk, values: &[Value]) {
        let range = self.range(rank, chunk);
        self.cells[rank as usize][range].copy_from_slice(values);
    }

    fn range(&self, rank: Rank, chunk: &Chunk) -> std::ops::Range<usize> {
        let (memory, cells) = self.layout.locate(rank, chunk);
        let start = self.starts[rank as usize].get(memory as usize).copied().unwrap_or_default();
        start + cells.start as usize..start + cells.end as usize
    }

    /// Compares the outputs with what the contract requires.
    fn compare(&self, contract: &Contract) -> Result<(), Flaw> {
        // For each wanted content, the first rank's expressions, by cell: others hold the same.
        let mut agreed: HashMap<Wanted, Vec<(Rank, Value)>> = HashMap::new();
        for &place in &self.layout.places {
            for (index, holds) in (contract.after)(place).into_iter().enumerate() {
                let chunk = Block::output(index as u32).whole();
                let values = &self.cells[place.rank as usize][self.range(place.rank, &chunk)];
                let wanted = match holds {
                    BlockContent::Anything => continue,
                    BlockContent::One(origin) => Wanted::InOrder(vec![origin]),
                    BlockContent::InOrder(origins) => Wanted::InOrder(origins),
                    BlockContent::Reduction(mut origins) => {
                        sort(&mut origins);
                        Wanted::Sorted(origins)
                    }
                };
                let flaw = |cell, what: &str| end(place.rank, &chunk, cell, values.len(), what);
                if let Some(first) = agreed.get(&wanted) {
                    let differs = |&cell: &usize| first[cell].1 != values[cell];
                    if let Some(cell) = (0..values.len()).find(differs) {
                        self.prove(values[cell], &wanted).map_err(|what| flaw(cell, &what))?;
                        let rank = first[cell].0;
                        let what = format!("is reduced in another order than on rank {rank}");
                        return Err(flaw(cell, &what));
                    }
                } else {
                    for (cell, &value) in values.iter().enumerate() {
                        self.prove(value, &wanted).map_err(|what| flaw(cell, &what))?;
                    }
                    let first = values.iter().map(|&value| (place.rank, value)).collect();
                    agreed.insert(wanted, first);
                }
            }
        }
        Ok(())
    }

    fn prove(&self, value: Value, wanted: &Wanted) -> Result<(), String> {
        if value == UNKNOWN {
            return Err("is never written".into());
        }
        let (Wanted::Sorted(origins) | Wanted::InOrder(origins)) = wanted;
        let mut found = self.expressions.origins(value, origins.len());
        if matches!(wanted, Wanted::Sorted(_)) {
            sort(&mut found);
        }
        let wanted = origins;
        if found == *wanted {
            return Ok(());
        }
        let name = |origins: &[Origin]| {
            let names: Vec<String> =
                origins.iter().map(|(rank, block)| format!("{block} of rank {rank}")).collect();
            names.join(", ")
        };
        Err(format!("holds block {}, not block {}", name(&found), name(wanted)))
    }
}

fn end(rank: Rank, chunk: &Chunk, cell: usize, cells: usize, what: &str) -> Flaw {
    let part = chunk.block.part(cell as u32, cells as u32);
    Flaw { rank: Some(rank), step: None, what: format!("at the end, {part} {what}") }
}

/// Checks that every rank, before it is done, has heard that every rank has started.
fn hearsay(walk: &Walk<'_>, order: &[(StepId, Event)]) -> Result<(), Flaw> {
    let ranks = walk.schedules.len();
    let words = ranks.div_ceil(64);
    let mut heard = vec![vec![0u64; words]; walk.steps()];
    let mut ends = vec![vec![0u64; words]; ranks];
    let merge = |into: &mut Vec<u64>, from: &[u64]| {
        into.iter_mut().zip(from).for_each(|(into, from)| *into |= from);
    };
    for (rank, end) in ends.iter_mut().enumerate() {
        end[rank / 64] |= 1 << (rank % 64);
    }
    for &(at, event) in order {
        let own = walk.index(at);
        let step = &walk.schedules[at.rank as usize].steps[at.step as usize];
        let mut known = std::mem::take(&mut heard[own]);
        match event {
            Event::Start => {
                known[at.rank as usize / 64] |= 1 << (at.rank % 64);
                for &before in &step.after {
                    merge(&mut known, &heard[walk.index(StepId { step: before, ..at })]);
                }
            }
            Event::Finish => {
                // Only a receive learns something: a send may end before it is received.
                if let Some(sender) = step.action.sender().and(walk.partner(at)) {
                    merge(&mut known, &heard[walk.index(sender)]);
                }
                merge(&mut ends[at.rank as usize], &known);
            }
        }
        heard[own] = known;
    }
    for (rank, end) in ends.iter().enumerate() {
        let missing = (0..ranks).find(|&other| end[other / 64] & (1 << (other % 64)) == 0);
        if let Some(other) = missing {
            let what = format!("can leave the barrier before rank {other} has come");
            return Err(Flaw { rank: Some(rank as u32), step: None, what });
        }
    }
    Ok(())
}
