//! What a rank tells the others through the store: where it can be reached, and what it speaks.
//! Knows nothing of stores or sockets.
//!
//! A card is text, one `name value` a line, so that a person can read it in the store. Unknown
//! names are skipped: a newer rank may say more.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::numbers::{WIRE_VERSION, numbers_hash};

/// Most bytes of an encoded card.
pub const MAX_CARD_BYTES: usize = 4096;
/// Most endpoints of one kind that a card names.
pub const MAX_ENDPOINTS: usize = 16;
/// Most bytes of a WebSocket endpoint.
const MAX_URL_BYTES: usize = 128;

/// Most bytes of a namespace of processes.
const MAX_NAMESPACE_BYTES: usize = 128;
/// Most bytes of the name of a socket.
pub const MAX_NAME_BYTES: usize = 64;

/// The first line.
const TITLE: &str = "polyrank card";

/// Where a rank can be reached, and what it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Same text, same host: ranks with equal identities can share memory. Not empty, no line
    /// break.
    pub host: String,
    /// The process on that host.
    pub process_id: u32,
    /// Where that number means this process: ranks with the same text number processes alike. One
    /// host may have several such places, as containers are. `None` where the rank cannot say.
    pub process_namespace: Option<String>,
    /// Where it listens, best first, at most [`MAX_ENDPOINTS`].
    pub tcp: Vec<SocketAddr>,
    /// URLs at which it answers WebSockets, best first, at most [`MAX_ENDPOINTS`].
    pub websocket: Vec<String>,
    /// How ranks of its host share memory with it, if they can.
    pub shm: Option<SharedMemory>,
    /// Its number at the relay of the store's server, if it has one.
    pub relay: Option<u64>,
    /// Where its part of the board is, if it offers one.
    pub board: Option<BoardKey>,
    /// [`WIRE_VERSION`] of the rank.
    pub wire_version: u16,
    /// [`numbers_hash`] of the rank.
    pub numbers: u64,
}

/// What another process of the same host needs to find a rank's part of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardKey {
    /// The descriptor in the rank's process.
    pub descriptor: u32,
    /// A number that is in the memory behind it, and nowhere else.
    pub nonce: u64,
}

/// How ranks of one host share memory with a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// The name of its socket: ASCII letters and digits, at most [`MAX_NAME_BYTES`].
    pub name: String,
    /// Its user: others do not share memory with it.
    pub user: u32,
}

/// Why a text is not a card, or why its rank cannot be talked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CardError {
    /// The text is longer than [`MAX_CARD_BYTES`].
    #[error("an address card of {bytes} bytes is longer than the limit")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The text is not UTF-8 or does not begin as a card does.
    #[error("the text is not an address card")]
    NotACard,
    /// A line is missing.
    #[error("the address card has no line '{name}'")]
    Missing {
        /// The line's name.
        name: &'static str,
    },
    /// A line has a value that it cannot have.
    #[error("the address card's line '{name}' makes no sense")]
    Value {
        /// The line's name.
        name: &'static str,
    },
    /// The rank speaks another version of the protocol.
    #[error(
        "it speaks version {version} of the protocol, this rank version {WIRE_VERSION}; run the \
         same release of polyrank on all ranks"
    )]
    Version {
        /// The other's version.
        version: u16,
    },
    /// Collectives, algorithms, dtypes or operators have other numbers there.
    #[error(
        "its build numbers collectives, algorithms, dtypes or reduce operators differently; run \
         the same release of polyrank on all ranks"
    )]
    Numbers,
}

impl Card {
    /// A card of this build. What [`Card::decode`] could not read back is left out: line breaks in
    /// `host`, endpoints beyond [`MAX_ENDPOINTS`].
    pub fn new(host: &str, process_id: u32, tcp: Vec<SocketAddr>) -> Card {
        let mut tcp = tcp;
        tcp.truncate(MAX_ENDPOINTS);
        let host: String = host.chars().filter(|char| !char.is_control()).take(256).collect();
        let host = host.trim().to_owned();
        let host = if host.is_empty() { "unknown".to_owned() } else { host };
        let (wire_version, numbers) = (WIRE_VERSION, numbers_hash());
        let (websocket, shm, relay, board) = (Vec::new(), None, None, None);
        Card {
            host,
            process_id,
            process_namespace: None,
            tcp,
            websocket,
            shm,
            relay,
            board,
            wire_version,
            numbers,
        }
    }

    /// Says too where the number of its process is valid.
    #[must_use]
    pub fn numbered_in(mut self, process_namespace: Option<String>) -> Card {
        let is_line = |text: &String| {
            !text.is_empty()
                && text.len() <= MAX_NAMESPACE_BYTES
                && !text.contains(char::is_control)
        };
        self.process_namespace = process_namespace.filter(is_line);
        self
    }

    /// The number of the rank's process, if it means the same to the rank of `other`.
    pub fn process_known_to(&self, other: &Card) -> Option<u32> {
        let is_alike =
            self.process_namespace.is_some() && self.process_namespace == other.process_namespace;
        is_alike.then_some(self.process_id)
    }

    /// Says too that it answers WebSockets wherever it listens for TCP.
    #[must_use]
    pub fn answering_websockets(mut self) -> Card {
        self.websocket = self.tcp.iter().map(|endpoint| format!("ws://{endpoint}/")).collect();
        self
    }

    /// The text that the store keeps.
    pub fn encode(&self) -> Vec<u8> {
        let mut text =
            format!("{TITLE}\nwire {}\nnumbers {:016x}\n", self.wire_version, self.numbers);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "host {}\nprocess {}", self.host, self.process_id);
        if let Some(namespace) = &self.process_namespace {
            let _ = writeln!(text, "process_namespace {namespace}");
        }
        for endpoint in &self.tcp {
            let _ = writeln!(text, "tcp {endpoint}");
        }
        for url in &self.websocket {
            let _ = writeln!(text, "websocket {url}");
        }
        if let Some(SharedMemory { name, user }) = &self.shm {
            let _ = writeln!(text, "shm {name} {user}");
        }
        if let Some(number) = self.relay {
            let _ = writeln!(text, "relay {number}");
        }
        if let Some(BoardKey { descriptor, nonce }) = self.board {
            let _ = writeln!(text, "board {descriptor} {nonce:016x}");
        }
        text.into_bytes()
    }

    /// Reads a card. One of another version is read as far as its names are known; ask
    /// [`Card::check`] whether its rank can be talked to.
    pub fn decode(bytes: &[u8]) -> Result<Card, CardError> {
        if bytes.len() > MAX_CARD_BYTES {
            return Err(CardError::TooLong { bytes: bytes.len() });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| CardError::NotACard)?;
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return Err(CardError::NotACard);
        }
        let (mut version, mut numbers, mut host, mut process_id) = (None, None, None, None);
        let (mut tcp, mut websocket) = (Vec::new(), Vec::new());
        let mut process_namespace = None;
        let (mut shm, mut relay, mut board) = (None, None, None);
        for line in lines {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            match name {
                "wire" => version = Some(parse("wire", value)?),
                "numbers" => {
                    let number = u64::from_str_radix(value, 16);
                    numbers = Some(number.map_err(|_| CardError::Value { name: "numbers" })?);
                }
                "host" if value.is_empty() => return Err(CardError::Value { name: "host" }),
                "host" => host = Some(value.to_owned()),
                "process" => process_id = Some(parse("process", value)?),
                "process_namespace" if value.is_empty() || value.len() > MAX_NAMESPACE_BYTES => {
                    return Err(CardError::Value { name: "process_namespace" });
                }
                "process_namespace" => process_namespace = Some(value.to_owned()),
                "tcp" if tcp.len() == MAX_ENDPOINTS => {
                    return Err(CardError::Value { name: "tcp" });
                }
                "tcp" => tcp.push(parse("tcp", value)?),
                "websocket" if websocket.len() == MAX_ENDPOINTS || !is_url(value) => {
                    return Err(CardError::Value { name: "websocket" });
                }
                "websocket" => websocket.push(value.to_owned()),
                "shm" => shm = Some(shared_memory(value).ok_or(CardError::Value { name: "shm" })?),
                "relay" => relay = Some(parse("relay", value)?),
                "board" => board = Some(board_key(value)?),
                _ => {}
            }
        }
        Ok(Card {
            host: host.ok_or(CardError::Missing { name: "host" })?,
            process_id: process_id.ok_or(CardError::Missing { name: "process" })?,
            process_namespace,
            tcp,
            websocket,
            shm,
            relay,
            board,
            wire_version: version.ok_or(CardError::Missing { name: "wire" })?,
            numbers: numbers.ok_or(CardError::Missing { name: "numbers" })?,
        })
    }

    /// Whether this build can talk to the card's rank.
    pub fn check(&self) -> Result<(), CardError> {
        if self.wire_version != WIRE_VERSION {
            Err(CardError::Version { version: self.wire_version })
        } else if self.numbers != numbers_hash() {
            Err(CardError::Numbers)
        } else {
            Ok(())
        }
    }
}

fn parse<T: std::str::FromStr>(name: &'static str, value: &str) -> Result<T, CardError> {
    value.parse().map_err(|_| CardError::Value { name })
}

fn board_key(value: &str) -> Result<BoardKey, CardError> {
    let parts = value.split_once(' ').and_then(|(descriptor, nonce)| {
        let nonce = u64::from_str_radix(nonce, 16).ok()?;
        Some(BoardKey { descriptor: descriptor.parse().ok()?, nonce })
    });
    parts.ok_or(CardError::Value { name: "board" })
}

fn shared_memory(value: &str) -> Option<SharedMemory> {
    let (name, user) = value.split_once(' ')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric();
    let named = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_name);
    let user = user.parse().ok().filter(|_| named)?;
    Some(SharedMemory { name: name.to_owned(), user })
}

fn is_url(value: &str) -> bool {
    let web = value.starts_with("ws://") || value.starts_with("wss://");
    web && value.len() <= MAX_URL_BYTES && value.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_card_survives_the_journey(
            host in ".{0,300}",
            process_id in any::<u32>(),
            namespace in proptest::option::of(".{0,200}"),
            v4 in proptest::collection::vec(any::<([u8; 4], u16)>(), 0..9),
            v6 in proptest::collection::vec(any::<([u8; 16], u16)>(), 0..9),
            answers in any::<bool>(),
            relay in proptest::option::of(any::<u64>()),
            board in proptest::option::of(any::<(u32, u64)>()),
            shm in proptest::option::of(("[a-zA-Z0-9]{1,64}", any::<u32>())),
        ) {
            let tcp = v4.into_iter().map(SocketAddr::from);
            let tcp = tcp.chain(v6.into_iter().map(SocketAddr::from)).collect();
            let board = board.map(|(descriptor, nonce)| BoardKey { descriptor, nonce });
            let shm = shm.map(|(name, user)| SharedMemory { name, user });
            let card = Card { relay, board, shm, ..Card::new(&host, process_id, tcp) };
            let card = if answers { card.answering_websockets() } else { card };
            let card = card.numbered_in(namespace);
            let bytes = card.encode();
            prop_assert!(bytes.len() <= MAX_CARD_BYTES);
            prop_assert_eq!(Card::decode(&bytes), Ok(card));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Card::decode(&bytes);
            let mut titled = format!("{TITLE}\ntcp ").into_bytes();
            titled.extend(bytes);
            prop_assert!(Card::decode(&titled).is_err());
        }
    }

    #[test]
    fn the_number_of_a_process_means_something_where_processes_are_numbered_alike() {
        let card = |process_id, namespace: Option<&str>| {
            let card = Card::new("host", process_id, Vec::new());
            card.numbered_in(namespace.map(str::to_owned))
        };
        let ours = card(1, Some("boot pid:[1]"));
        assert_eq!(card(2, Some("boot pid:[1]")).process_known_to(&ours), Some(2));
        assert_eq!(card(2, Some("boot pid:[2]")).process_known_to(&ours), None);
        assert_eq!(card(2, None).process_known_to(&ours), None);
        assert_eq!(card(2, None).process_known_to(&card(1, None)), None);
    }

    #[test]
    fn unknown_lines_are_skipped_and_missing_ones_named() {
        let card = Card::new("host", 7, vec!["127.0.0.1:80".parse().unwrap()]);
        let mut bytes = card.encode();
        bytes.extend(b"pigeon ground floor\n");
        assert_eq!(Card::decode(&bytes), Ok(card.clone()));
        let text = String::from_utf8(card.encode()).unwrap().replace("process 7\n", "");
        let error = Card::decode(text.as_bytes()).unwrap_err();
        assert_eq!(error, CardError::Missing { name: "process" });
        for (line, name) in [
            ("websocket http://127.0.0.1/", "websocket"),
            ("websocket ws://a b/", "websocket"),
            ("relay -1", "relay"),
            ("board 7", "board"),
            ("board -7 00", "board"),
            ("shm name", "shm"),
            ("shm ../name 1", "shm"),
            ("shm name -1", "shm"),
        ] {
            let bytes = [card.encode(), line.into()].concat();
            assert_eq!(Card::decode(&bytes), Err(CardError::Value { name }));
        }
        assert_eq!(Card::decode(b"hello"), Err(CardError::NotACard));
        let error = Card::decode(&[b' '; MAX_CARD_BYTES + 1]).unwrap_err();
        assert_eq!(error, CardError::TooLong { bytes: MAX_CARD_BYTES + 1 });
    }

    #[test]
    fn a_foreign_build_is_refused_with_a_reason() {
        let card = Card::new("host", 1, Vec::new());
        assert_eq!(card.check(), Ok(()));
        let other = Card { wire_version: 9, ..card.clone() };
        assert_eq!(other.check(), Err(CardError::Version { version: 9 }));
        let other = Card { numbers: card.numbers ^ 1, ..card };
        assert_eq!(other.check(), Err(CardError::Numbers));
    }
}
