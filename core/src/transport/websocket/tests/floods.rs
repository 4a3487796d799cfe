//! Strangers that send without end what costs them nothing: each is sent away with a reason, and
//! the group continues.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::super::{
    Pipe, PipeState, ReceptionOptions, Socket, SocketClose, SocketEvent, answered, close_code,
};
use super::hostile::{group, session_hello, socket};
use crate::clock::Instant;
use crate::transport::LossReason;
use crate::transport::suite::world::World;
use crate::wire::session::{self, MIN_WINDOW_BYTES, ResumeToken, SESSION_VERSION, Session};

/// More than a receiver may accept before it ends the connection.
const FLOOD_BYTES: usize = 64 << 20;
/// More events than one turn may hear.
const TURN_LIMIT: usize = 1000;

/// A socket that first says `first` and then the same for ever.
struct EndlessSocket {
    first: Vec<SocketEvent>,
    then: SocketEvent,
    /// Events since the last turn.
    told: Arc<AtomicUsize>,
    closed: Arc<Mutex<Option<(u16, String)>>>,
}

impl Socket for EndlessSocket {
    fn send(&mut self, _: Bytes) {}

    fn buffered(&self) -> usize {
        0
    }

    fn receive(&mut self) -> Option<SocketEvent> {
        let told = self.told.fetch_add(1, Ordering::Relaxed);
        assert!(told < TURN_LIMIT, "one turn hears without end");
        Some(self.first.pop().unwrap_or(self.then.clone()))
    }

    fn close(&mut self, code: u16, reason: &str) {
        self.closed.lock().unwrap().get_or_insert((code, reason.to_owned()));
    }
}

fn hello() -> session::Hello {
    let (version, token) = (SESSION_VERSION, ResumeToken::NONE);
    session::Hello { version, token, received: 0, window_bytes: MIN_WINDOW_BYTES, grace_ms: 0 }
}

fn packet(packet: session::Packet) -> SocketEvent {
    SocketEvent::Packet(Bytes::from_owner(packet))
}

/// A packet of a client that has a session: the first that it sends, an acknowledgement.
fn idle_ack() -> session::Packet {
    let mut client = Session::client(MIN_WINDOW_BYTES, 0);
    client.attach();
    let server = Session::accept(&hello(), ResumeToken([3; 16]), 0, MIN_WINDOW_BYTES, 0);
    let welcome = server.unwrap().next_packet().unwrap();
    client.next_packet().unwrap();
    client.receive(welcome.as_ref().to_vec()).unwrap();
    client.next_packet().unwrap()
}

#[test]
fn no_turn_hears_a_socket_without_end_and_each_is_sent_away() {
    let ack = packet(idle_ack());
    let ended = SocketEvent::Closed(SocketClose {
        clean: true,
        code: close_code::NORMAL,
        reason: String::new(),
    });
    for (first, then, says) in [
        (vec![], SocketEvent::Alive, "no hello"),
        (vec![packet(hello().encode())], SocketEvent::Alive, "too many pings"),
        (vec![packet(hello().encode())], ack.clone(), "acknowledge nothing"),
        (vec![ack.clone()], ack, "malformed"),
        (vec![ended], SocketEvent::Alive, ""),
    ] {
        let (told, closed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
        let (now, leaves) = (Instant::now(), says.is_empty());
        let endless = EndlessSocket { first, then, told: told.clone(), closed: closed.clone() };
        let mut endless = Some(Box::new(endless) as Box<dyn Socket>);
        let source = Box::new(move || endless.take());
        let mut acceptor = answered(source, ReceptionOptions::default());
        let mut pipe: Option<Box<dyn Pipe>> = None;
        for _ in 0..100 {
            told.store(0, Ordering::Relaxed);
            acceptor.advance(now);
            pipe = pipe.or_else(|| acceptor.accept());
            if let Some(pipe) = &mut pipe {
                pipe.advance(now);
            }
        }
        if let Some(pipe) = &pipe {
            let state = pipe.state();
            assert!(
                matches!(&state, PipeState::Lost(LossReason::Protocol(_))),
                "{says}: {state:?}"
            );
        }
        let (code, why) = closed.lock().unwrap().take().unwrap_or_default();
        assert!(leaves || [1002, 1008].contains(&code), "{says}: {code} {why}");
        assert!(why.contains(says), "{says}: {code} {why}");
    }
}

#[test]
fn who_says_more_than_hello_is_not_listened_to_before_it_is_known() {
    let mut client = Session::client(MIN_WINDOW_BYTES, 0);
    client.attach();
    let server = Session::accept(&hello(), ResumeToken([3; 16]), 0, MIN_WINDOW_BYTES, 0);
    client.receive(server.unwrap().next_packet().unwrap().as_ref().to_vec()).unwrap();
    client.next_packet();
    let mut first: Vec<_> = vec![packet(hello().encode())];
    for number in 0..TURN_LIMIT {
        client.send(session::Message::new(0, &number.to_le_bytes()));
        first.extend(client.next_packet().map(packet));
    }
    first.reverse();
    let told = Arc::new(AtomicUsize::new(0));
    let endless = EndlessSocket {
        first,
        then: SocketEvent::Alive,
        told: told.clone(),
        closed: Arc::default(),
    };
    let mut endless = Some(Box::new(endless) as Box<dyn Socket>);
    let mut acceptor = answered(Box::new(move || endless.take()), ReceptionOptions::default());
    let now = Instant::now();
    acceptor.advance(now);
    let mut pipe = acceptor.accept().unwrap();
    for _ in 0..50 {
        pipe.advance(now);
    }
    let heard = told.load(Ordering::Relaxed);
    assert!(heard < 8, "{heard} events were heard");
    // A receiver that reads from it accepts it as a peer, and then it continues.
    assert!(pipe.receive().is_some());
    pipe.advance(now);
    assert!(told.load(Ordering::Relaxed) > heard && pipe.receive().is_some());
}

/// A frame as a page sends it, with a mask that changes nothing.
fn frame(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 126);
    [&[first, 0x80 | body.len() as u8, 0, 0, 0, 0], body].concat()
}

/// The close frame in `bytes`, which are frames of a server.
fn close_frame(mut bytes: &[u8]) -> Option<(u16, String)> {
    while let [first, short, rest @ ..] = bytes {
        assert!(*short < 126, "a long frame");
        let (body, rest) = rest.split_at_checked(*short as usize)?;
        if *first == 0x88 {
            let (code, reason) = body.split_at_checked(2)?;
            let code = u16::from_be_bytes(code.try_into().unwrap());
            return Some((code, String::from_utf8_lossy(reason).into_owned()));
        }
        bytes = rest;
    }
    None
}

/// Sends `frames` again and again, until the other side has enough; what it said at the end.
fn flood(mut stream: TcpStream, frames: &[u8]) -> (u16, String) {
    let mut heard = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(more @ 1..) = heard.read(&mut part) {
            bytes.extend_from_slice(&part[..more]);
            if let Some(close) = close_frame(&bytes) {
                let _ = heard.shutdown(Shutdown::Both);
                return close;
            }
        }
        panic!("nobody said why it ends, in {} bytes", bytes.len());
    });
    let many = frames.repeat((32 << 10) / frames.len());
    let mut sent = 0;
    while sent < FLOOD_BYTES && stream.write_all(&many).is_ok() {
        sent += many.len();
    }
    let _ = stream.shutdown(Shutdown::Write);
    assert!(sent < FLOOD_BYTES, "all of it was listened to");
    reader.join().unwrap()
}

/// A socket whose session stands.
fn welcomed(address: SocketAddr) -> TcpStream {
    let mut socket = socket(address, None).unwrap();
    socket.send(session_hello(ResumeToken::NONE)).unwrap();
    assert!(socket.read().unwrap().is_binary());
    socket.get_ref().try_clone().unwrap()
}

/// Runs `stranger`, at its worst, while frames pass through the group.
fn beside<T: Send>(world: &mut World, number: &mut u32, stranger: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let stranger = scope.spawn(stranger);
        loop {
            let last = stranger.is_finished();
            *number += 1;
            world.send(0, 1, *number, 5000);
            world.send(1, 0, *number, 5000);
            world.drive_until_all_arrived();
            if last {
                return stranger.join().unwrap();
            }
        }
    })
}

#[test]
fn a_client_that_floods_a_rank_is_sent_away_and_frames_pass() {
    let (mut world, address) = group();
    let mut number = 1;
    let ack = frame(0x82, idle_ack().as_ref());
    let ping = frame(0x89, &[]);
    let fragments = frame(0x00, &[]);
    let cases: [(bool, &[u8], &[u8], &str); 5] = [
        (true, &[], &ack, "acknowledge nothing"),
        (true, &[], &ping, "too many pings"),
        (false, &[], &ping, "no hello"),
        (true, &frame(0x02, &[]), &fragments, "without a message"),
        (false, &frame(0x02, &[]), &fragments, "without a message"),
    ];
    for (stands, begin, frames, says) in cases {
        let (code, why) = beside(&mut world, &mut number, || {
            let mut stream = match stands {
                true => welcomed(address),
                false => socket(address, None).unwrap().get_ref().try_clone().unwrap(),
            };
            stream.write_all(begin).unwrap();
            flood(stream, frames)
        });
        assert_eq!(code, 1008, "{says}: {why}");
        assert!(why.contains(says), "{says}: {why}");
    }
    world.check_order_and_contents();
    assert!(world.lost(0, 1).is_empty() && world.lost(1, 0).is_empty());
}
