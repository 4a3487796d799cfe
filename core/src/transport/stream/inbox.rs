//! Receiving frames from one connection: from bytes in any pieces to calls of the sink. Knows
//! nothing of sockets, handshakes or other peers.

use crate::tensor::Region;
use crate::transport::{ArrivedPayload, Destination, LossReason, Rank, Sink};
use crate::wire::frame::{Header, Kind};

/// After a payload of this length, the next header is read alone, so that the payload after it can
/// be read directly to its destination, too.
const LONG_BYTES: usize = 32 << 10;
/// Most buffers that are kept for payloads that the sink only reads.
const SPARE_BUFFERS: usize = 4;

/// Buffers that the connections of one transport share, since they are read one at a time.
#[derive(Default)]
pub(in crate::transport) struct SpareBuffers {
    buffers: Vec<Vec<u8>>,
}

/// Where one connection is in the sequence of frames.
pub(in crate::transport) struct Inbox {
    pub(in crate::transport) state: State,
    /// Whether the last payload was long.
    pub(in crate::transport) long: bool,
}

/// What the next byte belongs to.
pub(in crate::transport) enum State {
    /// A header.
    Header { bytes: [u8; Header::BYTES], have_bytes: usize },
    /// The payload of a frame that was announced.
    Payload { header: Header, into: PayloadPlace, have_bytes: usize },
}

/// Where the payload of a frame goes.
pub(in crate::transport) enum PayloadPlace {
    /// Into its memory.
    Region(Region),
    /// Into a buffer that is shown when it is full.
    Buffer(Vec<u8>),
    /// Nowhere.
    Nowhere,
}

impl SpareBuffers {
    /// A buffer of `bytes` with arbitrary content.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }

    fn give_back(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < SPARE_BUFFERS {
            self.buffers.push(buffer);
        }
    }
}

impl Inbox {
    pub(in crate::transport) fn new() -> Inbox {
        Inbox { state: State::expecting(), long: false }
    }

    /// Releases memory of operations.
    pub(in crate::transport) fn abandon(&mut self) {
        if let State::Payload { into, .. } = &mut self.state {
            *into = PayloadPlace::Nowhere;
        }
    }

    /// What an end without a goodbye means at this point; `how` says how the peer's side ended.
    pub(in crate::transport) fn cut_off(&self, how: &str) -> LossReason {
        let between = matches!(self.state, State::Header { have_bytes: 0, .. });
        let place = if between { "" } else { ", in the middle of a frame" };
        LossReason::Died(format!("{how}{place}"))
    }

    /// Takes in `bytes`, which may hold the rest of a frame, several frames and the start of one.
    pub(in crate::transport) fn parse(
        &mut self,
        mut bytes: &[u8],
        spare: &mut SpareBuffers,
        peer: Rank,
        sink: &mut dyn Sink,
    ) -> Result<(), LossReason> {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Header { bytes: header, have_bytes } => {
                    let taken_bytes = bytes.len().min(Header::BYTES - *have_bytes);
                    let end = *have_bytes + taken_bytes;
                    header[*have_bytes..end].copy_from_slice(&bytes[..taken_bytes]);
                    *have_bytes = end;
                    bytes = &bytes[taken_bytes..];
                    let shown_bytes = self.begin_with(bytes, spare, peer, sink)?;
                    bytes = &bytes[shown_bytes..];
                }
                State::Payload { header, into, have_bytes } => {
                    let missing_bytes = header.payload_bytes as usize - *have_bytes;
                    let taken_bytes = bytes.len().min(missing_bytes);
                    into.put(*have_bytes, &bytes[..taken_bytes]);
                    *have_bytes += taken_bytes;
                    bytes = &bytes[taken_bytes..];
                    if taken_bytes == missing_bytes {
                        self.complete(spare, peer, sink);
                    }
                }
            }
        }
        Ok(())
    }

    pub(in crate::transport) fn begin(
        &mut self,
        spare: &mut SpareBuffers,
        peer: Rank,
        sink: &mut dyn Sink,
    ) -> Result<(), LossReason> {
        self.begin_with(&[], spare, peer, sink).map(|_| ())
    }

    /// Announces the frame if its header is complete. A payload that lies in `bytes` as a whole and
    /// is only to be shown is shown there; the bytes that were used up by that.
    fn begin_with(
        &mut self,
        bytes: &[u8],
        spare: &mut SpareBuffers,
        peer: Rank,
        sink: &mut dyn Sink,
    ) -> Result<usize, LossReason> {
        let State::Header { bytes: encoded, have_bytes: Header::BYTES } = &self.state else {
            return Ok(0);
        };
        let header =
            Header::decode(encoded).map_err(|error| LossReason::Protocol(error.to_string()))?;
        self.state = State::expecting();
        if header.kind == Kind::Goodbye {
            return Err(LossReason::Goodbye);
        }
        let payload_bytes = header.payload_bytes as usize;
        self.long = payload_bytes >= LONG_BYTES;
        let into = match sink.announced(peer, &header) {
            Destination::Into(region, _) if region.len() != payload_bytes => {
                let bytes = region.len();
                let why = format!("{payload_bytes} bytes came for {bytes} bytes of memory");
                return Err(LossReason::Protocol(why));
            }
            Destination::Into(region, _) => PayloadPlace::Region(region),
            Destination::Borrowed if bytes.len() >= payload_bytes => {
                sink.arrived(peer, &header, ArrivedPayload::Borrowed(&bytes[..payload_bytes]));
                return Ok(payload_bytes);
            }
            Destination::Borrowed => PayloadPlace::Buffer(spare.take(payload_bytes)),
            Destination::Discard => PayloadPlace::Nowhere,
        };
        self.state = State::Payload { header, into, have_bytes: 0 };
        if payload_bytes == 0 {
            self.complete(spare, peer, sink);
        }
        Ok(0)
    }

    /// Notifies `sink` that the payload is complete.
    pub(in crate::transport) fn complete(
        &mut self,
        spare: &mut SpareBuffers,
        peer: Rank,
        sink: &mut dyn Sink,
    ) {
        match std::mem::replace(&mut self.state, State::expecting()) {
            State::Payload { header, into, .. } => match into {
                PayloadPlace::Region(region) => {
                    drop(region);
                    sink.arrived(peer, &header, ArrivedPayload::InPlace);
                }
                PayloadPlace::Buffer(buffer) => {
                    sink.arrived(peer, &header, ArrivedPayload::Borrowed(&buffer));
                    spare.give_back(buffer);
                }
                PayloadPlace::Nowhere => sink.arrived(peer, &header, ArrivedPayload::Discarded),
            },
            header @ State::Header { .. } => self.state = header,
        }
    }
}

impl State {
    fn expecting() -> State {
        State::Header { bytes: [0; Header::BYTES], have_bytes: 0 }
    }
}

impl PayloadPlace {
    fn put(&mut self, start: usize, bytes: &[u8]) {
        let range = start..start + bytes.len();
        match self {
            PayloadPlace::Region(region) => {
                region.write(|memory| memory[range].copy_from_slice(bytes))
            }
            PayloadPlace::Buffer(memory) => memory[range].copy_from_slice(bytes),
            PayloadPlace::Nowhere => {}
        }
    }
}
