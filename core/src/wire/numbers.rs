//! What two ranks must have in common to talk at all. Knows nothing of connections.

use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;

/// Version of the handshake and the frames. Ranks of different versions refuse each other.
pub const WIRE_VERSION: u16 = 4;

/// Hash of the numbers that travel and what they mean: collectives, their algorithms, dtypes,
/// reduce operators. Equal on two ranks exactly if they read each other's fingerprints alike.
pub fn numbers_hash() -> u64 {
    let mut hash = Fnv::new();
    for collective in Collective::ALL {
        hash.number(collective as u8, collective.facts().name);
        for (index, algorithm) in (0..=u8::MAX).zip(collective.algorithms()) {
            hash.number(index, algorithm.name);
        }
    }
    hash.number(u8::MAX, "dtypes");
    for dtype in DType::ALL {
        hash.number(dtype as u8, dtype.name());
    }
    hash.number(u8::MAX, "reduce operators");
    for code in 0..=u8::MAX {
        hash.number(code, ReduceOp::name_of_code(code));
    }
    hash.0
}

/// FNV-1a, 64 bits: stable across versions and platforms, as the standard hasher is not.
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    /// Takes in a number and its meaning; the length keeps neighbours apart.
    fn number(&mut self, code: u8, name: &str) {
        self.byte(code);
        for byte in (name.len() as u64).to_le_bytes() {
            self.byte(byte);
        }
        for byte in name.bytes() {
            self.byte(byte);
        }
    }

    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv() {
        let mut hash = Fnv::new();
        for byte in b"foobar" {
            hash.byte(*byte);
        }
        assert_eq!(hash.0, 0x8594_4171_f739_67e8, "published test vector of FNV-1a");
    }

    #[test]
    fn the_hash_depends_on_codes_and_names() {
        let hash_of = |pairs: &[(u8, &str)]| {
            let mut hash = Fnv::new();
            pairs.iter().for_each(|(code, name)| hash.number(*code, name));
            hash.0
        };
        assert_ne!(hash_of(&[(0, "a"), (1, "b")]), hash_of(&[(0, "b"), (1, "a")]));
        assert_ne!(hash_of(&[(0, "ab")]), hash_of(&[(0, "a"), (b'b', "")]));
        assert_eq!(numbers_hash(), numbers_hash());
    }
}
