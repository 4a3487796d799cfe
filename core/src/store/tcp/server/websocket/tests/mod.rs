//! Clients and the server's sessions without sockets: packets are moved, and lost, by hand.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod exactly_once;
mod greed;
mod relay;

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::sessions::{Fault, Newcomer, Sessions};
use crate::blocking::block_on;
use crate::generated::error::Result;
use crate::store::tcp::server::client_count::ClientCount;
use crate::store::tcp::server::service::Service;
use crate::store::websocket::Client;
use crate::store::{StoreReply, StoreRequest};
use crate::wire::session::{DEFAULT_WINDOW_BYTES, ResumeToken};

/// A server and its clients.
struct World {
    sessions: Sessions,
    service: Service,
    clients: Vec<Side>,
    sockets: u64,
}

/// A client, and the packets on their way between it and the server.
struct Side {
    client: Client,
    number: u64,
    socket: Option<u64>,
    /// The server has received something from the present socket.
    heard: bool,
    to_server: VecDeque<Vec<u8>>,
    to_client: VecDeque<Vec<u8>>,
}

/// A request under way.
type Asking = Pin<Box<dyn Future<Output = Result<StoreReply>>>>;

impl World {
    /// A server and `clients` connected clients.
    fn new(clients: usize) -> World {
        let side = |_| Side {
            client: Client::new(DEFAULT_WINDOW_BYTES, 0),
            number: 0,
            socket: None,
            heard: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        };
        let mut world = World {
            sessions: Sessions::new(1500, ClientCount::default()),
            service: Service::new(usize::MAX, None),
            clients: (0..clients).map(side).collect(),
            sockets: 0,
        };
        for at in 0..clients {
            world.connect(at);
            // The others greet after it, so that numbers are in order.
            world.settle();
        }
        world
    }

    fn connect(&mut self, at: usize) {
        self.disconnect(at);
        self.sockets += 1;
        self.clients[at].socket = Some(self.sockets);
        self.clients[at].client.attach();
    }

    /// The packets on their way are lost; only the client notices.
    fn disconnect(&mut self, at: usize) {
        let side = &mut self.clients[at];
        (side.socket, side.heard) = (None, false);
        side.to_server.clear();
        side.to_client.clear();
        side.client.detach();
    }

    /// One packet out of the client.
    fn speak(&mut self, at: usize) -> bool {
        let side = &mut self.clients[at];
        let packet = side.socket.and_then(|_| side.client.next_packet());
        side.to_server.extend(packet.iter().map(|packet| packet.as_ref().to_vec()));
        packet.is_some()
    }

    /// One packet into the server.
    fn hear(&mut self, at: usize) -> std::result::Result<bool, Fault> {
        let side = &mut self.clients[at];
        let Some(packet) = side.to_server.pop_front() else { return Ok(false) };
        if side.heard {
            self.sessions.receive(side.number, packet, &mut self.service)?;
        } else {
            let mut token = [0; 16];
            token[..8].copy_from_slice(&self.sockets.to_le_bytes());
            let newcomer = newcomer(side.socket.unwrap());
            let token = ResumeToken(token);
            side.number = self.sessions.greet(&packet, token, newcomer, &mut self.service)?;
            side.heard = true;
        }
        self.tell_woken();
        Ok(true)
    }

    /// One packet out of the server.
    fn serve(&mut self, at: usize) -> bool {
        let side = &mut self.clients[at];
        if side.number == 0 {
            return false;
        }
        let packet = self.sessions.next_packet(side.number, &mut self.service).unwrap();
        // The server continues writing to a socket whose loss it has not noticed.
        let packet = packet.map(|packet| packet.as_ref().to_vec());
        let served = packet.is_some();
        if side.heard {
            side.to_client.extend(packet);
        }
        self.tell_woken();
        served
    }

    /// One packet into the client.
    fn listen(&mut self, at: usize) -> bool {
        let side = &mut self.clients[at];
        let Some(packet) = side.to_client.pop_front() else { return false };
        side.client.receive(packet).unwrap();
        true
    }

    /// Moves everything that can be moved.
    fn settle(&mut self) {
        let all = 0..self.clients.len();
        while all
            .clone()
            .any(|at| self.speak(at) || self.hear(at).unwrap() || self.serve(at) || self.listen(at))
        {
        }
    }

    fn tell_woken(&mut self) {
        loop {
            let woken = self.service.take_woken();
            if woken.is_empty() {
                return;
            }
            for woken in woken {
                assert!(self.sessions.woken(woken.client, &mut self.service));
            }
        }
    }

    /// Begins a request, which is under way when this returns.
    fn ask(&self, at: usize, request: StoreRequest<'static>) -> Asking {
        let client = self.clients[at].client.clone();
        let mut asking: Asking = Box::pin(async move { client.request(request, pending()).await });
        assert!(poll(&mut asking).is_none());
        asking
    }
}

/// A socket from an address that is not known.
fn newcomer(socket: u64) -> Newcomer {
    Newcomer { socket, source: None }
}

fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// The caller that opened it is told by its first request, as if it had looked a moment before.
#[test]
fn a_session_that_stood_and_ended_was_opened_all_the_same() {
    let mut world = World::new(1);
    let client = world.clients.remove(0).client;
    client.lose("the store has ended");
    block_on(client.opened()).unwrap();
    let error = block_on(client.request(StoreRequest::NumKeys, pending())).unwrap_err();
    assert_eq!(error.to_string(), "the store has ended");
}
