//! Pipes to other ranks through the store's server, as the transport has them. Knows nothing of
//! what the chunks say, nor of who moves the session's packets.

use bytes::Bytes;

use super::client::Client;
use super::pipes::PipeName;
use crate::clock::Instant;
use crate::transport::websocket::{Pipe, PipeState, Relay};
use crate::transport::{Bell, Interest, LossReason};
use crate::wire::channel::CHUNK_COST_BYTES;
use crate::wire::session::HEADER_BYTES;

impl Relay for Client {
    fn number(&self) -> u64 {
        self.with(|link| link.session().number())
    }

    fn open(&self, peer: u64, id: u64) -> Box<dyn Pipe> {
        let name = PipeName { peer, id };
        let bell = self.with(|link| {
            let own = link.session().number();
            if let Some(message) = link.pipes.open(own, name) {
                link.send(message);
            }
            link.bells.hang()
        });
        Box::new(RelayedPipe { client: self.clone(), name, bell })
    }
}

/// A pipe through the store's server.
struct RelayedPipe {
    client: Client,
    name: PipeName,
    /// Wakes what waits for this pipe; without one, nobody can use it.
    bell: Option<Bell>,
}

impl Pipe for RelayedPipe {
    fn advance(&mut self, _now: Instant) -> bool {
        // The mover of the session's packets moves the chunks with them.
        self.bell.as_ref().is_some_and(Bell::heard)
    }

    fn room(&self) -> usize {
        self.client.with(|link| {
            let session = link.session().room();
            let session = session.saturating_sub(HEADER_BYTES + CHUNK_COST_BYTES);
            link.pipes.room(self.name).min(session)
        })
    }

    fn send(&mut self, parts: &[&[u8]]) {
        self.client.with(|link| {
            if let Some(message) = link.pipes.send(self.name, parts) {
                link.send(message);
            }
        });
    }

    fn receive(&mut self) -> Option<Bytes> {
        self.client.with(|link| {
            let (chunk, credits) = link.pipes.receive(self.name)?;
            credits.into_iter().for_each(|credit| link.send(credit));
            Some(Bytes::from_owner(chunk))
        })
    }

    fn state(&self) -> PipeState {
        if self.bell.is_none() {
            let why = "this process has no file descriptor left for it";
            return PipeState::Lost(LossReason::Unreachable(why.into()));
        }
        self.client.with(|link| match (link.pipes.state(self.name), link.session().number()) {
            (PipeState::Open, 0) => PipeState::Connecting,
            (PipeState::Open | PipeState::Connecting, own) if own == self.name.peer => {
                PipeState::Lost(LossReason::Protocol("a pipe to itself".into()))
            }
            (state, _) => state,
        })
    }

    fn close(&mut self, orderly: bool) {
        self.client.with(|link| {
            if let Some(message) = link.pipes.close(self.name, orderly) {
                link.send(message);
            }
        });
    }

    fn is_flushed(&self) -> bool {
        self.client.is_flushed()
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        interests.extend(self.bell.as_ref().and_then(Bell::interest));
    }
}

impl Drop for RelayedPipe {
    fn drop(&mut self) {
        self.close(false);
        if let Some(bell) = &self.bell {
            self.client.with(|link| link.bells.take_down(bell));
        }
    }
}
