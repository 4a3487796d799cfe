//! Connections that break: a proxy cuts them wherever it likes, and the store continues.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::generated::error::Error;
use crate::store::{PrefixStore, Store, WebSocketStore, WebSocketStoreOptions};
use crate::transport::LossReason;
use crate::transport::websocket::PipeState;
use crate::wire::session::DEFAULT_GRACE_MS;

/// Stands between clients and a server, and cuts each connection after a number of bytes.
struct Proxy {
    port: u16,
    shared: Arc<SharedState>,
}

struct SharedState {
    server: u16,
    /// State of the random numbers.
    seed: AtomicU64,
    /// Most bytes of a connection; 0: it is not cut.
    most_bytes: u64,
    cuts: AtomicU64,
    /// No connection gets through any more.
    closed: AtomicBool,
}

impl Proxy {
    fn new(server: u16, seed: u64, most_bytes: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(SharedState {
            server,
            seed: AtomicU64::new(seed),
            most_bytes,
            cuts: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        });
        std::thread::spawn({
            let shared = shared.clone();
            move || {
                for client in listener.incoming().flatten() {
                    shared.clone().carry(client);
                }
            }
        });
        Proxy { port, shared }
    }
}

impl SharedState {
    fn random(&self) -> u64 {
        // SplitMix64.
        let step = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.seed.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn carry(self: Arc<Self>, client: TcpStream) {
        if self.closed.load(Ordering::SeqCst) {
            return;
        }
        let server = TcpStream::connect(("127.0.0.1", self.server)).unwrap();
        let most = self.most_bytes;
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let shared = self.clone();
            // Enough for the handshake and a little more, so that every connection gets on.
            let mut left = if most == 0 { u64::MAX } else { 600 + self.random() % most };
            std::thread::spawn(move || {
                let mut buffer = vec![0; 16 << 10];
                while let Ok(bytes @ 1..) = from.read(&mut buffer) {
                    let carried = bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
                    if to.write_all(&buffer[..carried]).is_err() {
                        break;
                    }
                    left -= carried as u64;
                    if left == 0 || shared.closed.load(Ordering::SeqCst) {
                        shared.cuts.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                }
                // Either end may be closed already.
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}

#[test]
fn requests_are_carried_out_once_however_often_the_connection_breaks() {
    let seed = u64::from_le_bytes(crate::random::bytes().unwrap());
    eprintln!("seed {seed}");
    let server = server();
    let proxy = Proxy::new(server.port(), seed, 200_000);
    let options = WebSocketStoreOptions::new(LIMIT).reconnect_grace(Some(LIMIT));
    let store = WebSocketStore::connect_with(&url(proxy.port), options).unwrap();
    let value = vec![3; 20_000];
    let sums: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let store = store.clone_store().unwrap();
                let value = &value;
                scope.spawn(move || {
                    let mut sums = Vec::new();
                    for turn in 0..60u32 {
                        sums.push(store.add("n", 1).unwrap());
                        store.set(&format!("key {thread} {turn}"), value).unwrap();
                        store.queue_push("q", &[thread as u8]).unwrap();
                        assert_eq!(store.get(&format!("key {thread} {turn}")).unwrap(), *value);
                        store.queue_pop("q", true).unwrap();
                        store.append("log", b"x").unwrap();
                    }
                    sums
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let each: BTreeSet<i64> = sums.iter().flatten().copied().collect();
    assert_eq!(each, (1..=240).collect());
    assert_eq!(server.queue_len("q").unwrap(), 0);
    assert_eq!(server.get("log").unwrap().len(), 240);
    let cuts = proxy.shared.cuts.load(Ordering::Relaxed);
    assert!(cuts >= 10, "only {cuts} connections were cut");
}

#[test]
fn a_client_is_waited_for_as_long_as_it_asks() {
    let server = server();
    let connect = |grace: Option<Duration>| {
        let options = WebSocketStoreOptions::new(LIMIT).reconnect_grace(grace);
        WebSocketStore::connect_with(&url(server.port()), options).unwrap()
    };
    let minute = connect(Some(Duration::from_secs(60)));
    // What the server answered, which has limits, and what the ranks of its groups are asked for.
    assert_eq!(minute.client().grace_ms(), 60_000);
    let under = PrefixStore::new("group", minute.clone_store().unwrap());
    assert_eq!(under.reconnect_grace(), Some(Duration::from_secs(60)));
    assert_eq!(connect(Some(Duration::ZERO)).client().grace_ms(), 1);
    let day_ms = 24 * 60 * 60 * 1000;
    let patient = connect(Some(Duration::from_millis(day_ms)));
    assert!(u64::from(patient.client().grace_ms()) < day_ms);
    let undecided = connect(None);
    assert_eq!(undecided.client().grace_ms(), DEFAULT_GRACE_MS);
    assert_eq!(undecided.reconnect_grace(), None);
}

#[test]
fn a_client_that_cannot_come_back_says_so_and_the_others_hear_of_its_death() {
    let server = server();
    let proxy = Proxy::new(server.port(), 1, 0);
    let doomed = WebSocketStore::connect(&url(proxy.port), LIMIT).unwrap();
    let other = WebSocketStore::connect(&url(server.port()), LIMIT).unwrap();
    let (relay, number) = (other.client().relay(), doomed.client().relay().number());
    let mut pipe = relay.open(number, 3);
    let answer = doomed.client().relay().open(relay.number(), 3);
    pipe.send(&[b"hello"]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| doomed.get("never"));
        other.set("there", b"1").unwrap();
        proxy.shared.closed.store(true, Ordering::SeqCst);
        // The proxy looks up when the next bytes pass.
        let late = doomed.set("one more", b"2");
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Network { .. }), "{error}");
        assert!(error.to_string().contains("was lost"), "{error}");
        drop(late);
    });
    while !matches!(pipe.state(), PipeState::Lost(LossReason::Died(_))) {
        // Its death reaches the other through the session that continues.
        other.check(&["there"]).unwrap();
        std::thread::yield_now();
    }
    drop(answer);
    assert_eq!(other.get("there").unwrap(), b"1");
}

#[test]
fn a_server_that_ends_is_found_out() {
    let server = server();
    let store = WebSocketStore::connect(&url(server.port()), LIMIT).unwrap();
    store.set("k", b"v").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.get("never"));
        drop(server);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Network { .. }), "{error}");
    });
    assert!(store.set("k", b"v").is_err());
}
