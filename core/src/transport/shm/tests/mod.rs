//! What only shared memory can get wrong: strangers, misbehaving peers, sleep, crossing
//! connections.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attaching;
mod board_model;
mod lending;
mod mad;
mod model;
mod sleeping;
mod strangers;

use std::time::Duration;

use super::*;
use crate::env::CopyChoice;
use crate::transport::suite::world::{Event, World};
use crate::wire::handshake::{Hello, Token};

const TOKEN: Token = Token([9; 16]);
const GENERATION: u32 = 5;

fn member(rank: Rank, cards: &[Card]) -> Membership<'_> {
    Membership { rank, cards, token: TOKEN, generation: GENERATION }
}

/// The transports of a group on this host.
pub(in crate::transport) fn group(size: u32, timeouts: Timeouts) -> Vec<ShmTransport> {
    group_that_copies(size, timeouts, CopyChoice::Auto)
}

/// As [`group`], with a way to copy.
pub(in crate::transport) fn group_that_copies(
    size: u32,
    timeouts: Timeouts,
    copy: CopyChoice,
) -> Vec<ShmTransport> {
    let listeners: Vec<_> = (0..size).map(|_| Listener::bind().unwrap()).collect();
    let card = |listener: &Listener| listener.sign(Card::new("here", 1, Vec::new()));
    let cards: Vec<_> = listeners.iter().map(card).collect();
    let lending = LendingThresholds::of(copy);
    let transport = |(rank, listener)| {
        ShmTransport::new(listener, member(rank, &cards), timeouts, lending).unwrap()
    };
    (0..).zip(listeners).map(transport).collect()
}

fn world(size: u32) -> World {
    World::new(group(size, Timeouts::default()), Box::new(std::thread::yield_now))
}

/// What rank 0 learns of rank 1, which is to be one loss.
fn losses(world: &mut World) -> Vec<LossReason> {
    world.drive_until("loss", |world| !world.lost(0, 1).is_empty());
    world.drive_a_while();
    world.lost(0, 1)
}

#[test]
fn crossing_connections_lose_and_double_nothing() {
    for seed in 0..64_u64 {
        let mut world = world(2);
        let first = (seed % 2) as u32;
        world.send(first, 1 - first, 1, 10);
        for _ in 0..(seed / 2) % 4 {
            world.turn(first);
        }
        world.send(1 - first, first, 1, 10_000);
        for _ in 0..(seed / 8) % 4 {
            world.turn(1 - first);
        }
        world.send(first, 1 - first, 4, 100_000);
        world.send(1 - first, first, 4, 0);
        world.drive_until_all_arrived();
        world.check_order_and_contents();
        world.drive_a_while();
        let lost = |event: &&Event| matches!(event, Event::Lost { .. });
        assert_eq!(world.events.iter().filter(lost).count(), 0, "seed {seed}");
    }
}

#[test]
fn either_end_of_crossed_connections_is_noticed() {
    for gone in [0, 1] {
        let mut world = world(2);
        // Both have dialled before either has looked.
        world.connect(0, 1);
        world.connect(1, 0);
        world.drive_a_while();
        world.transports[gone as usize] = None;
        world.drive_until("loss", |world| !world.lost(1 - gone, gone).is_empty());
        assert!(matches!(&world.lost(1 - gone, gone)[..], [LossReason::Died(_)]));
    }
}

/// Moves all ranks until each has one connection to each other rank and accepts no more.
fn settle(transports: &mut [ShmTransport]) {
    while !transports.iter().all(|it| !it.table.is_accepting()) {
        for transport in &mut *transports {
            transport.advance(&mut Nobody);
        }
    }
    for transport in transports {
        assert_eq!(transport.table.active.len() as u32, transport.size() - 1);
        assert!(transport.file.is_none());
        for peer in &transport.table.peers {
            assert!(!matches!(&peer.link, Link::Open(open) if open.channels.len() != 1));
        }
    }
}

#[test]
fn ranks_that_have_connected_keep_one_connection_each_and_accept_no_more() {
    for size in [2, 3, 5, 8] {
        for dials in 0..8_u32 {
            let mut transports = group(size, Timeouts::default());
            // Of each pair, both ranks, the lower or the higher one; all at first or in turn.
            for (rank, transport) in (0..).zip(&mut transports) {
                for peer in (0..size).filter(|peer| *peer != rank) {
                    let is_dialled = match dials % 4 {
                        0 | 1 => true,
                        2 => rank < peer,
                        _ => rank > peer,
                    };
                    if is_dialled {
                        transport.connect(peer);
                    }
                    if dials >= 4 {
                        transport.advance(&mut Nobody);
                    }
                }
            }
            settle(&mut transports);
        }
    }
}

#[test]
fn a_rank_that_has_not_come_to_its_first_operation_is_waited_for() {
    let timeouts = Timeouts { connect_timeout: Duration::ZERO, ..Timeouts::default() };
    let mut world = World::new(group(2, timeouts), Box::new(std::thread::yield_now));
    world.send(0, 1, 1, 10);
    // Rank 1 does something else.
    world.drive_only(0);
    assert!(world.lost(0, 1).is_empty());
    world.drive_until_all_arrived();
}

#[test]
fn a_rank_that_ends_before_its_first_operation_is_noticed() {
    let mut world = world(2);
    world.send(0, 1, 1, 10);
    world.drive_only(0);
    world.transports[1] = None;
    assert!(matches!(&losses(&mut world)[..], [LossReason::Unreachable(_)]));
}

#[test]
fn a_lost_peer_whose_socket_somebody_else_holds_keeps_nobody_awake() {
    let mut transports = group(2, Timeouts::default());
    transports[0].connect(1);
    while !transports.iter().all(|it| it.table.active.len() == 1) {
        for transport in &mut transports {
            transport.advance(&mut Nobody);
        }
    }
    // As a forked child does.
    let Link::Open(open) = &transports[0].table.peers[1].link else { panic!("it is open") };
    let held = rustix::io::dup(&open.channels[0].socket).unwrap();
    transports.remove(1).close(true);
    let first = &mut transports[0];
    let mut interests = Vec::new();
    while !first.table.active.is_empty() {
        first.interests(&mut interests);
        first.advance(&mut Nobody);
    }
    while first.advance(&mut Nobody) {}
    interests.clear();
    first.interests(&mut interests);
    assert!(!crate::transport::wait::wait(&interests, Some(Duration::ZERO)));
    drop(held);
}

#[test]
fn lanes_carry_more_than_they_hold() {
    let mut world = world(2);
    // Headers alone, small payloads, staged ones and ones in pieces, many times around.
    for number in 0..600 {
        let bytes = [0, 3000, 40, 20_000, 200_000, 4096, 4097, 1 << 20][number as usize % 8];
        world.send(0, 1, number, bytes);
        world.send(1, 0, number, bytes / 3);
        if number % 50 == 0 {
            world.turn(number % 2);
        }
    }
    world.drive_until_all_arrived();
    world.check_order_and_contents();
}

#[test]
fn ranks_of_other_hosts_and_users_are_not_reached() {
    let listener = Listener::bind().unwrap();
    let ours = listener.sign(Card::new("here", 1, Vec::new()));
    assert!(is_reached(&ours, &ours));
    let elsewhere = Card { host: "there".to_owned(), ..ours.clone() };
    let without = Card { shm: None, ..ours.clone() };
    let mut other = ours.clone();
    other.shm.as_mut().unwrap().user += 1;
    for card in [elsewhere, without, other] {
        assert!(!is_reached(&ours, &card) && !is_reached(&card, &ours), "{card:?}");
    }
}

#[test]
fn no_descriptor_survives_an_exec() {
    use std::os::fd::AsFd;

    use rustix::io::{FdFlags, fcntl_getfd};
    let is_closed = |fd: std::os::fd::BorrowedFd<'_>| {
        assert!(fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC));
    };
    let mut transports = group(2, Timeouts::default());
    for transport in &transports {
        is_closed(transport.table.listener.as_ref().unwrap().as_fd());
        is_closed(transport.file.as_ref().unwrap().as_fd());
        is_closed(transport.ready.as_fd());
    }
    transports[0].connect(1);
    while !transports.iter().all(|it| it.table.active.len() == 1) {
        for transport in &mut transports {
            transport.advance(&mut Nobody);
        }
    }
    for transport in &transports {
        let mut interests = Vec::new();
        transport.interests(&mut interests);
        is_closed(interests[0].fd.as_fd());
        for peer in &transport.table.peers {
            if let Link::Open(open) = &peer.link {
                open.channels.iter().for_each(|channel| is_closed(channel.socket.as_fd()));
            }
        }
    }
}

/// Hears nothing.
struct Nobody;

impl Sink for Nobody {
    fn announced(&mut self, _: Rank, _: &Header) -> crate::transport::Destination {
        crate::transport::Destination::Discard
    }
    fn arrived(&mut self, _: Rank, _: &Header, _: crate::transport::ArrivedPayload<'_>) {}
    fn sent(&mut self, _: Rank, _: &Header) {}
    fn lost(&mut self, _: Rank, _: LossReason) {}
}
