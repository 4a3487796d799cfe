//! The frame header and what all ranks must agree on.

use crate::generated::collective::{Blocks, Collective, Sizes};

/// The algorithm in the fingerprints of operations over the board, beyond those of schedules.
pub const BOARD_ALGORITHM: u8 = u8::MAX;

/// The algorithm in the fingerprints that a rank shows on the board which says there where its data
/// lies, since it does not fit.
pub const LENT_ALGORITHM: u8 = u8::MAX - 1;

/// What all ranks of an operation must agree on; it is in every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Fingerprint {
    /// [`Collective`] number.
    pub collective: u8,
    /// [`DType`](crate::DType) number.
    pub dtype: u8,
    /// [`ReduceOp`](crate::ReduceOp) number, 0 where nothing is reduced.
    pub reduce_op: u8,
    /// Index of the algorithm in the collective's table.
    pub algorithm: u8,
    /// The root, 0 where there is none.
    pub root: u32,
    /// Elements that all ranks must agree on; 0 where sizes differ legitimately.
    pub elements: u64,
    /// What else must agree: the factor of PREMUL_SUM where the blocks beside it are equal, or a
    /// hash of the factor, the sizes of all ranks' blocks, and list lengths, which read as
    /// a factor is not a number.
    pub detail: u64,
}

impl Fingerprint {
    /// That of a rank that runs nothing under a number, and never will: it leaves.
    pub const NOTHING: Fingerprint = Fingerprint {
        collective: u8::MAX,
        dtype: 0,
        reduce_op: 0,
        algorithm: 0,
        root: 0,
        elements: 0,
        detail: 0,
    };

    /// Whether the operation ends on `rank`, of so many ranks, before all others have compared
    /// themselves with it: they may yet find that they disagree.
    pub fn ends_without_all(&self, rank: u32, size: u32) -> bool {
        let Some(collective) = Collective::from_code(self.collective) else { return false };
        let facts = collective.facts();
        let is_root = facts.rooted && self.root == rank;
        // In a reduce or gather, every rank sends to the root; in a broadcast or scatter, the root
        // sends to the others and receives nothing from them.
        let comes_to_root = facts.input == Blocks::One;
        let has_heard_all = is_root == comes_to_root && (is_root || size == 2);
        // Where sizes are pairwise, each rank knows those of its own blocks only.
        (facts.rooted && !has_heard_all) || facts.sizes == Sizes::Pairwise
    }
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A segment of a message of a collective.
    Data = 1,
    /// The receiver is ready for a message of a collective.
    Ready = 2,
    /// The sender holds frames of an operation that the receiver has not issued yet.
    Held = 3,
    /// The receiver has issued operations up to `sequence`.
    Issued = 4,
    /// A segment of a point-to-point message.
    Message = 5,
    /// A point-to-point message waits at the sender.
    Offer = 6,
    /// The receiver takes an offered point-to-point message.
    Accept = 7,
    /// The group is broken; the payload says why.
    Abort = 8,
    /// The sender leaves cleanly; an end of the stream after it is not a failure.
    Goodbye = 9,
    /// The sender waits for the receiver in operation `sequence`, which stands still.
    Inquiry = 10,
    /// How far the sender is, in answer to an inquiry; the payload lists the ranks that it misses
    /// in operation `sequence` itself.
    Report = 11,
    /// A segment of an access to a window's memory at the receiver.
    Access = 12,
    /// What became of a segment of an access, with what was read.
    AccessReply = 13,
    /// A signal to the receiver's window, or the sender's arrival at a fence of it.
    Signal = 14,
}

/// The header of every frame: [`Header::BYTES`] bytes, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is for.
    pub kind: Kind,
    /// Generation of the group's membership; frames of an older one are dropped.
    pub generation: u32,
    /// Sequence number of the operation in its group; for point-to-point, of the message.
    pub sequence: u64,
    /// Which message of the operation between these two ranks (the k of schedule steps); the tag
    /// of a point-to-point message.
    pub message: u32,
    /// Where the payload belongs in the message, bytes.
    pub offset: u64,
    /// Bytes of the whole message.
    pub message_bytes: u64,
    /// Bytes of payload that follow.
    pub payload_bytes: u32,
    /// The highest operation that the sender has issued.
    pub issued: u64,
    /// What all ranks must agree on.
    pub fingerprint: Fingerprint,
}

/// Most bytes of payload that one frame carries. A header that announces more is refused before
/// any memory is reserved for it.
pub const MAX_PAYLOAD_BYTES: u32 = 4 << 20;

/// Stands in every header, so that a reader that lost its place notices immediately.
const MARKER: [u8; 3] = *b"plr";

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// There are fewer bytes than [`Header::BYTES`].
    #[error("{bytes} bytes are not a frame header")]
    Short {
        /// How many there are.
        bytes: usize,
    },
    /// The marker is not there: these are not the bytes of a polyrank rank.
    #[error("the frame marker is missing")]
    Marker,
    /// The number of the kind is not known.
    #[error("unknown frame kind {code}")]
    Kind {
        /// The number.
        code: u8,
    },
    /// The payload is longer than any frame's.
    #[error("a payload of {bytes} bytes is longer than the limit")]
    PayloadTooLong {
        /// The announced length, bytes.
        bytes: u32,
    },
    /// The segment reaches beyond its message.
    #[error(
        "a segment of {payload_bytes} bytes at {offset} exceeds its {message_bytes}-byte message"
    )]
    OutsideMessage {
        /// Where the segment begins, bytes.
        offset: u64,
        /// Bytes of the segment.
        payload_bytes: u32,
        /// Bytes of the message.
        message_bytes: u64,
    },
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 14] = [
        Kind::Data,
        Kind::Ready,
        Kind::Held,
        Kind::Issued,
        Kind::Message,
        Kind::Offer,
        Kind::Accept,
        Kind::Abort,
        Kind::Goodbye,
        Kind::Inquiry,
        Kind::Report,
        Kind::Access,
        Kind::AccessReply,
        Kind::Signal,
    ];

    /// The kind of a number that travelled, if it is one.
    pub fn from_code(code: u8) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

impl Header {
    /// Bytes of an encoded header.
    pub const BYTES: usize = 72;

    /// A header of `kind` whose other fields are zero.
    pub fn new(kind: Kind, generation: u32) -> Header {
        Header {
            kind,
            generation,
            sequence: 0,
            message: 0,
            offset: 0,
            message_bytes: 0,
            payload_bytes: 0,
            issued: 0,
            fingerprint: Fingerprint::default(),
        }
    }

    /// Whether the receiver has nothing to do but to copy the payload to its place, as far as the
    /// sender can tell: neither to reduce it nor to send as much itself.
    pub fn is_awaited_copy(&self) -> bool {
        let facts = || Collective::from_code(self.fingerprint.collective).map(Collective::facts);
        match self.kind {
            Kind::Message => true,
            Kind::Data => facts().is_some_and(|facts| facts.rooted && !facts.reduces),
            _ => false,
        }
    }

    /// The bytes that travel.
    pub fn encode(&self) -> [u8; Header::BYTES] {
        let mut bytes = [0; Header::BYTES];
        bytes[0] = self.kind as u8;
        bytes[1..4].copy_from_slice(&MARKER);
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.message.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.offset.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.message_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.issued.to_le_bytes());
        let fingerprint = &self.fingerprint;
        bytes[48] = fingerprint.collective;
        bytes[49] = fingerprint.dtype;
        bytes[50] = fingerprint.reduce_op;
        bytes[51] = fingerprint.algorithm;
        bytes[52..56].copy_from_slice(&fingerprint.root.to_le_bytes());
        bytes[56..64].copy_from_slice(&fingerprint.elements.to_le_bytes());
        bytes[64..72].copy_from_slice(&fingerprint.detail.to_le_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Header, FrameError> {
        let Some(bytes) = bytes.first_chunk::<{ Header::BYTES }>() else {
            return Err(FrameError::Short { bytes: bytes.len() });
        };
        if bytes[1..4] != MARKER {
            return Err(FrameError::Marker);
        }
        let kind = Kind::from_code(bytes[0]).ok_or(FrameError::Kind { code: bytes[0] })?;
        let header = Header {
            kind,
            generation: u32_at(bytes, 4),
            sequence: u64_at(bytes, 8),
            message: u32_at(bytes, 16),
            payload_bytes: u32_at(bytes, 20),
            offset: u64_at(bytes, 24),
            message_bytes: u64_at(bytes, 32),
            issued: u64_at(bytes, 40),
            fingerprint: Fingerprint {
                collective: bytes[48],
                dtype: bytes[49],
                reduce_op: bytes[50],
                algorithm: bytes[51],
                root: u32_at(bytes, 52),
                elements: u64_at(bytes, 56),
                detail: u64_at(bytes, 64),
            },
        };
        header.check()?;
        Ok(header)
    }

    /// Whether the lengths can be true.
    fn check(&self) -> Result<(), FrameError> {
        let &Header { payload_bytes, offset, message_bytes, .. } = self;
        if payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(FrameError::PayloadTooLong { bytes: payload_bytes });
        }
        let segment = matches!(self.kind, Kind::Data | Kind::Message);
        let end = offset.checked_add(u64::from(payload_bytes));
        if segment && end.is_none_or(|end| end > message_bytes) {
            return Err(FrameError::OutsideMessage { offset, payload_bytes, message_bytes });
        }
        Ok(())
    }
}

/// The number at `start`, which with its 4 bytes lies inside.
pub(super) fn u32_at(bytes: &[u8], start: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[start..start + 4]);
    u32::from_le_bytes(number)
}

/// The number at `start`, which with its 8 bytes lies inside.
pub(super) fn u64_at(bytes: &[u8], start: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[start..start + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn headers() -> impl Strategy<Value = Header> {
        let fingerprint = (any::<[u8; 4]>(), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
            |(codes, root, elements, detail)| Fingerprint {
                collective: codes[0],
                dtype: codes[1],
                reduce_op: codes[2],
                algorithm: codes[3],
                root,
                elements,
                detail,
            },
        );
        let numbers = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>());
        let lengths = (0..=MAX_PAYLOAD_BYTES, 0..u64::MAX / 4, 0..u64::MAX / 4);
        (0..Kind::ALL.len(), numbers, lengths, fingerprint).prop_map(
            |(kind, (generation, sequence, message, issued), lengths, fingerprint)| Header {
                kind: Kind::ALL[kind],
                generation,
                sequence,
                message,
                payload_bytes: lengths.0,
                offset: lengths.1,
                message_bytes: lengths.1 + lengths.2 + u64::from(lengths.0),
                issued,
                fingerprint,
            },
        )
    }

    proptest! {
        #[test]
        fn a_header_survives_the_journey(header in headers()) {
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_are_a_header(
            bytes in proptest::collection::vec(any::<u8>(), 0..2 * Header::BYTES),
            marked in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if marked && bytes.len() >= 4 {
                bytes[0] %= 17;
                bytes[1..4].copy_from_slice(&MARKER);
            }
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(&header.encode()[..], &bytes[..Header::BYTES]);
                prop_assert!(header.payload_bytes <= MAX_PAYLOAD_BYTES);
            }
        }
    }

    #[test]
    fn the_layout_is_fixed() {
        let mut header = Header::new(Kind::Data, 0x0403_0201);
        header.sequence = 5;
        header.payload_bytes = 6;
        header.message_bytes = 7;
        header.fingerprint.detail = 0xff00_0000_0000_0000;
        let bytes = header.encode();
        assert_eq!(bytes[..9], [1, b'p', b'l', b'r', 1, 2, 3, 4, 5]);
        assert_eq!((bytes[20], bytes[32], bytes[71]), (6, 7, 0xff));
        assert!(bytes.iter().filter(|byte| **byte != 0).count() == 12);
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let mut header = Header::new(Kind::Message, 0);
        header.payload_bytes = MAX_PAYLOAD_BYTES + 1;
        header.message_bytes = u64::MAX;
        let bytes = MAX_PAYLOAD_BYTES + 1;
        assert_eq!(Header::decode(&header.encode()), Err(FrameError::PayloadTooLong { bytes }));
        header.payload_bytes = 2;
        header.offset = u64::MAX - 1;
        let error = Header::decode(&header.encode()).unwrap_err();
        assert!(matches!(error, FrameError::OutsideMessage { .. }));
        header.kind = Kind::Abort;
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn every_kind_has_its_number() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_code(kind as u8), Some(kind));
        }
        assert_eq!(Kind::from_code(0), None);
        assert_eq!(Kind::from_code(15), None);
    }
}
