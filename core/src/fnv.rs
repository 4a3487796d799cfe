//! The hash FNV-1a of 64 bits (<http://www.isthe.com/chongo/tech/comp/fnv/>): the same on all hosts
//! and in all versions, as the standard hasher is not. Nobody is kept from making two texts with
//! one hash. Knows nothing of what is hashed.

/// A hash that takes in bytes one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv(u64);

impl Fnv {
    /// Of no bytes.
    pub(crate) fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    /// The hash of these bytes.
    pub(crate) fn of(bytes: impl IntoIterator<Item = u8>) -> u64 {
        let mut hash = Fnv::new();
        hash.bytes(bytes);
        hash.0
    }

    /// Takes in more bytes.
    pub(crate) fn bytes(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash until now.
    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_test_vectors_come_out() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(Fnv::of(text.bytes()), hash, "{text}");
        }
    }
}
