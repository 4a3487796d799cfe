//! Copies from and to memory that other threads use at the same time: each word is loaded or stored
//! as a whole, and is one of the values that were there. Knows nothing of JavaScript.

#![allow(unsafe_code)]

use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A run of shared memory: whole words, and the bytes around them.
pub(super) struct SharedBytes<'a> {
    first: &'a [AtomicU8],
    words: &'a [AtomicU64],
    last: &'a [AtomicU8],
}

const WORD_BYTES: usize = size_of::<u64>();

impl<'a> SharedBytes<'a> {
    /// The memory from `start` on.
    ///
    /// # Safety
    /// There are `bytes` bytes, which stay for `'a`, and none of this process's Rust code uses them
    /// meanwhile except through atomics.
    pub(super) unsafe fn new(start: *mut u8, bytes: usize) -> SharedBytes<'a> {
        // SAFETY: the caller vouches for the memory; an atomic is as large as its integer.
        let all = unsafe { slice::from_raw_parts(start.cast::<AtomicU8>(), bytes) };
        // SAFETY: eight atomic bytes that are aligned can be one atomic word; which of both they
        // are used as does not change while this is there.
        let (first, words, last) = unsafe { all.align_to::<AtomicU64>() };
        SharedBytes { first, words, last }
    }

    /// Copies it to `into`, which is as long.
    pub(super) fn load(&self, into: &mut [u8]) {
        let (first, rest) = into.split_at_mut(self.first.len());
        let (words, last) = rest.split_at_mut(self.words.len() * WORD_BYTES);
        load_bytes(self.first, first);
        for (from, into) in self.words.iter().zip(words.as_chunks_mut().0) {
            *into = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        load_bytes(self.last, last);
    }

    /// Copies `from`, which is as long, to it.
    pub(super) fn store(&self, from: &[u8]) {
        let (first, rest) = from.split_at(self.first.len());
        let (words, last) = rest.split_at(self.words.len() * WORD_BYTES);
        store_bytes(self.first, first);
        for (into, from) in self.words.iter().zip(words.as_chunks().0) {
            into.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        store_bytes(self.last, last);
    }
}

fn load_bytes(from: &[AtomicU8], into: &mut [u8]) {
    for (from, into) in from.iter().zip(into) {
        *into = from.load(Ordering::Relaxed);
    }
}

fn store_bytes(into: &[AtomicU8], from: &[u8]) {
    for (into, from) in into.iter().zip(from) {
        into.store(*from, Ordering::Relaxed);
    }
}
