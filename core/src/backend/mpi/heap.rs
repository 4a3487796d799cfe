//! Keeps the end of this process's heap from being unmapped by UCX, which MPI is often linked
//! to. Knows nothing of MPI.
//!
//! When it is loaded, UCX tries its hooks: it calls `sbrk(page)` and then `sbrk(-page)`
//! (`ucm_fire_mmap_events_internal` in its `mmap/install.c`), whether the first call succeeded or
//! not. Where the heap cannot grow because another mapping begins behind it, its last page is
//! gone, and what was there. One Node process in some sixty is made like that: V8 has its code
//! directly behind the heap where the heap happens to end at a multiple of 256 KiB.

#![allow(unsafe_code)]

use rustix::process::{Resource, getrlimit};

use crate::env::variable::{self, Variable};

/// UCX's switch for its hooks. Without them it caches no registrations of memory with a network
/// adapter: slower there, and right.
const HOOKS: Variable = variable::UCX_MEM_EVENTS;

/// Must be called before a library is loaded that may be linked to UCX, on the thread that loads
/// it. Leaves alone what the user chose, and processes whose heap can grow: nothing is behind it,
/// and memory is not limited (`ulimit -d`, `-v`).
pub(super) fn protect() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_limited = |of| getrlimit(of).current.is_some();
    let is_free = !is_limited(Resource::Data) && !is_limited(Resource::As);
    let can_grow = is_free && can_grow(&maps, rustix::param::page_size() as u64);
    if HOOKS.is_set() || can_grow {
        return;
    }
    tracing::debug!("the heap cannot grow: UCX is told to leave it alone ({HOOKS}=n)");
    // SAFETY: Rust's own readers are locked out. C code that reads the environment on another
    // thread right now could read an entry that moves; the alternative is a process that crashes
    // for certain. It is set once, and only in the processes above.
    unsafe { std::env::set_var(HOOKS.name(), "n") };
}

/// Whether the kernel would let the heap of a process with these `maps` grow by a page: it keeps
/// one more page free in front of the next mapping (`brk` in Linux's mm/mmap.c).
fn can_grow(maps: &str, page: u64) -> bool {
    let ranges = maps.lines().filter_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let address = |digits| u64::from_str_radix(digits, 16).ok();
        Some((address(start)?, address(end)?, line.ends_with("[heap]")))
    });
    let mut heap_end = None;
    for (start, end, is_heap) in ranges {
        match heap_end {
            _ if is_heap => heap_end = Some(end),
            Some(heap_end) => return start >= heap_end + 2 * page,
            None => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 0x1000;

    fn maps(heap: &str, next: &str) -> String {
        format!("00400000-00b6f000 r--p 00000000 fe:00 1  /usr/bin/node\n{heap} [heap]\n{next}\n")
    }

    #[test]
    fn a_mapping_close_behind_the_heap_is_in_its_way() {
        let heap = "058ea000-05b00000 rw-p 00000000 00:00 0";
        for (next, grows) in [("05b00000", false), ("05b01000", false), ("05b02000", true)] {
            let next = format!("{next}-05c00000 rw-p 00000000 00:00 0");
            assert_eq!(can_grow(&maps(heap, &next), PAGE), grows, "{next}");
        }
    }

    #[test]
    fn far_mappings_are_not() {
        let heap = "058ea000-05b00000 rw-p 00000000 00:00 0";
        let far = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n7f0000001000-7f0000002000 r";
        assert!(can_grow(&maps(heap, far), PAGE));
        assert!(can_grow("", PAGE));
        assert!(can_grow("no map at all", PAGE));
        let two = format!("{heap} [heap]\n05b00000-05b21000 rw-p 00000000 00:00 0");
        assert!(can_grow(&maps(&two, far), PAGE), "a heap in two parts");
    }
}
