//! What a server keeps for clients that do not read, or ask for too much.

use super::*;
use crate::wire::channel::{MAX_REQUESTS, PIPE_WINDOW_BYTES, StoreFlag, StoreHeader};
use crate::wire::session::Session;

/// What a session may keep for its own packets.
const WINDOWS: usize = 2 * DEFAULT_WINDOW_BYTES as usize;

#[test]
fn a_slow_reader_makes_its_peers_wait_and_the_server_keeps_no_more_than_their_windows() {
    const SENDERS: usize = 4;
    let mut world = World::new(SENDERS + 1);
    let slow = world.clients[SENDERS].number;
    let mut pipes: Vec<_> =
        (0..SENDERS).map(|at| world.clients[at].client.relay().open(slow, 5)).collect();
    world.settle();
    // The slow reader's socket takes nothing any more; the others send whatever they may.
    let chunk = vec![1; 64 << 10];
    let mut sent = 0;
    loop {
        let before = sent;
        for (at, pipe) in pipes.iter_mut().enumerate() {
            while pipe.room() >= chunk.len() {
                pipe.send(&[&chunk]);
                sent += chunk.len();
            }
            while world.speak(at) || world.hear(at).unwrap() || world.serve(at) || world.listen(at)
            {
            }
        }
        if sent == before {
            break;
        }
    }
    let held = world.sessions.held_bytes();
    assert!(sent > SENDERS * PIPE_WINDOW_BYTES / 2, "{sent} bytes were sent");
    assert!(held <= SENDERS * PIPE_WINDOW_BYTES + WINDOWS, "{held} bytes are held");
    assert!(pipes.iter().all(|pipe| pipe.room() < chunk.len()));
    // It wakes up, and everything continues.
    let numbers: Vec<u64> = world.clients[..SENDERS].iter().map(|side| side.number).collect();
    let relay = world.clients[SENDERS].client.relay();
    let mut ends: Vec<_> = numbers.iter().map(|number| relay.open(*number, 5)).collect();
    let mut received = 0;
    loop {
        world.settle();
        let before = received;
        for end in &mut ends {
            while let Some(chunk) = end.receive() {
                received += chunk.len();
            }
        }
        if received == before {
            break;
        }
    }
    assert_eq!(received, sent);
    world.settle();
    assert!(pipes.iter().all(|pipe| pipe.room() > PIPE_WINDOW_BYTES / 2));
}

#[test]
fn replies_that_nobody_reads_are_not_made() {
    let mut world = World::new(1);
    let value: &'static [u8] = vec![7; 1 << 20].leak();
    let mut set = world.ask(0, StoreRequest::Set { key: "big", value });
    world.settle();
    assert_eq!(poll(&mut set).unwrap().unwrap(), StoreReply::Done);
    // Hundreds of megabytes are asked for, and the socket takes no replies.
    let mut gets: Vec<Asking> = Vec::new();
    for _ in 0..400 {
        gets.push(world.ask(0, StoreRequest::Get { key: "big" }));
        while world.speak(0) || world.hear(0).unwrap() {}
        world.serve(0);
    }
    let held = world.sessions.held_bytes();
    assert!(held < 2 * WINDOWS, "{held} bytes are held");
    world.settle();
    for get in &mut gets {
        assert_eq!(poll(get).unwrap().unwrap().value().unwrap().len(), 1 << 20);
    }
    assert!(world.sessions.held_bytes() < WINDOWS);
}

#[test]
fn too_many_requests_at_a_time_end_the_session() {
    let mut world = World::new(0);
    let mut session = Session::client(DEFAULT_WINDOW_BYTES, 0);
    session.attach();
    let hello = session.next_packet().unwrap();
    let token = ResumeToken([9; 16]);
    let greeted = world.sessions.greet(hello.as_ref(), token, newcomer(1), &mut world.service);
    let number = greeted.unwrap();
    let welcome = world.sessions.next_packet(number, &mut world.service).unwrap().unwrap();
    session.receive(welcome.as_ref().to_vec()).unwrap();
    let mut fault = None;
    for id in 0..=MAX_REQUESTS as u32 {
        // The beginning of a request, and never the rest.
        session.send(StoreHeader { id, flag: StoreFlag::More }.message(&[1, 2, 0]));
        while let Some(packet) = session.next_packet() {
            let packet = packet.as_ref().to_vec();
            if let Err(error) = world.sessions.receive(number, packet, &mut world.service) {
                fault = Some((id, error));
            }
            let packet = world.sessions.next_packet(number, &mut world.service).unwrap();
            packet.map(|packet| session.receive(packet.as_ref().to_vec()).unwrap());
        }
    }
    assert_eq!(fault, Some((MAX_REQUESTS as u32, Fault::TooManyRequests)));
}

#[test]
fn a_wait_of_a_client_that_is_gone_takes_no_element_from_the_others() {
    let mut world = World::new(3);
    let _dead = world.ask(0, StoreRequest::QueuePop { key: "q", block: true });
    world.settle();
    let mut alive = world.ask(1, StoreRequest::QueuePop { key: "q", block: true });
    world.settle();
    let number = world.clients[0].number;
    let socket = world.clients[0].socket.unwrap();
    world.sessions.lost(number, socket + 100, 1000, &mut world.service);
    assert_eq!(world.sessions.expire(9000, &mut world.service), None, "another socket was lost");
    world.sessions.lost(number, socket, 1000, &mut world.service);
    world.disconnect(0);
    assert_eq!(world.sessions.expire(2499, &mut world.service), Some(2500));
    assert_eq!(world.sessions.expire(2500, &mut world.service), None);
    world.clients[0].number = 0;
    let push = StoreRequest::QueuePush { key: "q", value: b"only" };
    let mut push = world.ask(2, push);
    world.settle();
    assert_eq!(poll(&mut push).unwrap().unwrap(), StoreReply::Done);
    assert_eq!(poll(&mut alive).unwrap().unwrap().value().unwrap(), b"only");
    // A client that comes back after that learns that the session is gone.
    world.connect(0);
    world.speak(0);
    let fault = world.hear(0).unwrap_err();
    assert_eq!(fault.close_code(), 1008);
    assert_eq!(fault.to_string(), "unknown session");
}

#[test]
fn a_wait_that_is_cancelled_ends_and_one_that_was_answered_keeps_its_answer() {
    let mut world = World::new(2);
    let client = world.clients[0].client.clone();
    let (stop, stopped) = std::sync::mpsc::channel::<crate::generated::error::Error>();
    let cancelled = std::future::poll_fn(move |_| match stopped.try_recv() {
        Ok(error) => Poll::Ready(error),
        Err(_) => Poll::Pending,
    });
    let mut pop: Asking = Box::pin(async move {
        let pop = StoreRequest::QueuePop { key: "q", block: true };
        client.request(pop, cancelled).await
    });
    assert!(poll(&mut pop).is_none());
    world.settle();
    // The element is on its way when the wait is given up.
    let _push = world.ask(1, StoreRequest::QueuePush { key: "q", value: b"x" });
    while world.speak(1) || world.hear(1).unwrap() {}
    let timeout = || crate::generated::error::Error::StoreTimeout {
        operation: "wait".into(),
        keys: "/q".into(),
        waited_ms: 1,
    };
    stop.send(timeout()).unwrap();
    assert!(poll(&mut pop).is_none());
    world.settle();
    assert_eq!(poll(&mut pop).unwrap().unwrap().value().unwrap(), b"x");
    // Dropping a request takes its wait back.
    drop(world.ask(0, StoreRequest::QueuePop { key: "q", block: true }));
    world.settle();
    let _push = world.ask(1, StoreRequest::QueuePush { key: "q", value: b"y" });
    let mut left = world.ask(1, StoreRequest::QueueLen { key: "q" });
    world.settle();
    assert_eq!(poll(&mut left).unwrap().unwrap().number().unwrap(), 1);
}

#[test]
fn the_session_that_keeps_most_is_sent_away_and_hears_why_and_the_others_stay() {
    let mut world = World::new(2);
    let value: &'static [u8] = vec![7; 1 << 20].leak();
    let mut set = world.ask(0, StoreRequest::Set { key: "big", value });
    world.settle();
    assert!(poll(&mut set).is_some());
    let _get = world.ask(1, StoreRequest::Get { key: "big" });
    while world.speak(1) || world.hear(1).unwrap() {}
    world.serve(1);
    let sides = [0, 1].map(|at| (world.clients[at].number, world.clients[at].socket.unwrap()));
    assert!(!world.sessions.relieve(usize::MAX, &mut world.service));
    assert!(world.sessions.relieve(0, &mut world.service));
    let claims = sides.map(|(number, socket)| world.sessions.claim(number, socket, Waker::noop()));
    assert_eq!(claims, [Ok(()), Err(Some(Fault::Overloaded))]);
    let (number, socket) = sides[1];
    assert_eq!(world.sessions.claim(number, socket, Waker::noop()), Err(None));
}
