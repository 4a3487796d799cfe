//! Frames on their way to one peer: from the queue into this rank's lane to it. Knows nothing of
//! sockets or other peers.

use std::collections::VecDeque;

use super::area::Allocator;
use super::entry::{INLINE, MORE, PIECE_BYTES, Piece, STAGED, WHOLE};
use super::layout::Lane;
use super::memory::Mapping;
use super::ring::{Corrupt, Shared, Writer};
use crate::transport::Payload;
use crate::wire::frame::Header;

/// What waits for room, and where the next entry goes.
#[derive(Default)]
pub(super) struct Outgoing {
    ring: Writer,
    area: Allocator,
    frames: VecDeque<(Header, Payload)>,
    /// Bytes of the first frame's payload that the peer has.
    first_sent: usize,
    /// Whether the peer was told that this side waits for room.
    waits: bool,
    /// What the peer had read when this side looked for room last.
    seen: (u64, u64),
}

impl Outgoing {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Queues a frame behind the others.
    pub(super) fn push(&mut self, header: Header, payload: Payload) {
        self.frames.push_back((header, payload));
    }

    /// Drops everything that waits, and with it every hold on memory of operations.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.first_sent = 0;
    }

    /// Drops the frames of which the peer has nothing yet.
    pub(super) fn keep_started(&mut self) {
        self.frames.truncate(usize::from(self.first_sent > 0));
    }

    /// Lets go of memory of operations.
    pub(super) fn abandon(&mut self) {
        self.keep_started();
        for (_, payload) in &mut self.frames {
            *payload = Payload::Owned(payload.read(<[u8]>::to_vec));
        }
    }

    /// Puts a frame into the lane at once if nothing waits and there is room for all of it; else
    /// gives it back.
    pub(super) fn put_at_once(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        payload: &Payload,
    ) -> Result<bool, Corrupt> {
        if !self.frames.is_empty() || payload.len() > lane.area.longest() {
            return Ok(false);
        }
        Ok(self.put(lane, memory, header, payload, 0)?.is_some())
    }

    /// Puts frames into the lane as far as there is room; calls `sent` for each that is there as a
    /// whole. Whether anything moved.
    pub(super) fn flush(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        mut sent: impl FnMut(Header),
    ) -> Result<bool, Corrupt> {
        let mut moved = self.fill(lane, memory, &mut sent)?;
        if !self.frames.is_empty() {
            if !self.waits {
                // The peer looks at the word after it has made room, and this side looks for room
                // after it has written the word.
                self.waits = true;
                memory.store(lane.waits, 1);
                memory.fence();
            }
            self.seen = seen(lane, memory);
            moved |= self.fill(lane, memory, &mut sent)?;
        }
        if self.frames.is_empty() && self.waits {
            self.waits = false;
            memory.store(lane.waits, 0);
        }
        Ok(moved)
    }

    fn fill(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        sent: &mut impl FnMut(Header),
    ) -> Result<bool, Corrupt> {
        let mut moved = false;
        while let Some((header, payload)) = self.frames.pop_front() {
            let start = self.first_sent;
            let put = self.put(lane, memory, &header, &payload, start);
            match put {
                Ok(Some(bytes)) if start + bytes == payload.len() => {
                    self.first_sent = 0;
                    moved = true;
                    drop(payload);
                    sent(header);
                }
                put => {
                    self.frames.push_front((header, payload));
                    let Some(bytes) = put? else { break };
                    self.first_sent = start + bytes;
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    /// Puts the frame's header and payload, or its payload's next piece, into the lane. The bytes
    /// of payload that went; `None` if there is no room.
    fn put(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        payload: &Payload,
        start: usize,
    ) -> Result<Option<usize>, Corrupt> {
        let rest = payload.len() - start;
        if start == 0 && rest <= INLINE {
            let bytes = Header::BYTES + rest;
            let Some(body) = self.ring.reserve(&lane.ring, memory, bytes)? else {
                return Ok(None);
            };
            memory.fill(body, bytes, |place| {
                place[..Header::BYTES].copy_from_slice(&header.encode());
                payload.read(|payload| place[Header::BYTES..].copy_from_slice(payload));
            });
            self.ring.publish(&lane.ring, memory, WHOLE, bytes);
            return Ok(Some(rest));
        }
        let bytes = rest.min(lane.area.longest());
        let (tag, entry_bytes) = match start {
            0 => (STAGED, PIECE_BYTES + Header::BYTES),
            _ => (MORE, PIECE_BYTES),
        };
        let Some(body) = self.ring.reserve(&lane.ring, memory, entry_bytes)? else {
            return Ok(None);
        };
        let Some(position) = self.area.allocate(&lane.area, memory, bytes)? else {
            return Ok(None);
        };
        // What was just allocated lies inside.
        let Some(place) = lane.area.place(position, bytes) else { return Err(Corrupt) };
        memory.fill(place, bytes, |place| {
            payload.read(|payload| place.copy_from_slice(&payload[start..start + bytes]));
        });
        memory.write(body, &Piece { position, bytes: bytes as u64 }.encode());
        if tag == STAGED {
            memory.write(body + PIECE_BYTES, &header.encode());
        }
        self.ring.publish(&lane.ring, memory, tag, entry_bytes);
        Ok(Some(bytes))
    }

    /// Whether something waits, and the peer has made room since this side looked for it last.
    pub(super) fn may_go_on(&self, lane: &Lane, memory: &Mapping) -> bool {
        !self.frames.is_empty() && self.seen != seen(lane, memory)
    }
}

/// What the peer says that it has read.
fn seen(lane: &Lane, memory: &Mapping) -> (u64, u64) {
    (memory.load(lane.ring.consumed), memory.load(lane.area.freed))
}
