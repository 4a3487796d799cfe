//! How bytes move between ranks. Knows nothing of schedules, groups or process groups.

#[cfg(any(feature = "tcp", feature = "websocket", target_family = "wasm"))]
mod bell;
pub mod board;
mod compose;
#[cfg(feature = "tcp")]
mod endings;
#[cfg(feature = "tcp")]
pub mod host;
pub mod inproc;
mod membership;
#[cfg(feature = "websocket")]
mod mixed;
mod notice;
#[cfg(feature = "tcp")]
mod peers;
#[cfg(feature = "tcp")]
mod readiness;
#[cfg(any(feature = "websocket", all(feature = "tcp", target_os = "linux")))]
mod router;
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub mod shm;
pub mod sim;
#[cfg_attr(
    not(feature = "tcp"),
    allow(dead_code, unused_imports, reason = "a part is for streams of sockets")
)]
mod stream;
#[cfg(test)]
mod suite;
#[cfg(feature = "tcp")]
pub mod tcp;
mod timeouts;
#[cfg(feature = "tcp")]
pub mod wait;
pub mod websocket;
#[cfg(feature = "tcp")]
mod within_host;

#[cfg(any(feature = "tcp", feature = "websocket", target_family = "wasm"))]
pub(crate) use self::bell::Bell;
pub use self::compose::{Endpoints, compose};
#[cfg(feature = "tcp")]
pub(crate) use self::endings::Endings;
pub use self::membership::Membership;
pub use self::timeouts::Timeouts;
#[cfg(feature = "tcp")]
pub use self::within_host::WithinHost;
use crate::kernels::Stores;
use crate::price::KnownPrices;
use crate::tensor::Region;
use crate::wire::frame::Header;

/// A rank of the group that this transport connects.
pub type Rank = u32;

/// Messages of up to this many bytes leave without asking the receiver, whatever the transport.
pub const EAGER_BYTES: usize = 32 << 10;

/// How long a rank tries to accept connections while the system lacks resources for one.
#[cfg(feature = "tcp")]
pub(crate) const SHORTAGE_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

/// The bytes after a header.
#[derive(Clone, Debug)]
pub enum Payload {
    /// No bytes.
    Empty,
    /// Memory of an operation; it is not copied, and it is held until the frame has left.
    Region(Region),
    /// Bytes of the frame's own.
    Owned(Vec<u8>),
}

impl Payload {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Payload::Empty => 0,
            Payload::Region(region) => region.len(),
            Payload::Owned(bytes) => bytes.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows the bytes to `f`, under the rules of [`Region::read`].
    pub fn read<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Payload::Empty => f(&[]),
            Payload::Region(region) => region.read(f),
            Payload::Owned(bytes) => f(bytes),
        }
    }
}

/// Where the payload of an arriving frame goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Directly into this memory, which is exactly as long as the payload. The second field says
    /// how to store, if the transport copies the payload itself.
    Into(Region, Stores),
    /// Into a buffer of the transport, shown to [`Sink::arrived`] and reused afterwards.
    Borrowed,
    /// Nowhere.
    Discard,
}

/// A payload that arrived.
pub enum ArrivedPayload<'a> {
    /// It lies where [`Destination::Into`] said.
    InPlace,
    /// It lies in the transport's buffer until the call returns.
    Borrowed(&'a [u8]),
    /// It lies in the peer's own memory, which the peer may take back. What was read or computed
    /// from it counts only if the function returns true afterwards; otherwise the payload is lost.
    Lent(&'a [u8], &'a dyn Fn() -> bool),
    /// It was discarded.
    Discarded,
}

impl ArrivedPayload<'_> {
    /// The bytes, if they were not put in place.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            ArrivedPayload::Borrowed(bytes) | ArrivedPayload::Lent(bytes, _) => Some(bytes),
            ArrivedPayload::InPlace | ArrivedPayload::Discarded => None,
        }
    }

    /// Whether the bytes read until now are those that the peer sent.
    pub fn holds(&self) -> bool {
        match self {
            ArrivedPayload::Lent(_, holds) => holds(),
            ArrivedPayload::Borrowed(_) | ArrivedPayload::InPlace | ArrivedPayload::Discarded => {
                true
            }
        }
    }
}

impl std::fmt::Debug for ArrivedPayload<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArrivedPayload::InPlace => f.write_str("InPlace"),
            ArrivedPayload::Borrowed(bytes) => write!(f, "Borrowed({} bytes)", bytes.len()),
            ArrivedPayload::Lent(bytes, _) => write!(f, "Lent({} bytes)", bytes.len()),
            ArrivedPayload::Discarded => f.write_str("Discarded"),
        }
    }
}

/// Why a connection is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The peer said goodbye before it closed.
    Goodbye,
    /// The peer's end closed or reset without a goodbye.
    Died(String),
    /// The peer could not be reached.
    Unreachable(String),
    /// The peer sent what is not a frame of this protocol.
    Protocol(String),
    /// The peer is not to blame: this process lacks resources for the connection, such as
    /// descriptors or address space.
    Local(String),
}

/// Receives the events of a transport. Called from [`Transport::advance`] only.
pub trait Sink {
    /// Whether a frame that has arrived should be delivered now. If not, a transport that can leave
    /// it where it lies, with all frames after it, may do so and ask again later; other transports
    /// deliver it.
    fn wants(&mut self, peer: Rank, header: &Header) -> bool {
        let _ = (peer, header);
        true
    }
    /// The header of a frame arrived; returns where its payload goes. Called once for each frame,
    /// except goodbyes, which the transport handles itself.
    fn announced(&mut self, peer: Rank, header: &Header) -> Destination;
    /// The frame is complete.
    fn arrived(&mut self, peer: Rank, header: &Header, payload: ArrivedPayload<'_>);
    /// A frame that was queued has left, and its payload is not read any more.
    fn sent(&mut self, peer: Rank, header: &Header);
    /// The connection to `peer` is gone; frames queued for it are dropped. Called once for a peer.
    fn lost(&mut self, peer: Rank, why: LossReason);
    /// The process of `peer`, which was lost, has surely ended. Not called where that cannot be
    /// known. If `all_arrived`, all that it had sent is here: there is no better explanation of the
    /// loss. Otherwise it may have said one that only other ranks have heard.
    fn process_ended(&mut self, peer: Rank, all_arrived: bool) {
        let _ = (peer, all_arrived);
    }
    /// The connection to `peer`, which was lost, ended when all that it had sent was here, or there
    /// is no third rank, and the system does not know its process. A rank that lives says why it
    /// closes.
    fn ended_in_silence(&mut self, peer: Rank) {
        let _ = peer;
    }
}

/// A file descriptor that a thread may wait for, see [`wait`](wait::wait).
#[derive(Clone, Debug)]
pub struct Interest {
    /// The descriptor. Its holder may wait for it even while the transport is being closed.
    #[cfg(feature = "tcp")]
    pub fd: std::sync::Arc<std::os::fd::OwnedFd>,
    /// Whether to wait until it can be written, besides until it can be read.
    pub writable: bool,
}

/// Frames to and from the other ranks of one group. Nothing in it blocks.
pub trait Transport: Send {
    /// This rank.
    fn rank(&self) -> Rank;
    /// The number of ranks.
    fn size(&self) -> u32;
    /// Queues a frame for `peer` (connecting to it if need be) and tries to send it immediately.
    /// Frames to one peer arrive in the order in which they were queued. To a lost peer: dropped.
    ///
    /// The payload has at most [`MAX_PAYLOAD_BYTES`](crate::wire::frame::MAX_PAYLOAD_BYTES), and
    /// `payload_bytes` of the header is set to its length. If the frame leaves immediately, the
    /// next [`Transport::advance`] tells the sink: call that before waiting.
    fn send(&mut self, peer: Rank, header: Header, payload: Payload);
    /// Sends a short frame to `peer` immediately, or does nothing. Returns whether it has left. The
    /// sink is not notified.
    fn send_at_once(&mut self, peer: Rank, header: Header, payload: &[u8]) -> bool {
        let _ = (peer, header, payload);
        false
    }
    /// Whether polling for frames from `peer` costs next to nothing.
    fn is_near(&self, peer: Rank) -> bool {
        let _ = peer;
        false
    }
    /// The process of `peer`, by its number here, if the system itself has said that it is the
    /// other end of an open connection. Nothing that the peer says counts.
    fn process_of(&self, peer: Rank) -> Option<u32> {
        let _ = peer;
        None
    }
    /// Up to which length messages to and from `peer` are sent without asking the receiver, which
    /// keeps those that it cannot use yet. The same on both ends, and at least [`EAGER_BYTES`].
    fn eager_bytes(&self, peer: Rank) -> usize {
        let _ = peer;
        EAGER_BYTES
    }
    /// The length of the prefix of a larger message, of `message_bytes` to `peer`, that should be
    /// sent before the peer has answered where the message goes, because its answer takes longer
    /// than a copy of the prefix. At most
    /// [`MAX_PAYLOAD_BYTES`](crate::wire::frame::MAX_PAYLOAD_BYTES).
    fn unasked_bytes(&self, peer: Rank, message_bytes: usize) -> usize {
        let _ = (peer, message_bytes);
        0
    }
    /// Starts to connect to `peer`, so that its death is noticed before there is data for it.
    fn connect(&mut self, peer: Rank);
    /// Has the open connection to `peer` end as it does where something on the way closes it, for
    /// tests of programs; whether there was one that could.
    #[cfg(feature = "tcp")]
    fn disconnect(&mut self, peer: Rank) -> bool {
        let _ = peer;
        false
    }
    /// Whether connections are being opened for which descriptors are held that are closed then.
    fn is_joining(&self) -> bool {
        false
    }
    /// Moves what can be moved now and notifies `sink`; true if anything moved.
    fn advance(&mut self, sink: &mut dyn Sink) -> bool;
    /// What to wait for when [`Transport::advance`] had nothing to do.
    fn interests(&self, interests: &mut Vec<Interest>);
    /// Begins with what copies cost in an earlier group, before there is a connection. All ranks of
    /// the group begin with the same.
    fn begin_with(&mut self, known: &KnownPrices) {
        let _ = known;
    }
    /// Adds what copies cost as far as that is known here.
    fn add_prices(&self, known: &mut KnownPrices) {
        let _ = known;
    }
    /// When [`Transport::advance`] must be called even if nothing happened; for callers that cannot
    /// wait for [`Transport::interests`], which include it.
    fn deadline(&self) -> Option<crate::clock::Instant> {
        None
    }
    /// Gives memory back to the system that is needed only while frames are under way.
    fn release_idle_memory(&mut self) {}
    /// Releases all memory of operations while the connections stay: drops the frames that were not
    /// begun, finishes a partly sent frame from a copy, and discards the rest of a partly received
    /// one. The sink need not be notified of these frames.
    fn abandon(&mut self);
    /// Drops everything queued, releases all memory of operations, and closes every connection:
    /// with a goodbye if `orderly` (which may wait up to half a second for room to say it), else at
    /// once. The sink is not notified any more. A second call does nothing.
    fn close(&mut self, orderly: bool);
}
