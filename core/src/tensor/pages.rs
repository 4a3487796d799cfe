//! Large pages for large memory: the processor finds its way in them faster, and the system fills
//! them with fewer interruptions. Knows nothing of tensors.

#![allow(unsafe_code)]

/// Memory below this is not worth a page that the system would have to clear as a whole.
#[cfg(all(target_os = "linux", feature = "tcp"))]
const SMALLEST_BYTES: usize = 8 << 20;
/// The system is asked for whole pages of this size.
#[cfg(all(target_os = "linux", feature = "tcp"))]
const PAGE_BYTES: usize = 2 << 20;

/// Asks the system for large pages behind `memory`, whose content stays as it is; best done before
/// it is first written to. The system may have none.
#[cfg(all(target_os = "linux", feature = "tcp"))]
pub(crate) fn prefer_large_pages<T>(memory: &mut [T]) {
    use rustix::mm::{Advice, madvise};

    let all_bytes = size_of_val(memory);
    let start = memory.as_mut_ptr().cast::<u8>();
    let skipped_bytes = start.align_offset(PAGE_BYTES);
    if all_bytes < SMALLEST_BYTES || skipped_bytes >= all_bytes {
        return;
    }
    let bytes = (all_bytes - skipped_bytes) / PAGE_BYTES * PAGE_BYTES;
    let first = start.wrapping_add(skipped_bytes);
    // SAFETY: the range lies within `memory`, and the advice changes no content: it only says how
    // the system should map it.
    let advised = unsafe { madvise(first.cast(), bytes, Advice::LinuxHugepage) };
    if let Err(error) = advised {
        tracing::debug!(%error, "no large pages");
    }
}

/// Memory of its own pages, zeroed: the system has none to fill before they are used, where an
/// allocator may have to clear what it used for something else before.
#[cfg(all(target_os = "linux", feature = "tcp"))]
#[derive(Debug)]
pub(crate) struct FreshPages {
    start: std::ptr::NonNull<u8>,
    bytes: usize,
}

#[cfg(all(target_os = "linux", feature = "tcp"))]
impl FreshPages {
    /// `bytes` of them; none if there are not as many.
    pub(crate) fn new(bytes: usize) -> Option<FreshPages> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: at an address that the system chooses, where nothing is.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let mut pages = FreshPages { start: std::ptr::NonNull::new(start.ok()?.cast())?, bytes };
        prefer_large_pages(pages.as_mut());
        Some(pages)
    }

    /// The memory.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: these bytes are mapped, zeroed, and nobody else has them, until this is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

// SAFETY: plain memory, which any thread may use.
#[cfg(all(target_os = "linux", feature = "tcp"))]
unsafe impl Send for FreshPages {}
// SAFETY: as above; a shared reference gives no access.
#[cfg(all(target_os = "linux", feature = "tcp"))]
unsafe impl Sync for FreshPages {}

#[cfg(all(target_os = "linux", feature = "tcp"))]
impl Drop for FreshPages {
    fn drop(&mut self) {
        // SAFETY: they were mapped by `new`, and are not used any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Other systems choose for themselves.
#[cfg(not(all(target_os = "linux", feature = "tcp")))]
pub(crate) fn prefer_large_pages<T>(_memory: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::prefer_large_pages;

    #[test]
    fn the_content_stays() {
        for len in [0, 1, 4096, 8 << 20, (11 << 20) + 7] {
            let mut memory: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let before = memory.clone();
            prefer_large_pages(&mut memory);
            assert!(memory == before, "{len} bytes");
        }
    }
}
