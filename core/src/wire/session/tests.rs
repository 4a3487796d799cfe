//! Sessions over sockets that break anywhere: everything arrives, once, in order, within bounds.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const TOKEN: ResumeToken = ResumeToken([7; 16]);
const WINDOW: usize = MIN_WINDOW_BYTES as usize;

/// What one side has to do with its session, and the packets on their way to it.
struct SessionEnd {
    session: Option<Session>,
    socket: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    taken: Vec<Vec<u8>>,
}

/// A client, a server, and a socket between them.
struct World {
    ends: [SessionEnd; 2],
    connected: bool,
    /// The server has received something from the present socket; until then it writes to a dead
    /// one.
    heard: bool,
}

impl World {
    fn new() -> World {
        let end = |session| SessionEnd {
            session,
            socket: VecDeque::new(),
            sent: Vec::new(),
            taken: Vec::new(),
        };
        let client = Session::client(MIN_WINDOW_BYTES, 0);
        World { ends: [end(Some(client)), end(None)], connected: false, heard: false }
    }

    fn connect(&mut self) {
        self.disconnect();
        self.ends[0].session.as_mut().unwrap().attach();
        self.connected = true;
    }

    /// The packets on their way are lost, and only the client notices.
    fn disconnect(&mut self) {
        self.ends.iter_mut().for_each(|end| end.socket.clear());
        self.ends[0].session.as_mut().unwrap().detach();
        (self.connected, self.heard) = (false, false);
    }

    fn send(&mut self, from: usize, body: Vec<u8>) {
        let Some(session) = &mut self.ends[from].session else { return };
        session.send(Message::new(from as u8, &body));
        self.ends[from].sent.push(body);
    }

    /// One packet from `from` to the socket.
    fn pump(&mut self, from: usize) -> bool {
        let Some(session) = &mut self.ends[from].session else { return false };
        if !self.connected {
            return false;
        }
        let Some(packet) = session.next_packet() else { return false };
        if from == 0 || self.heard {
            self.ends[1 - from].socket.push_back(packet.as_ref().to_vec());
        }
        true
    }

    /// One packet from the socket to `to`.
    fn deliver(&mut self, to: usize) -> bool {
        let end = &mut self.ends[to];
        let Some(packet) = end.socket.pop_front() else { return false };
        self.heard |= to == 1;
        match (&mut end.session, Hello::decode(&packet)) {
            (None, Some(hello)) => {
                let session = Session::accept(&hello, TOKEN, 5, MIN_WINDOW_BYTES, 9).unwrap();
                end.session = Some(session);
            }
            // A Welcome that was lost leaves a session behind which nobody will resume.
            (Some(_), Some(hello)) if hello.token == ResumeToken::NONE => {
                assert!(end.taken.is_empty());
                let sent = std::mem::take(&mut end.sent);
                let session = Session::accept(&hello, TOKEN, 5, MIN_WINDOW_BYTES, 9).unwrap();
                end.session = Some(session);
                sent.into_iter().for_each(|body| self.send(to, body));
            }
            (Some(session), Some(hello)) => session.resume(&hello).unwrap(),
            (Some(session), None) => {
                session.receive(packet).unwrap();
            }
            (None, None) => unreachable!("a client says hello first"),
        }
        self.check_bounds();
        true
    }

    fn take(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let Some(message) = end.session.as_mut().and_then(Session::take) else { return false };
        assert_eq!(message.channel as usize, 1 - at);
        end.taken.push(message.body().to_vec());
        true
    }

    fn check_bounds(&self) {
        for session in self.ends.iter().filter_map(|end| end.session.as_ref()) {
            assert!(session.kept_bytes <= WINDOW && session.inbox_bytes <= WINDOW);
            let kept: usize = session.kept.iter().map(Packet::cost_bytes).sum();
            assert_eq!(kept, session.kept_bytes);
        }
    }

    fn settle(&mut self) {
        while (0..2).any(|end| self.pump(end) || self.deliver(end) || self.take(end)) {}
    }
}

#[derive(Clone, Debug)]
enum Event {
    Send { from: usize, bytes: usize },
    Pump { from: usize, times: usize },
    Deliver { to: usize, times: usize },
    Take { at: usize, times: usize },
    Connect,
    Disconnect,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..2usize, prop_oneof![0..40usize, 40_000..MAX_BODY_BYTES + 1])
            .prop_map(|(from, bytes)| Event::Send { from, bytes }),
        6 => (0..2usize, 1..6usize).prop_map(|(from, times)| Event::Pump { from, times }),
        6 => (0..2usize, 1..6usize).prop_map(|(to, times)| Event::Deliver { to, times }),
        3 => (0..2usize, 1..6usize).prop_map(|(at, times)| Event::Take { at, times }),
        1 => Just(Event::Connect),
        1 => Just(Event::Disconnect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn messages_arrive_once_and_in_order(events in proptest::collection::vec(event(), 0..200)) {
        let mut world = World::new();
        world.connect();
        let mut counter = 0u64;
        for event in events {
            match event {
                Event::Send { from, bytes } => {
                    counter += 1;
                    let mut body = counter.to_le_bytes().to_vec();
                    body.resize(bytes.max(8), counter as u8);
                    world.send(from, body);
                }
                Event::Pump { from, times } => (0..times).for_each(|_| { world.pump(from); }),
                Event::Deliver { to, times } => (0..times).for_each(|_| { world.deliver(to); }),
                Event::Take { at, times } => (0..times).for_each(|_| { world.take(at); }),
                Event::Connect => world.connect(),
                Event::Disconnect => world.disconnect(),
            }
        }
        if !world.connected {
            world.connect();
        }
        world.settle();
        let [client, server] = &world.ends;
        prop_assert_eq!(&server.taken, &client.sent);
        prop_assert_eq!(&client.taken, &server.sent);
        for end in &world.ends {
            let session = end.session.as_ref().unwrap();
            prop_assert!(session.is_flushed());
            // What is not acknowledged yet is less than what makes an acknowledgement due.
            prop_assert!(session.kept_bytes < WINDOW / 4 + MAX_PACKET_BYTES);
        }
    }

    #[test]
    fn arbitrary_packets_never_panic(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..8),
        kinds in proptest::collection::vec(0u8..6, 8),
    ) {
        let (mut client, mut server) = pair();
        for (mut packet, kind) in packets.into_iter().zip(kinds) {
            if let Some(first) = packet.first_mut() {
                *first = kind;
            }
            let _ = Hello::decode(&packet);
            let _ = server.receive(packet.clone());
            let _ = client.receive(packet);
        }
    }
}

/// A client and a server that have greeted.
fn pair() -> (Session, Session) {
    let mut client = Session::client(MIN_WINDOW_BYTES, 0);
    client.attach();
    let hello = Hello::decode(client.next_packet().unwrap().as_ref()).unwrap();
    let mut server = Session::accept(&hello, TOKEN, 5, MIN_WINDOW_BYTES, 9).unwrap();
    let welcome = server.next_packet().unwrap().as_ref().to_vec();
    assert_eq!(client.receive(welcome), Ok(PacketEffect::Welcome));
    assert_eq!((client.number(), client.grace_ms(), client.token()), (5, 9, TOKEN));
    (client, server)
}

fn deliver(from: &mut Session, to: &mut Session) -> Result<(), Violation> {
    while let Some(packet) = from.next_packet() {
        to.receive(packet.as_ref().to_vec())?;
    }
    Ok(())
}

#[test]
fn a_full_window_opens_when_messages_are_taken() {
    let (mut client, mut server) = pair();
    for _ in 0..100 {
        client.send(Message::new(0, &[1; 10_000]));
    }
    deliver(&mut client, &mut server).unwrap();
    assert!(server.inbox.len() < 100 && client.room() == 0);
    assert!(!client.is_flushed());
    let mut taken = 0;
    while server.take().is_some() {
        taken += 1;
        deliver(&mut server, &mut client).unwrap();
        deliver(&mut client, &mut server).unwrap();
    }
    assert_eq!(taken, 100);
    server.acknowledge();
    deliver(&mut server, &mut client).unwrap();
    assert_eq!((client.unsettled_bytes(), client.room()), (0, WINDOW));
}

#[test]
fn a_sender_that_overruns_the_window_is_found_out() {
    let (mut client, mut server) = pair();
    client.peer_window = usize::MAX;
    for _ in 0..100 {
        client.send(Message::new(0, &[1; 10_000]));
    }
    let error = deliver(&mut client, &mut server).unwrap_err();
    assert_eq!(error, Violation::Overrun { window_bytes: MIN_WINDOW_BYTES });
    assert_eq!(error.close_code(), 1008);
}

#[test]
fn what_must_not_come_ends_the_session() {
    let hello = Hello {
        version: SESSION_VERSION,
        token: ResumeToken::NONE,
        received: 0,
        window_bytes: MIN_WINDOW_BYTES,
        grace_ms: 0,
    };
    let accept = |hello: &Hello| Session::accept(hello, TOKEN, 1, MIN_WINDOW_BYTES, 0).err();
    assert_eq!(accept(&hello), None);
    let other = Hello { version: 9, ..hello };
    assert_eq!(accept(&other), Some(Violation::Version { version: 9 }));
    assert_eq!(accept(&Hello { token: TOKEN, ..hello }), Some(Violation::UnknownSession));
    let other = Hello { window_bytes: 5, ..hello };
    assert_eq!(accept(&other), Some(Violation::Window { window_bytes: 5 }));
    let other = Hello { received: 1, ..hello };
    assert_eq!(accept(&other), Some(Violation::Acknowledged { taken: 1 }));

    let data = |number, taken| Message::new(0, b"x").seal(number, taken).as_ref().to_vec();
    let (mut client, mut server) = pair();
    assert_eq!(server.receive(data(2, 0)), Err(Violation::Number { number: 2, expected: 1 }));
    assert_eq!(server.receive(data(1, 1)), Err(Violation::Acknowledged { taken: 1 }));
    assert_eq!(server.receive(hello.encode().as_ref().to_vec()), Err(Violation::Malformed));
    assert_eq!(server.receive(vec![0; 24]), Err(Violation::Malformed));
    assert_eq!(server.receive(Vec::new()), Err(Violation::Malformed));
    assert_eq!(server.receive(data(1, 0)), Ok(PacketEffect::Message));
    assert_eq!(server.receive(data(1, 0)), Err(Violation::Number { number: 1, expected: 2 }));
    client.detach();
    assert_eq!(client.receive(data(1, 0)), Err(Violation::Malformed));
    for violation in [Violation::UnknownSession, Violation::Version { version: u32::MAX }] {
        assert!(violation.to_string().len() <= 123, "a close reason has 123 bytes at most");
    }
}
