//! One transport made of two: each rank is reached by one of them. Knows nothing of schedules or
//! groups, nor which transports they are.

use super::{Interest, Payload, Rank, Sink, Transport};
use crate::clock::Instant;
use crate::wire::frame::Header;

/// How two transports share the turns of the one that is made of them.
pub(super) trait TurnOrder<First, Second: ?Sized>: Send {
    /// Moves what can be moved now and notifies `sink`; true if anything moved.
    fn advance(&mut self, first: &mut First, second: &mut Second, sink: &mut dyn Sink) -> bool;
}

/// Frames over two transports.
pub(super) struct Router<First, Second: ?Sized, Turns> {
    first: First,
    second: Box<Second>,
    /// By rank: whether it is reached through the first.
    is_first: Vec<bool>,
    turns: Turns,
}

/// Calls a method of the transport that leads to a rank.
macro_rules! of_peer {
    ($router:ident, $peer:ident, $method:ident($($argument:expr),*)) => {
        match $router.is_first.get($peer as usize) {
            Some(true) => $router.first.$method($peer $(, $argument)*),
            _ => $router.second.$method($peer $(, $argument)*),
        }
    };
}

impl<First, Second: ?Sized, Turns> Router<First, Second, Turns> {
    /// The transport to the ranks of which `is_first` is true through `first`, and to the others
    /// through `second`. `turns` decides which of them is moved next.
    pub(super) fn new(
        first: First,
        second: Box<Second>,
        is_first: Vec<bool>,
        turns: Turns,
    ) -> Router<First, Second, Turns> {
        Router { first, second, is_first, turns }
    }
}

impl<First, Second, Turns> Transport for Router<First, Second, Turns>
where
    First: Transport,
    Second: Transport + ?Sized,
    Turns: TurnOrder<First, Second>,
{
    fn rank(&self) -> Rank {
        self.first.rank()
    }

    fn size(&self) -> u32 {
        self.first.size()
    }

    fn send(&mut self, peer: Rank, header: Header, payload: Payload) {
        of_peer!(self, peer, send(header, payload));
    }

    fn send_at_once(&mut self, peer: Rank, header: Header, payload: &[u8]) -> bool {
        of_peer!(self, peer, send_at_once(header, payload))
    }

    fn is_near(&self, peer: Rank) -> bool {
        of_peer!(self, peer, is_near())
    }

    fn process_of(&self, peer: Rank) -> Option<u32> {
        of_peer!(self, peer, process_of())
    }

    fn eager_bytes(&self, peer: Rank) -> usize {
        of_peer!(self, peer, eager_bytes())
    }

    fn unasked_bytes(&self, peer: Rank, message_bytes: usize) -> usize {
        of_peer!(self, peer, unasked_bytes(message_bytes))
    }

    fn connect(&mut self, peer: Rank) {
        of_peer!(self, peer, connect());
    }

    #[cfg(feature = "tcp")]
    fn disconnect(&mut self, peer: Rank) -> bool {
        of_peer!(self, peer, disconnect())
    }

    fn is_joining(&self) -> bool {
        self.first.is_joining() || self.second.is_joining()
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        self.turns.advance(&mut self.first, &mut self.second, sink)
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        self.first.interests(interests);
        self.second.interests(interests);
    }

    fn deadline(&self) -> Option<Instant> {
        self.first.deadline().into_iter().chain(self.second.deadline()).min()
    }

    fn release_idle_memory(&mut self) {
        self.first.release_idle_memory();
        self.second.release_idle_memory();
    }

    fn abandon(&mut self) {
        self.first.abandon();
        self.second.abandon();
    }

    fn close(&mut self, orderly: bool) {
        self.first.close(orderly);
        self.second.close(orderly);
    }
}
