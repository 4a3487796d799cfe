//! What only TCP can get wrong: strangers, garbage, crossing connections, cut frames.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::transport::suite::world::{Event, World, message};
use crate::wire::frame::{Kind, MAX_PAYLOAD_BYTES};
use crate::wire::handshake::{Hello, Refusal, Welcome};

pub(super) const TOKEN: Token = Token([9; 16]);
pub(super) const GENERATION: u32 = 5;

pub(super) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub(super) fn member(rank: Rank, cards: &[Card]) -> Membership<'_> {
    Membership { rank, cards, token: TOKEN, generation: GENERATION }
}

/// The transports of a group on this host.
pub(in crate::transport) fn group(size: u32, timeouts: Timeouts) -> Vec<TcpTransport> {
    let listeners: Vec<_> = (0..size).map(|_| TcpTransport::bind(loopback()).unwrap()).collect();
    let cards: Vec<_> = listeners.iter().map(|listener| listener.card(&[])).collect();
    let ranks = (0..).zip(listeners);
    let transport = |(rank, listener)| {
        TcpTransport::with_timeouts(listener, member(rank, &cards), timeouts).unwrap()
    };
    ranks.map(transport).collect()
}

fn world(size: u32, timeouts: Timeouts) -> (World, Vec<SocketAddr>) {
    let transports = group(size, timeouts);
    let address = |transport: &TcpTransport| transport.table.listener.as_ref().unwrap().address();
    let addresses = transports.iter().map(address).collect();
    (World::new(transports, Box::new(std::thread::yield_now)), addresses)
}

/// A connection whose reads give up rather than hang the test.
fn stranger(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Says hello as rank 1 of 2 and returns what it is told.
fn greet(world: &mut World, address: SocketAddr, hello: Hello) -> (TcpStream, Option<Welcome>) {
    let mut stream = stranger(address);
    stream.write_all(&hello.encode()).unwrap();
    let mut bytes = [0; Welcome::BYTES];
    stream.set_nonblocking(true).unwrap();
    let mut have_bytes = 0;
    while have_bytes < bytes.len() {
        world.turn(0);
        match stream.read(&mut bytes[have_bytes..]) {
            Ok(0) => return (stream, None),
            Ok(bytes) => have_bytes += bytes,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    stream.set_nonblocking(false).unwrap();
    (stream, Some(Welcome::decode(&bytes).unwrap()))
}

fn hello() -> Hello {
    Hello::new(TOKEN, GENERATION, 1, 2, 0)
}

fn joined(world: &mut World, address: SocketAddr) -> TcpStream {
    let (stream, welcome) = greet(world, address, hello());
    assert_eq!(welcome.unwrap().refusal, None);
    stream
}

pub(super) fn losses(world: &mut World) -> Vec<LossReason> {
    world.drive_until("loss", |world| !world.lost(0, 1).is_empty());
    world.drive_a_while();
    world.lost(0, 1)
}

#[test]
fn crossing_connects_lose_and_double_nothing() {
    for seed in 0..100_u64 {
        let (mut world, _) = world(2, Timeouts::default());
        let first = (seed % 2) as u32;
        let turns = [(seed / 2) % 4, (seed / 8) % 4];
        world.send(first, 1 - first, 1, 10);
        for _ in 0..turns[0] {
            world.turn(first);
        }
        world.send(1 - first, first, 1, 10_000);
        for _ in 0..turns[1] {
            world.turn(1 - first);
        }
        world.send(first, 1 - first, 4, 100_000);
        world.send(1 - first, first, 4, 0);
        world.drive_until_all_arrived();
        world.check_order_and_contents();
        world.drive_a_while();
        let lost = |event: &&Event| matches!(event, Event::Lost { .. });
        assert_eq!(world.events.iter().filter(lost).count(), 0, "seed {seed}");
    }
}

#[test]
fn the_higher_rank_takes_the_lower_ranks_connection() {
    let (mut world, _) = world(2, Timeouts::default());
    world.send(0, 1, 1, 10);
    world.drive_only(0);
    world.send(1, 0, 1, 10);
    let begin = Instant::now();
    while world.sent(1, 0).is_empty() {
        // Rank 0 does nothing any more: its hello, which has left, must do.
        world.turn(1);
        assert!(begin.elapsed() < Duration::from_secs(20), "rank 1 waits for rank 0");
    }
    world.drive_until_all_arrived();
    world.check_order_and_contents();
}

#[test]
fn crossing_connects_of_threads() {
    for repetition in 0..100 {
        let transports = (0..).zip(group(3, Timeouts::default()));
        let threads: Vec<_> = transports
            .map(|(rank, transport)| std::thread::spawn(move || exchange(rank, transport)))
            .collect();
        let arrived: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(arrived, [4, 4, 4], "repetition {repetition}");
    }
}

/// Sends two frames to each other rank and waits in the system's poll for theirs; how many came.
fn exchange(rank: Rank, transport: TcpTransport) -> usize {
    let mut world = World::of_one(rank, transport);
    for peer in (0..3).filter(|peer| *peer != rank) {
        world.send(rank, peer, 1, 10);
        world.send(rank, peer, 4, 50_000);
    }
    let count = |world: &World| {
        let arrived = |event: &&Event| matches!(event, Event::Arrived { .. });
        let sent = |event: &&Event| matches!(event, Event::Sent { .. });
        (world.events.iter().filter(arrived).count(), world.events.iter().filter(sent).count())
    };
    while count(&world) != (4, 4) {
        if !world.turn(rank) {
            world.wait(rank);
        }
    }
    world.close(rank, true);
    for event in &world.events {
        assert!(!matches!(event, Event::Lost { why: LossReason::Died(_), .. }), "{event:?}");
    }
    count(&world).0
}

#[test]
fn garbage_costs_only_its_own_connection() {
    let (mut world, addresses) = world(2, Timeouts::default());
    let mut garbage = [b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 4096], vec![0xff; 3]];
    garbage[1][..8].copy_from_slice(b"polyrank");
    for bytes in &garbage {
        let mut stream = stranger(addresses[0]);
        stream.write_all(bytes).unwrap();
        // The end comes without more than an answer to a rank of another version.
        stream.set_nonblocking(true).unwrap();
        let mut answer = Vec::new();
        while let Err(error) = stream.read_to_end(&mut answer) {
            if error.kind() != std::io::ErrorKind::WouldBlock {
                break;
            }
            world.turn(0);
        }
        assert!(answer.len() <= Welcome::BYTES);
    }
    world.send(1, 0, 1, 10_000);
    world.drive_until_all_arrived();
    world.check_order_and_contents();
    assert_eq!(world.events.len(), 2);
}

#[test]
fn silent_strangers_are_bounded_in_number_and_time() {
    let timeouts = Timeouts { hello_timeout: Duration::from_millis(50), ..Timeouts::default() };
    let (mut world, addresses) = world(2, timeouts);
    let mut strangers: Vec<_> =
        (0..TcpTransport::MAX_PENDING + 10).map(|_| stranger(addresses[0])).collect();
    world.send(1, 0, 1, 10);
    world.drive_until_all_arrived();
    world.check_order_and_contents();
    // All are put out: the first by the later ones, the last when their time is over.
    for stranger in &mut strangers {
        stranger.set_nonblocking(true).unwrap();
        while let Err(error) = stranger.read(&mut [0]) {
            if error.kind() != std::io::ErrorKind::WouldBlock {
                break;
            }
            world.turn(0);
        }
    }
}

#[test]
fn hellos_that_do_not_fit_are_refused_with_a_reason() {
    let (mut world, addresses) = world(2, Timeouts::default());
    let cases = [
        (Hello { version: 77, ..hello() }, Refusal::Version),
        (Hello { numbers: 1, ..hello() }, Refusal::Numbers),
        (Hello { token: Token([8; 16]), ..hello() }, Refusal::Token),
        (Hello { generation: 4, ..hello() }, Refusal::Generation),
        (Hello { size: 3, ..hello() }, Refusal::Size),
        (Hello { target: 1, ..hello() }, Refusal::Rank),
        (Hello { rank: u32::MAX, ..hello() }, Refusal::Rank),
    ];
    for (hello, refusal) in cases {
        let (_, welcome) = greet(&mut world, addresses[0], hello);
        assert_eq!(welcome.unwrap().refusal, Some(refusal));
    }
    let stream = joined(&mut world, addresses[0]);
    let (_, welcome) = greet(&mut world, addresses[0], hello());
    assert_eq!(welcome.unwrap().refusal, Some(Refusal::Connected));
    drop(stream);
    losses(&mut world);
    let (_, welcome) = greet(&mut world, addresses[0], hello());
    assert_eq!(welcome.unwrap().refusal, Some(Refusal::Lost));
}

#[test]
fn frames_may_come_in_any_pieces() {
    let (mut world, addresses) = world(2, Timeouts::default());
    let mut stream = joined(&mut world, addresses[0]);
    let sizes = [5, 0, 9000, 1, 40_000, 40_000, 3];
    let mut bytes = Vec::new();
    for (number, size) in (0..).zip(sizes) {
        bytes.extend(message(number, size).encode());
        bytes.extend(crate::transport::suite::world::payload(1, 0, number, size));
    }
    for piece_bytes in [1, 7, 71, 72, 73, 4096, 4097, 33_000] {
        world.events.clear();
        for piece in bytes.chunks(piece_bytes) {
            stream.write_all(piece).unwrap();
            if piece_bytes > 1 || piece[0] % 16 == 0 {
                world.turn(0);
            }
        }
        world.drive_until("frames", |world| world.arrived(0, 1).len() == sizes.len());
        for ((header, content), (number, size)) in
            world.arrived(0, 1).into_iter().zip((0..).zip(sizes))
        {
            assert_eq!(header, message(number, size));
            let expected = crate::transport::suite::world::payload(1, 0, number, size);
            assert!(content.is_none_or(|content| content == expected), "message {number}");
        }
    }
}

#[test]
fn a_frame_may_leave_in_many_pieces() {
    let (mut world, addresses) = world(2, Timeouts::default());
    let mut stream = joined(&mut world, addresses[0]);
    stream.set_nonblocking(true).unwrap();
    let sizes = [4 << 20, 10, (4 << 20) - 3, 0, 4 << 20];
    let mut expected = Vec::new();
    for (number, size) in (0..).zip(sizes) {
        world.send(0, 1, number, size);
        expected.extend(message(number, size).encode());
        expected.extend(crate::transport::suite::world::payload(0, 1, number, size));
    }
    let mut bytes = Vec::new();
    let mut piece = vec![0; 20_000];
    while bytes.len() < expected.len() {
        world.turn(0);
        match stream.read(&mut piece) {
            Ok(read_bytes) => bytes.extend_from_slice(&piece[..read_bytes]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert!(bytes == expected, "the bytes are not those that were sent");
}

#[test]
fn a_frame_that_is_cut_off_is_a_death() {
    let whole = [&message(1, 100_000).encode()[..], &[1; 100_000]].concat();
    for kept_bytes in [1, 71, 72, 73, 5000, 100_071] {
        let (mut world, addresses) = world(2, Timeouts::default());
        let mut stream = joined(&mut world, addresses[0]);
        stream.write_all(&whole[..kept_bytes]).unwrap();
        world.drive_a_while();
        drop(stream);
        let losses = losses(&mut world);
        let [LossReason::Died(why)] = &losses[..] else { panic!("{losses:?}") };
        assert!(why.contains("in the middle of a frame"), "{why}");
        assert_eq!(world.arrived(0, 1).len(), 0);
    }
}

#[test]
fn what_is_no_frame_ends_the_connection() {
    let mut too_long = message(0, MAX_PAYLOAD_BYTES as usize + 1).encode();
    too_long[23] = 0xff;
    let mut outside = message(0, 10);
    outside.offset = 1;
    let mut unmarked = message(0, 0).encode();
    unmarked[1] = 0;
    for bytes in [too_long, outside.encode(), unmarked, [0xee; Header::BYTES]] {
        let (mut world, addresses) = world(2, Timeouts::default());
        let mut stream = joined(&mut world, addresses[0]);
        stream.write_all(&bytes).unwrap();
        let losses = losses(&mut world);
        assert!(matches!(&losses[..], [LossReason::Protocol(_)]), "{losses:?}");
        // The other end is told by the end of the stream.
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

#[test]
fn who_ends_with_a_reason_untold_resets() {
    for is_told in [false, true] {
        let listener = TcpListener::bind(loopback()).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
        let (mut theirs, _) = listener.accept().unwrap();
        let mut ours = Connection::new(socket);
        ours.owe_reason(true);
        if is_told {
            ours.owe_reason(false);
        }
        drop(ours);
        let end = theirs.read(&mut [0]).map_err(|error| error.kind());
        let reset = Err(std::io::ErrorKind::ConnectionReset);
        assert_eq!(end, if is_told { Ok(0) } else { reset });
    }
}

#[test]
fn what_was_said_before_a_reset_is_heard() {
    let (mut world, addresses) = world(2, Timeouts::default());
    let mut stream = joined(&mut world, addresses[0]);
    stream.write_all(&Header { kind: Kind::Abort, ..message(2, 0) }.encode()).unwrap();
    // Bytes that the other end never reads turn its close into a reset.
    world.send(0, 1, 1, 100_000);
    world.send(0, 1, 2, 3_000_000);
    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    drop(stream);
    world.send(0, 1, 3, 3_000_000);
    let losses = losses(&mut world);
    assert!(matches!(&losses[..], [LossReason::Died(_)]), "{losses:?}");
    assert_eq!(world.arrived(0, 1).len(), 1, "the abort came first");
}

#[test]
fn a_goodbye_finds_a_peer_that_has_not_accepted_yet() {
    let (mut world, _) = world(2, Timeouts::default());
    world.connect(0, 1);
    world.drive_only(0);
    world.close(0, true);
    world.drive_until("goodbye", |world| !world.lost(1, 0).is_empty());
    assert_eq!(world.lost(1, 0), [LossReason::Goodbye]);
}

#[test]
fn a_goodbye_waits_for_the_frame_before_it() {
    let (mut world, addresses) = world(2, Timeouts::default());
    let mut stream = joined(&mut world, addresses[0]);
    for number in 0..16 {
        world.send(0, 1, number, 4 << 20);
    }
    world.drive_only(0);
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    });
    world.close(0, true);
    let bytes = reader.join().unwrap();
    let frame_bytes = Header::BYTES + (4 << 20);
    assert_eq!(bytes.len() % frame_bytes, Header::BYTES, "whole frames and a goodbye");
    let last = Header::decode(&bytes[bytes.len() - Header::BYTES..]).unwrap();
    assert_eq!(last.kind, Kind::Goodbye);
}

#[test]
fn a_peer_that_has_not_come_to_its_first_operation_is_waited_for() {
    let connect_timeout = Duration::from_millis(5);
    let (mut world, _) = world(2, Timeouts { connect_timeout, ..Timeouts::default() });
    world.send(0, 1, 1, 10);
    let begin = Instant::now();
    while begin.elapsed() < 4 * connect_timeout {
        // Rank 1 does something else.
        world.turn(0);
    }
    world.drive_until_all_arrived();
    world.check_order_and_contents();
    assert!(world.lost(0, 1).is_empty());
}

#[test]
fn a_lost_peer_whose_socket_somebody_else_holds_keeps_nobody_awake() {
    struct Nobody;
    impl Sink for Nobody {
        fn announced(&mut self, _: Rank, _: &Header) -> crate::transport::Destination {
            crate::transport::Destination::Discard
        }
        fn arrived(&mut self, _: Rank, _: &Header, _: crate::transport::ArrivedPayload<'_>) {}
        fn sent(&mut self, _: Rank, _: &Header) {}
        fn lost(&mut self, _: Rank, _: LossReason) {}
    }
    let mut transports = group(2, Timeouts::default());
    transports[0].connect(1);
    let is_open =
        |it: &TcpTransport| it.table.peers.iter().any(|it| matches!(it.link, Link::Open(_)));
    while !transports.iter().all(is_open) {
        for transport in &mut transports {
            transport.advance(&mut Nobody);
        }
    }
    // As a forked child does.
    let Link::Open(open) = &transports[0].table.peers[1].link else { panic!("it is open") };
    let held = rustix::io::dup(&open.socket).unwrap();
    transports.remove(1).close(true);
    let first = &mut transports[0];
    while is_open(first) {
        first.advance(&mut Nobody);
    }
    while first.advance(&mut Nobody) {}
    let mut interests = Vec::new();
    first.interests(&mut interests);
    assert!(!crate::transport::wait::wait(&interests, Some(Duration::ZERO)));
    drop(held);
}

#[test]
fn time_in_which_nobody_looks_is_nobodys_fault() {
    let listeners = [0, 1].map(|_| TcpTransport::bind(loopback()).unwrap());
    let mut cards = listeners.each_ref().map(|listener| listener.card(&[]));
    // The first attempt fails, so that there is a pause in which nobody looks.
    let gone = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    cards[1].tcp.insert(0, gone);
    let timeouts = Timeouts { connect_timeout: Duration::from_millis(50), ..Timeouts::default() };
    let transports = (0..).zip(listeners).map(|(rank, listener)| {
        TcpTransport::with_timeouts(listener, member(rank, &cards), timeouts).unwrap()
    });
    let mut world = World::new(transports.collect(), Box::new(std::thread::yield_now));
    world.send(0, 1, 1, 10);
    std::thread::sleep(Duration::from_millis(400));
    world.drive_until_all_arrived();
    world.check_order_and_contents();
    assert!(world.lost(0, 1).is_empty());
}

#[test]
fn a_card_of_another_build_is_refused() {
    let listener = TcpTransport::bind(loopback()).unwrap();
    let mut cards = vec![listener.card(&[]); 2];
    cards[1].wire_version = 9;
    let error = TcpTransport::new(listener, 0, &cards, TOKEN, 0).err().unwrap();
    assert!(error.to_string().contains("rank 1: it speaks version 9"), "{error}");
    let listener = TcpTransport::bind(loopback()).unwrap();
    assert!(TcpTransport::new(listener, 1, &cards[..1], TOKEN, 0).is_err());
}

#[test]
fn no_descriptor_survives_an_exec() {
    use rustix::io::{FdFlags, fcntl_getfd};
    let mut transports = group(2, Timeouts::default());
    transports[0].connect(1);
    let mut sink = Nobody;
    while !transports
        .iter()
        .all(|it| it.table.peers.iter().any(|peer| matches!(peer.link, Link::Open(_))))
    {
        for transport in &mut transports {
            transport.advance(&mut sink);
        }
    }
    for transport in &transports {
        let mut interests = Vec::new();
        transport.interests(&mut interests);
        assert!(fcntl_getfd(&interests[0].fd).unwrap().contains(FdFlags::CLOEXEC));
        let listener = transport.table.listener.as_ref().unwrap();
        assert!(fcntl_getfd(listener).unwrap().contains(FdFlags::CLOEXEC));
        for peer in &transport.table.peers {
            if let Link::Open(connection) = &peer.link {
                assert!(fcntl_getfd(&connection.socket).unwrap().contains(FdFlags::CLOEXEC));
            }
        }
    }
}

#[test]
fn a_rank_is_reached_at_the_chosen_addresses_alone() {
    let addresses = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 3])];
    let listener = TcpTransport::bind_all(&addresses).unwrap();
    let port = listener.address().port();
    assert_eq!(listener.card(&[]).tcp, addresses.map(|address| SocketAddr::new(address, port)));
    for (last, is_chosen) in [(1, true), (2, false), (3, true)] {
        let stranger = TcpStream::connect(SocketAddr::from(([127, 0, 0, last], port))).unwrap();
        let accepted = loop {
            match listener.accept() {
                Err(rustix::io::Errno::AGAIN) => std::thread::yield_now(),
                accepted => break accepted,
            }
        };
        assert_eq!(accepted.is_ok(), is_chosen, "{last}");
        drop(stranger);
    }
    let one = TcpTransport::bind_all(&addresses[..1]).unwrap();
    assert_eq!(one.address().ip(), addresses[0], "one address is all that it listens at");
}

#[test]
fn the_address_toward_loopback_is_loopback() {
    let remote: SocketAddr = "127.0.0.1:9".parse().unwrap();
    assert!(address_toward(remote).unwrap().is_loopback());
}

/// Hears nothing.
struct Nobody;

impl Sink for Nobody {
    fn announced(&mut self, _: Rank, _: &Header) -> crate::transport::Destination {
        crate::transport::Destination::Discard
    }
    fn arrived(&mut self, _: Rank, _: &Header, _: crate::transport::ArrivedPayload<'_>) {}
    fn sent(&mut self, _: Rank, _: &Header) {}
    fn lost(&mut self, _: Rank, _: LossReason) {}
}
