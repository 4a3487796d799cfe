//! What one rank does: steps over chunks, and the order that they need. Knows no algorithm.

use std::fmt;

use super::{Block, Buffer, Chunk, Rank};

/// Which operand of a reduction is the left one, so that all ranks end with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operands {
    /// `local ⊕ incoming`.
    LocalFirst,
    /// `incoming ⊕ local`.
    IncomingFirst,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sends `from` to `peer`.
    Send {
        /// The receiver.
        peer: Rank,
        /// What is sent.
        from: Chunk,
    },
    /// Receives into `into` from `peer`.
    Recv {
        /// The sender.
        peer: Rank,
        /// Where it goes.
        into: Chunk,
    },
    /// Receives from `peer` and writes the reduction of `local` and what came into `into`.
    /// `local` and `into` may be the same chunk.
    RecvReduce {
        /// The sender.
        peer: Rank,
        /// The operand that is here.
        local: Chunk,
        /// Where the result goes.
        into: Chunk,
        /// The order of the operands.
        operands: Operands,
    },
    /// Writes `into ⊕ from` (or the other order) into `into`. In `operands`, `into` is the local
    /// one.
    Reduce {
        /// The other operand.
        from: Chunk,
        /// The operand that is overwritten.
        into: Chunk,
        /// The order of the operands.
        operands: Operands,
    },
    /// Copies `from` to `into`; nothing if they are the same memory.
    Copy {
        /// What is copied.
        from: Chunk,
        /// Where it goes.
        into: Chunk,
    },
}

/// One step, and the steps of the same schedule that must come before it.
///
/// The k-th `Send` to a peer, in the order of the list, is matched with the k-th `Recv` or
/// `RecvReduce` from this rank in the peer's list, whenever each runs. A `Send` may have to wait
/// until the step that receives it is ready: no schedule relies on messages being buffered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// Indices, all smaller than this step's own, of the steps it waits for. If the earlier step
    /// wrote or sent the same chunk as this step reads or writes, the executor overlaps the two: a
    /// segment waits only for the same segment of the earlier step.
    pub after: Vec<u32>,
}

/// One rank's part of a collective.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Schedule {
    /// The steps.
    pub steps: Vec<Step>,
    /// For each block of [`Buffer::Scratch`](super::Buffer::Scratch), its size.
    pub scratch: Vec<Scratch>,
}

/// The size of a block of scratch memory.
///
/// One of several times a block is cut into as many parts, or a multiple of that: so each part is
/// that block, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scratch {
    /// The input or output block whose size counts.
    pub like: Block,
    /// How many times its size, at least 1.
    pub times: u32,
}

impl Schedule {
    /// How many blocks' sizes the block of a chunk has: more than one for some scratch memory.
    pub fn times(&self, chunk: &Chunk) -> u32 {
        match chunk.block.buffer {
            Buffer::Scratch if !chunk.is_nothing() => {
                self.scratch.get(chunk.block.index as usize).map_or(1, |scratch| scratch.times)
            }
            _ => 1,
        }
    }
}

impl Action {
    /// The chunks whose content it uses.
    pub fn reads(&self) -> impl Iterator<Item = Chunk> + use<> {
        let (first, second) = match *self {
            Action::Send { from, .. } | Action::Copy { from, .. } => (Some(from), None),
            Action::Recv { .. } => (None, None),
            Action::RecvReduce { local, .. } => (Some(local), None),
            Action::Reduce { from, into, .. } => (Some(from), Some(into)),
        };
        first.into_iter().chain(second)
    }

    /// The chunk that it changes.
    pub fn writes(&self) -> Option<Chunk> {
        match *self {
            Action::Send { .. } => None,
            Action::Recv { into, .. }
            | Action::RecvReduce { into, .. }
            | Action::Reduce { into, .. }
            | Action::Copy { into, .. } => Some(into),
        }
    }

    /// All its chunks, those it reads first.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk> + use<> {
        self.reads().chain(self.writes())
    }

    /// The rank it sends to.
    pub fn receiver(&self) -> Option<Rank> {
        match *self {
            Action::Send { peer, .. } => Some(peer),
            _ => None,
        }
    }

    /// The rank it receives from.
    pub fn sender(&self) -> Option<Rank> {
        match *self {
            Action::Recv { peer, .. } | Action::RecvReduce { peer, .. } => Some(peer),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Send { peer, from } => write!(f, "send {from} to rank {peer}"),
            Action::Recv { peer, into } => write!(f, "receive {into} from rank {peer}"),
            Action::RecvReduce { peer, local, into, operands } => {
                let (left, right) = match operands {
                    Operands::LocalFirst => (local.to_string(), format!("rank {peer}'s")),
                    Operands::IncomingFirst => (format!("rank {peer}'s"), local.to_string()),
                };
                write!(f, "receive and reduce {into} = {left} + {right}")
            }
            Action::Reduce { from, into, operands } => match operands {
                Operands::LocalFirst => write!(f, "reduce {into} = {into} + {from}"),
                Operands::IncomingFirst => write!(f, "reduce {into} = {from} + {into}"),
            },
            Action::Copy { from, into } => write!(f, "copy {from} to {into}"),
        }
    }
}
