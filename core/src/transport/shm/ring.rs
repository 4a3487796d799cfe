//! Memory that processes share, as what is built on it sees it.

/// Words and bytes at offsets of one memory that several processes, or the threads of a model, use.
pub(super) trait Shared {
    /// Reads a word; what was written before it was stored is seen.
    fn load(&self, at: usize) -> u64;
    /// Writes a word, after everything written before.
    fn store(&self, at: usize, value: u64);
    /// Exchanges a word.
    fn swap(&self, at: usize, value: u64) -> u64;
    /// Orders stores before it and loads after it.
    fn fence(&self);
    /// Writes bytes that nobody else reads or writes meanwhile.
    fn write(&self, at: usize, bytes: &[u8]);
    /// Reads bytes that nobody writes meanwhile, unless it breaks the protocol.
    fn read(&self, at: usize, into: &mut [u8]);
}
