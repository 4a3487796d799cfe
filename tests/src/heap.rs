//! The heap of this process, as the kernel sees it, and a wall behind it. Knows nothing of MPI.

#![allow(unsafe_code)]

use std::ffi::c_void;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// The address at which the heap ends.
pub fn end() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux says what is mapped");
    let heap = maps.lines().rfind(|line| line.ends_with("[heap]")).expect("there is a heap");
    let range = heap.split(' ').next().and_then(|range| range.split_once('-'));
    let (_, end) = range.expect("a line begins with a range");
    usize::from_str_radix(end, 16).expect("a range is of hexadecimal numbers")
}

/// Maps a page directly behind the heap, for ever, so that it cannot grow.
pub fn wall_up() {
    let (end, nothing) = (end(), ProtFlags::empty());
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: nothing that is mapped is replaced, and nobody uses the new page.
    let wall = unsafe { mmap_anonymous(end as *mut c_void, 1, nothing, flags) };
    assert_eq!(wall.expect("the page behind the heap is free") as usize, end);
}
