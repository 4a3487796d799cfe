//! Which ranks sleep, so that only those are woken: a word of each rank that all others read.
//! Generic over the memory, so that a model checker can run it; knows nothing of how a rank sleeps.
//!
//! A rank that is about to sleep says so and then looks once more; a rank that has written for it
//! checks afterwards whether it sleeps. The fences in between make sure that at least one of the
//! two sees what the other wrote.

use super::ring::SharedMemory;

const AWAKE: u64 = 0;
const ASLEEP: u64 = 1;

/// Marks the owner of the word at `word` as asleep. It must then check once more whether there is
/// something to do before it sleeps.
pub(super) fn fall_asleep(memory: &impl SharedMemory, word: usize) {
    memory.store(word, ASLEEP);
    memory.fence();
}

/// Whether the owner of the word at `word` has to be woken, after something was written for it.
/// True for only one of several callers.
pub(super) fn must_be_woken(memory: &impl SharedMemory, word: usize) -> bool {
    memory.fence();
    memory.load(word) == ASLEEP && memory.swap(word, AWAKE) == ASLEEP
}
