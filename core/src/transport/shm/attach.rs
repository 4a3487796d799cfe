//! Reading a peer's own memory by cross-memory attach, `process_vm_readv(2)`: one copy, where a
//! lane takes two. Knows nothing of frames.
//!
//! Whether the system allows it depends on user ids, ptrace scopes and containers, so each rank
//! tries: the owner of a segment says in its first page where that page lies in its own memory, and
//! beside it a number that no other process has. A peer that can read that number from there can
//! read all of the owner's memory.
//!
//! The number is read again, in the same call, after every payload. So a payload counts only if it
//! came from the owner: not from a process that was given its process id after it died, nor from
//! another program that runs in it now.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::AsFd;

use libc::{iovec, pid_t, process_vm_readv};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;

use super::layout::{NONCE, OWN_ADDRESS};
use super::memory::Mapping;
use super::ring::SharedMemory;
use crate::generated::error::Error;
use crate::random;

/// Bytes of the number.
const NONCE_BYTES: usize = size_of::<u64>();

/// The memory of a peer.
pub(super) struct PeerMemory {
    process: pid_t,
    /// Where the number lies.
    nonce_at: usize,
    nonce: u64,
}

/// Says in `segment`, the owner's own, what peers need.
///
/// # Errors
/// The system provides no random bytes.
pub(super) fn sign(segment: &Mapping) -> Result<(), Error> {
    segment.store(NONCE, u64::from_ne_bytes(random::bytes()?));
    segment.store(OWN_ADDRESS, segment.start() as u64);
    Ok(())
}

/// The process at the other end of `socket`, if it is one of this user.
pub(super) fn process_at(socket: impl AsFd) -> Option<u32> {
    let peer = socket_peercred(socket).ok()?;
    let is_own_user = peer.uid == rustix::process::geteuid();
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok().filter(|_| is_own_user)
}

impl PeerMemory {
    /// The memory of the process at the other end of `socket`, whose segment is `segment`; none if
    /// the system does not allow to read it.
    pub(super) fn of(socket: impl AsFd, segment: &Mapping) -> Option<PeerMemory> {
        Self::of_process(socket_peercred(socket).ok()?.pid.as_raw_nonzero().get(), segment)
    }

    /// As [`PeerMemory::of`], of a process.
    pub(super) fn of_process(process: pid_t, segment: &Mapping) -> Option<PeerMemory> {
        let nonce = segment.load(NONCE);
        let nonce_at = usize::try_from(segment.load(OWN_ADDRESS)).ok()?.checked_add(NONCE)?;
        PeerMemory::with_nonce(process, nonce_at, nonce)
    }

    /// The memory of a process that has `nonce` at `nonce_at`; none if that cannot be read there.
    pub(super) fn with_nonce(process: pid_t, nonce_at: usize, nonce: u64) -> Option<PeerMemory> {
        let memory = PeerMemory { process, nonce_at, nonce };
        (nonce != 0 && memory.read(nonce_at, &mut [0; NONCE_BYTES]).is_ok()).then_some(memory)
    }

    /// Copies what lies at `address` of the peer's memory to `into`.
    ///
    /// # Errors
    /// The peer has ended ([`Errno::SRCH`]), has no memory there ([`Errno::FAULT`]), or is another
    /// program now ([`Errno::STALE`]).
    pub(super) fn read(&self, address: usize, into: &mut [u8]) -> Result<(), Errno> {
        let mut nonce = [0; NONCE_BYTES];
        let expected = into.len() + NONCE_BYTES;
        let local = [part(into.as_mut_ptr() as usize, into.len()), {
            part(nonce.as_mut_ptr() as usize, NONCE_BYTES)
        }];
        let remote = [part(address, into.len()), part(self.nonce_at, NONCE_BYTES)];
        // SAFETY: the system writes to the local parts only, which are borrowed mutably; an address
        // of the other process that is not its memory is an error.
        let read =
            unsafe { process_vm_readv(self.process, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
        match usize::try_from(read) {
            Ok(read) if read < expected => Err(Errno::FAULT),
            Ok(_) if u64::from_ne_bytes(nonce) != self.nonce => Err(Errno::STALE),
            Ok(_) => Ok(()),
            Err(_) => {
                Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::FAULT))
            }
        }
    }
}

/// This process's memory that others can read: not all is for them (memfd_secret(2), that of
/// devices), and nothing when the main thread has ended.
#[derive(Default)]
pub(super) struct LendableMemory {
    /// Blocks that were found readable, by address and length, the last one first.
    known: VecDeque<(usize, usize)>,
}

/// How many blocks are remembered: those of a few operations.
const MAX_KNOWN: usize = 64;

impl LendableMemory {
    /// Whether others can read `bytes` bytes from `address` on, which are one mapping.
    pub(super) fn contains(&mut self, address: usize, bytes: usize) -> bool {
        if bytes == 0 || self.known.contains(&(address, bytes)) {
            return true;
        }
        let is_readable = can_be_read([address, address.wrapping_add(bytes - 1)]);
        if is_readable {
            self.known.truncate(MAX_KNOWN - 1);
            self.known.push_front((address, bytes));
        }
        is_readable
    }
}

/// Whether others can read the bytes at these addresses of this process.
fn can_be_read(addresses: [usize; 2]) -> bool {
    let mut into = [0_u8; 2];
    let local = [part(into.as_mut_ptr() as usize, into.len())];
    let remote = addresses.map(|address| part(address, 1));
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: the system writes to the local part only, which is borrowed mutably; an address that
    // is no memory is an error.
    let read = unsafe { process_vm_readv(process, local.as_ptr(), 1, remote.as_ptr(), 2, 0) };
    usize::try_from(read).is_ok_and(|read| read == into.len())
}

fn part(address: usize, bytes: usize) -> iovec {
    iovec { iov_base: address as *mut _, iov_len: bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_that_can_be_read_is_lent() {
        let mut lendable = LendableMemory::default();
        let block = vec![7_u8; 5000];
        let address = block.as_ptr() as usize;
        for _ in 0..2 * MAX_KNOWN {
            for bytes in [0, 1, 5000] {
                assert!(lendable.contains(address, bytes), "{bytes}");
            }
            for (address, bytes) in [(8, 1), (usize::MAX, 2), (address, 1 << 46)] {
                assert!(!lendable.contains(address, bytes), "{address:x}, {bytes}");
            }
        }
        assert_eq!(lendable.known.len(), 2);
    }
}
