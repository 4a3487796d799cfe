//! Pipes straight to a peer, over sockets in memory and with a clock of the test's own: signs of
//! life, grace, closing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use super::super::{
    Acceptor, Dialer, Options, Pipe, PipeState, ReceptionOptions, Socket, SocketClose, SocketEvent,
    answered, close_code, dialed,
};
use crate::clock::Instant;
use crate::generated::error::Result;
use crate::transport::LossReason;

/// The network: sockets that were dialled and wait for the server, and whether anything moves.
#[derive(Clone, Default)]
struct SimulatedNetwork(Arc<Mutex<NetworkState>>);

#[derive(Default)]
struct NetworkState {
    waiting: VecDeque<MemorySocket>,
    is_cut: bool,
    refuses: bool,
}

type Line = Arc<Mutex<VecDeque<SocketEvent>>>;

struct MemorySocket {
    air: SimulatedNetwork,
    into: Line,
    from: Line,
    is_server: bool,
    is_closed: bool,
}

impl Dialer for SimulatedNetwork {
    fn dial(&self, _url: &str) -> Result<Box<dyn Socket>> {
        let [a, b] = [Line::default(), Line::default()];
        let side = |into: &Line, from: &Line, is_server| {
            from.lock().unwrap().push_back(SocketEvent::Opened);
            let (air, into, from) = (self.clone(), into.clone(), from.clone());
            MemorySocket { air, into, from, is_server, is_closed: false }
        };
        let (ours, theirs) = (side(&a, &b, false), side(&b, &a, true));
        let mut sky = self.0.lock().unwrap();
        if sky.refuses {
            let mut from = ours.from.lock().unwrap();
            from.clear();
            from.push_back(closed(false, close_code::ABNORMAL));
        } else {
            sky.waiting.push_back(theirs);
        }
        drop(sky);
        Ok(Box::new(ours))
    }
}

fn closed(clean: bool, code: u16) -> SocketEvent {
    SocketEvent::Closed(SocketClose { clean, code, reason: String::new() })
}

impl Socket for MemorySocket {
    fn send(&mut self, packet: Bytes) {
        assert!(!self.is_closed, "browsers complain of what is sent after the end");
        if !self.air.0.lock().unwrap().is_cut {
            self.into.lock().unwrap().push_back(SocketEvent::Packet(packet));
        }
    }

    fn buffered(&self) -> usize {
        0
    }

    fn receive(&mut self) -> Option<SocketEvent> {
        self.from.lock().unwrap().pop_front()
    }

    fn ping(&mut self) {
        let sky = self.air.0.lock().unwrap();
        // Pages cannot ping.
        if !sky.is_cut && self.is_server {
            self.from.lock().unwrap().push_back(SocketEvent::Alive);
        }
    }

    fn close(&mut self, code: u16, _reason: &str) {
        self.is_closed = true;
        if self.air.0.lock().unwrap().is_cut {
            return;
        }
        self.into.lock().unwrap().push_back(closed(true, code));
        self.from.lock().unwrap().push_back(closed(true, code));
    }
}

/// A client's pipe, a server, its pipe, and the time.
struct World {
    air: SimulatedNetwork,
    now: Instant,
    client: Box<dyn Pipe>,
    acceptor: Box<dyn Acceptor>,
    server: Option<Box<dyn Pipe>>,
}

impl World {
    fn new(grace_ms: u32) -> World {
        let air = SimulatedNetwork::default();
        let now = Instant::now();
        let options = Options { grace_ms, ..Options::default() };
        let client = dialed(Arc::new(air.clone()), vec!["ws://x/".into()], &options, now);
        let waiting = air.clone();
        let source = move || {
            let socket = waiting.0.lock().unwrap().waiting.pop_front()?;
            Some(Box::new(socket) as Box<dyn Socket>)
        };
        let acceptor = answered(Box::new(source), ReceptionOptions::default());
        let mut world = World { air, now, client, acceptor, server: None };
        world.run();
        world
    }

    /// Lets everything move that can, at one time.
    fn run(&mut self) {
        let mut moved = true;
        while moved {
            moved = self.client.advance(self.now) | self.acceptor.advance(self.now);
            self.server = self.server.take().or_else(|| self.acceptor.accept());
            moved |= self.server.as_mut().is_some_and(|server| server.advance(self.now));
        }
    }

    /// Lets time pass, a second at a time.
    fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            self.run();
        }
    }

    fn server(&mut self) -> &mut Box<dyn Pipe> {
        self.server.as_mut().expect("the server has its pipe")
    }
}

#[test]
fn silence_is_broken_by_signs_of_life() {
    let mut world = World::new(0);
    world.pass(300);
    assert_eq!(world.client.state(), PipeState::Open);
    assert_eq!(world.server().state(), PipeState::Open);
    world.client.send(&[b"a", b"bc"]);
    world.run();
    assert_eq!(world.server().receive().as_deref(), Some(&b"abc"[..]));
    assert_eq!(world.server().receive(), None);
}

#[test]
fn a_silent_side_is_found_out_and_given_up_after_the_grace() {
    let mut world = World::new(5000);
    world.air.0.lock().unwrap().is_cut = true;
    world.pass(29);
    assert_eq!(world.server().state(), PipeState::Open);
    world.pass(13);
    let says = |why: &str| why.contains("silent for 30 s");
    let state = world.server().state();
    assert!(matches!(&state, PipeState::Lost(LossReason::Died(why)) if says(why)), "{state:?}");
    assert!(matches!(world.client.state(), PipeState::Lost(LossReason::Died(_))));
}

#[test]
fn what_was_under_way_arrives_after_a_silence_that_ended_in_time() {
    let mut world = World::new(60_000);
    world.air.0.lock().unwrap().is_cut = true;
    world.client.send(&[b"one"]);
    world.server().send(&[b"two"]);
    world.pass(45);
    world.air.0.lock().unwrap().is_cut = false;
    world.pass(30);
    assert_eq!(world.server().receive().as_deref(), Some(&b"one"[..]));
    assert_eq!(world.client.receive().as_deref(), Some(&b"two"[..]));
    assert_eq!((world.server().receive(), world.client.receive()), (None, None));
}

#[test]
fn nothing_is_sent_after_the_end() {
    for orderly in [true, false] {
        let mut world = World::new(60_000);
        world.server().send(&[b"more"]);
        world.air.0.lock().unwrap().is_cut = true;
        world.client.close(orderly);
        while world.client.receive().is_some() {}
        // The time of many signs of life.
        world.pass(25);
    }
}

#[test]
fn a_client_that_is_only_suspended_is_waited_for() {
    let mut world = World::new(0);
    // The browser answers pings; the page does nothing.
    for _ in 0..600 {
        world.now += Duration::from_secs(1);
        let now = world.now;
        world.server().advance(now);
    }
    assert_eq!(world.server().state(), PipeState::Open);
    world.run();
    assert_eq!(world.client.state(), PipeState::Open, "what waited counts as a sign of life");
}

#[test]
fn an_orderly_end_comes_after_what_was_sent() {
    for orderly in [true, false] {
        let mut world = World::new(0);
        // A peer that has been accepted is heard without a pause.
        world.client.send(&[b"hello"]);
        world.run();
        assert!(world.server().receive().is_some());
        for _ in 0..15 {
            world.client.send(&[&[7; 60_000]]);
        }
        world.client.close(orderly);
        assert_eq!(world.client.room(), 0);
        world.run();
        assert!(world.client.is_flushed());
        let server = world.server();
        let chunks = std::iter::from_fn(|| server.receive()).count();
        assert_eq!(chunks, 15, "orderly: {orderly}");
        match server.state() {
            PipeState::Lost(LossReason::Goodbye) if orderly => {}
            PipeState::Lost(LossReason::Died(_)) if !orderly => {}
            state => panic!("{state:?}, orderly: {orderly}"),
        }
    }
}

#[test]
fn nobody_there_is_hopeless_after_a_while() {
    let air = SimulatedNetwork::default();
    air.0.lock().unwrap().refuses = true;
    let mut now = Instant::now();
    let options = Options::default();
    let urls = vec!["ws://x/".into(), "ws://y/".into()];
    let mut client = dialed(Arc::new(air), urls, &options, now);
    let begin = now;
    while !matches!(client.state(), PipeState::Lost(_)) {
        client.advance(now);
        let deadline = client.deadline().unwrap_or(now);
        now = deadline.max(now);
        assert!(now < begin + Duration::from_secs(10), "it never gives up");
    }
    assert!(now >= begin + options.timeouts.refused_timeout);
    let state = client.state();
    assert!(
        matches!(&state, PipeState::Lost(LossReason::Unreachable(why)) if why.contains("ws://"))
    );
}
