//! Where others meet this process for one group, and what it remembers of earlier calls. Knows
//! nothing of the group's members.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::handle::Handle;
use crate::generated::error::{Error, Result};
use crate::random;
use crate::rendezvous::meeting_place::HostedPlace;
#[cfg(feature = "tcp")]
use crate::rendezvous::{kept_place, meeting_place};
use crate::sorted::SortedMap;
use crate::store::Store;

/// Most earlier calls whose numbers are remembered.
const MAX_USED: usize = 1 << 16;

/// What of a group stays when its members change.
#[derive(Default)]
pub(crate) struct Site {
    /// The address of this host that leads to the others, where the group's store does not say it.
    near: Option<IpAddr>,
    /// Where those meet that listen nowhere; likewise.
    #[cfg_attr(feature = "tcp", allow(dead_code, reason = "a process with sockets listens"))]
    socket_url: Option<String>,
    state: Mutex<SiteState>,
}

#[derive(Default)]
struct SiteState {
    nonce: Option<u64>,
    /// How often the group was reconfigured.
    count: u32,
    place: Option<Arc<HostedPlace>>,
    /// Where this process meets others that cannot listen, once that was asked for.
    #[cfg(not(feature = "tcp"))]
    socket_url: Option<String>,
    /// The numbers of earlier calls, and when they were made.
    used: SortedMap<i64, u32>,
    is_busy: bool,
    /// Whether the group was destroyed: nobody is met here any more.
    is_closed: bool,
}

/// Why a call does not begin.
pub(super) enum Refused {
    /// Another is under way.
    Busy,
    /// This earlier one had its number.
    Used(u32),
}

impl Site {
    /// That of a group whose ranks met in `store`.
    pub(crate) fn near(store: &dyn Store) -> Site {
        Site::at(store.local_address(), store.socket_url())
    }

    /// That of a process which others reach at the interface with the address `near`, and which
    /// meets others at `socket_url` if it cannot listen.
    pub(crate) fn at(near: Option<IpAddr>, socket_url: Option<String>) -> Site {
        Site { near, socket_url, state: Mutex::default() }
    }

    /// That of another group of this process, whose parent has this site and this store.
    pub(crate) fn again(&self, store: &dyn Store) -> Site {
        let near = self.near.or_else(|| store.local_address());
        Site::at(near, self.socket_url.clone().or_else(|| store.socket_url()))
    }

    /// Who this process is, as a member of the rank `rank` now of a group with this store.
    ///
    /// # Errors
    /// [`Error::Network`] if it cannot be met anywhere; [`Error::Unsupported`] in a browser whose
    /// group has no store of a server; [`Error::InvalidGroup`] if the group was destroyed.
    pub(super) fn handle(
        &self,
        group: &str,
        rank: Option<u32>,
        store: &dyn Store,
    ) -> Result<Handle> {
        let mut state = self.lock();
        if state.is_closed {
            let message = format!("group '{group}' was destroyed");
            return Err(Error::InvalidGroup { message });
        }
        let nonce = match state.nonce {
            Some(nonce) => nonce,
            None => *state.nonce.insert(u64::from_le_bytes(random::bytes::<8>()?)),
        };
        let place = self.place(&mut state, store)?;
        Ok(Handle { rank, nonce, count: state.count, place })
    }

    /// The store that this process hosts for meetings, if it does.
    pub(super) fn hosted(&self) -> Option<Arc<HostedPlace>> {
        self.lock().place.clone()
    }

    /// Begins a call with this number.
    pub(super) fn begin(&self, uuid: i64) -> std::result::Result<(), Refused> {
        let mut state = self.lock();
        if state.is_busy {
            return Err(Refused::Busy);
        }
        match state.used.get(&uuid) {
            Some(count) => Err(Refused::Used(*count)),
            None => {
                state.is_busy = true;
                Ok(())
            }
        }
    }

    /// The call with this number begins in earnest: neither the number nor the handles of this
    /// process until now serve again.
    pub(super) fn use_up(&self, uuid: i64) {
        let mut state = self.lock();
        state.count += 1;
        let count = state.count;
        if state.used.len() >= MAX_USED
            && let Some(oldest) = state.used.iter().min_by_key(|(_, at)| **at).map(|it| *it.0)
        {
            state.used.remove(&oldest);
        }
        state.used.insert(uuid, count);
    }

    /// The group was destroyed: nobody is met here any more, and nothing stays open.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let place = state.place.take();
        drop(state);
        // It ends a server, which may take a moment.
        drop(place);
    }

    /// The group was dropped without a word to those that it hosts: nobody else is met here any
    /// more, and what is there stays until they need it no longer.
    pub(crate) fn let_go(&self) {
        let place = self.lock().place.take();
        #[cfg(feature = "tcp")]
        place.into_iter().for_each(kept_place::let_go);
        #[cfg(not(feature = "tcp"))]
        drop(place);
    }

    /// The call is over, however it ended.
    pub(super) fn end(&self) {
        self.lock().is_busy = false;
    }

    #[cfg(feature = "tcp")]
    fn place(&self, state: &mut SiteState, store: &dyn Store) -> Result<String> {
        if let Some(place) = &state.place {
            return Ok(place.url.clone());
        }
        let place = meeting_place::host(self.near.or_else(|| store.local_address()))?;
        Ok(state.place.insert(Arc::new(place)).url.clone())
    }

    #[cfg(not(feature = "tcp"))]
    fn place(&self, state: &mut SiteState, store: &dyn Store) -> Result<String> {
        let known = state.socket_url.clone().or_else(|| self.socket_url.clone());
        let found = known.or_else(|| store.socket_url());
        let (who, operation) = ("a browser", "reconfigure in a group without a WebSocketStore");
        let found = found.ok_or_else(|| Error::Unsupported {
            who: who.to_owned(),
            operation: operation.to_owned(),
        })?;
        Ok(state.socket_url.insert(found).clone())
    }

    fn lock(&self) -> MutexGuard<'_, SiteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
