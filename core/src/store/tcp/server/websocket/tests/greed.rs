//! Clients that make the server keep things without end: by what they send to who does not read, by
//! coming and going, by requests that wait.

use super::*;
use crate::store::protocol::{Encode, Kind};
use crate::store::tcp::server::websocket::requests::MAX_WAITING_BYTES;
use crate::store::tcp::server::websocket::sessions::{
    MAX_AWAY, MAX_UNREAD_BYTES, MAX_UNREAD_NEWS_BYTES,
};
use crate::wire::channel::{
    PIPE_WINDOW_BYTES, RelayHeader, RelayKind, StoreFlag, StoreHeader, presence_key,
};
use crate::wire::session::{Message, Session};

/// What sessions may keep for their own packets.
const WINDOW: usize = 2 * DEFAULT_WINDOW_BYTES as usize;

/// A session that says what it likes.
struct Raw {
    session: Session,
    number: u64,
    socket: u64,
}

impl Raw {
    fn greet(world: &mut World) -> Raw {
        world.sockets += 1;
        let socket = world.sockets;
        let mut token = [7; 16];
        token[..8].copy_from_slice(&socket.to_le_bytes());
        let (mut session, token) = (Session::client(DEFAULT_WINDOW_BYTES, 0), ResumeToken(token));
        session.attach();
        let hello = session.next_packet().unwrap();
        let greeted =
            world.sessions.greet(hello.as_ref(), token, newcomer(socket), &mut world.service);
        let mut raw = Raw { session, number: greeted.unwrap(), socket };
        raw.listen(world).unwrap();
        raw
    }

    /// Reads all that the server has for it.
    fn listen(&mut self, world: &mut World) -> std::result::Result<(), Fault> {
        while let Some(packet) = world.sessions.next_packet(self.number, &mut world.service)? {
            self.session.receive(packet.as_ref().to_vec()).unwrap();
            while self.session.take().is_some() {}
        }
        Ok(())
    }

    /// Gives the server all that it has to say, as far as its window goes.
    fn speak(&mut self, world: &mut World) -> std::result::Result<bool, Fault> {
        let mut spoke = false;
        while let Some(packet) = self.session.next_packet() {
            world.sessions.receive(self.number, packet.as_ref().to_vec(), &mut world.service)?;
            spoke = true;
        }
        Ok(spoke)
    }

    fn say(&mut self, world: &mut World, message: Message) -> std::result::Result<(), Fault> {
        self.session.send(message);
        self.speak(world)?;
        self.listen(world)?;
        self.speak(world).map(drop)
    }
}

fn header(kind: RelayKind, pipe: u32, peer: u64) -> RelayHeader {
    RelayHeader { kind, opened_by_sender: true, pipe, peer }
}

#[test]
fn pipes_that_are_filled_and_closed_fill_no_more_than_their_senders_share() {
    let mut world = World::new(0);
    let slow = Raw::greet(&mut world);
    let mut sender = Raw::greet(&mut world);
    let chunk = vec![1; 60_000];
    let mut flood = |world: &mut World| -> std::result::Result<(), Fault> {
        for pipe in 0.. {
            let open = header(RelayKind::Open, pipe, slow.number);
            sender.say(world, open.message(&[0; 8]))?;
            for _ in 0..PIPE_WINDOW_BYTES / 60_128 {
                let data = header(RelayKind::Data, pipe, slow.number);
                sender.say(world, data.message(&chunk))?;
            }
            let close = header(RelayKind::Abandon, pipe, slow.number);
            sender.say(world, close.message(&[]))?;
        }
        Ok(())
    };
    assert_eq!(flood(&mut world).unwrap_err(), Fault::Overrun);
    let held = world.sessions.held_bytes();
    assert!(held <= MAX_UNREAD_BYTES + 2 * WINDOW, "{held} bytes are held");
}

#[test]
fn news_that_a_client_does_not_read_end_its_session() {
    let mut world = World::new(0);
    let deaf = Raw::greet(&mut world);
    let claim = |world: &mut World| world.sessions.claim(deaf.number, deaf.socket, Waker::noop());
    let mut most = 0;
    while claim(&mut world).is_ok() {
        let mut doomed = Raw::greet(&mut world);
        doomed.say(&mut world, header(RelayKind::Open, 0, deaf.number).message(&[0; 8])).unwrap();
        world.sessions.end(doomed.number, RelayKind::Dead, &mut world.service);
        most = most.max(world.sessions.held_bytes());
        assert!(most < 4 * MAX_UNREAD_NEWS_BYTES, "{most} bytes are held");
    }
    assert!(most > MAX_UNREAD_NEWS_BYTES);
    assert_eq!(world.sessions.held_bytes(), 0);
    // Its socket was told why, once.
    assert_eq!(claim(&mut world), Err(None));
}

#[test]
fn a_client_that_asks_without_reading_the_answers_is_read_from_no_more() {
    let mut world = World::new(0);
    let mut asker = Raw::greet(&mut world);
    let gone = Raw::greet(&mut world).number;
    world.sessions.end(gone, RelayKind::Left, &mut world.service);
    for _ in 0..40_000 {
        asker.session.send(header(RelayKind::Watch, 0, gone).message(&[]));
        asker.speak(&mut world).unwrap();
    }
    let held = world.sessions.held_bytes();
    assert!(held <= 2 * MAX_UNREAD_NEWS_BYTES, "{held} bytes are held");
    // It reads, and everything is answered.
    loop {
        asker.listen(&mut world).unwrap();
        asker.session.acknowledge();
        if asker.session.unsettled_messages() == 0 {
            break;
        }
        asker.speak(&mut world).unwrap();
    }
    asker.speak(&mut world).unwrap();
    asker.listen(&mut world).unwrap();
    assert!(world.sessions.held_bytes() < WINDOW);
}

#[test]
fn requests_behind_a_wait_are_bounded_together() {
    let mut world = World::new(0);
    let mut client = Raw::greet(&mut world);
    let mut wait = Vec::new();
    wait.kind(Kind::Wait);
    wait.keys(b"/", &["never"]);
    let mut sent = 0;
    let more = vec![0; 60_000];
    let fault = loop {
        // Four requests, each of which waits from its first message on.
        let (id, body) = (sent % 4, if sent < 4 { &wait } else { &more });
        sent += 1;
        let header = StoreHeader { id, flag: StoreFlag::More };
        if let Err(fault) = client.say(&mut world, header.message(body)) {
            break fault;
        }
        let held = world.sessions.held_bytes();
        assert!(held <= MAX_WAITING_BYTES + WINDOW, "{held} bytes are held");
    };
    assert_eq!((&fault, fault.close_code()), (&Fault::TooLongRequests, 1008));
}

#[test]
fn clients_that_vanish_again_and_again_take_nobodys_place() {
    let mut world = World::new(1);
    for now_ms in 0..2 * MAX_AWAY as u64 {
        let vanishing = Raw::greet(&mut world);
        let (number, socket) = (vanishing.number, vanishing.socket);
        world.sessions.lost(number, socket, now_ms, &mut world.service);
    }
    assert_eq!(world.sessions.away(), MAX_AWAY);
    // Those that are there are not concerned, and others come.
    let mut set = world.ask(0, StoreRequest::Set { key: "k", value: b"v" });
    world.settle();
    assert_eq!(poll(&mut set).unwrap().unwrap(), StoreReply::Done);
    let there = Raw::greet(&mut world);
    assert!(world.sessions.claim(there.number, there.socket, Waker::noop()).is_ok());
    assert_eq!(world.sessions.expire(u64::MAX, &mut world.service), None);
    assert_eq!(world.sessions.away(), 0);
}

#[test]
fn all_places_may_be_taken_by_those_who_are_there_alone() {
    let mut world = World::new(0);
    let first = Raw::greet(&mut world);
    world.sessions.lost(first.number, first.socket, 0, &mut world.service);
    let mut greeted = 0;
    let full = loop {
        world.sockets += 1;
        let socket = world.sockets;
        let mut token = [1; 16];
        token[..8].copy_from_slice(&socket.to_le_bytes());
        let mut session = Session::client(DEFAULT_WINDOW_BYTES, 0);
        session.attach();
        let hello = session.next_packet().unwrap();
        let token = ResumeToken(token);
        let came =
            world.sessions.greet(hello.as_ref(), token, newcomer(socket), &mut world.service);
        match came {
            Ok(_) => greeted += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!((greeted, world.sessions.away()), (4096, 0), "the one who is away made room");
    assert_eq!((&full, full.close_code()), (&Fault::Full, 1013));
}

#[test]
fn a_session_is_present_until_it_ends() {
    let mut world = World::new(2);
    let number = world.clients[1].number;
    let present = |world: &mut World, number: u64| {
        let key: &'static str = presence_key(number).leak();
        let keys: &'static [&'static str] = vec![key].leak();
        let mut check = world.ask(0, StoreRequest::Check { keys });
        world.settle();
        poll(&mut check).unwrap().unwrap()
    };
    assert_eq!(present(&mut world, 0), StoreReply::Flag(true));
    assert_eq!(present(&mut world, number), StoreReply::Flag(true));
    assert_eq!(present(&mut world, number + 1), StoreReply::Flag(false));
    let socket = world.clients[1].socket.unwrap();
    world.sessions.lost(number, socket, 0, &mut world.service);
    world.disconnect(1);
    assert_eq!(present(&mut world, number), StoreReply::Flag(true), "it may come back");
    world.sessions.expire(1500, &mut world.service);
    world.clients[1].number = 0;
    assert_eq!(present(&mut world, number), StoreReply::Flag(false));
}
