//! `ws://` and `wss://` URLs: a store server that browsers reach too. Knows no sockets: a browser's
//! side of polyrank installs what opens the store there.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Rendezvous, RendezvousRequest, check_rank, rejected, who};
#[cfg(feature = "websocket")]
use crate::blocking::unblock;
use crate::generated::error::{Error, Result};
use crate::store::url::Url;
use crate::store::{PrefixStore, Store, WebSocketStoreOptions};

/// A store that is being opened.
pub type OpeningStore = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send>>;

/// Opens the store behind a URL (without its query).
pub type StoreOpener = fn(String, WebSocketStoreOptions) -> OpeningStore;

static OPENER: Mutex<Option<StoreOpener>> = Mutex::new(None);

/// Makes `opener` open the stores of `ws://` and `wss://` URLs, replacing the previous one.
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
    let (store, hosting) = match host_if_own(url, rank, request.timeout)? {
        Some(store) => (store, true),
        None => {
            let address = format!("{}://{}{}", url.scheme, url.authority, url.path);
            let grace = grace(url)?;
            let options = WebSocketStoreOptions::new(request.timeout).reconnect_grace(grace);
            (open_web_socket_store(&address, options).await?, false)
        }
    };
    let store = match url.parameter("room") {
        Some(room) => Arc::new(PrefixStore::new(format!("room/{room}"), store)),
        None => store,
    };
    let mut met = Rendezvous::new(store, rank, world_size)?;
    (met.hosting, met.ends_with_rank_0) = (hosting, true);
    Ok(met)
}

/// The store of the server at `url`, a `ws://` or `wss://` address.
pub(crate) async fn open_web_socket_store(
    url: &str,
    options: WebSocketStoreOptions,
) -> Result<Arc<dyn Store>> {
    let opener = *OPENER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(opener) = opener {
        return opener(url.to_owned(), options).await;
    }
    #[cfg(feature = "websocket")]
    {
        let url = url.to_owned();
        let connect = move || crate::store::WebSocketStore::connect_with(&url, options);
        Ok(Arc::new(unblock(connect).await?))
    }
    #[cfg(not(feature = "websocket"))]
    Err(Error::Unsupported {
        who: "this build of polyrank".into(),
        operation: format!("a store at {url}"),
    })
}

/// How long the others wait for this rank when its WebSocket is lost, if the URL says so.
fn grace(url: &Url<'_>) -> Result<Option<Duration>> {
    let Some(text) = url.parameter("reconnect_grace_ms") else { return Ok(None) };
    let number = text.parse::<u64>().map_err(|_| {
        rejected(
            url.scheme,
            &format!("reconnect_grace_ms '{text}' is not a number of milliseconds"),
        )
    });
    number.map(|ms| Some(Duration::from_millis(ms)))
}

/// Hosts the store if this is rank 0, the URL names this very host, and no server is there yet.
#[cfg(feature = "websocket")]
fn host_if_own(url: &Url<'_>, rank: u32, timeout: Duration) -> Result<Option<Arc<dyn Store>>> {
    use crate::store::{TcpStore, TcpStoreOptions};

    let (host, port) = url.host_and_port();
    if rank != 0 || url.scheme != "ws" || !is_own(host) {
        return Ok(None);
    }
    let number = |port: &str| {
        port.parse().map_err(|_| {
            rejected(url.scheme, &format!("port '{port}' is not a number up to 65535"))
        })
    };
    let port = port.map_or(Ok(80), number)?;
    let options =
        TcpStoreOptions::new(host, port).is_master(true).multi_tenant(true).timeout(timeout);
    match TcpStore::without_waiting(options) {
        Ok(store) => Ok(Some(Arc::new(store))),
        // Somebody has the port: a server that stands there for many groups, it is to be hoped.
        Err(Error::Network { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(not(feature = "websocket"))]
fn host_if_own(_: &Url<'_>, _: u32, _: Duration) -> Result<Option<Arc<dyn Store>>> {
    Ok(None)
}

/// Whether `host` names an address of this host.
#[cfg(feature = "websocket")]
fn is_own(host: &str) -> bool {
    use std::net::{ToSocketAddrs, UdpSocket};

    let addresses = (host, 0).to_socket_addrs();
    addresses.is_ok_and(|mut addresses| addresses.any(|address| UdpSocket::bind(address).is_ok()))
}

#[cfg(all(test, feature = "websocket"))]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::rendezvous::{join, rendezvous};
    use crate::store::{TcpStore, TcpStoreOptions};

    const LIMIT: Duration = Duration::from_secs(60);

    /// Three ranks meet at `address`, which has no query; whether rank 0 hosted the store.
    fn meet_three(address: &str, query: &str) -> bool {
        let hosting = std::thread::scope(|scope| {
            let rank = |rank: u32| {
                let url = format!("{address}?rank={rank}&world_size=3{query}");
                scope.spawn(move || {
                    let met = rendezvous(&url, None, None, LIMIT).unwrap();
                    join(&*met.store, "group", met.rank, met.world_size, LIMIT).unwrap();
                    met.store.set(&format!("seen by {rank}"), b"1").unwrap();
                    let keys = ["seen by 0", "seen by 1", "seen by 2"];
                    met.store.wait(&keys, Some(LIMIT)).unwrap();
                    // The host leaves last.
                    met.store.barrier("done", 3, Some(LIMIT)).unwrap();
                    if met.hosting {
                        met.store.wait(&["left 1", "left 2"], Some(LIMIT)).unwrap();
                    } else {
                        met.store.set(&format!("left {rank}"), b"1").unwrap();
                    }
                    met.hosting
                })
            };
            let ranks: Vec<_> = (0..3).map(rank).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(!hosting[1] && !hosting[2]);
        hosting[0]
    }

    #[test]
    fn rank_0_hosts_the_store_where_no_server_is() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        assert!(meet_three(&format!("ws://127.0.0.1:{port}"), ""));
    }

    #[test]
    fn a_server_that_stands_serves_several_rooms() {
        let options = TcpStoreOptions::new("localhost", 0).is_master(true);
        let server = TcpStore::new(options).unwrap();
        let address = format!("ws://localhost:{}/path", server.port());
        for room in ["one", "two"] {
            assert!(!meet_three(&address, &format!("&room={room}")));
            assert!(server.check(&[&format!("room/{room}/seen by 2")]).unwrap());
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (url, part) in [
            ("ws://localhost:1", "rank parameter missing"),
            ("ws://localhost:1?rank=0", "world size parameter missing"),
            ("wss://x:1?rank=0&world_size=1&reconnect_grace_ms=soon", "'soon' is not a number"),
            ("ws://?rank=0&world_size=1", "host missing"),
            ("ws://localhost:99999?rank=0&world_size=1", "99999"),
            ("wss://localhost:99999?rank=1&world_size=2", "ws://host:port"),
        ] {
            let error = rendezvous(url, None, None, LIMIT).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }
}
