//! What the load consists of: the bytes of one request of one client, and how many bytes answer it.
//! Knows TCPStore's protocol as its users see it, so that a change of the crate's own encoder
//! shows.

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Set,
    Get,
    Add,
    Wait,
    SetGet,
}

/// One request of one client, or several that are answered together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    pub(super) reply_bytes: usize,
    /// How many operations that are.
    pub(super) operations: u64,
}

/// A client's first frame and a PING; the answer is the last four bytes.
pub(super) const HELLO: [u8; 10] = *b"\x00\xce\xf7\x85\x3c\x0dhey!";
/// The key at which polyrank's server says where clients of its host find it.
pub(super) const LOCAL_NAME: &[u8] = b"polyrank/local";
/// CHECK's answer that the key is there.
pub(super) const READY: u8 = 0;
/// Sets that are sent in one piece, as clients that wait for nothing send them.
const SETS_PER_BATCH: u64 = 32;

impl Operation {
    pub(super) const ALL: [Operation; 5] =
        [Self::Set, Self::Get, Self::Add, Self::Wait, Self::SetGet];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::Add => "add",
            Self::Wait => "wait",
            Self::SetGet => "set+get",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Operation> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// The request of client `client`, with values of `value_bytes`. All add to one counter.
    pub(super) fn request(self, client: usize, value_bytes: usize) -> Request {
        let (key, value) = (format!("/key/{client}").into_bytes(), vec![b'v'; value_bytes]);
        let set = [&[1][..], &blob(&key), &blob(&value)].concat();
        let get = get(&key);
        let (bytes, reply_bytes, operations) = match self {
            Self::Set => {
                let sets = std::iter::repeat_n(set, SETS_PER_BATCH as usize);
                (sets.chain([HELLO[5..].to_vec()]).collect::<Vec<_>>().concat(), 4, SETS_PER_BATCH)
            }
            Self::Get => (get, 8 + value_bytes, 1),
            Self::Add => ([&[4][..], &blob(b"/counter"), &1i64.to_le_bytes()].concat(), 8, 1),
            Self::Wait => {
                let key = blob(format!("/event/{client}").as_bytes());
                let wait = [&[6][..], &1u64.to_le_bytes(), &key].concat();
                let (set, delete) = ([&[1][..], &key, &blob(&value)], [&[8][..], &key]);
                ([wait, set.concat(), delete.concat()].concat(), 1 + 8, 1)
            }
            Self::SetGet => ([set, get].concat(), 8 + value_bytes, 1),
        };
        Request { bytes, reply_bytes, operations }
    }
}

/// A request for the value of a key.
pub(super) fn get(key: &[u8]) -> Vec<u8> {
    [&[3][..], &blob(key)].concat()
}

/// The question whether a key is there.
pub(super) fn check(key: &[u8]) -> Vec<u8> {
    [&[5][..], &1u64.to_le_bytes(), &blob(key)].concat()
}

fn blob(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}
