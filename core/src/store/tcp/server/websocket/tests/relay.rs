//! Pipes between clients: opened from both sides, closed, and lost with a client.

use super::*;
use crate::transport::LossReason;
use crate::transport::websocket::PipeState;
use crate::wire::channel::{MAX_PIPES, PIPE_WINDOW_BYTES, RelayHeader, RelayKind};
use crate::wire::session::{Message, Session};

#[test]
fn both_ends_meet_in_either_order() {
    for first in [0, 1] {
        let mut world = World::new(2);
        let numbers = [world.clients[0].number, world.clients[1].number];
        let open =
            |world: &World, at: usize| world.clients[at].client.relay().open(numbers[1 - at], 5);
        let mut early = open(&world, first);
        world.settle();
        let mut late = open(&world, 1 - first);
        world.settle();
        assert_eq!((early.state(), late.state()), (PipeState::Open, PipeState::Open));
        early.send(&[b"one", b"", b"two"]);
        late.send(&[b"back"]);
        world.settle();
        assert_eq!(late.receive().unwrap(), &b"onetwo"[..]);
        assert_eq!(early.receive().unwrap(), &b"back"[..]);
        early.close(true);
        world.settle();
        assert_eq!(late.state(), PipeState::Lost(LossReason::Goodbye));
    }
}

#[test]
fn a_dead_rank_is_told_to_those_with_a_pipe_and_those_that_await_one() {
    for (dying, how) in [(0, RelayKind::Dead), (1, RelayKind::Left)] {
        let mut world = World::new(3);
        let number = world.clients[dying].number;
        let asking = [0, 1, 2].into_iter().filter(|at| *at != dying);
        let pipes: Vec<_> =
            asking.map(|at| world.clients[at].client.relay().open(number, 5)).collect();
        world.settle();
        world.disconnect(dying);
        world.sessions.end(number, how, &mut world.service);
        world.clients[dying].number = 0;
        world.settle();
        for pipe in &pipes {
            let state = pipe.state();
            assert!(matches!(state, PipeState::Lost(LossReason::Died(_))), "{state:?}");
            assert_eq!(pipe.room(), 0);
        }
        // A rank that asks after that gets the same answer.
        let late = world.clients[2].client.relay().open(number, 6);
        world.settle();
        assert!(matches!(late.state(), PipeState::Lost(LossReason::Died(_))));
    }
}

/// A client that says what it likes: a bare session.
struct Raw {
    session: Session,
    number: u64,
}

impl Raw {
    fn greet(world: &mut World) -> Raw {
        let mut session = Session::client(DEFAULT_WINDOW_BYTES, 0);
        session.attach();
        let hello = session.next_packet().unwrap();
        let token = ResumeToken([9; 16]);
        let greeted =
            world.sessions.greet(hello.as_ref(), token, newcomer(1000), &mut world.service);
        let number = greeted.unwrap();
        let welcome = world.sessions.next_packet(number, &mut world.service).unwrap().unwrap();
        session.receive(welcome.as_ref().to_vec()).unwrap();
        Raw { session, number }
    }

    fn say(&mut self, world: &mut World, message: Message) -> std::result::Result<(), Fault> {
        self.session.send(message);
        while let Some(packet) = self.session.next_packet() {
            world.sessions.receive(self.number, packet.as_ref().to_vec(), &mut world.service)?;
            let ack = world.sessions.next_packet(self.number, &mut world.service)?;
            if let Some(ack) = ack {
                self.session.receive(ack.as_ref().to_vec()).unwrap();
            }
        }
        Ok(())
    }
}

#[test]
fn a_client_that_breaks_the_relays_rules_is_found_out() {
    let header = |kind, pipe| RelayHeader { kind, opened_by_sender: true, pipe, peer: 1 };
    let open = |pipe| header(RelayKind::Open, pipe).message(&[0; 8]);
    let mut world = World::new(1);
    let mut raw = Raw::greet(&mut world);
    let unknown = RelayHeader { peer: 99, ..header(RelayKind::Open, 0) };
    let fault = raw.say(&mut world, unknown.message(&[0; 8])).unwrap_err();
    assert_eq!((&fault, fault.close_code()), (&Fault::UnknownPeer(99), 1008));

    let cases: [(&[Message], Fault); 6] = [
        (&[open(3), open(3)], Fault::Relay),
        (&[open(0), header(RelayKind::Credit, 0).message(&1u32.to_le_bytes())], Fault::Relay),
        (&[header(RelayKind::Dead, 0).message(&[])], Fault::Relay),
        (&[Message::new(1, b"short")], Fault::Relay),
        (&[Message::new(7, b"")], Fault::Channel(7)),
        (&[Message::new(0, &[0, 0, 0, 0, 1, 0, 0, 0, 0xff])], Fault::Request),
    ];
    for (messages, expected) in cases {
        let mut world = World::new(1);
        let mut raw = Raw::greet(&mut world);
        let said = messages.iter().try_for_each(|message| raw.say(&mut world, message.clone()));
        let ends_at_once = !matches!(expected, Fault::Relay) || messages.len() == 2;
        match said {
            Err(fault) => assert_eq!(fault, expected),
            // A message for no pipe at all may have crossed the pipe's end.
            Ok(()) => assert!(!ends_at_once),
        }
    }

    let mut world = World::new(1);
    let mut raw = Raw::greet(&mut world);
    raw.say(&mut world, open(0)).unwrap();
    let chunk = header(RelayKind::Data, 0).message(&[0; 60_000]);
    let chunks = (0..).take_while(|_| raw.say(&mut world, chunk.clone()).is_ok()).count();
    assert_eq!(chunks, PIPE_WINDOW_BYTES / 60_128, "the window is what is believed");

    let mut world = World::new(1);
    let mut raw = Raw::greet(&mut world);
    let pipes = (0..).take_while(|pipe| raw.say(&mut world, open(*pipe)).is_ok()).count();
    assert_eq!(pipes, MAX_PIPES);
}
