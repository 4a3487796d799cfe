//! A fingerprint as bytes, and the hash of what does not fit into it. Pure.

use super::frame::Fingerprint;
use crate::fnv::Fnv;

/// The bits that say that a detail is a hash, where it might be a factor: those of no number.
pub const NOT_A_FACTOR: u64 = 0x7ff8 << 48;

/// The bits that say that a detail is that of several operations of one call; beneath them are how
/// many those are, and half a hash.
const OF_SEVERAL: u64 = 0x7ff9;
const OF_SEVERAL_AT: u32 = 48;
const COUNT_AT: u32 = 32;
/// Most operations of one call that an error tells. A hash that looks like such a detail hardly
/// ever has as few.
const MAX_TOLD: u64 = 1 << 12;

impl Fingerprint {
    /// Bytes of an encoded fingerprint.
    pub const BYTES: usize = 24;

    /// One in which every byte tells its place, for tests.
    #[cfg(test)]
    pub(crate) const EXAMPLE: Fingerprint = Fingerprint {
        collective: 1,
        dtype: 2,
        reduce_op: 3,
        algorithm: 4,
        root: 0x0506_0708,
        elements: 0x090a_0b0c_0d0e_0f10,
        detail: u64::MAX,
    };

    /// Of how many tensors of each rank the call was, if that is told and there are several.
    pub fn tensors_per_rank(&self) -> Option<u64> {
        let count = self.detail >> COUNT_AT & 0xffff;
        (self.detail >> OF_SEVERAL_AT == OF_SEVERAL && (2..MAX_TOLD).contains(&count))
            .then_some(count)
    }

    /// The bytes that travel, little-endian.
    pub fn encode(&self) -> [u8; Fingerprint::BYTES] {
        let mut bytes = [0; Fingerprint::BYTES];
        let Fingerprint { collective, dtype, reduce_op, algorithm, root, elements, detail } = *self;
        bytes[..4].copy_from_slice(&[collective, dtype, reduce_op, algorithm]);
        bytes[4..8].copy_from_slice(&root.to_le_bytes());
        bytes[8..16].copy_from_slice(&elements.to_le_bytes());
        bytes[16..].copy_from_slice(&detail.to_le_bytes());
        bytes
    }

    /// Reads what [`Fingerprint::encode`] wrote. Any bytes are a fingerprint.
    pub fn decode(bytes: &[u8; Fingerprint::BYTES]) -> Fingerprint {
        let [collective, dtype, reduce_op, algorithm, rest @ ..] = *bytes;
        let [r0, r1, r2, r3, rest @ ..] = rest;
        let (elements, detail) = rest.split_at(8);
        let word =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        Fingerprint {
            collective,
            dtype,
            reduce_op,
            algorithm,
            root: u32::from_le_bytes([r0, r1, r2, r3]),
            elements: word(elements),
            detail: word(detail),
        }
    }
}

/// The hash of `words`, the same on all hosts: 64-bit FNV-1a over their little-endian bytes. No
/// words hash to 0, as an empty detail has it.
pub fn digest(words: &[u64]) -> u64 {
    if words.is_empty() {
        return 0;
    }
    Fnv::of(words.iter().flat_map(|word| word.to_le_bytes()))
}

/// The detail of one of `count` operations, one for each tensor of a rank, where that of a single
/// one is the hash of `words`. Ranks with other numbers of tensors disagree.
pub fn detail_of_several(count: usize, words: &[u64]) -> u64 {
    let count = count as u64;
    let hash = digest(&[words, &[count]].concat()) & 0xffff_ffff;
    OF_SEVERAL << OF_SEVERAL_AT | (count & 0xffff) << COUNT_AT | hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_tells_of_how_many_tensors_a_call_is() {
        let of = |detail| Fingerprint { detail, ..Fingerprint::EXAMPLE }.tensors_per_rank();
        assert_eq!(of(detail_of_several(2, &[5, 5])), Some(2));
        assert_eq!(of(detail_of_several(4095, &[])), Some(4095));
        assert_eq!(of(digest(&[5, 5])), None);
        assert_ne!(detail_of_several(2, &[5, 5]), detail_of_several(2, &[4, 6]));
        assert_ne!(detail_of_several(2, &[5, 5]), detail_of_several(3, &[5, 5]));
    }

    #[test]
    fn a_fingerprint_goes_out_and_back() {
        let fingerprint = Fingerprint::EXAMPLE;
        assert_eq!(Fingerprint::decode(&fingerprint.encode()), fingerprint);
    }

    #[test]
    fn the_digest_is_fnv_1a() {
        // The hash of eight zero bytes by the definition: eight times (hash ^ 0) * prime.
        let expected = (0..8)
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, _| hash.wrapping_mul(0x0000_0100_0000_01b3));
        assert_eq!(digest(&[0]), expected);
        assert_ne!(digest(&[1, 2]), digest(&[2, 1]));
        assert_eq!(digest(&[]), 0);
    }
}
