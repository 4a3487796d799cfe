//! `ws://` and `wss://` URLs: a store server that browsers reach too. Knows no sockets: whoever has
//! some installs what opens the store.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::url::Url;
use super::{Rendezvous, RendezvousRequest, check_rank, rejected, who};
use crate::store::Store;
use crate::{Error, Result};

/// A store that is being opened.
pub type OpeningStore = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send>>;

/// Opens the store behind a URL (without its query) within a time; zero is no limit.
pub type StoreOpener = fn(String, Duration) -> OpeningStore;

static OPENER: Mutex<Option<StoreOpener>> = Mutex::new(None);

/// Has `opener` open the stores of `ws://` and `wss://` URLs, in place of the one before.
pub fn install_store_opener(opener: StoreOpener) {
    *OPENER.lock().unwrap_or_else(PoisonError::into_inner) = Some(opener);
}

pub(super) async fn meet(url: &Url<'_>, request: RendezvousRequest<'_>) -> Result<Rendezvous> {
    let (rank, world_size) = who(url, request)?;
    let rank = rank.ok_or_else(|| rejected(url.scheme, "rank parameter missing"))?;
    let missing = || rejected(url.scheme, "world size parameter missing");
    let world_size = world_size.ok_or_else(missing)?;
    check_rank(rank, world_size)?;
    if url.host_and_port().0.is_empty() {
        return Err(rejected(url.scheme, "host missing"));
    }
    let opener = *OPENER.lock().unwrap_or_else(PoisonError::into_inner);
    let opener = opener.ok_or_else(|| Error::Unsupported {
        who: "this build of polyrank".into(),
        operation: format!("{}:// rendezvous", url.scheme),
    })?;
    let address = format!("{}://{}{}", url.scheme, url.authority, url.path);
    let store = opener(address, request.timeout).await?;
    Ok(Rendezvous { store, rank, world_size, hosting: false, hosted: true })
}
