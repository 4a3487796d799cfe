//! The frame header and what all ranks must agree on.

/// What all ranks of an operation must agree on; it stands in every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Fingerprint {
    /// [`Collective`](crate::Collective) number.
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
    /// Hash of what else must agree: factor of PREMUL_SUM, sizes of all ranks' blocks, list lengths.
    pub detail: u64,
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
    /// The sender leaves in order; an end of the stream after it is no failure.
    Goodbye = 9,
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
