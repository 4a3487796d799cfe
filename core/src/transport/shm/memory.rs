//! Shared memory as the sides of a ring and of a sleep use it. Knows nothing of what lies in it.

use std::sync::atomic::Ordering;

use super::ring::SharedMemory;
use crate::kernels::{Stores, copy};
pub(super) use crate::tensor::shared::{File, Mapping};

impl SharedMemory for Mapping {
    fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    fn swap(&self, at: usize, value: u64) -> u64 {
        self.word(at).swap(value, Ordering::AcqRel)
    }

    fn fence(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    fn expect_write(&self, at: usize) {
        Mapping::expect_write(self, at);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.fill(at, bytes.len(), |place| copy(place, bytes, Stores::Cached));
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        copy(into, self.show(at, into.len()), Stores::Cached);
    }
}
