//! Whether a server has clients beside those of the stores that keep it alive: whoever hosts it
//! need not stay for anybody where there are none. Knows nothing of sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One client, in the count of both.
const CLIENT: u64 = 1 << 32;
/// One store that keeps the server alive, in the count of both.
const KEEPER: u64 = 1;

/// How many clients there are, and how many stores that keep the server alive. One number, as the
/// two belong together: the client of a keeper is counted before and after it, and hides no other.
#[derive(Clone, Debug, Default)]
pub(super) struct Presence(Arc<AtomicU64>);

/// A client, as long as this lives.
#[derive(Debug)]
pub(super) struct Present(Presence);

/// A store that keeps the server alive and is connected to it, as long as this lives.
#[derive(Debug)]
pub(in crate::store::tcp) struct Keeper(Presence);

impl Presence {
    /// Counts a client from now on.
    pub(super) fn enter(&self) -> Present {
        self.0.fetch_add(CLIENT, Ordering::AcqRel);
        Present(self.clone())
    }

    /// Counts a store that keeps the server alive, whose client was counted before.
    pub(super) fn keep(&self) -> Keeper {
        self.0.fetch_add(KEEPER, Ordering::AcqRel);
        Keeper(self.clone())
    }
}

impl Keeper {
    /// Whether the server has no other client. One that is about to leave may count.
    pub(in crate::store::tcp) fn is_deserted(&self) -> bool {
        let both = self.0.0.load(Ordering::Acquire);
        both / CLIENT <= both % CLIENT
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.0.fetch_sub(CLIENT, Ordering::AcqRel);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.0.fetch_sub(KEEPER, Ordering::AcqRel);
    }
}
