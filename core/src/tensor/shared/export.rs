//! Where memory of a pool can be found by other processes of the host, and what they map then.
//! Knows nothing of who asks.
//!
//! A process that may read the memory of another one, by the rules of the system, may open that
//! one's files in `/proc`. The file says by its number whether it is the one that was meant:
//! process ids and descriptors are given anew. What another rank says of its memory is a claim: it
//! counts only for the process that the system has named, and for memory that cannot be cut.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Weak};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use super::file::{File, Mapping};
use super::{PAGE_BYTES, Region, find};
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

    /// The memory, mapped into this process, if it is one of `process`; none where the system does
    /// not allow it, or where something else is there by now.
    pub(crate) fn map(&self, process: u32) -> Option<MappedMemory> {
        if self.process != process {
            return None;
        }
        let pool_bytes = usize::try_from(self.pool_bytes).ok()?;
        let (at, bytes) = (usize::try_from(self.at).ok()?, usize::try_from(self.bytes).ok()?);
        let end = at.checked_add(bytes).filter(|&end| bytes > 0 && end <= pool_bytes)?;
        let first = at - at % PAGE_BYTES;
        let last = end.checked_next_multiple_of(PAGE_BYTES)?.min(pool_bytes);
        let mapping = Arc::new(self.open(pool_bytes)?.map_part(first..last).ok()?);
        // SAFETY: `at` and `bytes` lie inside of the mapping, which the owner keeps; the seals of
        // the file keep its memory.
        let bytes = unsafe {
            SharedBytes::of_owner(mapping.start().add(at - first), bytes, mapping.clone())
        };
        Some(MappedMemory { bytes, mapping })
    }

    /// The file of which this speaks, if it is memory of this user that nobody can cut.
    fn open(&self, pool_bytes: usize) -> Option<File> {
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        // What is opened to be looked at only does nothing, whatever it is.
        let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let stat = fstat(&found).ok()?;
        let is_meant = [stat.st_dev, stat.st_ino] == self.file
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_uid == rustix::process::geteuid().as_raw()
            && usize::try_from(stat.st_size) == Ok(pool_bytes);
        if !is_meant {
            return None;
        }
        let path = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
        let found = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        File::from_peer(found, pool_bytes).ok()
    }
}

/// Memory of another process that is mapped into this one.
#[derive(Debug)]
pub(crate) struct MappedMemory {
    bytes: SharedBytes,
    mapping: Arc<Mapping>,
}

impl MappedMemory {
    /// The memory, for reads and writes.
    pub(crate) fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// Its mapping, which lives as long as somebody uses it.
    pub(crate) fn mapping(&self) -> MappingRef {
        MappingRef(Arc::downgrade(&self.mapping))
    }
}

/// Memory of another process that is mapped, if it still is.
#[derive(Debug)]
pub struct MappingRef(Weak<Mapping>);

impl MappingRef {
    /// Whether it is.
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Views of it show nothing of the other process any more.
    pub(crate) fn detach(&self) {
        if let Some(Err(error)) = self.0.upgrade().map(|mapping| mapping.detach()) {
            tracing::warn!(%error, "a view of another rank's memory outlives the group");
        }
    }
}

impl Drop for MappedMemory {
    /// Views of it that are left show nothing of the other process any more.
    fn drop(&mut self) {
        // Its own two, or those of views, too.
        let has_views = Arc::strong_count(&self.mapping) > 2;
        if has_views && let Err(error) = self.mapping.detach() {
            tracing::warn!(%error, "a view of another rank's memory outlives its registration");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::fd::OwnedFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;
    use crate::tensor::shared::allocate;

    #[test]
    fn what_is_mapped_is_the_same_memory() {
        let region = allocate(100_000).unwrap();
        let part = region.slice(4096..90_000);
        let exported = ExportedMemory::of(&part).unwrap();
        let own = std::process::id();
        let mapped = exported.map(own).unwrap();
        assert_eq!(mapped.bytes().len(), part.len());
        mapped.bytes().write(3, b"here");
        part.read(|bytes| assert_eq!(&bytes[3..7], b"here"));
        let view = mapped.bytes().to_region();
        drop(mapped);
        assert!(view.read(|bytes| bytes.iter().all(|byte| *byte == 0)), "it shows nothing");
        view.write(|bytes| bytes.fill(9));
        part.read(|bytes| assert_eq!(&bytes[3..7], b"here"));
        assert!(ExportedMemory::of(&Region::zeroed(100_000)).is_none());
    }

    #[test]
    fn claims_that_are_not_true_map_nothing() {
        let region = allocate(100_000).unwrap();
        let exported = ExportedMemory::of(&region).unwrap();
        let own = std::process::id();
        assert!(exported.map(own + 1).is_none(), "another process has proved itself");
        assert!(ExportedMemory { process: own + 1, ..exported }.map(own).is_none());
        let [device, file] = exported.file;
        let another = ExportedMemory { file: [device, file + 1], ..exported };
        assert!(another.map(own).is_none(), "another file");
        for (at, bytes) in [(0, exported.pool_bytes + 1), (u64::MAX, 2), (1, u64::MAX), (0, 0)] {
            assert!(ExportedMemory { at, bytes, ..exported }.map(own).is_none(), "{at} {bytes}");
        }
        let shorter = ExportedMemory { pool_bytes: exported.pool_bytes - 1, ..exported };
        assert!(shorter.map(own).is_none(), "another length");
    }

    #[test]
    fn what_is_no_sealed_memory_is_not_mapped() {
        let claim = |fd: &OwnedFd| {
            let stat = fstat(fd).unwrap();
            ExportedMemory {
                process: std::process::id(),
                descriptor: u32::try_from(fd.as_raw_fd()).unwrap(),
                file: [stat.st_dev, stat.st_ino],
                pool_bytes: stat.st_size as u64,
                at: 0,
                bytes: 4096,
            }
        };
        let open_memory = memfd_create("open", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&open_memory, 4096).unwrap();
        assert!(claim(&open_memory).map(std::process::id()).is_none(), "it can be cut");
        let (reads, _writes) = std::io::pipe().unwrap();
        let pipe = claim(&reads.into());
        for pool_bytes in [0, 4096] {
            let pipe = ExportedMemory { pool_bytes, ..pipe };
            assert!(pipe.map(std::process::id()).is_none(), "a pipe is not a file");
        }
    }
}
