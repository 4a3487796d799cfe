//! Whether a server has clients beside those of the stores that keep it alive: its host need
//! not stay for anybody where there are none. Knows nothing of sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One client, in the count of both.
const CLIENT: u64 = 1 << 32;
/// One store that keeps the server alive, in the count of both.
const HOST: u64 = 1;

/// How many clients there are, and how many stores that keep the server alive. One number, as the
/// two belong together: the client of a host is counted before and after it, and hides no other.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientCount(Arc<AtomicU64>);

/// A client, as long as this lives.
#[derive(Debug)]
pub(super) struct ClientGuard(ClientCount);

/// A store that keeps the server alive and is connected to it, as long as this lives.
#[derive(Debug)]
pub(in crate::store::tcp) struct HostGuard(ClientCount);

impl ClientCount {
    /// Counts a client from now on.
    pub(super) fn enter(&self) -> ClientGuard {
        self.0.fetch_add(CLIENT, Ordering::AcqRel);
        ClientGuard(self.clone())
    }

    /// Counts a store that keeps the server alive, whose client was counted before.
    pub(super) fn host(&self) -> HostGuard {
        self.0.fetch_add(HOST, Ordering::AcqRel);
        HostGuard(self.clone())
    }
}

impl HostGuard {
    /// Whether the server has no other client. One that is about to leave may count.
    pub(in crate::store::tcp) fn has_no_clients(&self) -> bool {
        let both = self.0.0.load(Ordering::Acquire);
        both / CLIENT <= both % CLIENT
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(CLIENT, Ordering::AcqRel);
    }
}

impl Drop for HostGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(HOST, Ordering::AcqRel);
    }
}
