//! Frames on their way in through one connection: from bytes in any pieces to calls of the sink.
//! Knows nothing of handshakes or other peers.

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::tensor::Region;
use crate::transport::{Arrived, Destination, Lost, Rank, Sink};
use crate::wire::frame::{Header, Kind};

/// Bytes that one system call reads where small frames are expected.
const BUFFER_BYTES: usize = 64 << 10;
/// From this many missing bytes of a payload on, they are read straight to their place.
const DIRECT_BYTES: usize = 4096;
/// After a payload this long, the next header is read alone, so that the payload behind it can go
/// straight to its place too.
const LONG_BYTES: usize = 32 << 10;
/// A connection lets others have their turn after this many bytes.
const TURN_BYTES: usize = 4 << 20;
/// Most buffers that are kept for payloads that are shown and not kept.
const SPARE_BUFFERS: usize = 4;

/// Memory that the connections of one transport share, since they are read one at a time.
pub(super) struct Reader {
    buffer: Box<[u8]>,
    spare: Vec<Vec<u8>>,
}

/// Where one connection is in the sequence of frames.
pub(super) struct Inbox {
    state: State,
    /// Whether the last payload was long.
    long: bool,
}

enum State {
    Header { bytes: [u8; Header::BYTES], have_bytes: usize },
    Payload { header: Header, into: Into, have_bytes: usize },
}

enum Into {
    Region(Region),
    Buffer(Vec<u8>),
    Nowhere,
}

/// How far a call of [`Inbox::receive`] came.
pub(super) struct Received {
    /// Whether any byte came.
    pub(super) moved: bool,
    /// Why nothing will come any more.
    pub(super) ended: Option<Lost>,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader { buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), spare: Vec::new() }
    }

    /// Room for connections that are closed and whose last bytes nobody wants.
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// A buffer of `bytes`; its content is left over.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }

    fn give_back(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS {
            self.spare.push(buffer);
        }
    }
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox { state: State::expecting(), long: false }
    }

    /// Reads what is there and tells `sink`.
    pub(super) fn receive(
        &mut self,
        socket: impl AsFd,
        reader: &mut Reader,
        peer: Rank,
        sink: &mut dyn Sink,
    ) -> Received {
        let mut total_bytes = 0;
        let ended = loop {
            match self.read(&socket, reader, peer, sink) {
                Ok(Step { bytes: 0, .. }) => break Some(self.cut_off("closed")),
                Ok(Step { bytes, drained, ended }) => {
                    total_bytes += bytes;
                    if ended.is_some() {
                        break ended;
                    }
                    if drained || total_bytes >= TURN_BYTES {
                        break None;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break None,
                Err(error) => break Some(self.cut_off(&error.to_string())),
            }
        };
        Received { moved: total_bytes > 0 || ended.is_some(), ended }
    }

    /// Lets go of memory of operations.
    pub(super) fn abandon(&mut self) {
        if let State::Payload { into, .. } = &mut self.state {
            *into = Into::Nowhere;
        }
    }

    /// What an end without a goodbye means at this place.
    fn cut_off(&self, how: &str) -> Lost {
        let between = matches!(self.state, State::Header { have_bytes: 0, .. });
        let place = if between { "" } else { " in the middle of a frame" };
        Lost::Died(format!("its connection ended without a goodbye{place}: {how}"))
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
                    && !matches!(into, Into::Nowhere) =>
            {
                let missing_bytes = header.payload_bytes as usize - *have_bytes;
                let mut next = [0; Header::BYTES];
                let start = *have_bytes;
                let bytes = match into {
                    Into::Region(region) => {
                        region.write(|memory| read_two(socket, &mut memory[start..], &mut next))?
                    }
                    Into::Buffer(memory) => read_two(socket, &mut memory[start..], &mut next)?,
                    Into::Nowhere => 0,
                };
                *have_bytes += bytes.min(missing_bytes);
                let mut ended = None;
                if bytes >= missing_bytes {
                    self.complete(reader, peer, sink);
                    ended = self.parse(&next[..bytes - missing_bytes], reader, peer, sink).err();
                }
                Ok(Step { bytes, drained: bytes < missing_bytes + Header::BYTES, ended })
            }
            State::Header { bytes, have_bytes } if self.long => {
                let missing = &mut bytes[*have_bytes..];
                let wanted_bytes = missing.len();
                let bytes = recv(socket, missing, RecvFlags::empty())?.0;
                *have_bytes += bytes;
                let ended = self.begin(reader, peer, sink).err();
                Ok(Step { bytes, drained: bytes < wanted_bytes, ended })
            }
            _ => {
                let mut buffer = std::mem::take(&mut reader.buffer);
                let read = recv(socket, &mut *buffer, RecvFlags::empty());
                let step = read.map(|(bytes, _)| Step {
                    bytes,
                    drained: bytes < buffer.len(),
                    ended: self.parse(&buffer[..bytes], reader, peer, sink).err(),
                });
                reader.buffer = buffer;
                step
            }
        }
    }

    /// Takes in `bytes`, which may hold the rest of a frame, several frames and the start of one.
    fn parse(
        &mut self,
        mut bytes: &[u8],
        reader: &mut Reader,
        peer: Rank,
        sink: &mut dyn Sink,
    ) -> Result<(), Lost> {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Header { bytes: header, have_bytes } => {
                    let taken_bytes = bytes.len().min(Header::BYTES - *have_bytes);
                    let end = *have_bytes + taken_bytes;
                    header[*have_bytes..end].copy_from_slice(&bytes[..taken_bytes]);
                    *have_bytes = end;
                    bytes = &bytes[taken_bytes..];
                    let shown_bytes = self.begin_with(bytes, reader, peer, sink)?;
                    bytes = &bytes[shown_bytes..];
                }
                State::Payload { header, into, have_bytes } => {
                    let missing_bytes = header.payload_bytes as usize - *have_bytes;
                    let taken_bytes = bytes.len().min(missing_bytes);
                    into.put(*have_bytes, &bytes[..taken_bytes]);
                    *have_bytes += taken_bytes;
                    bytes = &bytes[taken_bytes..];
                    if taken_bytes == missing_bytes {
                        self.complete(reader, peer, sink);
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, reader: &mut Reader, peer: Rank, sink: &mut dyn Sink) -> Result<(), Lost> {
        self.begin_with(&[], reader, peer, sink).map(|_| ())
    }

    /// Announces the frame if its header is complete. A payload that lies in `bytes` as a whole and
    /// is only to be shown is shown there; the bytes that were used up by that.
    fn begin_with(
        &mut self,
        bytes: &[u8],
        reader: &mut Reader,
        peer: Rank,
        sink: &mut dyn Sink,
    ) -> Result<usize, Lost> {
        let State::Header { bytes: encoded, have_bytes: Header::BYTES } = &self.state else {
            return Ok(0);
        };
        let header = Header::decode(encoded).map_err(|error| Lost::Protocol(error.to_string()))?;
        self.state = State::expecting();
        if header.kind == Kind::Goodbye {
            return Err(Lost::Goodbye);
        }
        let payload_bytes = header.payload_bytes as usize;
        self.long = payload_bytes >= LONG_BYTES;
        let into = match sink.announced(peer, &header) {
            Destination::Into(region) if region.len() != payload_bytes => {
                let bytes = region.len();
                let why = format!("{payload_bytes} bytes came for {bytes} bytes of memory");
                return Err(Lost::Protocol(why));
            }
            Destination::Into(region) => Into::Region(region),
            Destination::Borrowed if bytes.len() >= payload_bytes => {
                sink.arrived(peer, &header, Arrived::Borrowed(&bytes[..payload_bytes]));
                return Ok(payload_bytes);
            }
            Destination::Borrowed => Into::Buffer(reader.take(payload_bytes)),
            Destination::Discard => Into::Nowhere,
        };
        self.state = State::Payload { header, into, have_bytes: 0 };
        if payload_bytes == 0 {
            self.complete(reader, peer, sink);
        }
        Ok(0)
    }

    /// Tells `sink` that the payload is complete.
    fn complete(&mut self, reader: &mut Reader, peer: Rank, sink: &mut dyn Sink) {
        match std::mem::replace(&mut self.state, State::expecting()) {
            State::Payload { header, into, .. } => match into {
                Into::Region(region) => {
                    drop(region);
                    sink.arrived(peer, &header, Arrived::InPlace);
                }
                Into::Buffer(buffer) => {
                    sink.arrived(peer, &header, Arrived::Borrowed(&buffer));
                    reader.give_back(buffer);
                }
                Into::Nowhere => sink.arrived(peer, &header, Arrived::Discarded),
            },
            header @ State::Header { .. } => self.state = header,
        }
    }
}

/// What one system call brought.
struct Step {
    bytes: usize,
    /// Whether the socket had less than was asked for.
    drained: bool,
    ended: Option<Lost>,
}

impl State {
    fn expecting() -> State {
        State::Header { bytes: [0; Header::BYTES], have_bytes: 0 }
    }
}

impl Into {
    fn put(&mut self, start: usize, bytes: &[u8]) {
        let range = start..start + bytes.len();
        match self {
            Into::Region(region) => region.write(|memory| memory[range].copy_from_slice(bytes)),
            Into::Buffer(memory) => memory[range].copy_from_slice(bytes),
            Into::Nowhere => {}
        }
    }
}

/// Fills `first`, then `second`, as far as bytes are there.
fn read_two(socket: impl AsFd, first: &mut [u8], second: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::readv(socket, &mut [IoSliceMut::new(first), IoSliceMut::new(second)])
}
