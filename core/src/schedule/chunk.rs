//! Names of memory: buffers, blocks of buffers and chunks of blocks. Knows no bytes and no memory.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

/// The buffers that a step can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Buffer {
    /// What this rank contributes. Never written, unless the caller gave the same memory as output.
    Input,
    /// What this rank ends with.
    Output,
    /// Memory of the executor, gone after the operation. Its blocks are
    /// [`Schedule::scratch`](super::Schedule::scratch).
    Scratch,
}

/// A block of a buffer: one rank's contribution or result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The buffer.
    pub buffer: Buffer,
    /// Which block of it.
    pub index: u32,
}

/// `count` consecutive parts, from `part` on, of a block cut into `parts` parts.
///
/// A block of `E` elements has part `i` at elements `E*i/parts .. E*(i+1)/parts`. A chunk of no
/// parts (`count == 0`) has no memory, whatever block it names: see [`Chunk::NOTHING`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// The block that is cut.
    pub block: Block,
    /// The first part.
    pub part: u32,
    /// How many parts.
    pub count: u32,
    /// How many parts the block has in all, at least 1.
    pub parts: u32,
}

impl Block {
    /// Block `index` of the input.
    pub const fn input(index: u32) -> Block {
        Block { buffer: Buffer::Input, index }
    }

    /// Block `index` of the output.
    pub const fn output(index: u32) -> Block {
        Block { buffer: Buffer::Output, index }
    }

    /// The whole block as one chunk.
    pub const fn whole(self) -> Chunk {
        self.span(0, 1, 1)
    }

    /// Part `part` of this block cut into `parts`.
    pub const fn part(self, part: u32, parts: u32) -> Chunk {
        self.span(part, 1, parts)
    }

    /// The `count` parts from `part` on of this block cut into `parts`.
    pub const fn span(self, part: u32, count: u32, parts: u32) -> Chunk {
        Chunk { block: self, part, count, parts }
    }
}

impl Chunk {
    /// No memory at all: what the messages of a barrier carry. The block that it names need not
    /// exist.
    pub const NOTHING: Chunk =
        Chunk { block: Block { buffer: Buffer::Scratch, index: 0 }, part: 0, count: 0, parts: 1 };

    /// Whether it has no memory, however large the block.
    pub const fn is_nothing(&self) -> bool {
        self.count == 0
    }

    /// The elements it covers of a block of `block_elements` elements.
    pub fn elements(&self, block_elements: usize) -> Range<usize> {
        let at = |fraction: Fraction| {
            let parts = u128::from(fraction.denominator.max(1));
            // At most `block_elements` for every part of the block, so that it fits.
            (block_elements as u128 * u128::from(fraction.numerator) / parts) as usize
        };
        at(self.start())..at(self.end())
    }

    /// Whether some element of a large enough block is in both.
    ///
    /// Boundaries are compared as fractions of the block, which is exact: equal fractions are the
    /// same element whatever the block's size.
    pub fn overlaps(&self, other: &Chunk) -> bool {
        self.block == other.block
            && !self.is_nothing()
            && !other.is_nothing()
            && self.start() < other.end()
            && other.start() < self.end()
    }

    /// Whether every element of `other` is in this chunk.
    pub fn covers(&self, other: &Chunk) -> bool {
        self.block == other.block && self.start() <= other.start() && other.end() <= self.end()
    }

    /// Whether both are the same range of the same block, however it is cut.
    pub fn same_range(&self, other: &Chunk) -> bool {
        self.covers(other) && other.covers(self)
    }

    /// Where in the block it starts.
    pub(super) fn start(&self) -> Fraction {
        let (numerator, denominator) = (u64::from(self.part), u64::from(self.parts));
        Fraction { numerator, denominator }
    }

    /// Where in the block it ends.
    pub(super) fn end(&self) -> Fraction {
        let start = self.start();
        Fraction { numerator: start.numerator + u64::from(self.count), ..start }
    }
}

/// A place in a block, as a part of the whole; equal places compare equal however the block is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fraction {
    /// At most the denominator.
    numerator: u64,
    /// Below 2³², and at least 1.
    denominator: u64,
}

impl Ord for Fraction {
    fn cmp(&self, other: &Fraction) -> Ordering {
        // No chunk ends behind its block, so that a numerator is at most its denominator.
        (self.numerator * other.denominator).cmp(&(other.numerator * self.denominator))
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Fraction) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Fraction) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Fraction {}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffer = match self.buffer {
            Buffer::Input => "input",
            Buffer::Output => "output",
            Buffer::Scratch => "scratch",
        };
        write!(f, "{buffer}[{}]", self.index)
    }
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.count, self.parts) {
            (0, _) => write!(f, "nothing"),
            (count, parts) if count == parts => write!(f, "{}", self.block),
            (1, parts) => write!(f, "{} part {} of {parts}", self.block, self.part),
            (count, parts) => {
                let last = u64::from(self.part) + u64::from(count) - 1;
                write!(f, "{} parts {}..={last} of {parts}", self.block, self.part)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_block_tile_its_elements() {
        for elements in [0, 1, 2, 7, 8, 100, usize::MAX] {
            for parts in [1, 2, 3, 5, 8, 1000, u32::MAX] {
                let block = Block::output(0);
                assert_eq!(block.span(0, parts, parts).elements(elements), 0..elements);
                let middle = parts / 2;
                let left = block.span(0, middle, parts).elements(elements);
                let right = block.span(middle, parts - middle, parts).elements(elements);
                assert_eq!(left.end, right.start);
            }
        }
        assert_eq!(Block::input(0).part(1, 3).elements(7), 2..4);
    }

    #[test]
    fn chunks_cut_differently_overlap_by_fraction() {
        let block = Block::output(0);
        assert!(block.part(1, 4).overlaps(&block.part(0, 2)));
        assert!(!block.part(1, 4).overlaps(&block.part(1, 2)));
        assert!(block.part(1, 3).overlaps(&block.part(0, 2)));
        assert!(block.part(0, 2).same_range(&block.span(0, 2, 4)));
        assert!(block.whole().covers(&block.part(4, 5)));
        assert!(!block.part(0, 5).covers(&block.part(0, 4)));
        assert!(!Chunk::NOTHING.overlaps(&Chunk::NOTHING));
        assert!(!block.whole().overlaps(&Block::output(1).whole()));
    }

    #[test]
    fn chunks_read_well() {
        assert_eq!(Block::input(3).whole().to_string(), "input[3]");
        assert_eq!(Block::output(0).part(1, 4).to_string(), "output[0] part 1 of 4");
        assert_eq!(Block::output(0).span(2, 2, 8).to_string(), "output[0] parts 2..=3 of 8");
        assert_eq!(Chunk::NOTHING.to_string(), "nothing");
    }
}
