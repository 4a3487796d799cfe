//! What a rank finds where a peer should listen: nobody, strangers, the wrong host.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::tests::{GENERATION, TOKEN, loopback, losses, member};
use super::*;
use crate::transport::suite::world::World;
use crate::wire::handshake::Hello;

#[test]
fn a_foreign_listener_is_no_peer() {
    let other = TcpListener::bind(loopback()).unwrap();
    let own = TcpTransport::bind(loopback()).unwrap();
    let mut card = own.card(&[]);
    card.tcp = vec![other.local_addr().unwrap()];
    let cards = [own.card(&[]), card];
    let timeouts = Timeouts { refused_timeout: Duration::from_millis(20), ..Timeouts::default() };
    let transport = TcpTransport::with_timeouts(own, member(0, &cards), timeouts).unwrap();
    let foreign = std::thread::spawn(move || {
        for stream in other.incoming() {
            let mut stream = stream.unwrap();
            let mut hello = [0; Hello::BYTES];
            if stream.read_exact(&mut hello).is_err() {
                break;
            }
            let _ = stream.write_all(b"SSH-2.0-something and more of it");
        }
    });
    let address = cards[1].tcp[0];
    let mut world = World::of_one(0, transport);
    world.connect(0, 1);
    let losses = losses(&mut world);
    let [LossReason::Unreachable(why)] = &losses[..] else { panic!("{losses:?}") };
    assert!(why.contains("not a polyrank rank") && why.contains(&address.to_string()), "{why}");
    drop(TcpStream::connect(address));
    foreign.join().unwrap();
}

#[test]
fn the_loopback_interface_of_another_host_is_named() {
    let own = TcpTransport::bind(loopback()).unwrap();
    let mut card = own.card(&[]);
    card.host = "elsewhere".into();
    card.tcp = vec![TcpListener::bind(loopback()).unwrap().local_addr().unwrap()];
    let cards = [own.card(&[]), card];
    let timeouts = Timeouts { refused_timeout: Duration::from_millis(20), ..Timeouts::default() };
    let transport = TcpTransport::with_timeouts(own, member(0, &cards), timeouts).unwrap();
    let mut world = World::of_one(0, transport);
    world.connect(0, 1);
    let losses = losses(&mut world);
    let [LossReason::Unreachable(why)] = &losses[..] else { panic!("{losses:?}") };
    assert!(why.contains("refused") && why.contains("POLYRANK_IFNAME"), "{why}");
}

#[test]
fn the_next_endpoint_is_tried() {
    let listeners = [0, 1].map(|_| TcpTransport::bind(loopback()).unwrap());
    let mut cards = listeners.each_ref().map(|listener| listener.card(&[]));
    let gone = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    cards[1].tcp.insert(0, gone);
    let transports = (0..).zip(listeners).map(|(rank, listener)| {
        TcpTransport::new(listener, rank, &cards, TOKEN, GENERATION).unwrap()
    });
    let mut world = World::new(transports.collect(), Box::new(std::thread::yield_now));
    world.send(0, 1, 1, 10);
    world.drive_until_all_arrived();
    world.check_order_and_contents();
}

#[test]
fn a_peer_that_refuses_is_given_up_at_once_if_its_process_has_ended() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let own = TcpTransport::bind(loopback()).unwrap();
    let mut card = own.card(&[]);
    card.process_id = child.id();
    card.tcp = vec![TcpListener::bind(loopback()).unwrap().local_addr().unwrap()];
    let cards = [own.card(&[]), card];
    // Longer than the test may take.
    let timeouts = Timeouts { refused_timeout: Duration::from_secs(3600), ..Timeouts::default() };
    let transport = TcpTransport::with_timeouts(own, member(0, &cards), timeouts).unwrap();
    let mut world = World::of_one(0, transport);
    world.connect(0, 1);
    let losses = losses(&mut world);
    let [LossReason::Unreachable(why)] = &losses[..] else { panic!("{losses:?}") };
    assert!(why.contains("refused"), "{why}");
}
