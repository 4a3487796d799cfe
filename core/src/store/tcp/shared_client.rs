//! The one connection that the groups of a process share, of all that were made to a server. Knows
//! nothing of what they ask there.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::client::Client;
use crate::fork;

/// The place of that connection, the same in all clones of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedClient(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    /// The number of forks before it was shared: a child has to have a connection of its own.
    forks: u32,
    /// Those who use it keep it open.
    client: Weak<Client>,
}

impl SharedClient {
    /// The connection that is shared; from now on `own`, if there is none.
    pub(super) fn get_or_share(&self, own: &Arc<Client>) -> Arc<Client> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let forks = fork::forks();
        match shared.client.upgrade().filter(|_| shared.forks == forks) {
            Some(client) => client,
            None => {
                *shared = Shared { forks, client: Arc::downgrade(own) };
                own.clone()
            }
        }
    }
}
