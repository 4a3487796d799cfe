//! Copies through the caches: by the system's `memcpy`, or by vectors. Knows nothing of whose
//! memory it is.
//!
//! From some KiB on, the C library copies by one instruction, `rep movsb`, where the processor says
//! that this is fast. On AMD's Zen 3 and Zen 4 it takes fourteen times as long as a loop where
//! the target begins less than 32 bytes after the source within their pages, as memory of `malloc`
//! does next to a page of ours, and twice as long for what another core has just written
//! (sourceware.org, glibc bug 30994; newer C libraries use it less). So a loop is here, too. Which
//! of them copies is measured once in a process, where that difference shows.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use super::{forms::copy_by_vectors, instructions::ticks};

/// Shorter copies are left to the system: it has no better way for them, either.
#[cfg(target_arch = "x86_64")]
const MIN_BYTES: usize = 2 << 10;

/// What is copied to measure.
#[cfg(target_arch = "x86_64")]
const MEASURED_BYTES: usize = 8 << 10;

/// Bytes after which the source, and the target, have the same place in their pages.
#[cfg(target_arch = "x86_64")]
const PAGE_BYTES: usize = 4 << 10;

/// How far the target is from there: as `malloc` places long memory.
#[cfg(target_arch = "x86_64")]
const SHIFT_BYTES: usize = 16;

/// The least of so many attempts counts.
#[cfg(target_arch = "x86_64")]
const ATTEMPTS: usize = 5;

/// The system copies unless it takes so many times as long: it knows more of processors.
#[cfg(target_arch = "x86_64")]
const CLEAR_TIMES: u64 = 2;

/// Copies as many bytes as both have.
pub(super) fn copy(into: &mut [u8], from: &[u8]) {
    let bytes = into.len().min(from.len());
    let (into, from) = (&mut into[..bytes], &from[..bytes]);
    #[cfg(target_arch = "x86_64")]
    if bytes >= MIN_BYTES && vectors_are_faster() {
        return copy_by_vectors(into, from);
    }
    into.copy_from_slice(from);
}

/// A copy of as many bytes.
pub(super) fn copied(from: &[u8]) -> Vec<u8> {
    #[cfg(target_arch = "x86_64")]
    if from.len() >= MIN_BYTES && vectors_are_faster() {
        let mut into = vec![0; from.len()];
        copy_by_vectors(&mut into, from);
        return into;
    }
    from.to_vec()
}

#[cfg(target_arch = "x86_64")]
fn vectors_are_faster() -> bool {
    static FASTER: OnceLock<bool> = OnceLock::new();
    *FASTER.get_or_init(|| {
        let by_system = measured(|into, from| into.copy_from_slice(from));
        let by_vectors = measured(copy_by_vectors);
        let is_faster = by_system / CLEAR_TIMES > by_vectors;
        tracing::debug!(by_system, by_vectors, is_faster, "copies through the caches");
        is_faster
    })
}

/// How many ticks of the processor a copy takes whose target has a place in its page a little after
/// that of its source.
#[cfg(target_arch = "x86_64")]
fn measured(copy: impl Fn(&mut [u8], &[u8])) -> u64 {
    let room = MEASURED_BYTES + 2 * PAGE_BYTES;
    let mut memory = vec![1; 2 * room];
    let (from, into) = memory.split_at_mut(room);
    let start = |memory: &[u8]| memory.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
    let (first, second) = (start(from), start(into) + SHIFT_BYTES);
    let (from, into) = (&from[first..][..MEASURED_BYTES], &mut into[second..][..MEASURED_BYTES]);
    let mut least = u64::MAX;
    for _ in 0..ATTEMPTS {
        let began = ticks();
        copy(std::hint::black_box(into), std::hint::black_box(from));
        least = least.min(ticks().wrapping_sub(began));
    }
    least
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::instructions::tests::{every_set, limited_to};
    use super::*;

    #[test]
    fn vectors_copy_every_byte_and_no_other() {
        let from: Vec<u8> = (0..3000_usize).map(|at| (at % 251) as u8 + 1).collect();
        for set in every_set() {
            for (first, second) in [(0, 0), (0, 16), (1, 0), (3, 61), (64, 64)] {
                for bytes in [0, 1, 63, 64, 255, 256, 257, 1024, 2047, 2900] {
                    let mut into = vec![0; 3000];
                    let target = &mut into[second..][..bytes];
                    limited_to(set, || copy_by_vectors(target, &from[first..][..bytes]));
                    let mut expected = vec![0; 3000];
                    expected[second..][..bytes].copy_from_slice(&from[first..][..bytes]);
                    assert_eq!(into, expected, "{set:?}, {bytes} bytes from {first} to {second}");
                }
            }
        }
    }

    #[test]
    fn the_shorter_side_limits_a_copy() {
        for bytes in [1, MIN_BYTES, 3 * MIN_BYTES + 5] {
            let mut into = vec![0; bytes];
            copy(&mut into, &vec![7; bytes + 9]);
            assert_eq!(into, vec![7; bytes]);
            let mut into = vec![0; bytes + 9];
            copy(&mut into, &vec![7; bytes]);
            assert_eq!(into[..bytes], vec![7; bytes]);
            assert_eq!(into[bytes..], [0; 9]);
            assert_eq!(copied(&into), into);
        }
    }
}
