//! What a rank shows on the board in place of data that does not fit there: where its blocks lie in
//! its own memory. Pure: knows bytes; no board, no memory.

/// A block of the memory of the rank that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LentBlock {
    /// Where it begins.
    pub(super) address: u64,
    /// How long it is.
    pub(super) bytes: u64,
}

/// Bytes of the encoding of one.
const BLOCK_BYTES: usize = 16;

impl LentBlock {
    /// Appends the encoding: two words in the order of the processor, which all ranks share.
    pub(super) fn encode(self, into: &mut Vec<u8>) {
        into.extend(self.address.to_ne_bytes());
        into.extend(self.bytes.to_ne_bytes());
    }

    /// The block with the number `index` of those that `shown` has, which have to be `blocks`.
    pub(super) fn of(shown: &[u8], index: usize, blocks: usize) -> Option<LentBlock> {
        let (encoded, rest) = shown.as_chunks::<BLOCK_BYTES>();
        let is_complete = rest.is_empty() && encoded.len() == blocks;
        let block = encoded.get(index).filter(|_| is_complete)?;
        let (address, bytes) = block.split_at(BLOCK_BYTES / 2);
        let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u64::from_ne_bytes(*word));
        Some(LentBlock { address: word(address)?, bytes: word(bytes)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_finds_its_own_block() {
        let blocks: Vec<_> =
            (0..3).map(|index| LentBlock { address: 1 << (20 + index), bytes: index }).collect();
        let mut shown = Vec::new();
        blocks.iter().for_each(|block| block.encode(&mut shown));
        for (index, block) in blocks.iter().enumerate() {
            assert_eq!(LentBlock::of(&shown, index, 3), Some(*block));
        }
        assert_eq!(LentBlock::of(&shown[..16], 0, 1), Some(blocks[0]));
        for (nonsense, index, blocks) in
            [(48, 3, 3), (48, 0, 4), (48, 0, 2), (47, 0, 3), (47, 0, 2), (48, 0, 1), (0, 0, 1)]
        {
            assert_eq!(LentBlock::of(&shown[..nonsense], index, blocks), None);
        }
    }
}
