//! Receiving frames from one peer: from its lane to calls of the sink. Knows nothing of sockets or
//! other peers.
//!
//! A peer may write anything anywhere in its lane at any time. So headers and lengths are copied
//! out before they are checked, and payloads other than an operation's data are copied out before
//! they are shown. Data is reduced or copied directly from the lane: a peer that changes it
//! meanwhile only changes what it sent.

use std::time::Instant;

use super::attach::PeerMemory;
use super::entry::{ATTACHED, LENT, MORE, NUMBER_BYTES, PIECE_BYTES, Piece, STAGED, WHOLE};
use super::layout::Lane;
use super::lending::priced_class;
use super::memory::Mapping;
use super::prices::{LanePrices, ReadFrom, ReadPrices};
use super::ring::{CorruptRing, Entry, Reader, SharedMemory};
use super::side_channel::Pools;
use crate::kernels::{Stores, copy};
use crate::tensor::Region;
use crate::transport::{ArrivedPayload, Destination, LossReason, Rank, Sink};
use crate::wire::frame::{Header, Kind};

/// After this many bytes of payload, the other peers get their turn.
const TURN_BYTES: usize = 1 << 20;
/// After this many frames, the other peers get their turn.
const TURN_FRAMES: usize = 64;

/// Where one peer's lane is read.
#[derive(Default)]
pub(super) struct IncomingLane {
    ring: Reader,
    /// The frame of which more pieces are to come.
    partial: Option<PartialFrame>,
    /// Whether something was read for which the peer may wait.
    freed: bool,
    /// Whether the sink did not want the next frame when it was last asked.
    is_left: bool,
    /// Whether the peer took back what it had lent: after that, only its abort or its end counts.
    taken_back: bool,
    prices: ReadPrices,
}

/// A frame of which a part has arrived.
struct PartialFrame {
    header: Header,
    into: PieceTarget,
    have_bytes: usize,
}

/// What an entry brings.
enum Frame {
    /// All of a frame; its payload lies at `place`, which is the piece's if there is one.
    Whole { header: Header, place: usize, piece: Option<Piece> },
    /// The beginning of a frame.
    First { header: Header, place: usize, piece: Piece },
    /// All of a frame; its payload lies in the peer's own memory.
    Lent { header: Header, at: LentAt, piece: Piece },
    /// More of the frame that has begun.
    More { place: usize, piece: Piece },
}

impl Frame {
    /// Whether it counts although what was lent before it is taken back: it says why, or goes where
    /// its beginning went.
    fn is_reason(&self) -> bool {
        match self {
            Frame::Whole { header, .. } | Frame::First { header, .. } => header.kind == Kind::Abort,
            Frame::Lent { .. } => false,
            Frame::More { .. } => true,
        }
    }
}

/// In which memory of the peer a payload lies.
#[derive(Clone, Copy)]
enum LentAt {
    /// The pool of this number, which this process has mapped.
    Pool(u64),
    /// All of its memory, which the system reads.
    Address,
}

/// The memory of a peer that it may lend, and what is needed to use it.
pub(super) struct Lender<'a> {
    pub(super) pools: &'a Pools,
    /// None if this rank may not read it.
    pub(super) memory: Option<&'a PeerMemory>,
    /// What is read from there and not put in place.
    pub(super) scratch: &'a mut Vec<u8>,
}

/// Where a payload in pieces goes.
enum PieceTarget {
    Region(Region, Stores),
    Buffer(Vec<u8>),
    Nowhere,
    /// Nowhere, and the sink was not notified of the frame.
    Skipped,
}

/// The state of a frame in a pool of the peer.
enum PoolRead {
    Taken,
    /// The peer took it back, perhaps while it was read.
    TakenBack,
    /// The pool is not known.
    Missing,
}

/// How far a call of [`IncomingLane::receive`] came.
pub(super) struct ReceiveProgress {
    /// Whether anything came.
    pub(super) moved: bool,
    /// Whether the peer waits for what was read.
    pub(super) is_awaited: bool,
    /// Whether the next frame lies in a pool that is not known.
    pub(super) is_missing: bool,
}

impl IncomingLane {
    /// A lane whose reader begins with what copies cost in an earlier group.
    pub(super) fn new(known: &LanePrices) -> IncomingLane {
        IncomingLane { prices: ReadPrices::of_known(known), ..IncomingLane::default() }
    }

    /// Whether anything is there that was not looked at.
    pub(super) fn is_ready(&self, lane: &Lane, memory: &Mapping) -> bool {
        !self.is_left && self.ring.is_ready(&lane.ring, memory)
    }

    /// Releases memory of operations.
    pub(super) fn abandon(&mut self) {
        if let Some(partial) = &mut self.partial
            && !matches!(partial.into, PieceTarget::Skipped)
        {
            partial.into = PieceTarget::Nowhere;
        }
    }

    /// What an end of the connection without a goodbye means at this point.
    pub(super) fn cut_off(&self) -> LossReason {
        if self.taken_back {
            let why = "it took back the memory of an operation that was under way";
            return LossReason::Died(why.to_owned());
        }
        let place = if self.partial.is_some() { " in the middle of a frame" } else { "" };
        LossReason::Died(format!("its connection ended without a goodbye{place}: closed"))
    }

    /// Reads what is there, for one turn, and notifies `sink`. Frames that the sink does not want
    /// are read only in the `last` call, when the peer has ended.
    pub(super) fn receive(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        mut lender: Lender<'_>,
        (peer, last): (Rank, bool),
        sink: &mut dyn Sink,
    ) -> Result<ReceiveProgress, LossReason> {
        let (mut frames, mut bytes) = (0, 0);
        self.is_left = false;
        while frames < TURN_FRAMES && bytes < TURN_BYTES {
            let Some(entry) = self.ring.next(&lane.ring, memory).map_err(garbled)? else { break };
            let frame = self.frame(lane, memory, entry)?;
            self.taken_back |= matches!(frame, Frame::Lent { .. }) && !self.holds(lane, memory);
            if self.taken_back && !frame.is_reason() {
                bytes += self.skip(lane, memory, frame);
                self.ring.pass(entry);
                frames += 1;
                continue;
            }
            if let Frame::Whole { header, .. }
            | Frame::Lent { header, .. }
            | Frame::First { header, .. } = &frame
                && !last
                && !sink.wants(peer, header)
            {
                self.is_left = true;
                break;
            }
            if let Frame::Lent { header, at, piece } = frame {
                let lent = (at, piece);
                match self.borrow(lane, memory, &mut lender, lent, (peer, &header), sink)? {
                    PoolRead::Taken => {}
                    PoolRead::TakenBack => self.taken_back = true,
                    PoolRead::Missing => {
                        let moved = frames > 0;
                        return Ok(ReceiveProgress { moved, is_awaited: false, is_missing: true });
                    }
                }
                self.freed = true;
                // The peer waits for what it lent: it is told before more is read.
                bytes = TURN_BYTES;
            } else {
                bytes += self.take(lane, memory, frame, peer, sink);
            }
            self.ring.pass(entry);
            frames += 1;
        }
        let mut is_awaited = false;
        if self.freed || self.ring.is_telling_due(&lane.ring) {
            self.freed = false;
            self.ring.tell(&lane.ring, memory);
            memory.fence();
            is_awaited = memory.load(lane.waits) != 0;
        }
        Ok(ReceiveProgress { moved: frames > 0, is_awaited, is_missing: false })
    }

    /// What an entry says, copied out and checked.
    fn frame(&self, lane: &Lane, memory: &Mapping, entry: Entry) -> Result<Frame, LossReason> {
        match (entry.tag, &self.partial) {
            (WHOLE, None) => {
                let header = header(memory, entry.body)?;
                if Header::BYTES + header.payload_bytes as usize > entry.room {
                    return Err(garbled(CorruptRing));
                }
                Ok(Frame::Whole { header, place: entry.body + Header::BYTES, piece: None })
            }
            (STAGED, None) => {
                let (piece, place) = piece(lane, memory, entry)?;
                let header = header(memory, entry.body + PIECE_BYTES)?;
                match u64::from(header.payload_bytes).checked_sub(piece.bytes) {
                    Some(0) => Ok(Frame::Whole { header, place, piece: Some(piece) }),
                    Some(_) if piece.bytes > 0 => Ok(Frame::First { header, place, piece }),
                    _ => Err(garbled(CorruptRing)),
                }
            }
            (LENT, None) => {
                if entry.room < NUMBER_BYTES + PIECE_BYTES + Header::BYTES {
                    return Err(garbled(CorruptRing));
                }
                let mut number = [0; NUMBER_BYTES];
                memory.read(entry.body, &mut number);
                let mut piece = [0; PIECE_BYTES];
                memory.read(entry.body + NUMBER_BYTES, &mut piece);
                let header = header(memory, entry.body + NUMBER_BYTES + PIECE_BYTES)?;
                let (number, piece) = (u64::from_le_bytes(number), Piece::decode(piece));
                match u64::from(header.payload_bytes) == piece.bytes {
                    true => Ok(Frame::Lent { header, at: LentAt::Pool(number), piece }),
                    false => Err(garbled(CorruptRing)),
                }
            }
            (ATTACHED, None) => {
                if entry.room < PIECE_BYTES + Header::BYTES {
                    return Err(garbled(CorruptRing));
                }
                let mut piece = [0; PIECE_BYTES];
                memory.read(entry.body, &mut piece);
                let header = header(memory, entry.body + PIECE_BYTES)?;
                let piece = Piece::decode(piece);
                match u64::from(header.payload_bytes) == piece.bytes {
                    true => Ok(Frame::Lent { header, at: LentAt::Address, piece }),
                    false => Err(garbled(CorruptRing)),
                }
            }
            (MORE, Some(partial)) => {
                let (piece, place) = piece(lane, memory, entry)?;
                let missing = partial.header.payload_bytes as usize - partial.have_bytes;
                match piece.bytes {
                    bytes if bytes > 0 && bytes <= missing as u64 => {
                        Ok(Frame::More { place, piece })
                    }
                    _ => Err(garbled(CorruptRing)),
                }
            }
            _ => Err(garbled(CorruptRing)),
        }
    }

    /// Delivers a frame, or a part of it. Returns how many bytes of payload came with it.
    fn take(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        frame: Frame,
        peer: Rank,
        sink: &mut dyn Sink,
    ) -> usize {
        match frame {
            Frame::Whole { header, place, piece: None } => {
                deliver(memory, place, peer, &header, sink);
                header.payload_bytes as usize
            }
            Frame::Whole { header, place, piece: Some(piece) } => {
                let began = clock(&header);
                deliver(memory, place, peer, &header, sink);
                self.note_price(lane, memory, &header, ReadFrom::Slot, piece, began);
                self.free(lane, memory, piece);
                piece.bytes as usize
            }
            Frame::First { header, place, piece } => {
                let began = clock(&header);
                self.begin(memory, place, piece.bytes as usize, peer, header, sink);
                self.note_price(lane, memory, &header, ReadFrom::Slot, piece, began);
                self.free(lane, memory, piece);
                piece.bytes as usize
            }
            // It is not taken out of the lane.
            Frame::Lent { .. } => 0,
            Frame::More { place, piece } => {
                let header = self.partial.as_ref().map(|partial| partial.header);
                let began = header.and_then(|header| clock(&header));
                self.append_piece(memory, place, piece.bytes as usize, peer, sink);
                if let Some(header) = header {
                    self.note_price(lane, memory, &header, ReadFrom::Slot, piece, began);
                }
                self.free(lane, memory, piece);
                piece.bytes as usize
            }
        }
    }

    /// Hands over a frame whose payload lies in the peer's own memory.
    fn borrow(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        lender: &mut Lender<'_>,
        (at, piece): (LentAt, Piece),
        (peer, header): (Rank, &Header),
        sink: &mut dyn Sink,
    ) -> Result<PoolRead, LossReason> {
        let number = match at {
            LentAt::Pool(number) => number,
            LentAt::Address => {
                return self.attach(lane, memory, lender, piece, (peer, header), sink);
            }
        };
        let bytes = header.payload_bytes as usize;
        let Some(payload) = lender.pools.bytes_at(number, piece.position, bytes) else {
            return Ok(PoolRead::Missing);
        };
        let holds = || self.holds(lane, memory);
        match sink.announced(peer, header) {
            Destination::Into(region, stores) => {
                region.write(|into| copy(into, payload, stores));
                if !holds() {
                    return Ok(PoolRead::TakenBack);
                }
                sink.arrived(peer, header, ArrivedPayload::InPlace);
            }
            Destination::Borrowed if header.kind == Kind::Data => {
                sink.arrived(peer, header, ArrivedPayload::Lent(payload, &holds));
            }
            Destination::Borrowed => {
                let copy = payload.to_vec();
                if !holds() {
                    return Ok(PoolRead::TakenBack);
                }
                sink.arrived(peer, header, ArrivedPayload::Borrowed(&copy));
            }
            Destination::Discard => sink.arrived(peer, header, ArrivedPayload::Discarded),
        }
        Ok(if holds() { PoolRead::Taken } else { PoolRead::TakenBack })
    }

    /// Hands over a frame whose payload the system reads from the peer's memory.
    fn attach(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        lender: &mut Lender<'_>,
        piece: Piece,
        (peer, header): (Rank, &Header),
        sink: &mut dyn Sink,
    ) -> Result<PoolRead, LossReason> {
        let bytes = header.payload_bytes as usize;
        // A rank writes such entries only after this one has said that it can read its memory.
        let Some(theirs) = lender.memory else { return Err(garbled(CorruptRing)) };
        let address = usize::try_from(piece.position).map_err(|_| garbled(CorruptRing))?;
        let began = clock(header);
        let destination = sink.announced(peer, header);
        let read = match &destination {
            Destination::Into(region, _) => region.write(|into| theirs.read(address, into)),
            Destination::Borrowed => {
                lender.scratch.resize(bytes.max(lender.scratch.len()), 0);
                theirs.read(address, &mut lender.scratch[..bytes])
            }
            Destination::Discard => Ok(()),
        };
        if !self.holds(lane, memory) {
            return Ok(PoolRead::TakenBack);
        }
        read.map_err(|error| LossReason::Died(format!("its memory could not be read: {error}")))?;
        let payload = match destination {
            Destination::Into(..) => ArrivedPayload::InPlace,
            Destination::Borrowed => ArrivedPayload::Borrowed(&lender.scratch[..bytes]),
            Destination::Discard => ArrivedPayload::Discarded,
        };
        let is_taken = !matches!(payload, ArrivedPayload::Discarded);
        sink.arrived(peer, header, payload);
        if is_taken {
            self.note_price(lane, memory, header, ReadFrom::Attached, piece, began);
        }
        Ok(PoolRead::Taken)
    }

    /// Notes what it cost to take `piece` of the payload of `header`.
    fn note_price(
        &mut self,
        lane: &Lane,
        memory: &Mapping,
        header: &Header,
        from: ReadFrom,
        piece: Piece,
        began: Option<Instant>,
    ) {
        if let (Some(class), Some(began)) = (priced_class(header), began) {
            let took = began.elapsed().as_nanos() as u64;
            self.prices.note(lane.prices, memory, (class, from), (piece.bytes as usize, took));
        }
    }

    /// Whether what the next entry lends is still there.
    fn holds(&self, lane: &Lane, memory: &Mapping) -> bool {
        // The payload was read before this check, so the check covers it.
        memory.fence();
        memory.load(lane.revoked) <= self.ring.position()
    }

    /// Passes over a frame, or its beginning, without a word; the bytes of payload that came with
    /// it.
    fn skip(&mut self, lane: &Lane, memory: &Mapping, frame: Frame) -> usize {
        self.freed = true;
        let piece = match frame {
            Frame::Whole { piece: None, .. } | Frame::Lent { .. } => return 0,
            Frame::Whole { piece: Some(piece), .. } | Frame::More { piece, .. } => piece,
            Frame::First { header, piece, .. } => {
                let have_bytes = piece.bytes as usize;
                self.partial =
                    Some(PartialFrame { header, into: PieceTarget::Skipped, have_bytes });
                piece
            }
        };
        self.free(lane, memory, piece);
        piece.bytes as usize
    }

    fn free(&mut self, lane: &Lane, memory: &Mapping, piece: Piece) {
        lane.area.free(memory, piece.position, piece.bytes as usize);
        self.freed = true;
    }

    /// Announces a frame that comes in pieces, and takes its first.
    fn begin(
        &mut self,
        memory: &Mapping,
        place: usize,
        bytes: usize,
        peer: Rank,
        header: Header,
        sink: &mut dyn Sink,
    ) {
        let into = match sink.announced(peer, &header) {
            Destination::Into(region, stores) => PieceTarget::Region(region, stores),
            // A header announces no more than `MAX_PAYLOAD_BYTES`.
            Destination::Borrowed => PieceTarget::Buffer(vec![0; header.payload_bytes as usize]),
            Destination::Discard => PieceTarget::Nowhere,
        };
        self.partial = Some(PartialFrame { header, into, have_bytes: 0 });
        self.append_piece(memory, place, bytes, peer, sink);
    }

    /// Takes the next piece of the frame that has begun.
    fn append_piece(
        &mut self,
        memory: &Mapping,
        place: usize,
        bytes: usize,
        peer: Rank,
        sink: &mut dyn Sink,
    ) {
        let Some(mut partial) = self.partial.take() else { return };
        let (header, start) = (partial.header, partial.have_bytes);
        let piece = memory.show(place, bytes);
        match &mut partial.into {
            PieceTarget::Region(region, stores) => {
                region.write(|into| copy(&mut into[start..start + bytes], piece, *stores));
            }
            PieceTarget::Buffer(buffer) => {
                copy(&mut buffer[start..start + bytes], piece, Stores::Cached);
            }
            PieceTarget::Nowhere | PieceTarget::Skipped => {}
        }
        partial.have_bytes += bytes;
        if partial.have_bytes < header.payload_bytes as usize {
            self.partial = Some(partial);
            return;
        }
        match partial.into {
            PieceTarget::Region(..) => sink.arrived(peer, &header, ArrivedPayload::InPlace),
            PieceTarget::Buffer(buffer) => {
                sink.arrived(peer, &header, ArrivedPayload::Borrowed(&buffer))
            }
            PieceTarget::Nowhere => sink.arrived(peer, &header, ArrivedPayload::Discarded),
            PieceTarget::Skipped => {}
        }
    }
}

/// Announces a frame whose payload lies at `place` as a whole, and hands it over.
fn deliver(memory: &Mapping, place: usize, peer: Rank, header: &Header, sink: &mut dyn Sink) {
    let payload = memory.show(place, header.payload_bytes as usize);
    match sink.announced(peer, header) {
        Destination::Into(region, stores) => {
            region.write(|into| copy(into, payload, stores));
            sink.arrived(peer, header, ArrivedPayload::InPlace);
        }
        Destination::Borrowed if matches!(header.kind, Kind::Data | Kind::Message) => {
            sink.arrived(peer, header, ArrivedPayload::Borrowed(payload));
        }
        Destination::Borrowed => {
            // What is decoded must not change meanwhile, whatever the peer does to its memory.
            let copy = payload.to_vec();
            sink.arrived(peer, header, ArrivedPayload::Borrowed(&copy));
        }
        Destination::Discard => sink.arrived(peer, header, ArrivedPayload::Discarded),
    }
}

/// The time, if taking the payload of `header` is to be measured.
fn clock(header: &Header) -> Option<Instant> {
    priced_class(header).map(|_| Instant::now())
}

/// The header at `place`; a goodbye is an end.
fn header(memory: &Mapping, place: usize) -> Result<Header, LossReason> {
    let mut bytes = [0; Header::BYTES];
    memory.read(place, &mut bytes);
    let header = Header::decode(&bytes).map_err(|error| LossReason::Protocol(error.to_string()))?;
    if header.kind == Kind::Goodbye { Err(LossReason::Goodbye) } else { Ok(header) }
}

/// The piece that an entry begins with, and where it lies.
fn piece(lane: &Lane, memory: &Mapping, entry: Entry) -> Result<(Piece, usize), LossReason> {
    let mut bytes = [0; PIECE_BYTES];
    memory.read(entry.body, &mut bytes);
    let piece = Piece::decode(bytes);
    // Checked before it is used as a length in any way.
    let bytes = usize::try_from(piece.bytes).ok().filter(|bytes| *bytes <= lane.area.longest());
    let place = bytes.and_then(|bytes| lane.area.place(piece.position, bytes));
    // The longest entry that begins with a piece; shorter ones end in cells of their own.
    let fits = entry.room >= PIECE_BYTES + if entry.tag == STAGED { Header::BYTES } else { 0 };
    place.filter(|_| fits).map(|place| (piece, place)).ok_or_else(|| garbled(CorruptRing))
}

pub(super) fn garbled(_: CorruptRing) -> LossReason {
    LossReason::Protocol("its entries in shared memory make no sense".to_owned())
}
