//! Reads frames from one socket: as many as there are at a time, and long payloads directly to
//! their destination. Knows nothing of handshakes or other peers.

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::transport::stream::{Inbox, PayloadPlace, SpareBuffers, State};
use crate::transport::{LossReason, Rank, Sink};
use crate::wire::frame::Header;

/// Bytes that one system call reads where small frames are expected.
const BUFFER_BYTES: usize = 64 << 10;
/// If this many bytes of a payload are missing, they are read directly to their destination.
const DIRECT_BYTES: usize = 4096;
/// After this many bytes, the other connections get their turn.
const TURN_BYTES: usize = 4 << 20;

/// Memory that the connections of one transport share, since they are read one at a time.
pub(super) struct Reader {
    buffer: Box<[u8]>,
    spare: SpareBuffers,
}

/// How far a call of [`Inbox::receive`] came.
pub(super) struct ReceiveProgress {
    /// Whether any byte arrived.
    pub(super) moved: bool,
    /// Whether there was no more to read.
    pub(super) drained: bool,
    /// Why nothing more will arrive.
    pub(super) ended: Option<LossReason>,
    /// Whether the peer's side was closed, and all that it had sent before has arrived.
    pub(super) closed: bool,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader { buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), spare: SpareBuffers::default() }
    }

    /// Memory for the last bytes of closed connections, which are dropped.
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

/// How a peer ended that closed its side.
const CLOSED: &str = "its connection ended without a goodbye";

impl Inbox {
    /// Reads what is there and notifies `sink`.
    pub(super) fn receive(
        &mut self,
        socket: impl AsFd,
        reader: &mut Reader,
        peer: Rank,
        sink: &mut dyn Sink,
    ) -> ReceiveProgress {
        let mut total_bytes = 0;
        let (mut all_read, mut closed) = (true, false);
        let ended = loop {
            match self.read(&socket, reader, peer, sink) {
                Ok(Step { bytes: 0, .. }) => {
                    closed = true;
                    break Some(self.cut_off(CLOSED));
                }
                Ok(Step { bytes, drained, ended }) => {
                    total_bytes += bytes;
                    if ended.is_some() {
                        break ended;
                    }
                    if drained || total_bytes >= TURN_BYTES {
                        all_read = drained;
                        break None;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break None,
                Err(error) => break Some(self.cut_off(&format!("its connection broke: {error}"))),
            }
        };
        let moved = total_bytes > 0 || ended.is_some();
        ReceiveProgress { moved, drained: all_read, ended, closed }
    }

    /// One system call.
    fn read(
        &mut self,
        socket: impl AsFd,
        reader: &mut Reader,
        peer: Rank,
        sink: &mut dyn Sink,
    ) -> Result<Step, Errno> {
        match &mut self.state {
            State::Payload { header, into, have_bytes }
                if header.payload_bytes as usize - *have_bytes >= DIRECT_BYTES
                    && !matches!(into, PayloadPlace::Nowhere) =>
            {
                let missing_bytes = header.payload_bytes as usize - *have_bytes;
                let mut next = [0; Header::BYTES];
                let start = *have_bytes;
                let bytes = match into {
                    PayloadPlace::Region(region) => {
                        region.write(|memory| read_two(socket, &mut memory[start..], &mut next))?
                    }
                    PayloadPlace::Buffer(memory) => {
                        read_two(socket, &mut memory[start..], &mut next)?
                    }
                    PayloadPlace::Nowhere => 0,
                };
                *have_bytes += bytes.min(missing_bytes);
                let mut ended = None;
                if bytes >= missing_bytes {
                    self.complete(&mut reader.spare, peer, sink);
                    ended = self
                        .parse(&next[..bytes - missing_bytes], &mut reader.spare, peer, sink)
                        .err();
                }
                Ok(Step { bytes, drained: bytes < missing_bytes + Header::BYTES, ended })
            }
            State::Header { bytes, have_bytes } if self.long => {
                let missing = &mut bytes[*have_bytes..];
                let wanted_bytes = missing.len();
                let bytes = recv(socket, missing, RecvFlags::empty())?.0;
                *have_bytes += bytes;
                let ended = self.begin(&mut reader.spare, peer, sink).err();
                Ok(Step { bytes, drained: bytes < wanted_bytes, ended })
            }
            _ => {
                let mut buffer = std::mem::take(&mut reader.buffer);
                let read = recv(socket, &mut *buffer, RecvFlags::empty());
                let step = read.map(|(bytes, _)| Step {
                    bytes,
                    drained: bytes < buffer.len(),
                    ended: self.parse(&buffer[..bytes], &mut reader.spare, peer, sink).err(),
                });
                reader.buffer = buffer;
                step
            }
        }
    }
}

/// What one system call read.
struct Step {
    bytes: usize,
    /// Whether the socket had less than was asked for.
    drained: bool,
    ended: Option<LossReason>,
}

/// Fills `first`, then `second`, as far as bytes are available.
fn read_two(socket: impl AsFd, first: &mut [u8], second: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::readv(socket, &mut [IoSliceMut::new(first), IoSliceMut::new(second)])
}
