//! What two ranks must have in common to talk at all. Knows nothing of connections.

use std::sync::OnceLock;

use super::exchange::ExchangeMethod;
use crate::fnv::Fnv;
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;

/// Version of the handshake and the frames. Ranks of different versions refuse each other.
pub const WIRE_VERSION: u16 = 5;

/// Hash of the numbers that travel and what they mean: collectives, their algorithms, dtypes,
/// reduce operators, methods that are exchanges. Equal on two ranks exactly if they read each
/// other's fingerprints alike.
pub fn numbers_hash() -> u64 {
    /// Every card is compared with it.
    static HASH: OnceLock<u64> = OnceLock::new();
    *HASH.get_or_init(hash_of_all)
}

fn hash_of_all() -> u64 {
    let mut hash = Fnv::new();
    for collective in Collective::ALL {
        number(&mut hash, collective as u8, collective.facts().name);
        for (index, algorithm) in (0..=u8::MAX).zip(collective.algorithms()) {
            number(&mut hash, index, algorithm.name);
        }
    }
    number(&mut hash, u8::MAX, "dtypes");
    for dtype in DType::ALL {
        number(&mut hash, dtype as u8, dtype.name());
    }
    number(&mut hash, u8::MAX, "reduce operators");
    for code in 0..=u8::MAX {
        number(&mut hash, code, ReduceOp::name_of_code(code));
    }
    number(&mut hash, u8::MAX, "exchanges");
    for method in ExchangeMethod::ALL {
        number(&mut hash, method as u8, method.name());
    }
    hash.value()
}

/// Takes a number and its meaning into `hash`; the length keeps neighbours apart.
fn number(hash: &mut Fnv, code: u8, name: &str) {
    hash.bytes([code]);
    hash.bytes((name.len() as u64).to_le_bytes());
    hash.bytes(name.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_codes_and_names() {
        let hash_of = |pairs: &[(u8, &str)]| {
            let mut hash = Fnv::new();
            pairs.iter().for_each(|(code, name)| number(&mut hash, *code, name));
            hash.value()
        };
        assert_ne!(hash_of(&[(0, "a"), (1, "b")]), hash_of(&[(0, "b"), (1, "a")]));
        assert_ne!(hash_of(&[(0, "ab")]), hash_of(&[(0, "a"), (b'b', "")]));
        assert_eq!(numbers_hash(), numbers_hash());
    }
}
