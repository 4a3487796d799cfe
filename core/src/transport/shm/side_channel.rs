//! The messages over the connection of two ranks once it is open: wake-ups, and the pools of memory
//! from which tensors can be read. Knows nothing of frames.
//!
//! ```text
//! wake   0
//! pool   1, u64 number, u64 bytes, and the pool's file
//! gone   2, u64 number
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
use crate::tensor::shared::{Place, Pool};
use crate::transport::{LossReason, Rank};

const WAKE: u8 = 0;
const POOL: u8 = 1;
const GONE: u8 = 2;

/// Bytes of the messages that name a pool.
const POOL_BYTES: usize = 17;
const GONE_BYTES: usize = 9;

/// Most pools of a peer. Tensors in further pools are sent like those in other memory.
const MAX_POOLS: usize = 256;

/// One connection.
pub(super) struct SideChannel {
    pub(super) socket: OwnedFd,
    /// Bytes that are not messages: an answer that is no longer needed.
    skipped: usize,
    /// The beginning of a message.
    heard: Vec<u8>,
    files: VecDeque<OwnedFd>,
}

/// The pools that the peer has announced.
#[derive(Default)]
pub(super) struct Pools {
    /// Number, memory and its length.
    known: Vec<(u64, Mapping, usize)>,
}

/// The pools that were announced to the peer.
#[derive(Default)]
pub(super) struct AnnouncedPools {
    /// Number and pool, which is not kept alive.
    pools: Vec<(u64, Weak<Pool>)>,
}

impl SideChannel {
    /// A connection over which `skipped` bytes come before the first message.
    pub(super) fn new(socket: OwnedFd, skipped: usize) -> SideChannel {
        SideChannel { socket, skipped, heard: Vec::new(), files: VecDeque::new() }
    }

    /// Reads the messages of `peer`. Returns whether the connection goes on.
    ///
    /// # Errors
    /// The message is invalid, or this process lacks resources to take it.
    pub(super) fn hear(&mut self, peer: Rank, pools: &mut Pools) -> Result<bool, LossReason> {
        let mut bytes = [0; 256];
        loop {
            match socket::hear(&self.socket, &mut bytes) {
                SocketRead::Nothing => return Ok(true),
                SocketRead::End => return Ok(false),
                SocketRead::Bytes(heard, file) => {
                    let skipped = heard.min(self.skipped);
                    self.skipped -= skipped;
                    self.heard.extend_from_slice(&bytes[skipped..heard]);
                    self.files.extend(file.filter(|_| skipped == 0));
                    self.parse(peer, pools)?;
                    // The rest of one message may be on its way.
                    if self.files.len() > 1 {
                        let why = "it sent files that belong to no message".to_owned();
                        return Err(LossReason::Protocol(why));
                    }
                }
            }
        }
    }

    fn parse(&mut self, peer: Rank, pools: &mut Pools) -> Result<(), LossReason> {
        let mut rest = &self.heard[..];
        loop {
            rest = match *rest {
                [WAKE, ref rest @ ..] => rest,
                [POOL, ..] if rest.len() >= POOL_BYTES => {
                    let file = self.files.pop_front().ok_or_else(|| {
                        let why = "it named a pool and brought no file".to_owned();
                        not_brought(peer, LossReason::Protocol(why))
                    })?;
                    pools.add(peer, number_at(rest, 1), number_at(rest, 9), file)?;
                    &rest[POOL_BYTES..]
                }
                [GONE, ..] if rest.len() >= GONE_BYTES => {
                    let gone = number_at(rest, 1);
                    pools.known.retain(|(number, ..)| *number != gone);
                    &rest[GONE_BYTES..]
                }
                [] | [POOL | GONE, ..] => break,
                [code, ..] => {
                    let why = format!("it sent message {code}, which does not exist");
                    return Err(LossReason::Protocol(why));
                }
            };
        }
        let taken = self.heard.len() - rest.len();
        self.heard.drain(..taken);
        Ok(())
    }

    /// Wakes the peer.
    pub(super) fn wake(&self) {
        // If the socket is full, the peer has not read earlier wake-ups yet; if it is closed, the
        // peer is gone.
        let _ = rustix::net::send(&self.socket, &[WAKE], SendFlags::NOSIGNAL);
    }
}

/// Why memory of `peer` cannot be used: it exists, so this process lacks the room to map it.
pub(super) fn not_mapped(peer: Rank, error: impl Display) -> LossReason {
    LossReason::Local(format!("it cannot map the shared memory of rank {peer}: {error}"))
}

/// Why a message of `peer` came without its file. The system leaves the file out if this process
/// has no descriptor left; `otherwise` is the reason if it has.
pub(super) fn not_brought(peer: Rank, otherwise: LossReason) -> LossReason {
    match memfd_create("polyrank", MemfdFlags::CLOEXEC) {
        Err(error @ (Errno::MFILE | Errno::NFILE)) => LossReason::Local(format!(
            "it cannot take in the shared memory of rank {peer}: {error}"
        )),
        _ => otherwise,
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
        if self.known.len() >= MAX_POOLS || self.known.iter().any(|known| known.0 == number) {
            let why = "it names too many pools of memory, or one twice".to_owned();
            return Err(LossReason::Protocol(why));
        }
        let too_large = |_| LossReason::Protocol("its pool is too large".to_owned());
        let bytes = usize::try_from(bytes).map_err(too_large)?;
        let file = File::from_peer(file, bytes).map_err(LossReason::Protocol)?;
        let mapping = file.map_to_read().map_err(|error| not_mapped(peer, error))?;
        self.known.push((number, mapping, bytes));
        Ok(())
    }

    /// The bytes at a place that the peer names, if the place exists.
    pub(super) fn show(&self, number: u64, at: u64, bytes: usize) -> Option<&[u8]> {
        let (_, mapping, pool_bytes) = self.known.iter().find(|known| known.0 == number)?;
        let at = usize::try_from(at).ok()?;
        let inside = at.checked_add(bytes)? <= *pool_bytes;
        inside.then(|| mapping.show(at, bytes))
    }
}

impl AnnouncedPools {
    /// Makes sure that the peer at the other end of `wire` knows the pool of `place`; false if it
    /// cannot be told now.
    pub(super) fn tell(&mut self, wire: &SideChannel, place: &Place) -> bool {
        let number = place.pool.number();
        if self.pools.iter().any(|told| told.0 == number) {
            return true;
        }
        while let Some(gone) = self.pools.iter().position(|(_, pool)| pool.strong_count() == 0) {
            if !say(wire, GONE, &[self.pools[gone].0], None) {
                return false;
            }
            self.pools.swap_remove(gone);
        }
        let words = [number, place.pool.file().bytes() as u64];
        if self.pools.len() >= MAX_POOLS || !say(wire, POOL, &words, Some(place.pool.file())) {
            return false;
        }
        self.pools.push((number, Arc::downgrade(&place.pool)));
        true
    }
}

fn say(wire: &SideChannel, code: u8, words: &[u64], file: Option<&File>) -> bool {
    let mut bytes = vec![code];
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    socket::tell(&wire.socket, &bytes, file).is_ok()
}

/// The number at `start`, which with its 8 bytes lies inside.
fn number_at(bytes: &[u8], start: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[start..start + 8]);
    u64::from_le_bytes(number)
}
