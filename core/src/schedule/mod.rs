//! What to do: a collective as data. Pure; knows nothing of bytes, transports, clocks or threads.
//!
//! A [`Schedule`] is one rank's list of [`Step`]s over [`Chunk`]s of named buffers. It is built once
//! per (collective, algorithm, rank, size, root) and kept.

// One module for each collective of the IDL: a new one needs no line here.
#[path = "../generated/schedules.rs"]
mod collectives;

pub use collectives::*;

/// A rank within the group that runs the schedule.
pub type Rank = u32;

/// Who runs the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// This rank.
    pub rank: Rank,
    /// The number of ranks, at least 1.
    pub size: u32,
    /// The root, 0 where the collective has none.
    pub root: Rank,
}

/// The buffers that a step can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// What this rank contributes. Never written, unless the caller gave the same memory as output.
    Input,
    /// What this rank ends with.
    Output,
    /// Memory of the executor, gone after the operation. Its blocks are [`Schedule::scratch`].
    Scratch,
}

/// A block of a buffer: one rank's contribution or result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The buffer.
    pub buffer: Buffer,
    /// Which block of it.
    pub index: u32,
}

/// `count` consecutive parts, from `part` on, of a block cut into `parts` parts.
///
/// A block of `E` elements has part `i` at elements `E*i/parts .. E*(i+1)/parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// The block that is cut.
    pub block: Block,
    /// The first part.
    pub part: u32,
    /// How many parts.
    pub count: u32,
    /// How many parts the block has in all.
    pub parts: u32,
}

/// Which operand of a reduction stands on the left, so that all ranks end with the same bits.
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
    /// Writes `into ⊕ from` (or the other order) into `into`. In `operands`, `into` is the local one.
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
/// The k-th `Send` to a peer, in the order of the list, meets the k-th `Recv` or `RecvReduce` from
/// this rank in the peer's list, whenever each happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// Indices, all smaller than this step's own, of the steps it waits for. Where the chunk that
    /// the earlier step wrote or sent is the same as the one this step reads or writes, the
    /// executor lets segments of the two overlap: a segment waits for its own segment only.
    pub after: Vec<u32>,
}

/// One rank's part of a collective.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Schedule {
    /// The steps.
    pub steps: Vec<Step>,
    /// For each block of [`Buffer::Scratch`], the input or output block whose size it has.
    pub scratch: Vec<Block>,
}

/// What the pre- and postcondition of a collective say: which contributions are where.
/// `Origin` is (rank, block of that rank's starting buffer).
pub type Origin = (Rank, u32);

/// What a block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Nothing that anybody may rely on.
    Anything,
    /// Exactly this origin's data.
    One(Origin),
    /// The reduction of these origins, each once.
    Reduction(Vec<Origin>),
}

/// A collective as a contract: what is in the buffers before, and what must be there after.
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    /// What each block of (Input, Output) holds at the start; the lengths are the block counts.
    pub before: fn(Place) -> (Vec<Holds>, Vec<Holds>),
    /// What each block of Output must hold at the end.
    pub after: fn(Place) -> Vec<Holds>,
    /// Whether a rank may finish before all have started (false only for a barrier).
    pub barrier: bool,
}

/// One way to carry out a collective.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// The name that `POLYRANK_ALGORITHM` takes.
    pub name: &'static str,
    /// When it is meant to be used, in one line.
    pub meant_for: &'static str,
    /// Builds the schedule of one rank.
    pub build: fn(Place) -> Schedule,
    /// Whether it can be used at this number of ranks.
    pub fits: fn(u32) -> bool,
}
