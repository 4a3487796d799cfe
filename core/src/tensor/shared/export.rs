//! Where memory of a pool can be found by other processes of the host, and what they map then.
//! Knows nothing of who asks.
//!
//! A process that may read the memory of another one, by the rules of the system, may open that
//! one's files in `/proc`. The file says by its number whether it is the one that was meant:
//! process ids and descriptors are given anew.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, fstat, open};

use super::file::File;
use super::{Region, find};
use crate::tensor::shared_bytes::SharedBytes;

/// The place of memory in a pool, for other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportedMemory {
    pub(crate) process: u32,
    /// The descriptor of the pool's file in that process.
    pub(crate) descriptor: u32,
    /// The file's device and number there.
    pub(crate) file: [u64; 2],
    /// Bytes of the file.
    pub(crate) pool_bytes: u64,
    /// Where the memory begins in it.
    pub(crate) at: u64,
    /// Bytes of the memory.
    pub(crate) bytes: u64,
}

impl ExportedMemory {
    /// Where the memory of `region` lies, if that is in a pool.
    pub(crate) fn of(region: &Region) -> Option<ExportedMemory> {
        if region.is_empty() || region.device().is_some() || region.is_on_loan() {
            return None;
        }
        let place = find(region.address(), region.len())?;
        let file = place.pool.file();
        let stat = fstat(file).ok()?;
        Some(ExportedMemory {
            process: std::process::id(),
            descriptor: u32::try_from(file.as_fd().as_raw_fd()).ok()?,
            file: [stat.st_dev, stat.st_ino],
            pool_bytes: file.bytes() as u64,
            at: place.at as u64,
            bytes: region.len() as u64,
        })
    }

    /// The memory, mapped into this process; none where the system does not allow it, or where
    /// something else is there by now.
    pub(crate) fn map(&self) -> Option<SharedBytes> {
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let found = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let stat = fstat(&found).ok()?;
        if [stat.st_dev, stat.st_ino] != self.file {
            return None;
        }
        let pool_bytes = usize::try_from(self.pool_bytes).ok()?;
        let (at, bytes) = (usize::try_from(self.at).ok()?, usize::try_from(self.bytes).ok()?);
        if at.checked_add(bytes)? > pool_bytes {
            return None;
        }
        let mapping = Arc::new(File::from_peer(found, pool_bytes).ok()?.map().ok()?);
        // SAFETY: `at` and `bytes` lie inside of the mapping, which the owner keeps; the seals of
        // the file keep its memory.
        Some(unsafe { SharedBytes::of_owner(mapping.start().add(at), bytes, mapping.clone()) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::tensor::shared::allocate;

    #[test]
    fn what_is_mapped_is_the_same_memory() {
        let region = allocate(100_000).unwrap();
        let part = region.slice(4096..90_000);
        let exported = ExportedMemory::of(&part).unwrap();
        let mapped = exported.map().unwrap();
        assert_eq!(mapped.len(), part.len());
        mapped.write(3, b"here");
        part.read(|bytes| assert_eq!(&bytes[3..7], b"here"));
        let [device, file] = exported.file;
        let another = ExportedMemory { file: [device, file + 1], ..exported };
        assert!(another.map().is_none(), "another file is not mapped");
        let beyond = ExportedMemory { bytes: exported.pool_bytes, ..exported };
        assert!(beyond.map().is_none());
        assert!(ExportedMemory::of(&Region::zeroed(100_000)).is_none());
    }
}
