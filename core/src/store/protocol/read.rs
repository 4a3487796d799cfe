//! A server's side of the protocol: requests read from bytes that come in any pieces. Pure.

use super::{
    Kind, MAGIC, MAX_KEY_BYTES, MAX_KEY_LIST_BYTES, MAX_KEYS, MAX_VALUE_BYTES, VALIDATE_BYTES,
};

/// The keys of a request, still as bytes; every length in them was checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::store) struct Keys<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.bytes.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        self.bytes = rest;
        Some(key)
    }
}

/// A request. MULTI_SET comes as one `Set` for each pair.
#[derive(Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields are those of the protocol's table")]
pub(in crate::store) enum Request<'a> {
    Set { key: &'a [u8], value: &'a [u8] },
    CompareSet { key: &'a [u8], expected: &'a [u8], desired: &'a [u8] },
    Get { key: &'a [u8] },
    Add { key: &'a [u8], amount: i64 },
    Check { keys: Keys<'a> },
    Wait { keys: Keys<'a> },
    NumKeys,
    DeleteKey { key: &'a [u8] },
    Append { key: &'a [u8], value: &'a [u8] },
    MultiGet { keys: Keys<'a> },
    CancelWait,
    Ping { nonce: [u8; 4] },
    QueuePush { key: &'a [u8], value: &'a [u8] },
    QueuePop { key: &'a [u8] },
    QueueLen { key: &'a [u8] },
    ListKeys,
    Barrier { key: &'a [u8], world_size: i64 },
}

/// Why a request cannot be read. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Malformed {
    /// The first frame is not VALIDATE with the magic.
    NotValidated,
    /// No request has this first byte, or not here.
    UnknownKind(u8),
    /// A key's length.
    KeyBytes(u64),
    /// A value's length.
    ValueBytes(u64),
    /// A number of keys.
    Keys(u64),
    /// The bytes of a list of keys.
    KeyListBytes(usize),
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotValidated => write!(f, "The first frame is not a TCPStore client's"),
            Self::UnknownKind(kind) => write!(f, "Unknown request type {kind:#04x}"),
            Self::KeyBytes(n) => write!(f, "Invalid string size. size: {n}, max: {MAX_KEY_BYTES}"),
            Self::ValueBytes(n) => {
                write!(f, "Invalid payload size. size: {n}, max: {MAX_VALUE_BYTES}")
            }
            Self::Keys(n) => {
                write!(f, "Too many keys being waited. keys: {n}, max: {MAX_KEYS}")
            }
            Self::KeyListBytes(n) => {
                write!(f, "Too many bytes of keys. bytes: {n}, max: {MAX_KEY_LIST_BYTES}")
            }
        }
    }
}

/// One step of reading.
#[derive(Debug, PartialEq)]
pub(in crate::store) enum Decoded<'a> {
    /// A request; the first `used` bytes of the input are done with.
    Request {
        /// The request.
        request: Request<'a>,
        /// Bytes to drop from the front of the input.
        used: usize,
    },
    /// The first `used` bytes are done with; there is no use in calling again before `needed`
    /// bytes follow them.
    Incomplete {
        /// Bytes to drop from the front of the input.
        used: usize,
        /// Bytes wanted after them, at least.
        needed: usize,
    },
}

/// Reads the requests of one client.
#[derive(Debug, Default)]
pub(in crate::store) struct Decoder {
    validated: bool,
    /// Pairs of a MULTI_SET that are still to come.
    pairs_left: u64,
}

impl Decoder {
    /// Whether the client has said VALIDATE.
    pub(in crate::store) fn validated(&self) -> bool {
        self.validated
    }

    /// A decoder of requests without the opening VALIDATE.
    #[cfg(feature = "websocket")]
    pub(in crate::store) fn after_validate() -> Self {
        Self { validated: true, pairs_left: 0 }
    }

    /// Whether no request is half read.
    #[cfg(feature = "websocket")]
    pub(in crate::store) fn is_between_requests(&self) -> bool {
        self.pairs_left == 0
    }

    /// Reads one request from the front of `input`.
    pub(in crate::store) fn next<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, Malformed> {
        let mut used = 0;
        if !self.validated {
            if input.first().is_some_and(|&kind| kind != Kind::Validate as u8) {
                return Err(Malformed::NotValidated);
            }
            let Some(frame) = input.first_chunk::<VALIDATE_BYTES>() else {
                return Ok(Decoded::Incomplete { used, needed: VALIDATE_BYTES });
            };
            if frame[1..] != MAGIC.to_le_bytes() {
                return Err(Malformed::NotValidated);
            }
            self.validated = true;
            used = VALIDATE_BYTES;
        }
        loop {
            let mut cursor = Cursor { input, at: used };
            let read = if self.pairs_left > 0 { cursor.pair() } else { cursor.request() };
            match read {
                Ok(Read::Request(request)) => {
                    self.pairs_left = self.pairs_left.saturating_sub(1);
                    return Ok(Decoded::Request { request, used: cursor.at });
                }
                Ok(Read::MultiSet(pairs)) => {
                    self.pairs_left = pairs;
                    used = cursor.at;
                }
                Err(Stop::Incomplete { end }) => {
                    return Ok(Decoded::Incomplete { used, needed: end - used });
                }
                Err(Stop::Malformed(why)) => return Err(why),
            }
        }
    }
}

enum Read<'a> {
    Request(Request<'a>),
    MultiSet(u64),
}

enum Stop {
    /// Bytes up to `end` of the input are needed to continue.
    Incomplete {
        end: usize,
    },
    Malformed(Malformed),
}

struct Cursor<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn request(&mut self) -> Result<Read<'a>, Stop> {
        use Request::*;
        let [kind] = self.array()?;
        Ok(Read::Request(match kind {
            0x01 => return self.pair(),
            0x02 => {
                CompareSet { key: self.key()?, expected: self.value()?, desired: self.value()? }
            }
            0x03 => Get { key: self.key()? },
            0x04 => Add { key: self.key()?, amount: i64::from_le_bytes(self.array()?) },
            0x05 => Check { keys: self.keys()? },
            0x06 => Wait { keys: self.keys()? },
            0x07 => NumKeys,
            0x08 => DeleteKey { key: self.key()? },
            0x09 => Append { key: self.key()?, value: self.value()? },
            0x0a => MultiGet { keys: self.keys()? },
            0x0b => return Ok(Read::MultiSet(self.key_count()?)),
            0x0c => CancelWait,
            0x0d => Ping { nonce: self.array()? },
            0x0e => QueuePush { key: self.key()?, value: self.value()? },
            0x0f => QueuePop { key: self.key()? },
            0x10 => QueueLen { key: self.key()? },
            0x11 => ListKeys,
            0x12 => Barrier { key: self.key()?, world_size: i64::from_le_bytes(self.array()?) },
            unknown => return Err(Stop::Malformed(Malformed::UnknownKind(unknown))),
        }))
    }

    fn pair(&mut self) -> Result<Read<'a>, Stop> {
        Ok(Read::Request(Request::Set { key: self.key()?, value: self.value()? }))
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Stop> {
        let end = self.at + bytes;
        let taken = self.input.get(self.at..end).ok_or(Stop::Incomplete { end })?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Stop::Incomplete { end: self.at })
    }

    fn length(&mut self, max: usize, why: fn(u64) -> Malformed) -> Result<usize, Stop> {
        let length = u64::from_le_bytes(self.array()?);
        usize::try_from(length)
            .ok()
            .filter(|&length| length <= max)
            .ok_or(Stop::Malformed(why(length)))
    }

    fn key(&mut self) -> Result<&'a [u8], Stop> {
        let length = self.length(MAX_KEY_BYTES, Malformed::KeyBytes)?;
        self.take(length)
    }

    fn value(&mut self) -> Result<&'a [u8], Stop> {
        let length = self.length(MAX_VALUE_BYTES, Malformed::ValueBytes)?;
        self.take(length)
    }

    fn key_count(&mut self) -> Result<u64, Stop> {
        Ok(self.length(MAX_KEYS, Malformed::Keys)? as u64)
    }

    fn keys(&mut self) -> Result<Keys<'a>, Stop> {
        let count = self.key_count()?;
        let start = self.at;
        for read in 0..count {
            let key = self.key();
            let bytes = self.at - start;
            if bytes > MAX_KEY_LIST_BYTES {
                return Err(Stop::Malformed(Malformed::KeyListBytes(bytes)));
            }
            key.map_err(|stop| match stop {
                // The keys after this one need their lengths at least: asking for those too
                // keeps a list that arrives in small pieces from being read again for each.
                Stop::Incomplete { end } => {
                    Stop::Incomplete { end: end + 8 * (count - read - 1) as usize }
                }
                malformed => malformed,
            })?;
        }
        Ok(Keys { bytes: &self.input[start..self.at] })
    }
}
