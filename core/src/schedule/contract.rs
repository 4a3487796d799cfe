//! What a collective promises, in terms of whose data is where. Knows no algorithm.

use super::{Place, Rank};

/// The data that a rank came with: (rank, block of that rank's starting buffer).
pub type Origin = (Rank, u32);

/// What a block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockContent {
    /// Arbitrary data.
    Anything,
    /// Exactly this origin's data.
    One(Origin),
    /// The reduction of these origins, each once. Where several ranks end with the same reduction,
    /// they end with the same bits.
    Reduction(Vec<Origin>),
    /// As [`BlockContent::Reduction`], with these origins from left to right: what an operator that
    /// does not commute would give.
    InOrder(Vec<Origin>),
}

/// A collective as a contract: the content of the buffers before it, and the content that they must
/// have afterwards.
///
/// Two blocks have the same size if the contract puts the same origin, or two origins of one
/// reduction, into both; all other sizes may differ.
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    /// What each block of (Input, Output) holds at the start; the lengths are the block counts.
    pub before: fn(Place) -> (Vec<BlockContent>, Vec<BlockContent>),
    /// What each block of Output must hold at the end.
    pub after: fn(Place) -> Vec<BlockContent>,
    /// The input block and the output block of this rank that the caller may give the same memory.
    pub in_place: fn(Place) -> Option<(u32, u32)>,
    /// Whether no rank may finish before all have started.
    pub barrier: bool,
}

/// The origins of block `block` of all `size` ranks.
pub(super) fn everyone(block: u32, size: u32) -> BlockContent {
    BlockContent::Reduction((0..size).map(|rank| (rank, block)).collect())
}
