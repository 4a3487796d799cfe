//! The payload of an `Abort` frame: why a group is broken. Pure; knows nothing of connections.

use super::frame::Fingerprint;

/// Most bytes of an encoded [`Abort`]; a longer payload is not one.
pub const MAX_ABORT_BYTES: usize = 4096;

/// Most bytes of a text in an [`Abort`]; a longer one is cut.
const MAX_TEXT_BYTES: usize = 1024;

/// Most ranks that [`Abort::TimedOut`] lists; the others are left out.
const MAX_RANKS: usize = 256;

/// Why a group is broken. The first cause wins, and every rank raises an error made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Abort {
    /// Two ranks disagree on what an operation is.
    Mismatch {
        /// Sequence number of the operation.
        sequence: u64,
        /// What one rank runs.
        one: Side,
        /// What another rank runs.
        other: Side,
    },
    /// A rank died or cannot be reached.
    Failed {
        /// The rank that is gone.
        rank: u32,
        /// How it was noticed.
        why: String,
    },
    /// A rank left the group cleanly, and another needs it.
    Left {
        /// The rank that left.
        rank: u32,
        /// The first operation that it would have to take part in.
        sequence: u64,
        /// Whether it left since the group gets other members.
        retired: bool,
    },
    /// An operation passed its deadline.
    TimedOut {
        /// The rank that noticed.
        rank: u32,
        /// Sequence number of the operation.
        sequence: u64,
        /// The operation's name.
        operation: String,
        /// How long it ran, ms.
        waited_ms: u64,
        /// The ranks it waited for (the first few of very many).
        waiting_for: Vec<u32>,
    },
    /// Somebody aborted the group.
    User {
        /// The rank that did.
        rank: u32,
        /// What was given as the reason.
        why: String,
    },
    /// Somebody reconfigured the group: these members are not those of the group any more.
    Reconfigured {
        /// The rank that did.
        rank: u32,
    },
    /// A point-to-point message and the buffer for it differ in size.
    MessageSize {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// The tag.
        tag: u32,
        /// Bytes sent.
        sent_bytes: u64,
        /// Bytes of the receiver's buffer.
        buffer_bytes: u64,
    },
    /// A point-to-point message and the buffer for it differ in their element type.
    MessageDType {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// The tag.
        tag: u32,
        /// Number of the [`DType`](crate::DType) that was sent.
        sent_dtype: u8,
        /// Number of that of the receiver's buffer.
        buffer_dtype: u8,
    },
}

/// What one rank runs, in an [`Abort::Mismatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The rank.
    pub rank: u32,
    /// Its operation.
    pub fingerprint: Fingerprint,
    /// Bytes of the message on which the two ranks disagree, where it is that.
    pub message_bytes: Option<u64>,
}

impl Abort {
    /// The bytes that travel, at most [`MAX_ABORT_BYTES`].
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer(Vec::with_capacity(128));
        match self {
            Abort::Mismatch { sequence, one, other } => {
                writer.u8(1).u64(*sequence).side(one).side(other);
            }
            Abort::Failed { rank, why } => {
                writer.u8(2).u32(*rank).text(why);
            }
            Abort::TimedOut { rank, sequence, operation, waited_ms, waiting_for } => {
                writer.u8(3).u32(*rank).u64(*sequence).text(operation).u64(*waited_ms);
                let ranks = &waiting_for[..waiting_for.len().min(MAX_RANKS)];
                writer.u32(ranks.len() as u32);
                for rank in ranks {
                    writer.u32(*rank);
                }
            }
            Abort::User { rank, why } => {
                writer.u8(4).u32(*rank).text(why);
            }
            Abort::MessageSize { from, to, tag, sent_bytes, buffer_bytes } => {
                writer.u8(5).u32(*from).u32(*to).u32(*tag).u64(*sent_bytes).u64(*buffer_bytes);
            }
            Abort::MessageDType { from, to, tag, sent_dtype, buffer_dtype } => {
                writer.u8(6).u32(*from).u32(*to).u32(*tag).u8(*sent_dtype).u8(*buffer_dtype);
            }
            Abort::Left { rank, sequence, retired } => {
                writer.u8(7).u32(*rank).u64(*sequence).u8(u8::from(*retired));
            }
            Abort::Reconfigured { rank } => {
                writer.u8(8).u32(*rank);
            }
        }
        writer.0
    }

    /// The collective from which on the group cannot continue, where those before may end well.
    pub fn first_lost(&self) -> Option<u64> {
        match self {
            Abort::Mismatch { sequence, .. } | Abort::Left { sequence, .. } => Some(*sequence),
            _ => None,
        }
    }

    /// Whether it says that ranks disagree.
    pub fn is_disagreement(&self) -> bool {
        matches!(
            self,
            Abort::Mismatch { .. } | Abort::MessageSize { .. } | Abort::MessageDType { .. }
        )
    }

    /// Reads what [`Abort::encode`] wrote; `None` if `bytes` are something else.
    pub fn decode(bytes: &[u8]) -> Option<Abort> {
        if bytes.len() > MAX_ABORT_BYTES {
            return None;
        }
        let mut reader = Reader(bytes);
        let abort = match reader.u8()? {
            1 => Abort::Mismatch {
                sequence: reader.u64()?,
                one: reader.side()?,
                other: reader.side()?,
            },
            2 => Abort::Failed { rank: reader.u32()?, why: reader.text()? },
            3 => Abort::TimedOut {
                rank: reader.u32()?,
                sequence: reader.u64()?,
                operation: reader.text()?,
                waited_ms: reader.u64()?,
                waiting_for: reader.ranks()?,
            },
            4 => Abort::User { rank: reader.u32()?, why: reader.text()? },
            5 => Abort::MessageSize {
                from: reader.u32()?,
                to: reader.u32()?,
                tag: reader.u32()?,
                sent_bytes: reader.u64()?,
                buffer_bytes: reader.u64()?,
            },
            6 => Abort::MessageDType {
                from: reader.u32()?,
                to: reader.u32()?,
                tag: reader.u32()?,
                sent_dtype: reader.u8()?,
                buffer_dtype: reader.u8()?,
            },
            7 => Abort::Left {
                rank: reader.u32()?,
                sequence: reader.u64()?,
                retired: reader.u8()? != 0,
            },
            8 => Abort::Reconfigured { rank: reader.u32()? },
            _ => return None,
        };
        reader.0.is_empty().then_some(abort)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        let mut end = text.len().min(MAX_TEXT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u32(end as u32);
        self.0.extend_from_slice(&text.as_bytes()[..end]);
        self
    }

    fn side(&mut self, side: &Side) -> &mut Self {
        let fingerprint = &side.fingerprint;
        self.u32(side.rank)
            .u8(fingerprint.collective)
            .u8(fingerprint.dtype)
            .u8(fingerprint.reduce_op)
            .u8(fingerprint.algorithm)
            .u32(fingerprint.root)
            .u64(fingerprint.elements)
            .u64(fingerprint.detail)
            .u8(u8::from(side.message_bytes.is_some()))
            .u64(side.message_bytes.unwrap_or(0))
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(bytes)?;
        self.0 = tail;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let bytes = self.u32()? as usize;
        if bytes > MAX_TEXT_BYTES {
            return None;
        }
        String::from_utf8(self.take(bytes)?.to_vec()).ok()
    }

    fn ranks(&mut self) -> Option<Vec<u32>> {
        let count = self.u32()? as usize;
        if count > MAX_RANKS {
            return None;
        }
        (0..count).map(|_| self.u32()).collect()
    }

    fn side(&mut self) -> Option<Side> {
        let rank = self.u32()?;
        let fingerprint = Fingerprint {
            collective: self.u8()?,
            dtype: self.u8()?,
            reduce_op: self.u8()?,
            algorithm: self.u8()?,
            root: self.u32()?,
            elements: self.u64()?,
            detail: self.u64()?,
        };
        let has_bytes = self.u8()?;
        let message_bytes = self.u64()?;
        match has_bytes {
            0 => Some(Side { rank, fingerprint, message_bytes: None }),
            1 => Some(Side { rank, fingerprint, message_bytes: Some(message_bytes) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn samples() -> Vec<Abort> {
        let fingerprint = Fingerprint {
            collective: 1,
            dtype: 2,
            reduce_op: 3,
            algorithm: 4,
            root: 5,
            elements: 6,
            detail: u64::MAX,
        };
        let side = Side { rank: 7, fingerprint, message_bytes: None };
        let other = Side { rank: 8, message_bytes: Some(9), ..side };
        vec![
            Abort::Mismatch { sequence: 10, one: side, other },
            Abort::Failed { rank: 1, why: "reset".into() },
            Abort::TimedOut {
                rank: 0,
                sequence: 3,
                operation: "allreduce".into(),
                waited_ms: 4,
                waiting_for: vec![1, 2],
            },
            Abort::User { rank: 3, why: "größer".into() },
            Abort::MessageSize { from: 0, to: 1, tag: 2, sent_bytes: 3, buffer_bytes: 4 },
            Abort::MessageDType { from: 0, to: 1, tag: 2, sent_dtype: 3, buffer_dtype: 4 },
            Abort::Left { rank: 2, sequence: 7, retired: false },
            Abort::Left { rank: 2, sequence: 7, retired: true },
            Abort::Reconfigured { rank: 5 },
        ]
    }

    #[test]
    fn every_abort_goes_out_and_back() {
        for abort in samples() {
            assert_eq!(Abort::decode(&abort.encode()), Some(abort));
        }
    }

    #[test]
    fn bytes_that_are_cut_or_too_many_are_refused() {
        for abort in samples() {
            let bytes = abort.encode();
            for end in 0..bytes.len() {
                assert_eq!(Abort::decode(&bytes[..end]), None, "{abort:?} cut at {end}");
            }
            assert_eq!(Abort::decode(&[bytes.as_slice(), &[0]].concat()), None);
        }
        assert_eq!(Abort::decode(&[9; 64]), None);
    }

    #[test]
    fn long_texts_and_lists_are_cut_to_fit() {
        let why = "é".repeat(5000);
        let bytes = Abort::User { rank: 0, why }.encode();
        assert!(bytes.len() <= MAX_ABORT_BYTES);
        assert!(Abort::decode(&bytes).is_some());
        let timed_out = Abort::TimedOut {
            rank: 0,
            sequence: 1,
            operation: "x".repeat(2000),
            waited_ms: 1,
            waiting_for: (0..5000).collect(),
        };
        let bytes = timed_out.encode();
        assert!(bytes.len() <= MAX_ABORT_BYTES);
        assert!(Abort::decode(&bytes).is_some());
    }
}
