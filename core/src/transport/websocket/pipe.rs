//! An ordered, reliable pipe of chunks between two ranks, whatever carries it. Knows nothing of
//! what the chunks say.

use crate::clock::Instant;
use bytes::Bytes;

use crate::transport::{Interest, LossReason};
use crate::wire::channel::RelayHeader;
use crate::wire::frame::Header;
use crate::wire::session::HEADER_BYTES;

/// Bytes of the chunks in which a long stream is sent: with the headers of sessions and relays, a
/// WebSocket message of 64 KiB. Browsers cut longer messages in two, which costs them a third of
/// their throughput.
pub(super) const CHUNK_BYTES: usize = (64 << 10) - HEADER_BYTES - RelayHeader::BYTES;

/// Most bytes of one chunk. A frame of 64 KiB fits if nothing follows it, for one more chunk with
/// its last bytes would cost a browser more than a long one.
pub const MAX_CHUNK_BYTES: usize = (64 << 10) + Header::BYTES;

/// The state of a pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipeState {
    /// Nothing can be sent yet.
    Connecting,
    /// Chunks may be sent. A pipe stays open while a broken connection is being resumed.
    Open,
    /// It is over: [`LossReason::Goodbye`] if the other side closed it cleanly.
    Lost(LossReason),
}

/// A pipe of chunks. Nothing in it blocks. Dropping it looks like a crash to the other side:
/// [`Pipe::close`] it first.
pub trait Pipe: Send {
    /// Moves what can be moved at `now`; whether anything moved.
    fn advance(&mut self, now: Instant) -> bool;
    /// Its state. Chunks that arrived before a loss can still be taken.
    fn state(&self) -> PipeState;
    /// Bytes for which there is room now, 0 unless it is open: what the other side has not taken
    /// yet is bounded, by more than a chunk: there is room for one when what came before is taken.
    fn room(&self) -> usize;
    /// Sends a chunk that consists of `parts`, in order: at most [`MAX_CHUNK_BYTES`] and
    /// [`Pipe::room`] together. The parts are copied.
    fn send(&mut self, parts: &[&[u8]]);
    /// Takes the next chunk that arrived, which makes room for the other side.
    fn receive(&mut self) -> Option<Bytes>;
    /// Closes it, after what was sent; the other side learns immediately that it is over, and
    /// whether that is in order. Continues in [`Pipe::advance`] until [`Pipe::is_flushed`].
    fn close(&mut self, orderly: bool);
    /// Whether nothing that was sent, the closing included, waits in this process.
    fn is_flushed(&self) -> bool;
    /// What a thread may wait for until [`Pipe::advance`] is worth calling.
    fn interests(&self, interests: &mut Vec<Interest>) {
        let _ = interests;
    }
    /// When [`Pipe::advance`] must be called even if nothing happened.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// Carries pipes between ranks that cannot reach each other: the store's server.
pub trait Relay: Send + Sync {
    /// This process's number at the server; other ranks read it in the card.
    fn number(&self) -> u64;
    /// This side's end of the pipe `id` to the process with the number `peer`. Both sides open it
    /// by the same `id` (random, known to both ranks only), in any order and whether or not the
    /// other ever does: nobody is told of the opening. What comes before this side opened it is
    /// kept, within the pipe's window.
    fn open(&self, peer: u64, id: u64) -> Box<dyn Pipe>;
}

/// Accepts pipes from ranks that dial this one.
pub trait Acceptor: Send {
    /// Moves what can be moved at `now`; whether anything moved.
    fn advance(&mut self, now: Instant) -> bool;
    /// Takes the next pipe. Its other end may be anybody.
    fn accept(&mut self) -> Option<Box<dyn Pipe>>;
    /// What a thread may wait for until [`Acceptor::advance`] is worth calling.
    fn interests(&self, interests: &mut Vec<Interest>);
    /// When [`Acceptor::advance`] must be called even if nothing happened.
    fn deadline(&self) -> Option<Instant>;
}
