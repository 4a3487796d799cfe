//! Connections: HTTP/2 for replicas, HTTP/1 for browsers, told apart by their first bytes. What one
//! of them may hold is bounded before anything is known of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

/// Most calls of one connection at a time.
const MAX_STREAMS: u32 = 64;
/// Most bytes of headers.
const MAX_HEADERS: u32 = 16 << 10;
/// What a call, and a connection, may send ahead.
const WINDOWS: (u32, u32) = (128 << 10, 512 << 10);
/// How often a replica that waits is asked whether it is there, and how long it may take to answer:
/// a host that vanished closes no connection.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How long nobody is let in when that has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// HTTP/2, and HTTP/1 for browsers.
    Both,
    /// HTTP/2 alone, which no page of a browser can be made to speak without encryption.
    Http2,
}

/// How many connections there may be, and for how long one that nobody has let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most at a time; more wait until one ends.
    pub all: usize,
    /// Most of one address at a time, loopback excepted; more are closed.
    pub of_one_address: usize,
    /// How long one may take until its first request that is let in.
    pub first_request: Duration,
}

impl Default for ConnectionLimits {
    /// Enough for the replicas of several thousand hosts.
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            all: 16_384,
            of_one_address: 2048,
            first_request: Duration::from_secs(10),
        }
    }
}

/// A connection. Each of its requests has it as an extension.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Each has another.
    pub(crate) number: u64,
    admitted: Arc<Notify>,
    /// Its sender is there as long as the connection.
    open: watch::Receiver<()>,
}

impl Connection {
    /// A request of this connection is let in.
    pub(crate) fn admit(&self) {
        self.admitted.notify_one();
    }

    /// Whether it has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.open.has_changed().is_ok()
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(mut self) {
        // Nothing is ever sent: this is the end of the sender.
        while self.open.changed().await.is_ok() {}
    }
}

/// Serves until it is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    versions: Versions,
    limits: ConnectionLimits,
) {
    let room = Room::new(limits);
    let mut numbers = 0_u64..;
    loop {
        let place = room.place().await;
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("nobody can be let in: {error}");
                // There are no descriptors: some may be free soon.
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Dropped, the connection is closed.
        let Some(of_address) = room.enter(peer.ip()) else { continue };
        let (is_open, open) = watch::channel(());
        let number = numbers.next().unwrap_or(u64::MAX);
        let connection = Connection { number, admitted: Arc::default(), open };
        let router = router.clone().layer(Extension(connection.clone()));
        tokio::spawn(async move {
            attend(stream, router, versions, &connection, limits.first_request).await;
            drop((place, of_address, is_open));
        });
    }
}

async fn attend(
    stream: TcpStream,
    router: Router,
    versions: Versions,
    connection: &Connection,
    limit: Duration,
) {
    // Without it, answers are a little late.
    drop(stream.set_nodelay(true));
    let mut builder = Builder::new(TokioExecutor::new());
    if versions == Versions::Http2 {
        builder = builder.http2_only();
    }
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limit)
        .max_buf_size(MAX_HEADERS as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADERS)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1);
    let service = TowerToHyperService::new(router);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // A client that goes away is no concern of the others.
        _ = &mut served => return,
        () = connection.admitted.notified() => {}
        () = sleep(limit) => return,
    }
    drop(served.await);
}

/// How much room there is.
struct Room {
    limits: ConnectionLimits,
    all: Arc<Semaphore>,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Default)]
struct Counts {
    of_addresses: HashMap<IpAddr, usize>,
    /// What is warned of once.
    has_been_full: bool,
    has_turned_away: bool,
}

/// A connection of an address.
struct OfAddress {
    address: IpAddr,
    counts: Arc<Mutex<Counts>>,
}

impl Room {
    fn new(limits: ConnectionLimits) -> Room {
        Room { limits, all: Arc::new(Semaphore::new(limits.all)), counts: Arc::default() }
    }

    /// Waits for room for one more; none only when there will never be any.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.all.clone().try_acquire_owned() {
            return Some(place);
        }
        if !std::mem::replace(&mut lock(&self.counts).has_been_full, true) {
            let all = self.limits.all;
            tracing::warn!("there are {all} connections, which is the limit: more have to wait");
        }
        self.all.clone().acquire_owned().await.ok()
    }

    /// Counts a connection of this address, unless it has too many.
    fn enter(&self, address: IpAddr) -> Option<OfAddress> {
        let address = address.to_canonical();
        let mut counts = lock(&self.counts);
        let limit = self.limits.of_one_address;
        let count = counts.of_addresses.entry(address).or_default();
        if *count >= limit && !address.is_loopback() {
            if !std::mem::replace(&mut counts.has_turned_away, true) {
                tracing::warn!(
                    "{address} has {limit} connections, which is the limit: more are closed"
                );
            }
            return None;
        }
        *count += 1;
        Some(OfAddress { address, counts: self.counts.clone() })
    }
}

impl Drop for OfAddress {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.of_addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.of_addresses.remove(&self.address);
            }
        }
    }
}

fn lock(counts: &Mutex<Counts>) -> std::sync::MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_connections_and_loopback_any_number() {
        let room = Room::new(ConnectionLimits { of_one_address: 2, ..ConnectionLimits::default() });
        let [one, mapped, other] = ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"];
        let enter = |address: &str| room.enter(address.parse().unwrap());
        let (first, _second) = (enter(one).unwrap(), enter(mapped).unwrap());
        assert!(enter(one).is_none() && enter(mapped).is_none());
        let _other = enter(other).unwrap();
        drop(first);
        let _again = enter(one).unwrap();
        let local: Vec<_> = ["127.0.0.1", "::1"].repeat(9).into_iter().map(enter).collect();
        assert!(local.iter().all(Option::is_some));
        drop((local, _other));
        assert_eq!(lock(&room.counts).of_addresses.len(), 1, "who has gone is forgotten");
    }
}
