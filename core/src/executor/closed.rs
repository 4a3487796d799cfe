//! The transport of an executor after its group was left: nothing is sent, and nothing arrives.

use crate::transport::{Interest, Payload, Rank, Sink, Transport};
use crate::wire::frame::Header;

/// A transport without connections.
pub(super) struct ClosedTransport {
    rank: Rank,
    size: u32,
}

impl ClosedTransport {
    /// A replacement for `transport`.
    pub(super) fn of(transport: &dyn Transport) -> Box<dyn Transport> {
        Box::new(ClosedTransport { rank: transport.rank(), size: transport.size() })
    }
}

impl Transport for ClosedTransport {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, _peer: Rank, _header: Header, _payload: Payload) {}

    fn connect(&mut self, _peer: Rank) {}

    fn advance(&mut self, _sink: &mut dyn Sink) -> bool {
        false
    }

    fn interests(&self, _interests: &mut Vec<Interest>) {}

    fn abandon(&mut self) {}

    fn close(&mut self, _orderly: bool) {}
}
