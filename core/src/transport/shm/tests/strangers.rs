//! Strangers that find a rank's socket, and what they send: files that are not segments, hellos of
//! other groups, nothing at all.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::super::socket;
use super::*;
use crate::transport::suite::world::World;
use crate::wire::handshake::{Refusal, Welcome};
use crate::wire::numbers::WIRE_VERSION;

/// A group of two of which only rank 0 is here, and the key of its socket.
fn lonely(timeouts: Timeouts) -> (World, SharedMemory) {
    let mut transports = group(2, timeouts);
    transports.truncate(1);
    let key = transports[0].table.listener.as_ref().unwrap().sign(Card::new("here", 1, Vec::new()));
    let world = World::of_one(0, transports.remove(0));
    (world, key.shm.unwrap())
}

/// Says `bytes` as a stranger with this file, and returns what comes back until the end or until
/// nothing moves; `None` if the connection was closed without a word.
fn say(
    world: &mut World,
    key: &SharedMemory,
    bytes: &[u8],
    file: Option<&File>,
) -> Option<Welcome> {
    let stranger = socket::reach(key).unwrap();
    socket::send(&stranger, bytes, file).unwrap();
    let mut answer = [0; Welcome::BYTES];
    loop {
        world.drive_only(0);
        match recv(&stranger, &mut answer, RecvFlags::empty()) {
            Ok((0, _)) => return None,
            Ok((Welcome::BYTES, _)) => return Some(Welcome::decode(&answer).unwrap()),
            Err(Errno::AGAIN) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn hello() -> Hello {
    Hello::new(TOKEN, GENERATION, 1, 2, 0)
}

#[test]
fn hellos_of_others_are_refused_with_a_reason() {
    let (mut world, key) = lonely(Timeouts::default());
    let file = File::new(Layout::new(2).bytes()).unwrap();
    let refused = |world: &mut World, hello: Hello| {
        say(world, &key, &hello.encode(), Some(&file)).unwrap().refusal
    };
    let token = Token([8; 16]);
    assert_eq!(refused(&mut world, Hello { token, ..hello() }), Some(Refusal::Token));
    assert_eq!(refused(&mut world, Hello { generation: 6, ..hello() }), Some(Refusal::Generation));
    assert_eq!(refused(&mut world, Hello { rank: 0, ..hello() }), Some(Refusal::Rank));
    assert_eq!(refused(&mut world, Hello { size: 3, ..hello() }), Some(Refusal::Size));
    assert_eq!(say(&mut world, &key, &[0; Hello::BYTES], Some(&file)), None);
    assert!(world.events.is_empty(), "{:?}", world.events);
    assert_eq!(refused(&mut world, hello()), None, "the right one is welcome after all that");
}

#[test]
fn a_rank_that_brings_no_segment_is_closed() {
    let (mut world, key) = lonely(Timeouts::default());
    assert_eq!(say(&mut world, &key, &hello().encode(), None), None);
    let short = File::new(Layout::new(2).bytes() - 4096).unwrap();
    assert_eq!(say(&mut world, &key, &hello().encode(), Some(&short)), None);
    assert!(world.events.is_empty(), "{:?}", world.events);
    let open = memfd_create("open", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&open, Layout::new(2).bytes() as u64).unwrap();
    assert!(File::from_peer(open, Layout::new(2).bytes()).is_err(), "it is not sealed");
}

#[test]
fn silent_strangers_are_bounded_in_number_and_time() {
    let timeouts =
        Timeouts { hello_timeout: std::time::Duration::from_millis(1), ..Default::default() };
    let (mut world, key) = lonely(timeouts);
    let silent: Vec<_> = (0..200).map(|_| socket::reach(&key).unwrap()).collect();
    for stranger in &silent {
        loop {
            world.turn(0);
            match recv(stranger, &mut [0], RecvFlags::empty()) {
                Ok((0, _)) => break,
                Err(Errno::AGAIN) => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
    }
    let file = File::new(Layout::new(2).bytes()).unwrap();
    let welcome = say(&mut world, &key, &hello().encode(), Some(&file));
    assert_eq!(welcome.unwrap().refusal, None);
}

#[test]
fn a_rank_that_answers_wrongly_is_not_reached() {
    let listener = Listener::bind().unwrap();
    let foreign = Listener::bind().unwrap();
    let sign = |listener: &Listener| listener.sign(Card::new("here", 1, Vec::new()));
    let cards = [sign(&listener), sign(&foreign)];
    let transport =
        ShmTransport::new(listener, member(0, &cards), Timeouts::default(), Default::default())
            .unwrap();
    let mut world = World::of_one(0, transport);
    world.connect(0, 1);
    let socket = foreign.accept().unwrap();
    let welcome = Welcome { version: WIRE_VERSION, rank: 1, generation: GENERATION, refusal: None };
    socket::send(&socket, &welcome.encode(), None).unwrap();
    let losses = losses(&mut world);
    let [LossReason::Unreachable(why)] = &losses[..] else { panic!("{losses:?}") };
    assert!(why.contains("no shared memory"), "{why}");
}
