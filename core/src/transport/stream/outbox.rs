//! Sending frames over one connection. Knows nothing of sockets, handshakes or other peers.

use std::collections::VecDeque;

use crate::transport::Payload;
use crate::wire::frame::Header;

/// Payloads up to this many bytes are copied after their header, so that several small frames
/// leave in one piece; longer ones are written from where they lie.
const COPIED_BYTES: usize = 4096;
/// No more small frames are gathered once this many bytes are.
const GATHERED_BYTES: usize = 64 << 10;

/// The queue of one peer.
#[derive(Default)]
pub(in crate::transport) struct Outbox {
    frames: VecDeque<Frame>,
    /// Bytes of the first frame that have left.
    first_sent_bytes: usize,
}

struct Frame {
    header: Header,
    payload: Payload,
}

/// How far a call of [`Outbox::flush`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport) struct FlushResult {
    /// Whether any byte left.
    pub(in crate::transport) moved: bool,
    /// Whether there is no room for what is left.
    pub(in crate::transport) blocked: bool,
}

impl Outbox {
    pub(in crate::transport) fn push(&mut self, mut header: Header, payload: Payload) {
        // The length in the header is always that of the payload.
        header.payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.frames.push_back(Frame { header, payload });
    }

    /// Drops everything, and so releases all memory of operations.
    pub(in crate::transport) fn clear(&mut self) {
        self.frames.clear();
        self.first_sent_bytes = 0;
    }

    /// Drops the frames of which nothing has left yet.
    pub(in crate::transport) fn keep_started(&mut self) {
        self.frames.truncate(usize::from(self.first_sent_bytes > 0));
    }

    /// Releases memory of operations.
    pub(in crate::transport) fn abandon(&mut self) {
        self.keep_started();
        for frame in &mut self.frames {
            frame.payload = Payload::Owned(frame.payload.read(<[u8]>::to_vec));
        }
    }

    /// Writes until the queue is empty or `write` takes less than it is offered; calls `sent` for
    /// each frame that left. `write` gets one or two pieces that are not empty and returns how many
    /// bytes it took, from the front.
    pub(in crate::transport) fn flush<E>(
        &mut self,
        gathered: &mut Vec<u8>,
        mut write: impl FnMut(&[&[u8]]) -> Result<usize, E>,
        mut sent: impl FnMut(Header),
    ) -> Result<FlushResult, E> {
        let mut moved = false;
        while !self.frames.is_empty() {
            let (bytes, offered_bytes) = self.offer(gathered, &mut write)?;
            moved |= bytes > 0;
            self.consume(bytes, &mut sent);
            if bytes < offered_bytes {
                return Ok(FlushResult { moved, blocked: true });
            }
        }
        Ok(FlushResult { moved, blocked: false })
    }

    /// Offers small frames from the front, and the first long payload. The bytes that left and the
    /// bytes that were offered.
    fn offer<E>(
        &self,
        gathered: &mut Vec<u8>,
        write: &mut impl FnMut(&[&[u8]]) -> Result<usize, E>,
    ) -> Result<(usize, usize), E> {
        gathered.clear();
        let mut skipped_bytes = self.first_sent_bytes;
        for frame in &self.frames {
            if skipped_bytes < Header::BYTES {
                gathered.extend_from_slice(&frame.header.encode()[skipped_bytes..]);
                skipped_bytes = 0;
            } else {
                skipped_bytes -= Header::BYTES;
            }
            if frame.payload.len() - skipped_bytes > COPIED_BYTES {
                return frame.payload.read(|payload| {
                    let payload = &payload[skipped_bytes..];
                    let pieces = [&gathered[..], payload];
                    let pieces = if gathered.is_empty() { &pieces[1..] } else { &pieces[..] };
                    Ok((write(pieces)?, gathered.len() + payload.len()))
                });
            }
            frame.payload.read(|payload| gathered.extend_from_slice(&payload[skipped_bytes..]));
            skipped_bytes = 0;
            if gathered.len() >= GATHERED_BYTES {
                break;
            }
        }
        Ok((write(&[&gathered[..]])?, gathered.len()))
    }

    /// Takes `bytes` that left from the front of the queue.
    fn consume(&mut self, mut bytes: usize, sent: &mut impl FnMut(Header)) {
        while let Some(frame) = self.frames.front() {
            let left_bytes = Header::BYTES + frame.payload.len() - self.first_sent_bytes;
            if bytes < left_bytes {
                self.first_sent_bytes += bytes;
                return;
            }
            bytes -= left_bytes;
            self.first_sent_bytes = 0;
            if let Some(Frame { header, payload }) = self.frames.pop_front() {
                drop(payload);
                sent(header);
            }
        }
    }
}
