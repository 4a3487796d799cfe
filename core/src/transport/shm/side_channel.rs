//! The messages over the connection of two ranks once it is open: wake-ups, and the pools of memory
//! from which tensors can be read. Knows nothing of frames.
//!
//! ```text
//! wake      0
//! pool      1, u64 number, u64 bytes, and the pool's file
//! gone      2, u64 number
//! last      3: no more comes over this connection, but over the other one
//! crossed   4: the sender has connected, too
//! ```

use std::collections::VecDeque;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::memory::{File, Mapping};
use super::socket::{self, SocketRead};
use crate::tensor::shared::Pool;
use crate::transport::{LossReason, Rank};

const WAKE: u8 = 0;
const POOL: u8 = 1;
const GONE: u8 = 2;
const LAST: u8 = 3;
/// The message of a rank that accepts a connection and has made one itself.
pub(super) const CROSSED: u8 = 4;

/// Bytes of the messages that name a pool.
const POOL_BYTES: usize = 17;
const GONE_BYTES: usize = 9;

/// Most pools of a peer. Tensors in further pools are sent like those in other memory.
const MAX_POOLS: usize = 256;

/// One connection.
pub(super) struct SideChannel {
    pub(super) socket: OwnedFd,
    /// Whether this rank made it.
    pub(super) is_own: bool,
    /// Whether this side, and the peer, have sent their last messages over it.
    has_said_last: bool,
    has_heard_last: bool,
    has_heard_crossing: bool,
    /// Bytes of a handshake reply still to be discarded.
    unread_reply_bytes: usize,
    /// An incomplete message.
    partial: Vec<u8>,
    /// Received files not yet matched to a message.
    files: VecDeque<OwnedFd>,
}

/// The pools that the peer has announced.
#[derive(Default)]
pub(super) struct Pools {
    known: Vec<KnownPool>,
}

/// A pool of the peer.
struct KnownPool {
    number: u64,
    mapping: Mapping,
    bytes: usize,
}

/// The pools that were announced to the peer.
#[derive(Default)]
pub(super) struct AnnouncedPools {
    pools: Vec<AnnouncedPool>,
}

/// A pool of this process, which the announcement does not keep alive.
struct AnnouncedPool {
    number: u64,
    pool: Weak<Pool>,
}

impl SideChannel {
    /// A connection that the peer made.
    pub(super) fn new(socket: OwnedFd) -> SideChannel {
        SideChannel {
            socket,
            is_own: false,
            has_said_last: false,
            has_heard_last: false,
            has_heard_crossing: false,
            unread_reply_bytes: 0,
            partial: Vec::new(),
            files: VecDeque::new(),
        }
    }

    /// A connection that this rank made, on which the first message comes after
    /// `unread_reply_bytes` bytes of a handshake reply.
    pub(super) fn own(socket: OwnedFd, unread_reply_bytes: usize) -> SideChannel {
        SideChannel { is_own: true, unread_reply_bytes, ..SideChannel::new(socket) }
    }

    /// Whether the peer has not accepted it yet.
    pub(super) fn is_unanswered(&self) -> bool {
        self.unread_reply_bytes > 0
    }

    /// Whether the peer has said that it has made a connection, too.
    pub(super) fn has_heard_crossing(&self) -> bool {
        self.has_heard_crossing
    }

    /// Says, once, that this side sends nothing more over it.
    pub(super) fn say_last(&mut self) {
        if !self.has_said_last {
            let sent = rustix::net::send(&self.socket, &[LAST], SendFlags::NOSIGNAL);
            self.has_said_last = sent.is_ok();
        }
    }

    /// Whether neither side sends anything over it any more. Then the peer may close it.
    pub(super) fn is_over(&self) -> bool {
        self.has_said_last && self.has_heard_last
    }

    /// Reads the messages of `peer`. Returns whether the connection stays open.
    ///
    /// # Errors
    /// The message is invalid, or this process lacks resources to take it.
    pub(super) fn receive(&mut self, peer: Rank, pools: &mut Pools) -> Result<bool, LossReason> {
        let mut bytes = [0; 256];
        loop {
            match socket::receive(&self.socket, &mut bytes) {
                SocketRead::Nothing => return Ok(true),
                SocketRead::End => return Ok(false),
                SocketRead::Bytes(received, file) => {
                    let skipped = received.min(self.unread_reply_bytes);
                    self.unread_reply_bytes -= skipped;
                    self.partial.extend_from_slice(&bytes[skipped..received]);
                    self.files.extend(file.filter(|_| skipped == 0));
                    self.parse(peer, pools)?;
                    if self.is_over() {
                        return Ok(true);
                    }
                    // One file may belong to a message that is still incomplete.
                    if self.files.len() > 1 {
                        let why = "it sent files that belong to no message".to_owned();
                        return Err(LossReason::Protocol(why));
                    }
                }
            }
        }
    }

    fn parse(&mut self, peer: Rank, pools: &mut Pools) -> Result<(), LossReason> {
        let mut rest = &self.partial[..];
        loop {
            rest = match *rest {
                [WAKE, ref rest @ ..] => rest,
                [LAST, ref rest @ ..] => {
                    self.has_heard_last = true;
                    rest
                }
                [CROSSED, ref rest @ ..] => {
                    self.has_heard_crossing = true;
                    rest
                }
                [POOL, ..] if rest.len() >= POOL_BYTES => {
                    let file = self.files.pop_front().ok_or_else(|| {
                        let why = "it named a pool and brought no file".to_owned();
                        missing_file_reason(peer, LossReason::Protocol(why))
                    })?;
                    pools.add(peer, number_at(rest, 1), number_at(rest, 9), file)?;
                    &rest[POOL_BYTES..]
                }
                [GONE, ..] if rest.len() >= GONE_BYTES => {
                    let gone = number_at(rest, 1);
                    pools.known.retain(|pool| pool.number != gone);
                    &rest[GONE_BYTES..]
                }
                [] | [POOL | GONE, ..] => break,
                [code, ..] => {
                    let why = format!("it sent message {code}, which does not exist");
                    return Err(LossReason::Protocol(why));
                }
            };
        }
        let parsed = self.partial.len() - rest.len();
        self.partial.drain(..parsed);
        Ok(())
    }

    /// Wakes the peer.
    pub(super) fn wake(&self) {
        // If the socket is full, the peer has not read earlier wake-ups yet; if it is closed, the
        // peer is gone.
        let _ = rustix::net::send(&self.socket, &[WAKE], SendFlags::NOSIGNAL);
    }
}

/// The reason where memory of `peer` cannot be mapped: it exists, so this process lacks address
/// space for it.
pub(super) fn not_mapped(peer: Rank, error: impl Display) -> LossReason {
    LossReason::Local(format!("it cannot map the shared memory of rank {peer}: {error}"))
}

/// The reason where a message of `peer` arrived without its file. The system drops the file if this
/// process has no descriptor left; the reason is `if_descriptors_remain` if it has.
pub(super) fn missing_file_reason(peer: Rank, if_descriptors_remain: LossReason) -> LossReason {
    match memfd_create("polyrank", MemfdFlags::CLOEXEC) {
        Err(error @ (Errno::MFILE | Errno::NFILE)) => LossReason::Local(format!(
            "it cannot take in the shared memory of rank {peer}: {error}"
        )),
        _ => if_descriptors_remain,
    }
}

impl Pools {
    fn add(
        &mut self,
        peer: Rank,
        number: u64,
        bytes: u64,
        file: OwnedFd,
    ) -> Result<(), LossReason> {
        if self.known.len() >= MAX_POOLS || self.find(number).is_some() {
            let why = "it announced too many memory pools, or the same pool twice".to_owned();
            return Err(LossReason::Protocol(why));
        }
        let too_large = |_| LossReason::Protocol("its pool is too large".to_owned());
        let bytes = usize::try_from(bytes).map_err(too_large)?;
        let file = File::from_peer(file, bytes).map_err(LossReason::Protocol)?;
        let mapping = file.map_to_read().map_err(|error| not_mapped(peer, error))?;
        self.known.push(KnownPool { number, mapping, bytes });
        Ok(())
    }

    /// `bytes` bytes at offset `at` of the peer's pool `number`, if the pool has them.
    pub(super) fn bytes_at(&self, number: u64, at: u64, bytes: usize) -> Option<&[u8]> {
        let pool = self.find(number)?;
        let at = usize::try_from(at).ok()?;
        let inside = at.checked_add(bytes)? <= pool.bytes;
        inside.then(|| pool.mapping.show(at, bytes))
    }

    fn find(&self, number: u64) -> Option<&KnownPool> {
        self.known.iter().find(|pool| pool.number == number)
    }
}

impl AnnouncedPools {
    /// Makes sure that the peer at the other end of `channel` knows `pool`. Returns false if it
    /// cannot be announced now.
    pub(super) fn announce(&mut self, channel: &SideChannel, pool: &Arc<Pool>) -> bool {
        let number = pool.number();
        if self.pools.iter().any(|announced| announced.number == number) {
            return true;
        }
        while let Some(gone) = self.pools.iter().position(|it| it.pool.strong_count() == 0) {
            if !send(channel, GONE, &[self.pools[gone].number], None) {
                return false;
            }
            self.pools.swap_remove(gone);
        }
        let words = [number, pool.file().bytes() as u64];
        if self.pools.len() >= MAX_POOLS || !send(channel, POOL, &words, Some(pool.file())) {
            return false;
        }
        self.pools.push(AnnouncedPool { number, pool: Arc::downgrade(pool) });
        true
    }
}

fn send(channel: &SideChannel, code: u8, words: &[u64], file: Option<&File>) -> bool {
    let mut bytes = vec![code];
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    socket::send(&channel.socket, &bytes, file).is_ok()
}

/// The u64 at offset `start` of `bytes`, which hold all its 8 bytes.
fn number_at(bytes: &[u8], start: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[start..start + 8]);
    u64::from_le_bytes(number)
}
