//! Who is let in over pipes, and what is told of those who are not.

use std::time::Duration;

use super::super::{Acceptor, Options, Pipe, PipeState, Route, WebSocketTransport};
use super::memory::{MemoryPipe, pair};
use crate::clock::Instant;
use crate::transport::suite::world::{Event, World, message};
use crate::transport::{Interest, LossReason, Payload, Rank, Timeouts};
use crate::wire::frame::{Header, Kind, MAX_PAYLOAD_BYTES};
use crate::wire::handshake::{Hello, Refusal, Token, Welcome};

const TOKEN: Token = Token([9; 16]);
const GENERATION: u32 = 5;

/// Gives the pipes that the test puts in.
struct Doorman(std::sync::mpsc::Receiver<MemoryPipe>);

impl Acceptor for Doorman {
    fn advance(&mut self, _now: Instant) -> bool {
        false
    }

    fn accept(&mut self) -> Option<Box<dyn Pipe>> {
        self.0.try_recv().ok().map(|pipe| Box::new(pipe) as _)
    }

    fn interests(&self, _interests: &mut Vec<Interest>) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// A world of rank 0 of `size`, which awaits all others; and the door to it.
fn awaiting(size: u32, options: Options) -> (World, std::sync::mpsc::Sender<MemoryPipe>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let routes =
        std::iter::once(Route::Elsewhere).chain((1..size).map(|_| Route::Awaited)).collect();
    let acceptor = Some(Box::new(Doorman(receiver)) as _);
    let transport = WebSocketTransport::new(0, routes, acceptor, TOKEN, GENERATION, options);
    (World::of_one(0, transport), sender)
}

fn hello(rank: Rank, size: u32) -> Hello {
    Hello::new(TOKEN, GENERATION, rank, size, 0)
}

/// Knocks with `first` as the first chunk and returns the other end of the pipe.
fn knock(
    world: &mut World,
    door: &std::sync::mpsc::Sender<MemoryPipe>,
    first: &[u8],
) -> MemoryPipe {
    let [mut theirs, ours] = pair();
    theirs.send(&[first]);
    door.send(ours).unwrap();
    world.drive_only(0);
    theirs
}

fn refusal(pipe: &mut MemoryPipe) -> Option<Refusal> {
    Welcome::decode(&pipe.receive().expect("an answer")).unwrap().refusal
}

#[test]
fn a_client_that_dials_is_let_in_once() {
    let (mut world, door) = awaiting(3, Options::default());
    world.send(0, 2, 3, 10);
    let mut first = knock(&mut world, &door, &hello(2, 3).encode());
    assert_eq!(refusal(&mut first), None);
    let frame = first.receive().expect("the frame that waited");
    assert_eq!(Header::decode(&frame).unwrap(), message(3, 10));
    let mut second = knock(&mut world, &door, &hello(2, 3).encode());
    assert_eq!(refusal(&mut second), Some(Refusal::Connected));
    assert!(matches!(second.state(), PipeState::Lost(LossReason::Died(_))));
    first.close(true);
    world.drive_only(0);
    assert_eq!(world.lost(0, 2), [LossReason::Goodbye]);
    let mut third = knock(&mut world, &door, &hello(2, 3).encode());
    assert_eq!(refusal(&mut third), Some(Refusal::Lost));
    assert!(world.lost(0, 1).is_empty());
}

#[test]
fn strangers_are_sent_away_with_a_reason() {
    let (mut world, door) = awaiting(2, Options::default());
    let wrong = [
        (Hello { token: Token([0; 16]), ..hello(1, 2) }, Refusal::Token),
        (Hello { generation: 6, ..hello(1, 2) }, Refusal::Generation),
        (hello(1, 3), Refusal::Size),
        (hello(0, 2), Refusal::Rank),
        (hello(7, 2), Refusal::Rank),
        (Hello { numbers: 1, ..hello(1, 2) }, Refusal::Numbers),
    ];
    for (hello, why) in wrong {
        let mut pipe = knock(&mut world, &door, &hello.encode());
        assert_eq!(refusal(&mut pipe), Some(why), "{hello:?}");
        assert!(matches!(pipe.state(), PipeState::Lost(_)));
    }
    for garbage in [&b"GET / HTTP/1.1"[..], &[0xff; 100], b"polyrank", b"x"] {
        let mut pipe = knock(&mut world, &door, garbage);
        assert!(pipe.receive().is_none() && matches!(pipe.state(), PipeState::Lost(_)));
    }
    assert!(world.events.is_empty());
    assert_eq!(refusal(&mut knock(&mut world, &door, &hello(1, 2).encode())), None);
}

#[test]
fn silent_strangers_are_bounded_in_number_and_time() {
    let timeouts = Timeouts { hello_timeout: Duration::ZERO, ..Timeouts::default() };
    let options = Options { timeouts, ..Options::default() };
    let (mut world, door) = awaiting(2, options);
    let [theirs, ours] = pair();
    door.send(ours).unwrap();
    world.drive_only(0);
    assert!(matches!(theirs.state(), PipeState::Lost(_)), "it was silent for too long");
}

#[test]
fn strangers_without_end_put_nobody_out_and_wait_for_room() {
    let (mut world, door) = awaiting(3, Options::default());
    let enter = |world: &mut World| {
        let [theirs, ours] = pair();
        door.send(ours).unwrap();
        world.turn(0);
        theirs
    };
    let mut known = enter(&mut world);
    let mut strangers: Vec<_> = (0..300).map(|_| enter(&mut world)).collect();
    assert!(strangers.iter().all(|end| end.state() == PipeState::Open), "nobody was put out");
    // The first to come is heard, however many came after it.
    known.send(&[&hello(1, 3).encode()]);
    world.turn(0);
    assert_eq!(refusal(&mut known), None);
    // One that waits is heard when those before it are gone.
    let mut late = strangers.split_off(299).remove(0);
    late.send(&[&hello(2, 3).encode()]);
    world.turn(0);
    assert!(late.receive().is_none(), "there is no room yet");
    drop(strangers);
    world.turn(0);
    world.turn(0);
    world.turn(0);
    assert_eq!(refusal(&mut late), None);
}

#[test]
fn a_client_that_never_comes_cannot_be_reached() {
    let timeouts = Timeouts { connect_timeout: Duration::ZERO, ..Timeouts::default() };
    let options = Options { timeouts, ..Options::default() };
    let (mut world, _door) = awaiting(3, options);
    world.drive_only(0);
    assert!(world.events.is_empty(), "nobody wanted it");
    world.send_payload(0, 1, message(1, 9), Payload::Owned(vec![0; 9]));
    world.drive_only(0);
    let lost = world.lost(0, 1);
    assert!(matches!(&lost[..], [LossReason::Unreachable(why)] if why.contains("did not open")));
    assert!(world.lost(0, 2).is_empty());
}

#[test]
fn a_peer_that_sends_no_frames_is_given_up() {
    let mut long = message(1, 1);
    long.payload_bytes = MAX_PAYLOAD_BYTES + 1;
    long.message_bytes = u64::MAX;
    for bytes in [&[7_u8; 100][..], &long.encode()] {
        let (mut world, door) = awaiting(2, Options::default());
        let mut pipe = knock(&mut world, &door, &hello(1, 2).encode());
        pipe.send(&[bytes]);
        world.drive_only(0);
        assert!(matches!(&world.lost(0, 1)[..], [LossReason::Protocol(_)]), "{:?}", world.events);
        assert!(matches!(pipe.state(), PipeState::Lost(_)));
    }
}

#[test]
fn frames_may_be_cut_anywhere() {
    let (mut world, door) = awaiting(2, Options::default());
    let mut pipe = knock(&mut world, &door, &hello(1, 2).encode());
    let content = crate::transport::suite::world::payload(1, 0, 3, 500);
    let mut bytes = Vec::new();
    for number in [3, 4, 5] {
        let content = crate::transport::suite::world::payload(1, 0, number, 500);
        bytes.extend(message(number, 500).encode());
        bytes.extend(content);
    }
    bytes.extend(Header::new(Kind::Goodbye, GENERATION).encode());
    for piece in bytes.chunks(37) {
        pipe.send(&[piece]);
        world.turn(0);
    }
    world.drive_only(0);
    let arrived = world.arrived(0, 1);
    assert_eq!(arrived.len(), 3);
    assert_eq!(arrived[0].1.as_deref(), Some(&content[..]));
    assert_eq!(world.lost(0, 1), [LossReason::Goodbye], "also as a frame");
}

#[test]
fn a_refused_rank_hears_why() {
    let [mut theirs, ours] = pair();
    let routes = vec![Route::Dialed(Box::new(ours)), Route::Elsewhere];
    let transport = WebSocketTransport::new(1, routes, None, TOKEN, GENERATION, Options::default());
    let mut world = World::of_one(1, transport);
    world.drive_only(1);
    assert_eq!(Hello::decode(&theirs.receive().unwrap()), Ok(hello(1, 2)));
    let welcome = Welcome::decode(&[0; 20]);
    assert!(welcome.is_err());
    let ours = Hello::new(TOKEN, GENERATION, 0, 2, 0);
    theirs.send(&[&super::super::greeting::answer(&ours, Some(Refusal::Token))]);
    world.drive_only(1);
    assert!(world.events.is_empty(), "nobody wanted it");
    world.connect(1, 0);
    world.drive_only(1);
    let lost = world.lost(1, 0);
    assert_eq!(lost, [LossReason::Unreachable(Refusal::Token.to_string())]);
    let other = |event: &Event| !matches!(event, Event::Lost { .. });
    assert!(!world.events.iter().any(other));
}
