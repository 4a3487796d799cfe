//! Frames on their way to one peer: from the queue into this rank's lane to it. Knows nothing of
//! sockets or other peers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::area::Allocator;
use super::attach::LendableMemory;
use super::entry::{
    ATTACHED, INLINE_BYTES, LENT, MORE, NUMBER_BYTES, PIECE_BYTES, Piece, STAGED, WHOLE,
};
use super::layout::Lane;
use super::lending::{LendingThresholds, priced_class};
use super::memory::Mapping;
use super::prices::{LanePrices, ReadFrom, WritePrices};
use super::ring::{CorruptRing, SharedMemory, Writer};
use crate::kernels::{Stores, copy};
use crate::tensor::shared::{Pool, PoolOffset, find};
use crate::transport::Payload;
use crate::wire::frame::Header;

/// Bytes of the entry of a payload, or the first piece of it, in the area.
const STAGED_BYTES: usize = PIECE_BYTES + Header::BYTES;

/// A payload that the peer waits for and copies is divided into about this many pieces in the area,
const PIECES_PER_PAYLOAD: usize = 8;
/// all of them but the last a multiple of this many bytes.
const PIECE_STEP_BYTES: usize = 8 << 10;

/// Announces a pool to the peer, which is to read from it; false if that is not possible now.
pub(super) type AnnouncePool<'a> = &'a mut dyn FnMut(&Arc<Pool>) -> bool;

/// What waits for room, and where the next entry goes.
#[derive(Default)]
pub(in crate::transport) struct OutgoingLane {
    ring: Writer,
    area: Allocator,
    frames: VecDeque<(Header, Payload)>,
    /// Bytes of the first frame's payload that the peer has.
    first_sent: usize,
    /// Frames that the peer has not read yet from this side's own memory, with what holds the
    /// memory, and frames after such ones, which leave in order: where the ring stood then.
    unread: VecDeque<(u64, Header, Option<Payload>)>,
    /// Whether the peer was told that this side waits for it.
    waits: bool,
    /// What the peer had read when this side looked for room last.
    seen: (u64, u64),
    lending: LendingThresholds,
    prices: WritePrices,
    /// How the next payload is to be read, if that was decided and there was no room: a payload
    /// counts once.
    decided: Option<ReadFrom>,
    lendable: LendableMemory,
}

/// The result of trying to put a frame into the lane.
pub(super) enum PutOutcome {
    /// It has left.
    Left,
    /// The peer has it, and is still to read its payload from this side's own memory.
    Lent,
    /// There is no room.
    NoRoom,
}

impl OutgoingLane {
    /// An empty lane, whose payloads are lent as `lending` says.
    pub(super) fn new(lending: LendingThresholds) -> OutgoingLane {
        OutgoingLane { lending, ..OutgoingLane::default() }
    }

    /// Begins with what copies cost in an earlier group, before the peer can read anything.
    pub(super) fn begin_with(&mut self, known: &LanePrices, lane: &Lane, memory: &Mapping) {
        self.prices.begin_with(known, lane.prices, memory);
    }

    /// What copies cost, as far as that is known.
    pub(super) fn known_prices(&self, lane: &Lane, memory: &Mapping) -> LanePrices {
        self.prices.known(lane.prices, memory)
    }

    /// Whether nothing waits for room.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether nothing waits for room, nor for the peer to read it.
    pub(super) fn is_done(&self) -> bool {
        self.frames.is_empty() && self.unread.is_empty()
    }

    /// Gives the memory of the area back to the system, if nothing lies there.
    pub(super) fn release_area(&mut self, lane: &Lane, memory: &Mapping) {
        if self.is_done() && self.area.take_unused(&lane.area, memory) {
            // It is only kept where that fails.
            let _ = memory.forget(lane.area.start, lane.area.bytes as usize);
        }
    }

    /// Queues a frame after the others.
    pub(super) fn push(&mut self, header: Header, payload: Payload) {
        self.frames.push_back((header, payload));
    }

    /// Drops everything that waits, and with it every hold on memory of operations.
    pub(super) fn clear(&mut self, lane: &Lane, memory: &Mapping) {
        self.frames.clear();
        self.first_sent = 0;
        self.decided = None;
        self.take_back(lane, memory);
    }

    /// Takes back what the peer has not read yet.
    pub(super) fn take_back(&mut self, lane: &Lane, memory: &Mapping) {
        if !self.unread.is_empty() {
            memory.store(lane.revoked, self.ring.position());
            // The memory may be written to only after the peer can know.
            memory.fence();
            self.unread.clear();
        }
    }

    /// Drops the frames of which the peer has nothing yet.
    pub(super) fn keep_started(&mut self) {
        self.frames.truncate(usize::from(self.first_sent > 0));
        self.decided = None;
    }

    /// Releases memory of operations.
    pub(super) fn abandon(&mut self, lane: &Lane, memory: &Mapping) {
        self.take_back(lane, memory);
        self.keep_started();
        for (_, payload) in &mut self.frames {
            *payload = Payload::Owned(payload.read(<[u8]>::to_vec));
        }
    }

    /// Puts a frame into the lane immediately if nothing waits and there is room for all of it.
    pub(super) fn try_put(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        payload: &Payload,
        announce: AnnouncePool<'_>,
    ) -> Result<PutOutcome, CorruptRing> {
        if !self.frames.is_empty() {
            return Ok(PutOutcome::NoRoom);
        }
        let is_attached = self.is_attached(lane, memory, header, payload);
        if !is_attached && payload.len() > piece_bytes(lane, header, payload.len()) {
            return Ok(PutOutcome::NoRoom);
        }
        let rest = FrameRest { header, payload, start: 0, is_attached };
        let Some(put) = self.put(lane, memory, rest, announce)? else {
            return Ok(PutOutcome::NoRoom);
        };
        self.decided = None;
        Ok(match self.has_left(lane, memory, header, payload, put.is_lent) {
            true => PutOutcome::Left,
            false => PutOutcome::Lent,
        })
    }

    /// Puts a frame with a short payload into the lane immediately if nothing waits, nothing is
    /// lent, and there is room for all of it: whether it has left.
    pub(super) fn put_short(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        payload: &[u8],
    ) -> Result<bool, CorruptRing> {
        if !self.is_done() {
            return Ok(false);
        }
        if payload.len() <= INLINE_BYTES {
            let write = |place: &mut [u8]| place.copy_from_slice(payload);
            return Ok(self.put_inline(lane, memory, header, payload.len(), write)?.is_some());
        }
        let longest = piece_bytes(lane, header, payload.len());
        let entries = payload.len().div_ceil(longest);
        let has_room = self.area.has_room(&lane.area, memory, payload.len(), longest)
            && self.ring.has_room(&lane.ring, memory, entries, STAGED_BYTES)?;
        if !has_room {
            return Ok(false);
        }
        for (index, piece) in payload.chunks(longest).enumerate() {
            let write = |place: &mut [u8]| copy(place, piece, Stores::Cached);
            let at = (index * longest, piece.len());
            // There is room; a peer that says now that there is not has no business to.
            self.put_piece(lane, memory, header, at, write)?.ok_or(CorruptRing)?;
        }
        Ok(true)
    }

    /// Puts frames into the lane as far as there is room; calls `sent` for each that has left.
    /// Whether anything moved.
    pub(super) fn flush(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        announce: AnnouncePool<'_>,
        mut sent: impl FnMut(Header),
    ) -> Result<bool, CorruptRing> {
        let mut moved = self.fill(lane, memory, announce, &mut sent)?;
        if !self.frames.is_empty() {
            if !self.waits {
                self.say_waiting(lane, memory, true);
                // The peer looks at the word after it has made room, and this side looks for room
                // after it has written the word.
                memory.fence();
            }
            self.seen = seen(lane, memory);
            moved |= self.fill(lane, memory, announce, &mut sent)?;
        }
        if self.is_done() && self.waits {
            self.say_waiting(lane, memory, false);
        }
        Ok(moved)
    }

    /// Calls `sent` for each frame that has left because the peer has read what was lent. Whether
    /// there was any.
    pub(super) fn reap(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        mut sent: impl FnMut(Header),
    ) -> Result<bool, CorruptRing> {
        if self.unread.is_empty() {
            return Ok(false);
        }
        if self.frames.is_empty() {
            self.seen = seen(lane, memory);
        }
        let consumed = self.ring.consumed(&lane.ring, memory)?;
        let mut moved = false;
        // What is not lent is in the lane already and here for the order alone: the peer need not
        // tell that it has read it.
        let is_free =
            |(at, _, held): &(u64, Header, Option<Payload>)| held.is_none() || *at <= consumed;
        while self.unread.front().is_some_and(is_free) {
            moved = true;
            if let Some((_, header, payload)) = self.unread.pop_front() {
                drop(payload);
                sent(header);
            }
        }
        if self.is_done() && self.waits {
            self.say_waiting(lane, memory, false);
        }
        Ok(moved)
    }

    fn say_waiting(&mut self, lane: &Lane, memory: &Mapping, waits: bool) {
        self.waits = waits;
        memory.store(lane.waits, u64::from(waits));
    }

    /// Whether a frame that is in the lane as a whole has left: frames leave in order, and those
    /// whose payload is lent when the peer has read it.
    fn has_left(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        payload: &Payload,
        is_lent: bool,
    ) -> bool {
        if !is_lent && self.unread.is_empty() {
            return true;
        }
        let held = is_lent.then(|| payload.clone());
        self.unread.push_back((self.ring.position(), *header, held));
        if !self.waits {
            self.say_waiting(lane, memory, true);
            memory.fence();
        }
        false
    }

    fn fill(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        announce: AnnouncePool<'_>,
        sent: &mut impl FnMut(Header),
    ) -> Result<bool, CorruptRing> {
        let mut moved = false;
        while let Some((header, payload)) = self.frames.pop_front() {
            let start = self.first_sent;
            let is_attached = start == 0 && self.is_attached(lane, memory, &header, &payload);
            let rest = FrameRest { header: &header, payload: &payload, start, is_attached };
            let put = self.put(lane, memory, rest, announce);
            if let Ok(Some(_)) = put {
                self.decided = None;
            }
            match put {
                Ok(Some(PutResult { bytes, is_lent })) if start + bytes == payload.len() => {
                    self.first_sent = 0;
                    moved = true;
                    if self.has_left(lane, memory, &header, &payload, is_lent) {
                        drop(payload);
                        sent(header);
                    }
                }
                put => {
                    self.frames.push_front((header, payload));
                    let Some(PutResult { bytes, .. }) = put? else { break };
                    self.first_sent = start + bytes;
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    /// Puts the frame's header and payload, or its payload's next piece, into the lane. `None` if
    /// there is no room.
    fn put(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        rest: FrameRest<'_>,
        announce: AnnouncePool<'_>,
    ) -> Result<Option<PutResult>, CorruptRing> {
        let FrameRest { header, payload, start, is_attached } = rest;
        let bytes = payload.len() - start;
        if start == 0 && bytes <= INLINE_BYTES {
            let write = |place: &mut [u8]| payload.read(|payload| place.copy_from_slice(payload));
            return self.put_inline(lane, memory, header, bytes, write);
        }
        if start == 0
            && self.lending.lends_pooled(bytes)
            && let Payload::Region(region) = payload
            && !region.is_on_loan()
            && let Some(lent) = find(region.address(), bytes)
            && announce(&lent.pool)
        {
            return self.put_lent(lane, memory, header, &lent);
        }
        if is_attached && let Payload::Region(region) = payload {
            return self.put_attached(lane, memory, header, region.address());
        }
        self.put_staged(lane, memory, rest)
    }

    fn put_inline(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        payload_bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<Option<PutResult>, CorruptRing> {
        let bytes = Header::BYTES + payload_bytes;
        let Some(body) = self.ring.reserve(&lane.ring, memory, bytes)? else { return Ok(None) };
        memory.fill(body, bytes, |place| {
            place[..Header::BYTES].copy_from_slice(&header.encode());
            write(&mut place[Header::BYTES..]);
        });
        self.ring.publish(&lane.ring, memory, WHOLE, bytes);
        Ok(Some(PutResult { bytes: payload_bytes, is_lent: false }))
    }

    fn put_lent(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        lent: &PoolOffset,
    ) -> Result<Option<PutResult>, CorruptRing> {
        let entry_bytes = NUMBER_BYTES + PIECE_BYTES + Header::BYTES;
        let Some(body) = self.ring.reserve(&lane.ring, memory, entry_bytes)? else {
            return Ok(None);
        };
        let bytes = header.payload_bytes as usize;
        let piece = Piece { position: lent.at as u64, bytes: bytes as u64 };
        memory.write(body, &lent.pool.number().to_le_bytes());
        memory.write(body + NUMBER_BYTES, &piece.encode());
        memory.write(body + NUMBER_BYTES + PIECE_BYTES, &header.encode());
        self.ring.publish(&lane.ring, memory, LENT, entry_bytes);
        Ok(Some(PutResult { bytes, is_lent: true }))
    }

    /// Whether the system is to read the payload from this side's own memory for the peer, wherever
    /// it lies there.
    fn is_attached(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        payload: &Payload,
    ) -> bool {
        let Payload::Region(region) = payload else { return false };
        if region.is_on_loan()
            || !self.lending.lends_attached(header, payload.len())
            || memory.load(lane.attached) == 0
            || !self.lendable.contains(region.address(), region.len())
        {
            return false;
        }
        if !self.lending.is_priced() {
            return true;
        }
        let Some(class) = priced_class(header) else { return false };
        let decide = || match self.prices.prefers_attached(lane.prices, memory, class) {
            true => ReadFrom::Attached,
            false => ReadFrom::Slot,
        };
        *self.decided.get_or_insert_with(decide) == ReadFrom::Attached
    }

    fn put_attached(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        address: usize,
    ) -> Result<Option<PutResult>, CorruptRing> {
        let entry_bytes = PIECE_BYTES + Header::BYTES;
        let Some(body) = self.ring.reserve(&lane.ring, memory, entry_bytes)? else {
            return Ok(None);
        };
        let bytes = header.payload_bytes as usize;
        let piece = Piece { position: address as u64, bytes: bytes as u64 };
        memory.write(body, &piece.encode());
        memory.write(body + PIECE_BYTES, &header.encode());
        self.ring.publish(&lane.ring, memory, ATTACHED, entry_bytes);
        Ok(Some(PutResult { bytes, is_lent: true }))
    }

    fn put_staged(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        FrameRest { header, payload, start, .. }: FrameRest<'_>,
    ) -> Result<Option<PutResult>, CorruptRing> {
        let bytes = (payload.len() - start).min(piece_bytes(lane, header, payload.len()));
        self.put_piece(lane, memory, header, (start, bytes), |place| {
            let from = |payload: &[u8]| copy(place, &payload[start..start + bytes], Stores::Cached);
            payload.read(from);
        })
    }

    /// Puts the `bytes` bytes of a payload that begin at `start`, which `write` writes, into the
    /// area. `None` if there is no room.
    fn put_piece(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        (start, bytes): (usize, usize),
        write: impl FnOnce(&mut [u8]),
    ) -> Result<Option<PutResult>, CorruptRing> {
        let (tag, entry_bytes) = match start {
            0 => (STAGED, STAGED_BYTES),
            _ => (MORE, PIECE_BYTES),
        };
        let Some(body) = self.ring.reserve(&lane.ring, memory, entry_bytes)? else {
            return Ok(None);
        };
        let Some(position) = self.area.allocate(&lane.area, memory, bytes)? else {
            return Ok(None);
        };
        // What was just allocated lies inside.
        let Some(place) = lane.area.place(position, bytes) else { return Err(CorruptRing) };
        let class = priced_class(header);
        let began = class.map(|_| Instant::now());
        memory.fill(place, bytes, write);
        if let (Some(class), Some(began)) = (class, began) {
            self.prices.note(class, bytes, began.elapsed().as_nanos() as u64);
        }
        memory.write(body, &Piece { position, bytes: bytes as u64 }.encode());
        if tag == STAGED {
            memory.write(body + PIECE_BYTES, &header.encode());
        }
        self.ring.publish(&lane.ring, memory, tag, entry_bytes);
        Ok(Some(PutResult { bytes, is_lent: false }))
    }

    /// Whether something waits, and the peer has read more since this side looked last.
    pub(super) fn may_proceed(&self, lane: &Lane, memory: &Mapping) -> bool {
        !self.is_done() && self.seen != seen(lane, memory)
    }
}

/// The longest piece of a payload of `bytes` bytes. A peer that waits copies one piece while this
/// side writes the next; what it reduces must lie there as a whole.
fn piece_bytes(lane: &Lane, header: &Header, bytes: usize) -> usize {
    let longest = lane.area.longest();
    match header.is_awaited_copy() {
        true => (bytes / PIECES_PER_PAYLOAD)
            .next_multiple_of(PIECE_STEP_BYTES)
            .clamp(PIECE_STEP_BYTES, longest),
        false => longest,
    }
}

/// What is to go into the lane of a frame: all of it, or its payload from `start` on.
#[derive(Clone, Copy)]
struct FrameRest<'a> {
    header: &'a Header,
    payload: &'a Payload,
    start: usize,
    /// Whether the system is to read it from this side's own memory, if it lies in no pool.
    is_attached: bool,
}

/// What went into the lane.
struct PutResult {
    /// Bytes of payload.
    bytes: usize,
    /// Whether they lie in this side's own memory.
    is_lent: bool,
}

/// What the peer says that it has read.
fn seen(lane: &Lane, memory: &Mapping) -> (u64, u64) {
    (memory.load(lane.ring.consumed), memory.load(lane.area.freed))
}
