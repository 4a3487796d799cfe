//! PyTorch's TCPStore protocol as bytes: requests written and read. Pure: knows nothing of
//! sockets, and reserves no memory for what a length only announces.
//!
//! Source: torch/csrc/distributed/c10d/TCPStoreBackend.hpp and what torch 2.15.0 sends.
//! All integers are little-endian; a `blob` is a u64 length and as many bytes.

mod limits;
#[cfg(feature = "tcp")]
mod read;
#[cfg(all(test, feature = "tcp"))]
mod tests;

pub(super) use limits::{check_keys, check_value};
#[cfg(feature = "tcp")]
pub(super) use read::{Decoded, Decoder, Malformed, Request};

/// In front of every key of a user.
pub(super) const PREFIX: &[u8] = b"/";
/// Counts the clients of a server; the only key without the prefix.
pub(super) const WORKERS: &str = "init/";
/// CHECK finds this key at a server that clients of its host can reach without TCP, and GET the
/// name of that socket. No key of a user is like it, and other servers do not have it.
pub(super) const LOCAL_NAME: &[u8] = b"polyrank/local";
/// What every such name begins with.
#[cfg(target_os = "linux")]
pub(super) const LOCAL_PREFIX: &str = "polyrank-store-";
/// What a server that has no room for a client answers to its PING, before it hangs up. No process
/// has these bytes for its number.
pub(super) const NO_ROOM: [u8; 4] = *b"FULL";
/// What a client says first.
pub(super) const MAGIC: u32 = 0x3C85_F7CE;
/// Most bytes of a key, the "/" in front included.
pub(super) const MAX_KEY_BYTES: usize = 8 << 10;
/// Most bytes of a value in a request.
pub(super) const MAX_VALUE_BYTES: usize = 8 << 20;
/// Most keys in a request.
pub(super) const MAX_KEYS: usize = 128 << 10;
/// Most bytes of all keys of a CHECK, WAIT or MULTI_GET. PyTorch has no such limit; without it one
/// request could make a server hold a gigabyte of keys.
pub(super) const MAX_KEY_LIST_BYTES: usize = 64 << 20;
/// Bytes of a client's first frame: the type and the magic.
pub(super) const VALIDATE_BYTES: usize = 5;

/// The first byte of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Validate = 0x00,
    Set = 0x01,
    CompareSet = 0x02,
    Get = 0x03,
    Add = 0x04,
    Check = 0x05,
    Wait = 0x06,
    NumKeys = 0x07,
    DeleteKey = 0x08,
    Append = 0x09,
    MultiGet = 0x0a,
    MultiSet = 0x0b,
    CancelWait = 0x0c,
    Ping = 0x0d,
    QueuePush = 0x0e,
    QueuePop = 0x0f,
    QueueLen = 0x10,
    ListKeys = 0x11,
    Barrier = 0x12,
}

/// Reply to CHECK: all keys are there.
pub(super) const READY: u8 = 0;
/// Reply to CHECK: a key is missing.
pub(super) const NOT_READY: u8 = 1;
/// Reply to WAIT and BARRIER.
pub(super) const STOP_WAITING: u8 = 0;
/// Reply to CANCEL_WAIT.
pub(super) const WAIT_CANCELED: u8 = 1;

/// Writes requests and replies, one after the other.
pub(super) trait Encode {
    /// A request's first byte.
    fn kind(&mut self, kind: Kind);
    /// A number of 8 bytes.
    fn number(&mut self, number: i64);
    /// A length and the bytes, which are in `parts`.
    fn blob(&mut self, parts: &[&[u8]]);
    /// The number of keys, and each with `prefix` in front.
    fn keys(&mut self, prefix: &[u8], keys: &[&str]);
}

impl Encode for Vec<u8> {
    fn kind(&mut self, kind: Kind) {
        self.push(kind as u8);
    }

    fn number(&mut self, number: i64) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn blob(&mut self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.number(bytes as i64);
        for part in parts {
            self.extend_from_slice(part);
        }
    }

    fn keys(&mut self, prefix: &[u8], keys: &[&str]) {
        self.number(keys.len() as i64);
        for key in keys {
            self.blob(&[prefix, key.as_bytes()]);
        }
    }
}
