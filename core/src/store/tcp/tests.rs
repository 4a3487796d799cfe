//! Client and server against raw bytes, against each other's death, and under abuse.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod imitations;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::*;
use crate::store::protocol::{Encode, Kind, MAGIC};

fn serve() -> TcpStore {
    TcpStore::new(TcpStoreOptions::new("127.0.0.1", 0).is_master(true)).unwrap()
}

fn connect(server: &TcpStore) -> TcpStore {
    TcpStore::new(TcpStoreOptions::new("127.0.0.1", server.port())).unwrap()
}

/// A client that says what it wants.
struct Raw(TcpStream);

impl Raw {
    fn new(server: &TcpStore) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    fn validated(server: &TcpStore) -> Self {
        let mut raw = Self::new(server);
        raw.say(&[&[0][..], &MAGIC.to_le_bytes()].concat());
        raw
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn hear<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Returns when the server has run everything that was said.
    fn sync(&mut self) {
        self.say(b"\x0dpong");
        assert_eq!(&self.hear::<4>(), b"pong");
    }

    fn assert_closed(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(rest, b"", "closed without a reply"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

fn request(kind: Kind, blobs: &[&[u8]]) -> Vec<u8> {
    let mut request = Vec::new();
    request.kind(kind);
    blobs.iter().for_each(|blob| request.blob(&[blob]));
    request
}

fn wait_for(keys: &[&str]) -> Vec<u8> {
    let mut request = Vec::new();
    request.kind(Kind::Wait);
    request.keys(b"", keys);
    request
}

#[test]
fn the_server_answers_torchs_bytes_with_torchs_bytes() {
    let server = serve();
    let mut raw = Raw::validated(&server);
    raw.say(b"\x0d\xe6\x55\0\0");
    assert_eq!(raw.hear(), *b"\xe6\x55\0\0");
    // set k=v1, get k, add n 5 and -7, in one write.
    raw.say(
        b"\x01\x02\0\0\0\0\0\0\0/k\x02\0\0\0\0\0\0\0v1\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k",
    );
    assert_eq!(raw.hear(), [0]);
    raw.say(b"\x03\x02\0\0\0\0\0\0\0/k");
    assert_eq!(raw.hear(), *b"\x02\0\0\0\0\0\0\0v1");
    raw.say(b"\x04\x02\0\0\0\0\0\0\0/n\x05\0\0\0\0\0\0\0");
    raw.say(b"\x04\x02\0\0\0\0\0\0\0/n\xf9\xff\xff\xff\xff\xff\xff\xff");
    assert_eq!(raw.hear(), *b"\x05\0\0\0\0\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff");
    // A get whose key is missing, without a wait.
    raw.say(&request(Kind::Get, &[b"/none"]));
    assert_eq!(raw.hear(), [0; 8]);
    // wait and cancel; cancel with nothing to cancel; an empty wait.
    raw.say(&wait_for(&["/zz", "/yy"]));
    raw.say(b"\x0c\x0c");
    assert_eq!(raw.hear(), [1, 1]);
    raw.say(&wait_for(&[]));
    assert_eq!(raw.hear(), [0]);
    // queue: push, wait, pop, len; barrier of one; the number of keys.
    raw.say(&request(Kind::QueuePush, &[b"/q", b"AA"]));
    raw.say(&wait_for(&["/q"]));
    raw.say(b"\x0f\x02\0\0\0\0\0\0\0/q\x0f\x02\0\0\0\0\0\0\0/q\x10\x02\0\0\0\0\0\0\0/q");
    assert_eq!(
        raw.hear(),
        *b"\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0AA\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    );
    raw.say(b"\x12\x02\0\0\0\0\0\0\0/b\x01\0\0\0\0\0\0\0\x07");
    assert_eq!(raw.hear(), *b"\0\x03\0\0\0\0\0\0\0");
    raw.say(b"\x11");
    let listed: [u8; 8 + 3 * 10] = raw.hear();
    assert_eq!(listed[..8], 3u64.to_le_bytes());
    let mut keys: Vec<&[u8]> = listed[8..].chunks(10).collect();
    keys.sort_unstable();
    let expected = [b"/b", b"/k", b"/n"].map(|key| [&2u64.to_le_bytes()[..], key].concat());
    assert_eq!(keys, expected);
}

#[test]
fn the_end_of_a_wait_and_its_cancellation_may_cross() {
    let server = serve();
    let (mut waiter, mut setter) = (Raw::validated(&server), Raw::validated(&server));
    waiter.say(&wait_for(&["/w", "/w"]));
    waiter.sync();
    setter.say(&request(Kind::Set, &[b"/w", b""]));
    setter.sync();
    waiter.say(b"\x0c");
    assert_eq!(waiter.hear(), [0, 1]);
    // A cancelled wait is not answered later.
    waiter.say(&wait_for(&["/x"]));
    waiter.say(b"\x0c");
    assert_eq!(waiter.hear(), [1]);
    setter.say(&request(Kind::Set, &[b"/x", b""]));
    setter.sync();
    waiter.sync();
}

#[test]
fn a_push_wakes_the_oldest_waiter_and_passes_over_who_left() {
    let server = serve();
    let mut waiters: Vec<Raw> = (0..3)
        .map(|_| {
            let mut waiter = Raw::validated(&server);
            waiter.say(&wait_for(&["/q"]));
            waiter.sync();
            waiter
        })
        .collect();
    server.queue_push("q", b"1").unwrap();
    assert_eq!(waiters[0].hear(), [0]);
    // The first gives up without fetching its element: the second learns of it.
    waiters[0].say(b"\x0c");
    assert_eq!(waiters[0].hear(), [1]);
    assert_eq!(waiters[1].hear(), [0]);
    // The second dies without fetching it: the third learns of it.
    drop(waiters.remove(1));
    assert_eq!(waiters[1].hear(), [0]);
    assert_eq!(server.queue_len("q").unwrap(), 1);
}

#[test]
fn a_compare_set_wakes_only_if_the_key_came_into_being() {
    let server = serve();
    let mut waiter = Raw::validated(&server);
    waiter.say(&wait_for(&["/k"]));
    waiter.sync();
    server.compare_set("k", b"expected", b"new").unwrap();
    waiter.sync();
    server.compare_set("k", b"", b"new").unwrap();
    assert_eq!(waiter.hear(), [0]);
}

#[test]
fn offenders_lose_their_connection_and_nobody_else_notices() {
    let server = serve();
    let mut bystander = Raw::validated(&server);
    let huge = |kind: u8| [&[kind][..], &u64::MAX.to_le_bytes()].concat();
    let number = |kind: u8, number: u64| [&[kind][..], &number.to_le_bytes()].concat();
    let mut text = request(Kind::Set, &[b"/s", b"abc"]);
    text.extend(request(Kind::Add, &[b"/s"]));
    text.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    let mut barrier = request(Kind::Barrier, &[b"/s"]);
    barrier.extend([2, 0, 0, 0, 0, 0, 0, 0]);
    let value = [&request(Kind::Set, &[b"/v"])[..], &((8u64 << 20) + 1).to_le_bytes()].concat();
    let cases = [
        huge(0x01),
        huge(0x02),
        huge(0x03),
        huge(0x04),
        huge(0x05),
        huge(0x06),
        huge(0x08),
        huge(0x09),
        huge(0x0a),
        huge(0x0b),
        huge(0x0e),
        huge(0x0f),
        huge(0x10),
        huge(0x12),
        number(0x03, 8193),
        number(0x05, 131_073),
        number(0x0b, 131_073),
        vec![0x13],
        vec![0xff],
        vec![0],
        value,
        text,
        barrier,
    ];
    for case in cases {
        let mut offender = Raw::validated(&server);
        offender.say(&case);
        offender.assert_closed();
        bystander.sync();
    }
    for first in [&b"\x01"[..], b"get / HTTP/1.0\r\n\r\n", b"\0\x01\0\0\0", b"\x0dpong"] {
        let mut stranger = Raw::new(&server);
        stranger.say(first);
        stranger.assert_closed();
    }
    // Nothing was run for who had not been validated.
    let mut stranger = Raw::new(&server);
    let _ = stranger.0.write_all(&request(Kind::Set, &[b"/a", b"b"]));
    stranger.assert_closed();
    assert!(!server.check(&["a"]).unwrap());
    // Half a request, and then nothing more, harms nobody.
    for half in [&b"\0\xce"[..], b"\0\xce\xf7\x85\x3c\x01\x64\0\0\0\0\0\0\0abc"] {
        Raw::new(&server).say(half);
    }
    bystander.sync();
}

#[test]
fn limits_are_inclusive_and_frames_may_come_in_pieces() {
    let server = serve();
    let mut raw = Raw::new(&server);
    let mut all = [&[0][..], &MAGIC.to_le_bytes()].concat();
    all.extend(request(Kind::Set, &[&[b'k'; 8192], &vec![1; 8 << 20]]));
    all.extend(request(Kind::Get, &[&[b'k'; 8192]]));
    // The first bytes one by one, then pieces that fit nothing.
    for byte in &all[..40] {
        raw.say(&[*byte]);
    }
    for piece in all[40..].chunks(99_991) {
        raw.say(piece);
    }
    assert_eq!(raw.hear(), (8u64 << 20).to_le_bytes());
    let mut value = vec![0; 8 << 20];
    raw.0.read_exact(&mut value).unwrap();
    assert!(value.iter().all(|&byte| byte == 1));
}

#[test]
fn who_does_not_read_its_replies_stops_only_itself() {
    let server = serve();
    server.set("big", &vec![5; 8 << 20]).unwrap();
    let mut greedy = Raw::validated(&server);
    let gets = 64;
    for _ in 0..gets {
        greedy.say(&request(Kind::Get, &[b"/big"]));
    }
    greedy.say(b"\x0dpong");
    let mut bystander = Raw::validated(&server);
    for _ in 0..100 {
        bystander.sync();
    }
    server.set("big", b"another").unwrap();
    let mut value = vec![0; 8 << 20];
    for _ in 0..gets {
        let bytes = u64::from_le_bytes(greedy.hear()) as usize;
        greedy.0.read_exact(&mut value[..bytes]).unwrap();
        assert!(bytes == 8 << 20 || &value[..bytes] == b"another", "{bytes} bytes");
    }
    assert_eq!(&greedy.hear::<4>(), b"pong");
}

#[test]
fn requests_too_large_for_the_protocol_fail_here() {
    let server = serve();
    let key = "k".repeat(8191);
    server.set(&key, b"v").unwrap();
    let long = "k".repeat(8192);
    let many = vec!["k"; 131_073];
    let large = vec![0; (8 << 20) + 1];
    let refused = [
        server.set(&long, b"v"),
        server.get(&long).map(drop),
        server.add(&long, 1).map(drop),
        server.wait(&[&long], None),
        server.wait(&many, None),
        server.check(&many).map(drop),
        server.set("k", &large),
        server.append("k", &large),
        server.queue_push("k", &large),
        server.compare_set("k", b"", &large).map(drop),
        server.multi_set(&["k"], &[&large]),
    ];
    for result in refused {
        assert!(matches!(result, Err(Error::InvalidArgument { .. })), "{result:?}");
    }
    assert_eq!(server.get(&key).unwrap(), b"v");
}

#[test]
fn values_grow_by_append_beyond_what_a_request_may_carry() {
    let server = serve();
    for part in 0..3 {
        server.append("k", &vec![part; 8 << 20]).unwrap();
    }
    let value = connect(&server).get("k").unwrap();
    assert_eq!(value.len(), 3 * (8 << 20));
    assert!(value.chunks(8 << 20).zip(0..).all(|(part, i)| part.iter().all(|&byte| byte == i)));
}

#[test]
fn the_server_lives_as_long_as_a_store_that_hosts_it() {
    let server = serve();
    let client = connect(&server);
    let clone = server.clone_store().unwrap();
    let port = server.port();
    drop(server);
    client.set("k", b"1").unwrap();
    assert_eq!(clone.get("k").unwrap(), b"1");
    let waiting = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.get("none"));
        drop(clone);
        waiter.join().unwrap()
    });
    let expected = format!("lost the store at 127.0.0.1:{port}: ");
    for error in [waiting.unwrap_err(), client.add("k", 1).unwrap_err()] {
        assert!(matches!(error, Error::Network { .. }), "{error:?}");
        assert_eq!(error.to_string().matches(&expected).count(), 1, "{error}");
    }
}

#[test]
fn clients_may_come_before_the_server() {
    let reserved = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = reserved.local_addr().unwrap().port();
    drop(reserved);
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            TcpStore::new(TcpStoreOptions::new("127.0.0.1", port)).unwrap().get("k").unwrap()
        });
        let options = TcpStoreOptions::new("127.0.0.1", port).is_master(true);
        let server = TcpStore::new(options).unwrap();
        server.set("k", b"1").unwrap();
        assert_eq!(client.join().unwrap(), b"1");
    });
}

#[test]
fn who_finds_no_server_says_where_it_looked() {
    let reserved = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = reserved.local_addr().unwrap().port();
    drop(reserved);
    let limit = Duration::from_millis(50);
    let error = TcpStore::new(TcpStoreOptions::new("127.0.0.1", port).timeout(limit)).unwrap_err();
    let expected = format!(
        "The client socket has timed out after 50ms while trying to connect to (127.0.0.1, {port})"
    );
    assert!(error.to_string().starts_with(&expected), "{error}");
    // One that takes connections and says nothing is not a server either.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let error = TcpStore::new(TcpStoreOptions::new("127.0.0.1", port).timeout(limit)).unwrap_err();
    assert!(matches!(error, Error::Network { .. }), "{error:?}");
}

#[test]
fn a_taken_port_is_an_error_unless_it_is_shared() {
    let first = serve();
    let taken = || TcpStoreOptions::new("127.0.0.1", first.port()).is_master(true);
    let error = TcpStore::new(taken()).unwrap_err().to_string();
    assert!(error.contains("in use") && error.contains(&first.port().to_string()), "{error}");
    let options = || TcpStoreOptions::new("127.0.0.1", 0).is_master(true).multi_tenant(true);
    let one = TcpStore::new(options()).unwrap();
    let mut same = options();
    same.port = one.port();
    let other = TcpStore::new(same).unwrap();
    one.set("k", b"1").unwrap();
    drop(one);
    assert_eq!(other.get("k").unwrap(), b"1");
}

#[test]
fn a_socket_that_listens_already_is_taken_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).listener(listener);
    let server = TcpStore::new(options).unwrap();
    assert_eq!((server.port(), server.host(), server.is_master()), (port, "127.0.0.1", true));
    connect(&server).set("k", b"1").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = TcpStoreOptions::new("127.0.0.1", port).is_master(true).listener(listener);
    assert!(matches!(TcpStore::new(options), Err(Error::InvalidArgument { .. })));
}

#[test]
fn the_master_waits_for_its_workers() {
    let options = |port| TcpStoreOptions::new("localhost", port).world_size(3);
    let short = options(0).is_master(true).timeout(Duration::from_millis(40));
    let error = TcpStore::new(short).unwrap_err();
    let expected = "Timed out after 1 seconds waiting for clients. 1/3 clients joined.";
    assert_eq!(error, Error::Store { message: expected.into() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || TcpStore::new(options(port)).unwrap());
        }
        let mut master = options(0).is_master(true).listener(listener);
        master.host = "127.0.0.1".into();
        let master = TcpStore::new(master).unwrap();
        assert_eq!(master.num_keys().unwrap(), 0, "the counter of workers is not a key");
    });
}

#[test]
fn many_clients_wait_at_once() {
    let server = serve();
    std::thread::scope(|scope| {
        for client in 0..64u32 {
            let server = &server;
            scope.spawn(move || {
                let store = connect(server);
                assert_eq!(store.get("late").unwrap(), b"now");
                store.barrier("b", 64, None).unwrap();
                store.set(&format!("k{client}"), &client.to_le_bytes()).unwrap();
                let next = format!("k{}", (client + 1) % 64);
                assert_eq!(store.get(&next).unwrap(), ((client + 1) % 64).to_le_bytes());
            });
        }
        server.set("late", b"now").unwrap();
    });
}

#[test]
fn the_host_of_the_server_tells_the_address_that_others_come_to() {
    for interface in if_addrs::get_if_addrs().unwrap() {
        let is_far = interface.is_oper_up() && !interface.is_link_local();
        let host = interface.ip().to_string();
        if is_far || interface.is_loopback() {
            let store = TcpStore::new(TcpStoreOptions::new(&host, 0).is_master(true)).unwrap();
            assert_eq!(store.local_address(), Some(interface.ip()));
        }
    }
}
