//! Ordered, reliable chunks of bytes between two ranks, whatever carries them. Knows no frames.

use crate::transport::Lost;

/// Most bytes of one chunk: browsers are slow with larger messages.
pub const CHUNK_BYTES: usize = 64 << 10;

/// How a pipe is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipeState {
    /// Chunks wait until it stands.
    Connecting,
    /// Chunks go through.
    Open,
    /// It is gone for good.
    Lost(Lost),
}

/// Ordered, reliable chunks to and from one peer. Nothing in it blocks.
pub trait Pipe: Send {
    /// How many bytes may be sent now.
    fn room(&self) -> usize;
    /// Sends a chunk of at most [`CHUNK_BYTES`], for which there is room.
    fn send(&mut self, chunk: Vec<u8>);
    /// The next chunk that came.
    fn receive(&mut self) -> Option<Vec<u8>>;
    /// How it is. What came before it was lost is still received.
    fn state(&self) -> PipeState;
    /// Closes it: with a goodbye if `orderly`, else as a process that died.
    fn close(&mut self, orderly: bool);
}

/// Pipes between ranks that cannot reach each other, through the server of a store.
pub trait Relay: Send + Sync {
    /// The number under which others reach this rank; it goes into the card.
    fn number(&self) -> u64;
    /// A pipe to whoever has the number `peer`.
    fn open(&self, peer: u64) -> Box<dyn Pipe>;
    /// The next pipe that somebody opened to this rank, and that one's number.
    fn incoming(&self) -> Option<(u64, Box<dyn Pipe>)>;
}
