//! The size of the caches, and how a thread computes with floats. Knows nothing of kernels.

#![allow(unsafe_code)]

use std::sync::OnceLock;

/// The largest cache that a core reaches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub(super) bytes: usize,
    /// Logical processors that share it.
    pub(super) threads: usize,
}

/// The largest cache that a core reaches, shared or not; a guess where nobody says.
pub(super) fn last_cache() -> Cache {
    const GUESS: Cache = Cache { bytes: 32 << 20, threads: 8 };
    static CACHE: OnceLock<Cache> = OnceLock::new();
    *CACHE.get_or_init(|| described_cache().filter(|cache| cache.bytes > 0).unwrap_or(GUESS))
}

/// The largest cache of the "deterministic cache parameters" of Intel and AMD.
#[cfg(target_arch = "x86_64")]
fn described_cache() -> Option<Cache> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const INTEL: u32 = 4;
    const AMD: u32 = 0x8000_001d;
    let highest = [(INTEL, __cpuid(0).eax), (AMD, __cpuid(0x8000_0000).eax)];
    let leaves = highest.into_iter().filter(|(leaf, highest)| highest >= leaf);
    let caches = leaves.flat_map(|(leaf, _)| (0..8).map(move |index| __cpuid_count(leaf, index)));
    let field =
        |register: u32, shift: u32, bits: u32| (register >> shift & ((1 << bits) - 1)) as usize + 1;
    let caches = caches.filter(|cache| cache.eax & 0x1f != 0).map(|cache| {
        let lines = field(cache.ebx, 22, 10) * field(cache.ebx, 12, 10) * (cache.ecx as usize + 1);
        Cache { bytes: lines * field(cache.ebx, 0, 12), threads: field(cache.eax, 14, 12) }
    });
    caches.max_by_key(|cache| cache.bytes)
}

#[cfg(not(target_arch = "x86_64"))]
fn described_cache() -> Option<Cache> {
    None
}

/// Runs `arithmetic` on floating-point numbers as Rust means it: rounding to nearest even, with
/// subnormal numbers. A process may have set its thread otherwise (`torch.set_flush_denormal`, a
/// library built with `-ffast-math`), and then its rank alone would end with other bits.
#[inline(always)]
pub(super) fn as_ieee(arithmetic: impl FnOnce()) {
    let mode = Mode::of_thread();
    if mode == Mode::IEEE {
        return arithmetic();
    }
    let _back = ModeGuard(mode);
    Mode::IEEE.set();
    arithmetic();
}

/// Sets the thread's mode when it is dropped.
struct ModeGuard(Mode);

impl Drop for ModeGuard {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// The bits of the control register that say how floating-point arithmetic is done.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mode(u32);

#[cfg(target_arch = "x86_64")]
impl Mode {
    /// All exceptions masked.
    const IEEE: Mode = Mode(0x1f80);

    #[inline(always)]
    fn of_thread() -> Mode {
        let mut register = 0_u32;
        // SAFETY: writes the register to those four bytes and nothing else.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &mut register, options(nostack));
        }
        // The lowest six bits are what happened, not what is to be done.
        Mode(register & 0xffc0)
    }

    fn set(self) {
        // SAFETY: the value is the default or one that the register had. Arithmetic that the
        // compiler must not move across reads and writes memory, which this may change too, as
        // far as the compiler knows.
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", in(reg) &self.0, options(nostack));
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl Mode {
    /// No traps, nothing flushed.
    const IEEE: Mode = Mode(0);

    #[inline(always)]
    fn of_thread() -> Mode {
        let register: u64;
        // SAFETY: only reads the register.
        unsafe {
            std::arch::asm!("mrs {}, fpcr", out(reg) register, options(nomem, nostack));
        }
        Mode(register as u32)
    }

    fn set(self) {
        // SAFETY: the value is the default or one that the register had. Not `nomem`, so that the
        // compiler moves no arithmetic, whose operands and results are in memory, across.
        unsafe {
            std::arch::asm!("msr fpcr, {}", in(reg) u64::from(self.0), options(nostack));
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Mode {
    const IEEE: Mode = Mode(0);

    fn of_thread() -> Mode {
        Mode::IEEE
    }

    fn set(self) {}
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn the_last_cache_is_of_a_plausible_size() {
        let Cache { bytes, threads } = last_cache();
        assert!((1..=4096).contains(&threads), "{threads} threads");
        assert!((64 << 10..=4 << 30).contains(&bytes), "{bytes} bytes");
    }

    /// What `run` returns in a thread that flushes subnormal numbers and truncates, where that can
    /// be set.
    pub(crate) fn flushing<R>(run: impl FnOnce() -> R) -> R {
        #[cfg(target_arch = "x86_64")]
        const FLUSHES: Mode = Mode(0x1f80 | 1 << 15 | 3 << 13 | 1 << 6);
        #[cfg(target_arch = "aarch64")]
        const FLUSHES: Mode = Mode(1 << 24 | 3 << 22);
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        const FLUSHES: Mode = Mode::IEEE;
        let _back = ModeGuard(Mode::of_thread());
        FLUSHES.set();
        let result = run();
        assert!(Mode::of_thread() == FLUSHES, "the thread's mode was not set back");
        result
    }

    #[test]
    fn arithmetic_is_as_ieee_whatever_the_threads_mode_is() {
        let mut inside = None;
        flushing(|| as_ieee(|| inside = Some(Mode::of_thread())));
        assert!(inside == Some(Mode::IEEE));
    }
}
