//! The messages of a session between a rank and a store's server: requests to the store on one
//! channel, bytes for other ranks on the other. Pure; knows nothing of who stores or transports
//! them.
//!
//! ```text
//! channel 0  request  u32 id · u8 flag · 3 zero bytes · bytes of TCPStore requests
//!            reply    u32 id · u8 flag · 3 zero bytes · bytes of their replies
//! channel 1  relayed  u8 kind · u8 opened by sender · 2 zero bytes · u32 pipe · u64 peer · bytes
//! ```
//! A request is a sequence of TCPStore requests (without the opening VALIDATE), in as many messages
//! as it needs, the last one marked. Requests with different ids do not wait for each other; within
//! one, a WAIT holds up what follows it. The reply is what a TCPStore server would send; its last
//! message is marked with how the request ended. `peer` is the number of the receiver on the way to
//! the server, and of the sender on the way from it. A pipe is identified by the number its opener
//! assigned; `opened by sender` says whether the sender of the message opened it. Both ends also
//! know the pipe's name, which `Open` carries.

use super::session::Message;

/// The channel of requests and replies.
pub const STORE_CHANNEL: u8 = 0;
/// The channel of relayed bytes.
pub const RELAY_CHANNEL: u8 = 1;

/// Bytes that may be in flight from one rank to another, over all the pipes between the two. A rank
/// that exceeds this is disconnected.
pub const PIPE_WINDOW_BYTES: usize = 1 << 20;
/// What a chunk occupies of the window in addition to its bytes: about its overhead in memory.
pub const CHUNK_COST_BYTES: usize = 128;
/// Most pipes that a rank may have open at a time.
pub const MAX_PIPES: usize = 1024;
/// Most requests that a rank may have in flight at a time.
pub const MAX_REQUESTS: usize = 4096;

/// Suffix of presence keys, after any store prefix; the session number follows. It begins with a
/// byte that does not occur in text, which keeps presence keys apart from other keys.
const PRESENCE: &[u8] = b"\x01session/";

/// What a presence key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Whether the server answers such keys.
    Known,
    /// Whether this session has not ended.
    Of(u64),
}

/// A key that is never stored: CHECK finds it, under any prefix, as long as the server has the
/// session with this number, and with number 0 on every server that answers such keys. This lets
/// ranks without a session notice that a rank with one has gone.
pub fn presence_key(number: u64) -> String {
    format!("\u{1}session/{number}")
}

/// What `key` asks for, if it is a presence key.
pub fn presence(key: &[u8]) -> Option<Presence> {
    let at = key.iter().rposition(|byte| *byte == PRESENCE[0])?;
    let number = std::str::from_utf8(key[at..].strip_prefix(PRESENCE)?).ok()?.parse().ok()?;
    Some(if number == 0 { Presence::Known } else { Presence::Of(number) })
}

/// The header of a request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreHeader {
    /// The request's number, chosen by the requester; not used again before its last reply.
    pub id: u32,
    /// What the message is.
    pub flag: StoreFlag,
}

/// What a message of the store's channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StoreFlag {
    /// More of the request or reply follows.
    More = 0,
    /// The end of the request, or of the reply to a request that was run.
    Last = 1,
    /// To the server: the requester no longer waits. From it: the end of the reply; the WAIT in
    /// progress and everything after it were not run.
    Cancelled = 2,
    /// From the server: the end of the reply; ADD found a value that is not a number, or the sum
    /// would overflow.
    NotANumber = 3,
    /// From the server: the end of the reply; the store is full.
    Full = 4,
}

/// The header of relayed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayHeader {
    /// What the message is.
    pub kind: RelayKind,
    /// Whether its sender opened the pipe.
    pub opened_by_sender: bool,
    /// The number that the opener assigned to the pipe.
    pub pipe: u32,
    /// To the server: whom it is for. From it: whom it is from.
    pub peer: u64,
}

/// What a message of the relay's channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RelayKind {
    /// Opens the pipe. Its name, a u64, was agreed on elsewhere.
    Open = 1,
    /// A chunk.
    Data = 2,
    /// How many bytes of chunks were read: a u32.
    Credit = 3,
    /// Closes the pipe, with a goodbye.
    Goodbye = 4,
    /// Closes the pipe, without one.
    Abandon = 5,
    /// From the server only: the peer has left cleanly. Its pipes are closed.
    Left = 6,
    /// From the server only: the peer is dead, or unknown. Its pipes are closed.
    Dead = 7,
    /// To the server only: report when the peer leaves or dies, even without a pipe to it.
    Watch = 8,
}

impl StoreHeader {
    /// Bytes of the header.
    pub const BYTES: usize = 8;

    /// A message with this header and `bytes`.
    pub fn message(self, bytes: &[u8]) -> Message {
        let mut message = Message::with_capacity(STORE_CHANNEL, Self::BYTES + bytes.len());
        message.extend(&self.encode());
        message.extend(bytes);
        message
    }

    /// The header's bytes.
    pub fn encode(self) -> [u8; StoreHeader::BYTES] {
        let [a, b, c, d] = self.id.to_le_bytes();
        [a, b, c, d, self.flag as u8, 0, 0, 0]
    }

    /// Takes the header off the front of a message's body.
    pub fn decode(body: &[u8]) -> Option<(StoreHeader, &[u8])> {
        let (head, bytes) = body.split_first_chunk::<{ Self::BYTES }>()?;
        let [a, b, c, d, flag, 0, 0, 0] = *head else { return None };
        let flag = match flag {
            0 => StoreFlag::More,
            1 => StoreFlag::Last,
            2 => StoreFlag::Cancelled,
            3 => StoreFlag::NotANumber,
            4 => StoreFlag::Full,
            _ => return None,
        };
        Some((StoreHeader { id: u32::from_le_bytes([a, b, c, d]), flag }, bytes))
    }
}

impl RelayHeader {
    /// Bytes of the header.
    pub const BYTES: usize = 16;

    /// A message with this header and `bytes`.
    pub fn message(self, bytes: &[u8]) -> Message {
        let mut message = Message::with_capacity(RELAY_CHANNEL, Self::BYTES + bytes.len());
        message.extend(&self.encode());
        message.extend(bytes);
        message
    }

    /// The header's bytes.
    pub fn encode(self) -> [u8; RelayHeader::BYTES] {
        let mut head = [0; Self::BYTES];
        head[0] = self.kind as u8;
        head[1] = u8::from(self.opened_by_sender);
        head[4..8].copy_from_slice(&self.pipe.to_le_bytes());
        head[8..].copy_from_slice(&self.peer.to_le_bytes());
        head
    }

    /// Takes the header off the front of a message's body.
    pub fn decode(body: &[u8]) -> Option<(RelayHeader, &[u8])> {
        let (head, bytes) = body.split_first_chunk::<{ Self::BYTES }>()?;
        let (front, peer) = head.split_last_chunk::<8>()?;
        let [kind, opened_by_sender @ (0 | 1), 0, 0, a, b, c, d] = *front else { return None };
        let kind = match kind {
            1 => RelayKind::Open,
            2 => RelayKind::Data,
            3 => RelayKind::Credit,
            4 => RelayKind::Goodbye,
            5 => RelayKind::Abandon,
            6 => RelayKind::Left,
            7 => RelayKind::Dead,
            8 => RelayKind::Watch,
            _ => return None,
        };
        let fits = match kind {
            RelayKind::Data => true,
            RelayKind::Open => bytes.len() == 8,
            RelayKind::Credit => bytes.len() == 4,
            _ => bytes.is_empty(),
        };
        let (pipe, peer) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(*peer));
        let opened_by_sender = opened_by_sender == 1;
        fits.then_some((RelayHeader { kind, opened_by_sender, pipe, peer }, bytes))
    }

    /// Writes `peer` over the one in a message that begins with a header.
    pub fn readdress(message: &mut Message, peer: u64) {
        if let Some(place) = message.body_mut().get_mut(8..Self::BYTES) {
            place.copy_from_slice(&peer.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(
            body in proptest::collection::vec(prop_oneof![0u8..9, any::<u8>()], 0..40),
        ) {
            if let Some((header, bytes)) = StoreHeader::decode(&body) {
                let message = header.message(bytes);
                prop_assert_eq!(message.body(), &body);
            }
            if let Some((header, bytes)) = RelayHeader::decode(&body) {
                let message = header.message(bytes);
                prop_assert_eq!(message.body(), &body);
            }
        }
    }

    #[test]
    fn presence_keys_are_recognised_under_any_prefix() {
        let key = presence_key(17).into_bytes();
        assert_eq!(presence(&key), Some(Presence::Of(17)));
        assert_eq!(presence(&[b"/room/x/group/", &key[..]].concat()), Some(Presence::Of(17)));
        assert_eq!(presence(presence_key(0).as_bytes()), Some(Presence::Known));
        for other in [&b""[..], b"session/17", b"\x01session/", b"\x01session/-1", b"\x01sess/1"] {
            assert_eq!(presence(other), None);
        }
    }

    #[test]
    fn headers_go_out_and_back() {
        let ended = [StoreFlag::Cancelled, StoreFlag::NotANumber, StoreFlag::Full];
        for flag in [StoreFlag::More, StoreFlag::Last].into_iter().chain(ended) {
            let header = StoreHeader { id: 0x0102_0304, flag };
            let message = header.message(b"bytes");
            assert_eq!(StoreHeader::decode(message.body()), Some((header, &b"bytes"[..])));
        }
        let (kind, peer) = (RelayKind::Data, u64::MAX);
        let header = RelayHeader { kind, opened_by_sender: true, pipe: 9, peer };
        let mut message = header.message(b"chunk");
        assert_eq!(RelayHeader::decode(message.body()), Some((header, &b"chunk"[..])));
        RelayHeader::readdress(&mut message, 5);
        let (read, bytes) = RelayHeader::decode(message.body()).unwrap();
        assert_eq!((read, bytes), (RelayHeader { peer: 5, ..header }, &b"chunk"[..]));
        let credit = RelayHeader { kind: RelayKind::Credit, ..header };
        assert_eq!(RelayHeader::decode(credit.message(b"abc").body()), None);
        assert_eq!(RelayHeader::decode(&[0; 15]), None);
        assert_eq!(StoreHeader::decode(&[0, 0, 0, 0, 9, 0, 0, 0]), None);
    }
}
