//! Memory that the processes of one host share: an anonymous file that nobody can shrink, mapped.
//! Knows nothing of what lies in it.
//!
//! The file has no name, so that nothing is left of it when all processes that have it are gone,
//! however they went.

#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// What nobody may do to the file any more: a process that reads memory beyond the end of a file
/// that was cut dies.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A file of memory that can be given to other processes.
#[derive(Debug)]
pub(crate) struct File {
    fd: OwnedFd,
    bytes: usize,
}

/// A file in the memory of this process.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to nobody's thread; it is only touched by the functions below.
unsafe impl Send for Mapping {}
// SAFETY: words are atomic; a process that writes bytes while others may read them breaks the
// protocol of the ring, under which a place has one owner at a time.
unsafe impl Sync for Mapping {}

impl File {
    /// Zeroed memory of `bytes`, which the system provides where it is touched.
    pub(crate) fn new(bytes: usize) -> Result<File, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Since Linux 6.3 a file that can be executed may be refused; older ones know no such flag.
        let fd = match memfd_create("polyrank", flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create("polyrank", flags),
            made => made,
        }?;
        ftruncate(&fd, bytes as u64)?;
        fcntl_add_seals(&fd, SEALS)?;
        Ok(File { fd, bytes })
    }

    /// A file that another process of the same user made and says to have `bytes`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn from_peer(fd: OwnedFd, bytes: usize) -> Result<File, String> {
        let words = |error: Errno| format!("its shared memory cannot be examined: {error}");
        let seals = fcntl_get_seals(&fd).map_err(words)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err("its shared memory is not sealed".to_owned());
        }
        let stat = fstat(&fd).map_err(words)?;
        if usize::try_from(stat.st_size) != Ok(bytes) {
            return Err(format!("its shared memory has {} bytes, not {bytes}", stat.st_size));
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err("its shared memory belongs to another user".to_owned());
        }
        Ok(File { fd, bytes })
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the memory at `at` back to the system, which provides zeroes when it is touched again.
    pub(crate) fn forget(&self, at: usize, bytes: usize) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.fd, flags, at as u64, bytes as u64)
    }

    /// Maps the whole file.
    pub(crate) fn map(&self) -> Result<Mapping, Errno> {
        self.map_for(ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps the whole file for reading: [`Mapping::fill`] of it ends the process.
    pub(crate) fn map_to_read(&self) -> Result<Mapping, Errno> {
        self.map_for(ProtFlags::READ)
    }

    /// Maps a part of the file, which begins and ends where pages do, or with the file.
    pub(crate) fn map_part(&self, part: Range<usize>) -> Result<Mapping, Errno> {
        if part.start > part.end || part.end > self.bytes {
            return Err(Errno::INVAL);
        }
        self.map_range(part, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn map_for(&self, access: ProtFlags) -> Result<Mapping, Errno> {
        self.map_range(0..self.bytes, access)
    }

    fn map_range(&self, range: Range<usize>, access: ProtFlags) -> Result<Mapping, Errno> {
        let (bytes, at, flags) = (range.len(), range.start as u64, MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the system's choice touches no other memory; the
        // seals keep the file as long as it is.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &self.fd, at) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { start, bytes })
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Mapping {
    /// Where it begins.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Lets `write` fill the `bytes` bytes at `at`, which belong to this process for now.
    ///
    /// # Panics
    /// If they are outside.
    pub(crate) fn fill(&self, at: usize, bytes: usize, write: impl FnOnce(&mut [u8])) {
        let place = self.place(at, bytes);
        // SAFETY: in bounds by `place`. The ring's protocol gives the place to one side at a time;
        // a peer that breaks it can spoil values, but no length or index is taken from here.
        write(unsafe { std::slice::from_raw_parts_mut(place, bytes) });
    }

    /// Shows the `bytes` bytes at `at`, which belong to this process for now.
    ///
    /// # Panics
    /// If they are outside.
    pub(crate) fn show(&self, at: usize, bytes: usize) -> &[u8] {
        let place = self.place(at, bytes);
        // SAFETY: in bounds by `place`; see `fill` for who else may write here.
        unsafe { std::slice::from_raw_parts(place, bytes) }
    }

    /// The word at `at`, a multiple of its size.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        let place = self.place(at, size_of::<u64>());
        debug_assert!(at.is_multiple_of(size_of::<u64>()), "a word at {at}");
        // SAFETY: in bounds by `place`, and aligned: mappings begin at pages, words at multiples of
        // their size. Words are only used as atomics, by all processes.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }

    /// Asks the processor for the cache line of the word at `at`, to write it soon: other processes
    /// have it, and it comes while this one does something else.
    pub(crate) fn expect_write(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};

            let word = std::ptr::from_ref(self.word(at)).cast();
            // SAFETY: it is a hint, and changes nothing.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(word) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Gives the memory at `at`, whole pages, back to the system, which provides zeroes when it is
    /// touched again, in whatever process.
    ///
    /// # Errors
    /// The system's error.
    ///
    /// # Panics
    /// If it is outside.
    pub(crate) fn forget(&self, at: usize, bytes: usize) -> Result<(), Errno> {
        let place = self.place(at, bytes);
        // SAFETY: in bounds by `place`; the pages stay mapped, and the caller needs none of them.
        unsafe { madvise(place.cast(), bytes, Advice::LinuxRemove) }
    }

    /// Puts memory of this process alone in the place of the file's, zeroed: who still looks there
    /// sees nothing of the file any more, and changes nothing of it.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn detach(&self) -> Result<(), Errno> {
        let (access, start) = (ProtFlags::READ | ProtFlags::WRITE, self.start.as_ptr().cast());
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the place is this mapping's own, and stays memory that is read and written; its
        // contents may change at any moment by what other processes do, too.
        unsafe { mmap_anonymous(start, self.bytes, access, flags) }.map(drop)
    }

    fn place(&self, at: usize, bytes: usize) -> *mut u8 {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside, "{bytes} bytes at {at} of {} of shared memory", self.bytes);
        // SAFETY: the offset is inside of the mapping.
        unsafe { self.start.as_ptr().add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `File::map`, and nothing borrowed from it lives on.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) } {
            tracing::debug!(%error, "cannot unmap shared memory");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn two_mappings_are_one_memory() {
        let file = File::new(1 << 16).unwrap();
        let one = file.map().unwrap();
        let other = File::from_peer(file.fd.try_clone().unwrap(), 1 << 16).unwrap().map().unwrap();
        one.fill(60_000, 4, |place| place.copy_from_slice(b"here"));
        one.word(8).store(7, Ordering::SeqCst);
        assert_eq!(other.show(60_000, 4), b"here");
        assert_eq!(other.word(8).swap(9, Ordering::SeqCst), 7);
        assert_eq!(one.word(8).load(Ordering::SeqCst), 9);
    }

    #[test]
    fn what_is_detached_shows_nothing_of_the_file_and_changes_nothing_of_it() {
        let file = File::new(1 << 16).unwrap();
        let whole = file.map().unwrap();
        let part = file.map_part(4096..12_288).unwrap();
        whole.fill(4096, 4, |place| place.copy_from_slice(b"here"));
        assert_eq!(part.show(0, 4), b"here");
        part.detach().unwrap();
        assert_eq!(part.show(0, 8192), [0; 8192]);
        part.fill(0, 4, |place| place.copy_from_slice(b"gone"));
        assert_eq!(whole.show(4096, 4), b"here");
        assert!(file.map_part(4096..(1 << 16) + 1).is_err());
    }

    #[test]
    fn a_file_that_could_be_cut_is_refused() {
        let open = memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, 4096).unwrap();
        assert!(File::from_peer(open, 4096).unwrap_err().contains("not sealed"));
        let file = File::new(4096).unwrap();
        let error = File::from_peer(file.fd.try_clone().unwrap(), 8192).unwrap_err();
        assert!(error.contains("4096 bytes, not 8192"), "{error}");
        assert!(ftruncate(&file, 0).is_err(), "nobody can cut it");
    }

    #[test]
    #[should_panic(expected = "of shared memory")]
    fn outside_is_outside() {
        File::new(4096).unwrap().map().unwrap().show(4090, 7);
    }
}
