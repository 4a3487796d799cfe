//! A client's connection over sockets in memory, with a clock of the test's own: first contact,
//! signs of life, resuming, giving up, the end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Instant;
use crate::generated::error::Result;
use crate::store::websocket::{Client, ClientConnection, ConnectionUse};
use crate::transport::websocket::{Dialer, Socket, SocketClose, SocketEvent, close_code};
use crate::wire::session::{Hello, ResumeToken, Session};

const GRACE_MS: u32 = 5000;

/// What a server does with sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// Nobody listens.
    Refuses,
    /// It takes them and says nothing.
    Mute,
    /// It is a store's server.
    Serves,
}

/// A server in memory, and what it saw.
#[derive(Default)]
struct Server {
    behaviour: Option<Behaviour>,
    session: Option<Session>,
    /// Events for the client's newest socket.
    events: VecDeque<SocketEvent>,
    /// How many sockets were dialled, and how the last one was closed.
    dialled: usize,
    closed: Option<u16>,
    packets: usize,
}

#[derive(Clone, Default)]
struct Network(Arc<Mutex<Server>>);

struct MemorySocket(Network);

impl Dialer for Network {
    fn dial(&self, _url: &str) -> Result<Box<dyn Socket>> {
        let mut server = self.0.lock().unwrap();
        server.dialled += 1;
        let event = match server.behaviour.unwrap() {
            Behaviour::Refuses => lost(),
            Behaviour::Mute | Behaviour::Serves => SocketEvent::Opened,
        };
        server.events = VecDeque::from([event]);
        Ok(Box::new(MemorySocket(self.clone())))
    }
}

impl Socket for MemorySocket {
    fn send(&mut self, packet: Bytes) {
        let mut server = self.0.0.lock().unwrap();
        if server.behaviour != Some(Behaviour::Serves) {
            return;
        }
        server.packets += 1;
        match (Hello::decode(&packet), &mut server.session) {
            (Some(hello), Some(session)) => session.resume(&hello).unwrap(),
            (Some(hello), none) => {
                let token = ResumeToken([7; 16]);
                *none = Some(Session::accept(&hello, token, 1, 1 << 20, GRACE_MS).unwrap());
            }
            (None, session) => drop(session.as_mut().unwrap().receive(packet.into()).unwrap()),
        }
        while let Some(packet) = server.session.as_mut().and_then(Session::next_packet) {
            server.events.push_back(SocketEvent::Packet(Bytes::from_owner(packet)));
        }
    }

    fn buffered(&self) -> usize {
        0
    }

    fn receive(&mut self) -> Option<SocketEvent> {
        self.0.0.lock().unwrap().events.pop_front()
    }

    fn close(&mut self, code: u16, _reason: &str) {
        self.0.0.lock().unwrap().closed = Some(code);
    }
}

fn lost() -> SocketEvent {
    let (clean, code, reason) = (false, close_code::ABNORMAL, String::new());
    SocketEvent::Closed(SocketClose { clean, code, reason })
}

/// A connection, its server, and the time.
struct World {
    network: Network,
    connection: ClientConnection,
    client: Client,
    used: Option<Arc<ConnectionUse>>,
    start: Instant,
    now: Instant,
    /// When sockets were dialled, since the start.
    dials: Vec<Duration>,
    warnings: Vec<String>,
    is_over: bool,
}

impl World {
    fn new(behaviour: Behaviour, limit: Duration) -> World {
        let network = Network::default();
        network.0.lock().unwrap().behaviour = Some(behaviour);
        let dialer = Box::new(network.clone());
        let (connection, client, used) =
            ClientConnection::new("ws://x/".into(), dialer, GRACE_MS, limit, Waker::noop());
        let (start, used) = (Instant::now(), Some(used));
        let (dials, warnings, is_over) = (Vec::new(), Vec::new(), false);
        World { network, connection, client, used, start, now: start, dials, warnings, is_over }
    }

    fn server(&self) -> std::sync::MutexGuard<'_, Server> {
        self.network.0.lock().unwrap()
    }

    /// Moves everything at one time.
    fn turn(&mut self) {
        let before = self.server().dialled;
        // What a socket brings in one turn is answered in the next.
        for _ in 0..3 {
            self.is_over |= !self.connection.advance(self.now);
        }
        self.warnings.extend(self.connection.take_warning());
        let dialled = self.server().dialled - before;
        self.dials.extend((0..dialled).map(|_| self.now - self.start));
    }

    /// Lets time pass from deadline to deadline, until it is over or `limit` has passed.
    fn run(&mut self, limit: Duration) {
        let until = self.now + limit;
        self.turn();
        while !self.is_over {
            let next = self.connection.deadline(self.now).unwrap();
            if next > until {
                break;
            }
            self.now = next.max(self.now);
            self.turn();
        }
        if !self.is_over {
            self.now = until;
        }
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn a_server_that_refuses_is_tried_ever_less_often_and_given_up_after_half_a_minute() {
    let mut world = World::new(Behaviour::Refuses, seconds(1e6));
    world.run(seconds(100.0));
    assert!(world.is_over);
    let took = world.now - world.start;
    assert!(took >= seconds(29.9) && took < seconds(31.0), "{took:?}");
    let pauses: Vec<_> = world.dials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses[..3], [seconds(0.2), seconds(0.3), seconds(0.45)]);
    assert!(pauses.iter().skip(5).all(|pause| *pause == seconds(1.0)), "{pauses:?}");
    assert_eq!(world.warnings.len(), 1, "{:?}", world.warnings);
    assert!(world.warnings[0].contains("it is tried for 28 s more"), "{:?}", world.warnings);
    let why = world.client.end().unwrap();
    assert!(
        why.contains("cannot reach a store at ws://x/ (no WebSocket could be opened)"),
        "{why}"
    );
}

#[test]
fn the_callers_limit_counts_where_it_is_shorter_and_what_was_seen_is_said() {
    let mut world = World::new(Behaviour::Mute, seconds(3.0));
    world.run(seconds(100.0));
    assert!(world.is_over && world.now - world.start < seconds(4.0));
    let why = world.client.end().unwrap();
    assert!(why.contains("it opened a WebSocket, but says nothing that a store would"), "{why}");
}

#[test]
fn a_session_that_stands_gives_signs_of_life_and_resumes_on_a_new_socket_when_there_are_none() {
    let mut world = World::new(Behaviour::Serves, seconds(60.0));
    world.turn();
    assert!(world.client.is_open());
    let greeted = world.server().packets;
    world.now += seconds(10.5);
    world.turn();
    assert!(world.server().packets > greeted, "a sign of life");
    // From now on nothing arrives, in either direction.
    world.server().behaviour = Some(Behaviour::Mute);
    for _ in 0..2 {
        world.now += seconds(10.0);
        world.turn();
    }
    assert!(!world.client.is_open() && !world.is_over, "silent for 30 s");
    assert_eq!(world.server().dialled, 2);
    world.server().behaviour = Some(Behaviour::Serves);
    world.server().events.push_back(lost());
    world.run(seconds(1.0));
    assert!(world.client.is_open() && world.server().dialled == 3, "the same session goes on");
}

#[test]
fn a_session_that_cannot_be_resumed_within_the_grace_is_given_up() {
    let mut world = World::new(Behaviour::Serves, seconds(60.0));
    world.turn();
    world.server().behaviour = Some(Behaviour::Refuses);
    world.server().events.push_back(lost());
    let lost_at = world.now;
    world.run(seconds(100.0));
    assert!(world.is_over);
    let took = world.now - lost_at;
    assert!(took >= seconds(5.0) && took < seconds(6.0), "{took:?}");
    assert_eq!(world.dials[1], world.dials[0], "the first attempt is made immediately");
    assert!(world.dials.len() > 10, "{:?}", world.dials);
    let why = world.client.end().unwrap();
    assert!(why.contains("could not be resumed"), "{why}");
}

#[test]
fn a_page_that_was_suspended_does_not_take_that_for_silence() {
    let mut world = World::new(Behaviour::Serves, seconds(60.0));
    world.turn();
    world.now += seconds(3600.0);
    world.turn();
    assert!(world.client.is_open());
    assert_eq!(world.server().dialled, 1);
}

#[test]
fn a_connection_that_nobody_uses_ends_in_order() {
    let mut world = World::new(Behaviour::Serves, seconds(60.0));
    world.turn();
    world.used = None;
    world.turn();
    assert!(world.is_over);
    assert_eq!(world.server().closed, Some(close_code::NORMAL));
}
