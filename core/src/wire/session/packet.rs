//! The four packets of a session as bytes. Pure; knows nothing of what a session does with them.
//!
//! ```text
//! byte   0 kind   1 channel   2 zero   4 as the kind says
//! Hello    1      0           0        version u32 · token 16 · received u64 · window u32 ·
//!                                      grace u32
//! Welcome  2      0           0        version u32 · token 16 · received u64 · window u32 ·
//!                                      grace u32 · number u64
//! Data     3      any         0        zero u32 · number u64 · taken u64 · body
//! Ack      4      0           0        zero u32 · taken u64
//! ```
//! All integers are little-endian. One packet is one binary WebSocket message.

use std::sync::Arc;

/// Version of the packets; a server refuses any other.
pub const SESSION_VERSION: u32 = 2;
/// Bytes in front of a message's body.
pub const HEADER_BYTES: usize = 24;
/// Most bytes of a message's body: 64 KiB, which browsers like best, and its header.
pub const MAX_BODY_BYTES: usize = (64 << 10) + 128;
/// Most bytes of a packet: what a WebSocket must accept, and refuse beyond.
pub const MAX_PACKET_BYTES: usize = HEADER_BYTES + MAX_BODY_BYTES;
/// What a message takes of a window beside its packet's bytes: about the memory that it costs.
pub const MESSAGE_COST_BYTES: usize = 64;
/// The smallest window: messages of any length must fit, and one be under way as another is taken.
pub const MIN_WINDOW_BYTES: u32 = 2 * (MAX_PACKET_BYTES + MESSAGE_COST_BYTES) as u32;
/// The largest window that is accepted: the other side has to keep as much as a window states.
pub const MAX_WINDOW_BYTES: u32 = 4 << 20;

const HELLO_BYTES: usize = 40;
const WELCOME_BYTES: usize = 48;
const ACK_BYTES: usize = 16;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const DATA: u8 = 3;
const ACK: u8 = 4;

/// What a client must know to come back to its session. All zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResumeToken(pub [u8; 16]);

impl ResumeToken {
    /// The token of a client that has no session yet.
    pub const NONE: ResumeToken = ResumeToken([0; 16]);
}

/// What a client says first on every socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`SESSION_VERSION`] of the client.
    pub version: u32,
    /// The session to continue with; [`ResumeToken::NONE`] opens one.
    pub token: ResumeToken,
    /// Messages that the client has received.
    pub received: u64,
    /// Bytes of messages that the client holds before it takes them.
    pub window_bytes: u32,
    /// How long the server is to wait for the client after a lost socket, ms; 0: the server's
    /// own choice.
    pub grace_ms: u32,
}

/// The server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// [`SESSION_VERSION`] of the server.
    pub version: u32,
    /// The session's token.
    pub token: ResumeToken,
    /// Messages that the server has received.
    pub received: u64,
    /// Bytes of messages that the server holds before it takes them.
    pub window_bytes: u32,
    /// How long the server waits for the client after a lost socket, ms.
    pub grace_ms: u32,
    /// The session's public number, by which others reach it through the server's relay.
    pub number: u64,
}

/// A message: the body, with room in front of it for the header, so that it travels, is kept for
/// sending again and is passed on without being copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Which channel of the other side it is for.
    pub channel: u8,
    pub(super) packet: Vec<u8>,
}

/// A packet for the socket. Copies share the bytes.
#[derive(Clone, Debug)]
pub struct Packet(Arc<Vec<u8>>);

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Packet {
    /// Bytes that the message in this packet takes of a window.
    pub(super) fn cost_bytes(&self) -> usize {
        self.0.len() + MESSAGE_COST_BYTES
    }
}

/// A packet that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodedPacket {
    Hello(Hello),
    Welcome(Welcome),
    Data { number: u64, taken: u64, message: Message },
    Ack { taken: u64 },
}

impl Message {
    /// An empty message for `channel`, with room for `body_bytes`.
    pub fn with_capacity(channel: u8, body_bytes: usize) -> Message {
        let mut packet = Vec::with_capacity(HEADER_BYTES + body_bytes);
        packet.resize(HEADER_BYTES, 0);
        Message { channel, packet }
    }

    /// A message with a copy of `body`.
    pub fn new(channel: u8, body: &[u8]) -> Message {
        let mut message = Message::with_capacity(channel, body.len());
        message.extend(body);
        message
    }

    /// Appends to the body, which may grow to [`MAX_BODY_BYTES`].
    pub fn extend(&mut self, bytes: &[u8]) {
        self.packet.extend_from_slice(bytes);
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.packet[HEADER_BYTES..]
    }

    /// The body, to be changed in place.
    pub fn body_mut(&mut self) -> &mut [u8] {
        &mut self.packet[HEADER_BYTES..]
    }

    /// Bytes that the message takes of a window.
    pub fn cost_bytes(&self) -> usize {
        self.packet.len() + MESSAGE_COST_BYTES
    }

    /// The packet that carries this message.
    pub(super) fn seal(self, number: u64, taken: u64) -> Packet {
        let mut packet = self.packet;
        packet[0] = DATA;
        packet[1] = self.channel;
        packet[2..8].fill(0);
        packet[8..16].copy_from_slice(&number.to_le_bytes());
        packet[16..24].copy_from_slice(&taken.to_le_bytes());
        Packet(Arc::new(packet))
    }
}

impl Hello {
    /// The packet.
    pub fn encode(&self) -> Packet {
        let Hello { version, token, received, window_bytes, grace_ms } = *self;
        Packet(Arc::new(opening(HELLO, version, token, received, window_bytes, grace_ms)))
    }

    /// Reads a client's first packet. The version is not judged: a server wants to say which.
    pub fn decode(packet: &[u8]) -> Option<Hello> {
        if packet.len() != HELLO_BYTES || packet[..4] != [HELLO, 0, 0, 0] {
            return None;
        }
        Some(Hello {
            version: u32_at(packet, 4)?,
            token: token_at(packet, 8)?,
            received: u64_at(packet, 24)?,
            window_bytes: u32_at(packet, 32)?,
            grace_ms: u32_at(packet, 36)?,
        })
    }
}

impl Welcome {
    /// The packet.
    pub fn encode(&self) -> Packet {
        let Welcome { version, token, received, window_bytes, grace_ms, number } = *self;
        let mut packet = opening(WELCOME, version, token, received, window_bytes, grace_ms);
        packet.extend_from_slice(&number.to_le_bytes());
        Packet(Arc::new(packet))
    }

    /// Reads a server's first packet.
    pub fn decode(packet: &[u8]) -> Option<Welcome> {
        if packet.len() != WELCOME_BYTES || packet[..4] != [WELCOME, 0, 0, 0] {
            return None;
        }
        Some(Welcome {
            version: u32_at(packet, 4)?,
            token: token_at(packet, 8)?,
            received: u64_at(packet, 24)?,
            window_bytes: u32_at(packet, 32)?,
            grace_ms: u32_at(packet, 36)?,
            number: u64_at(packet, 40)?,
        })
    }
}

/// The packet that says how many messages this side has taken.
pub(super) fn ack(taken: u64) -> Packet {
    let mut packet = vec![ACK, 0, 0, 0, 0, 0, 0, 0];
    packet.extend_from_slice(&taken.to_le_bytes());
    Packet(Arc::new(packet))
}

/// Reads any packet; `None` if it is none.
pub(super) fn decode(packet: Vec<u8>) -> Option<DecodedPacket> {
    match *packet.first()? {
        HELLO => Hello::decode(&packet).map(DecodedPacket::Hello),
        WELCOME => Welcome::decode(&packet).map(DecodedPacket::Welcome),
        DATA => {
            let in_limits = (HEADER_BYTES..=MAX_PACKET_BYTES).contains(&packet.len());
            if !in_limits || packet[2..8] != [0; 6] {
                return None;
            }
            let (number, taken) = (u64_at(&packet, 8)?, u64_at(&packet, 16)?);
            let message = Message { channel: packet[1], packet };
            Some(DecodedPacket::Data { number, taken, message })
        }
        ACK if packet.len() == ACK_BYTES && packet[1..8] == [0; 7] => {
            Some(DecodedPacket::Ack { taken: u64_at(&packet, 8)? })
        }
        _ => None,
    }
}

fn opening(
    kind: u8,
    version: u32,
    token: ResumeToken,
    received: u64,
    window_bytes: u32,
    grace_ms: u32,
) -> Vec<u8> {
    let mut packet = Vec::with_capacity(WELCOME_BYTES);
    packet.extend_from_slice(&[kind, 0, 0, 0]);
    packet.extend_from_slice(&version.to_le_bytes());
    packet.extend_from_slice(&token.0);
    packet.extend_from_slice(&received.to_le_bytes());
    packet.extend_from_slice(&window_bytes.to_le_bytes());
    packet.extend_from_slice(&grace_ms.to_le_bytes());
    packet
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn token_at(bytes: &[u8], at: usize) -> Option<ResumeToken> {
    bytes.get(at..at + 16)?.try_into().ok().map(ResumeToken)
}
