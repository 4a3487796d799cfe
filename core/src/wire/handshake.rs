//! How two ranks make sure of each other before the first frame. Knows nothing of sockets.
//!
//! The side that connected sends a [`Hello`]; the other answers with a [`Welcome`], which accepts
//! or says why not. Frames follow only an accepting welcome, in both directions.

use super::frame::{u32_at, u64_at};
use super::numbers::{WIRE_VERSION, numbers_hash};

/// Opens both messages. It and the version after it never change their place.
const MAGIC: [u8; 8] = *b"polyrank";

/// Bytes that tell a foreign or older program apart: magic and version.
pub const PREFIX_BYTES: usize = 10;

/// Random bytes that the ranks of one group share through the store; a stranger does not know them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(pub [u8; 16]);

/// How a rank introduces itself, and which rank it wants to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`WIRE_VERSION`] of the sender.
    pub version: u16,
    /// [`numbers_hash`] of the sender.
    pub numbers: u64,
    /// The group's token.
    pub token: Token,
    /// Generation of the group's membership.
    pub generation: u32,
    /// The sender's rank.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The rank that the sender wants to reach.
    pub target: u32,
}

/// The answer to a [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// [`WIRE_VERSION`] of the sender.
    pub version: u16,
    /// The rank that answers.
    pub rank: u32,
    /// Its generation.
    pub generation: u32,
    /// Why the connection is refused; `None`: it is accepted.
    pub refusal: Option<Refusal>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
#[non_exhaustive]
pub enum Refusal {
    /// Another version of the protocol.
    #[error("it speaks another version of the protocol")]
    Version = 1,
    /// Collectives, dtypes or operators have other numbers there.
    #[error("its build numbers collectives, dtypes or reduce operators differently")]
    Numbers = 2,
    /// Not the same group.
    #[error("it belongs to another group")]
    Token = 3,
    /// The same group with another membership.
    #[error("it has another generation of the group")]
    Generation = 4,
    /// The rank does not exist, or is not the one that was wanted.
    #[error("it has another rank than the one that was wanted")]
    Rank = 5,
    /// The group has another number of ranks there.
    #[error("its group has another number of ranks")]
    Size = 6,
    /// Both connect at once, and the lower rank's connection wins.
    #[error("both ranks connected at once")]
    Crossing = 7,
    /// There is a connection between the two already.
    #[error("it has a connection to this rank already")]
    Connected = 8,
    /// This rank is lost for the other: its connection ended before.
    #[error("it has lost this rank before")]
    Lost = 9,
}

/// Why bytes are not a message of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// Too few bytes.
    #[error("the handshake is cut short")]
    Short,
    /// Not polyrank.
    #[error("the process that answers there is not a polyrank rank")]
    Magic,
    /// Another version of the protocol, whose messages this one cannot read.
    #[error("it speaks version {version} of the protocol, this rank version {WIRE_VERSION}")]
    Version {
        /// The other's version.
        version: u16,
    },
    /// A field has a value that it cannot have.
    #[error("the handshake has a field that makes no sense")]
    Field,
}

impl Hello {
    /// Bytes of an encoded hello.
    pub const BYTES: usize = 52;

    /// A hello of this build.
    pub fn new(token: Token, generation: u32, rank: u32, size: u32, target: u32) -> Hello {
        let numbers = numbers_hash();
        Hello { version: WIRE_VERSION, numbers, token, generation, rank, size, target }
    }

    /// The bytes that travel.
    pub fn encode(&self) -> [u8; Hello::BYTES] {
        let mut bytes = [0; Hello::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10] = b'H';
        bytes[12..20].copy_from_slice(&self.numbers.to_le_bytes());
        bytes[20..36].copy_from_slice(&self.token.0);
        bytes[36..40].copy_from_slice(&self.generation.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.rank.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.size.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.target.to_le_bytes());
        bytes
    }

    /// Reads the hello at the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Hello, HandshakeError> {
        let version = check_prefix(bytes)?;
        let bytes = bytes.first_chunk::<{ Hello::BYTES }>().ok_or(HandshakeError::Short)?;
        if bytes[10] != b'H' || bytes[11] != 0 {
            return Err(HandshakeError::Field);
        }
        let mut token = [0; 16];
        token.copy_from_slice(&bytes[20..36]);
        Ok(Hello {
            version,
            numbers: u64_at(bytes, 12),
            token: Token(token),
            generation: u32_at(bytes, 36),
            rank: u32_at(bytes, 40),
            size: u32_at(bytes, 44),
            target: u32_at(bytes, 48),
        })
    }

    /// Whether the rank that would send `ours` to this hello's sender can accept it.
    pub fn check(&self, ours: &Hello) -> Result<(), Refusal> {
        if self.version != ours.version {
            Err(Refusal::Version)
        } else if self.numbers != ours.numbers {
            Err(Refusal::Numbers)
        } else if !self.token.matches(&ours.token) {
            Err(Refusal::Token)
        } else if self.generation != ours.generation {
            Err(Refusal::Generation)
        } else if self.size != ours.size {
            Err(Refusal::Size)
        } else if self.target != ours.rank || self.rank >= ours.size || self.rank == ours.rank {
            Err(Refusal::Rank)
        } else {
            Ok(())
        }
    }
}

impl Welcome {
    /// Bytes of an encoded welcome.
    pub const BYTES: usize = 20;

    /// The bytes that travel.
    pub fn encode(&self) -> [u8; Welcome::BYTES] {
        let mut bytes = [0; Welcome::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10] = b'W';
        bytes[11] = self.refusal.map_or(0, |refusal| refusal as u8);
        bytes[12..16].copy_from_slice(&self.rank.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    /// Reads the welcome at the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Welcome, HandshakeError> {
        let version = check_prefix(bytes)?;
        let bytes = bytes.first_chunk::<{ Welcome::BYTES }>().ok_or(HandshakeError::Short)?;
        if bytes[10] != b'W' {
            return Err(HandshakeError::Field);
        }
        let refusal = match bytes[11] {
            0 => None,
            code => Some(Refusal::from_code(code).ok_or(HandshakeError::Field)?),
        };
        Ok(Welcome { version, rank: u32_at(bytes, 12), generation: u32_at(bytes, 16), refusal })
    }
}

impl Refusal {
    /// Every refusal.
    pub const ALL: [Refusal; 9] = [
        Refusal::Version,
        Refusal::Numbers,
        Refusal::Token,
        Refusal::Generation,
        Refusal::Rank,
        Refusal::Size,
        Refusal::Crossing,
        Refusal::Connected,
        Refusal::Lost,
    ];

    fn from_code(code: u8) -> Option<Refusal> {
        Self::ALL.into_iter().find(|refusal| *refusal as u8 == code)
    }
}

impl Token {
    /// Whether both are the same, in a time that does not tell where they differ.
    fn matches(&self, other: &Token) -> bool {
        self.0.iter().zip(other.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The version after the magic, if this build can read what follows. Wants at most
/// [`PREFIX_BYTES`], so that a stranger can be told before its message is complete.
pub fn check_prefix(bytes: &[u8]) -> Result<u16, HandshakeError> {
    let magic_bytes = bytes.len().min(MAGIC.len());
    if bytes[..magic_bytes] != MAGIC[..magic_bytes] {
        return Err(HandshakeError::Magic);
    }
    let prefix = bytes.first_chunk::<PREFIX_BYTES>().ok_or(HandshakeError::Short)?;
    match u16::from_le_bytes([prefix[8], prefix[9]]) {
        WIRE_VERSION => Ok(WIRE_VERSION),
        version => Err(HandshakeError::Version { version }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_survive_the_journey(
            token in any::<[u8; 16]>(),
            numbers in any::<u64>(),
            fields in any::<[u32; 4]>(),
            refusal in 0..=Refusal::ALL.len(),
        ) {
            let [generation, rank, size, target] = fields;
            let hello = Hello {
                numbers,
                ..Hello::new(Token(token), generation, rank, size, target)
            };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            let refusal = Refusal::ALL.get(refusal).copied();
            let welcome = Welcome { version: WIRE_VERSION, rank, generation, refusal };
            prop_assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_are_a_message(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            prefixed in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if prefixed && bytes.len() > 12 {
                bytes[..8].copy_from_slice(&MAGIC);
                bytes[8..10].copy_from_slice(&WIRE_VERSION.to_le_bytes());
                bytes[10] = if bytes[10] & 1 == 0 { b'H' } else { b'W' };
                bytes[11] %= 12;
            }
            if let Ok(hello) = Hello::decode(&bytes) {
                prop_assert_eq!(&hello.encode()[..], &bytes[..Hello::BYTES]);
            }
            if let Ok(welcome) = Welcome::decode(&bytes) {
                prop_assert_eq!(&welcome.encode()[..], &bytes[..Welcome::BYTES]);
            }
        }
    }

    #[test]
    fn every_disagreement_has_its_reason() {
        let token = Token([7; 16]);
        let ours = Hello::new(token, 3, 1, 4, 2);
        let theirs = Hello::new(token, 3, 2, 4, 1);
        assert_eq!(theirs.check(&ours), Ok(()));
        let refused = |change: fn(&mut Hello)| {
            let mut hello = theirs;
            change(&mut hello);
            hello.check(&ours).unwrap_err()
        };
        assert_eq!(refused(|hello| hello.version += 1), Refusal::Version);
        assert_eq!(refused(|hello| hello.numbers ^= 1), Refusal::Numbers);
        assert_eq!(refused(|hello| hello.token.0[15] = 8), Refusal::Token);
        assert_eq!(refused(|hello| hello.generation = 2), Refusal::Generation);
        assert_eq!(refused(|hello| hello.size = 5), Refusal::Size);
        assert_eq!(refused(|hello| hello.target = 0), Refusal::Rank);
        assert_eq!(refused(|hello| hello.rank = 4), Refusal::Rank);
        assert_eq!(refused(|hello| hello.rank = 1), Refusal::Rank);
    }

    #[test]
    fn a_stranger_is_told_by_its_first_bytes() {
        assert_eq!(check_prefix(b"GET / HT"), Err(HandshakeError::Magic));
        assert_eq!(check_prefix(b"G"), Err(HandshakeError::Magic));
        assert_eq!(check_prefix(b"poly"), Err(HandshakeError::Short));
        assert_eq!(
            check_prefix(b"polyrank\x09\x01"),
            Err(HandshakeError::Version { version: 265 })
        );
    }
}
