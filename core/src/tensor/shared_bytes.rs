//! Memory that several ranks read and write at the same time: copies that have no order among one
//! another, and updates whose elements are changed atomically, by whichever process and through
//! whichever mapping. Knows nothing of windows.

#![allow(unsafe_code)]

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use super::Region;
use crate::generated::dtype::DType;

/// Elements of at most this many bytes are changed by one instruction of the processor.
pub const MAX_ATOMIC_BYTES: usize = 8;

/// Most bytes of elements that are computed at once, before each is exchanged.
const CHUNK_BYTES: usize = 512;

/// Memory that others use, too.
#[derive(Clone)]
pub struct SharedBytes {
    start: *mut u8,
    len: usize,
    /// Keeps the memory.
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is only followed by the functions below; its memory is usable from any
// thread, which `Region` and mappings of files guarantee, and `owner` keeps it.
unsafe impl Send for SharedBytes {}
// SAFETY: as above; elements that several sides change at once are changed by atomic instructions,
// and no length, index or pointer is ever read from the memory.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// The memory of `region`, which is the host's and does not move.
    pub fn of(region: &Region) -> SharedBytes {
        assert!(region.device().is_none() && !region.is_on_loan(), "memory of the host that stays");
        let (start, len) = (region.address() as *mut u8, region.len());
        SharedBytes { start, len, owner: Arc::new(region.clone()) }
    }

    /// A part of what `owner` keeps.
    ///
    /// # Safety
    /// `start` must be valid for reads and writes of `len` bytes from any thread for as long as
    /// `owner` lives.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    pub(crate) unsafe fn of_owner(
        start: *mut u8,
        len: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> SharedBytes {
        SharedBytes { start, len, owner }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether so many bytes lie there.
    pub fn contains(&self, at: usize, bytes: usize) -> bool {
        at.checked_add(bytes).is_some_and(|end| end <= self.len)
    }

    /// Whether any of the `bytes` bytes from `address` on of this process is one of them.
    pub fn overlaps(&self, address: usize, bytes: usize) -> bool {
        let start = self.start as usize;
        address < start + self.len && start < address + bytes
    }

    /// The memory as a region of its own, whose reads and writes exclude only one another.
    pub fn to_region(&self) -> Region {
        let owner = Box::new(self.owner.clone());
        // SAFETY: the owner keeps the memory. That others write it, too, is what a window is for:
        // who maps it orders accesses by signals and fences.
        unsafe { Region::from_raw_parts(self.start, self.len, Some(owner)) }
    }

    /// Copies `from` to `at`. What was written before is seen before what is written afterwards.
    ///
    /// # Panics
    /// As all methods, if it is outside.
    pub fn write(&self, at: usize, from: &[u8]) {
        let into = self.place(at, from.len());
        // SAFETY: in bounds by `place`; the two may overlap. Elements that others change at the
        // same moment have either value, as the doc of windows says.
        unsafe { std::ptr::copy(from.as_ptr(), into, from.len()) };
        fence(Ordering::Release);
    }

    /// Copies what lies at `at`.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        fence(Ordering::Acquire);
        let from = self.place(at, into.len());
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy(from, into.as_mut_ptr(), into.len()) };
    }

    /// Has `reduce` reduce `operand` into the elements at `at`; `old` is given what was there
    /// before, if it is wanted. Each element of up to [`MAX_ATOMIC_BYTES`] is changed atomically;
    /// of longer ones, the caller sees to it that nobody else changes them.
    pub fn update(
        &self,
        at: usize,
        dtype: DType,
        operand: &[u8],
        reduce: impl Fn(&mut [u8], &[u8]),
        mut old: Option<&mut [u8]>,
    ) {
        let size = dtype.size_bytes();
        self.check_elements(at, size, operand.len());
        for start in (0..operand.len()).step_by(CHUNK_BYTES) {
            let range = start..operand.len().min(start + CHUNK_BYTES);
            let place = self.place(at + start, range.len());
            let mut before = [0; CHUNK_BYTES];
            let before = &mut before[..range.len()];
            let change = |old: &[u8], new: &mut [u8], range: Range<usize>| {
                new.copy_from_slice(old);
                reduce(new, &operand[start..][range]);
            };
            // SAFETY: `place` has so many bytes, aligned for the elements by `check_elements`.
            unsafe {
                match size {
                    1 => change_all::<AtomicU8>(place, before, change),
                    2 => change_all::<AtomicU16>(place, before, change),
                    4 => change_all::<AtomicU32>(place, before, change),
                    8 => change_all::<AtomicU64>(place, before, change),
                    _ => change_alone(place, before, change),
                }
            }
            if let Some(old) = old.as_deref_mut() {
                old[range].copy_from_slice(before);
            }
        }
    }

    /// Sets the elements at `at` that are, bit by bit, those of `compare` to those of `value`;
    /// `old` is given what was there before. Atomic as [`SharedBytes::update`].
    pub fn compare_and_swap(
        &self,
        at: usize,
        dtype: DType,
        compare: &[u8],
        value: &[u8],
        old: &mut [u8],
    ) {
        let size = dtype.size_bytes();
        assert!(compare.len() == value.len() && value.len() == old.len(), "lengths differ");
        self.check_elements(at, size, value.len());
        for start in (0..value.len()).step_by(size) {
            let range = start..start + size;
            let place = self.place(at + start, size);
            let (compare, value) = (&compare[range.clone()], &value[range.clone()]);
            let old = &mut old[range];
            // SAFETY: as in `update`.
            unsafe {
                match size {
                    1 => swap_one::<AtomicU8>(place, compare, value, old),
                    2 => swap_one::<AtomicU16>(place, compare, value, old),
                    4 => swap_one::<AtomicU32>(place, compare, value, old),
                    8 => swap_one::<AtomicU64>(place, compare, value, old),
                    _ => change_alone(place, old, |old, new, _| {
                        new.copy_from_slice(if old == compare { value } else { old });
                    }),
                }
            }
        }
    }

    fn check_elements(&self, at: usize, size: usize, bytes: usize) {
        let is_aligned = (self.start as usize + at).is_multiple_of(size.min(MAX_ATOMIC_BYTES));
        assert!(is_aligned && bytes.is_multiple_of(size), "{bytes} bytes of elements at {at}");
    }

    fn place(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(self.contains(at, bytes), "{bytes} bytes at {at} of {} of a window", self.len);
        // SAFETY: the offset is inside of the memory.
        unsafe { self.start.add(at) }
    }
}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len)
    }
}

/// An atomic integer as long as an element.
trait Cell {
    /// The bytes of a value.
    type Bytes: AsRef<[u8]> + AsMut<[u8]> + Default;

    /// The value at `place`.
    ///
    /// # Safety
    /// `place` must be valid and aligned.
    unsafe fn load(place: *mut u8) -> Self::Bytes;

    /// Sets the value to `new` if it is `old`; else the value.
    ///
    /// # Safety
    /// As for `load`.
    unsafe fn exchange(place: *mut u8, old: &[u8], new: &[u8]) -> Result<(), Self::Bytes>;
}

macro_rules! cells {
    ($($atomic:ty, $integer:ty;)*) => {$(
        impl Cell for $atomic {
            type Bytes = [u8; size_of::<$integer>()];

            unsafe fn load(place: *mut u8) -> Self::Bytes {
                // SAFETY: the caller's.
                unsafe { <$atomic>::from_ptr(place.cast()) }.load(Ordering::SeqCst).to_ne_bytes()
            }

            unsafe fn exchange(place: *mut u8, old: &[u8], new: &[u8]) -> Result<(), Self::Bytes> {
                let integer = |bytes: &[u8]| {
                    let mut value = Self::Bytes::default();
                    value.copy_from_slice(bytes);
                    <$integer>::from_ne_bytes(value)
                };
                // SAFETY: the caller's.
                let cell = unsafe { <$atomic>::from_ptr(place.cast()) };
                let (old, new) = (integer(old), integer(new));
                cell.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
                    .map(drop)
                    .map_err(<$integer>::to_ne_bytes)
            }
        }
    )*};
}

cells! { AtomicU8, u8; AtomicU16, u16; AtomicU32, u32; AtomicU64, u64; }

/// Changes each element at `place` by what `change` makes of its old bytes; it is told which bytes
/// of the whole they are. `before` is given what each was before.
///
/// # Safety
/// `place` must be valid for as many bytes as `before` has, which are whole elements, aligned.
unsafe fn change_all<C: Cell>(
    place: *mut u8,
    before: &mut [u8],
    change: impl Fn(&[u8], &mut [u8], Range<usize>),
) {
    let size = size_of::<C>();
    for (index, old) in before.chunks_exact_mut(size).enumerate() {
        // SAFETY: the element is one of those at `place`.
        old.copy_from_slice(unsafe { C::load(place.add(index * size)) }.as_ref());
    }
    let mut after = [0; CHUNK_BYTES];
    let after = &mut after[..before.len()];
    change(before, after, 0..before.len());
    let elements = before.chunks_exact_mut(size).zip(after.chunks_exact_mut(size));
    for (index, (old, new)) in elements.enumerate() {
        let at = index * size;
        // SAFETY: as above.
        while let Err(now) = unsafe { C::exchange(place.add(at), old, new) } {
            old.copy_from_slice(now.as_ref());
            change(old, new, at..at + size);
        }
    }
}

/// As [`change_all`], where nobody else changes the elements meanwhile.
///
/// # Safety
/// As for [`change_all`], without the alignment.
unsafe fn change_alone(
    place: *mut u8,
    before: &mut [u8],
    change: impl Fn(&[u8], &mut [u8], Range<usize>),
) {
    // SAFETY: the caller's.
    unsafe { std::ptr::copy(place, before.as_mut_ptr(), before.len()) };
    let mut after = [0; CHUNK_BYTES];
    let after = &mut after[..before.len()];
    change(before, after, 0..before.len());
    // SAFETY: the caller's.
    unsafe { std::ptr::copy(after.as_ptr(), place, after.len()) };
}

/// Sets one element, if it is `compare`, to `value`; `old` is given what it was.
///
/// # Safety
/// `place` must be valid and aligned for an element.
unsafe fn swap_one<C: Cell>(place: *mut u8, compare: &[u8], value: &[u8], old: &mut [u8]) {
    // SAFETY: the caller's.
    match unsafe { C::exchange(place, compare, value) } {
        Ok(()) => old.copy_from_slice(compare),
        Err(now) => old.copy_from_slice(now.as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_of_many_threads_are_all_there() {
        let region = Region::zeroed(8 * 300);
        let shared = SharedBytes::of(&region);
        let ones: Vec<u8> = (0..600).flat_map(|_| 1_u32.to_ne_bytes()).collect();
        let add = |into: &mut [u8], from: &[u8]| {
            for (into, from) in into.as_chunks_mut().0.iter_mut().zip(from.as_chunks().0) {
                *into = (u32::from_ne_bytes(*into) + u32::from_ne_bytes(*from)).to_ne_bytes();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        shared.update(0, DType::U32, &ones, add, None);
                    }
                });
            }
        });
        let expected = 2000_u32.to_ne_bytes();
        region.read(|bytes| assert!(bytes.chunks_exact(4).all(|it| it == expected)));
    }

    #[test]
    fn of_many_threads_that_swap_one_gets_the_old_value() {
        let region = Region::zeroed(16);
        let shared = SharedBytes::of(&region);
        let winners: usize = std::thread::scope(|scope| {
            let threads = (1..=4_u64).map(|own| {
                let shared = &shared;
                scope.spawn(move || {
                    let (zero, own) = (0_u64.to_ne_bytes(), own.to_ne_bytes());
                    let mut old = [0; 8];
                    shared.compare_and_swap(8, DType::U64, &zero, &own, &mut old);
                    usize::from(old == zero)
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(9)).sum()
        });
        assert_eq!(winners, 1);
    }

    #[test]
    #[should_panic(expected = "of a window")]
    fn outside_is_outside() {
        SharedBytes::of(&Region::zeroed(8)).write(7, &[0; 2]);
    }
}
