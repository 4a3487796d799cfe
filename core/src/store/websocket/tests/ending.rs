//! Stores that end while clients still talk to them: what was run is answered, and a client
//! that asks more learns why there is no answer.

use std::net::TcpListener;
use std::thread;

use tokio_tungstenite::tungstenite::accept;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::*;
use crate::store::{Store, WebSocketStore};

fn client(server: &TcpStore) -> WebSocketStore {
    WebSocketStore::connect(&url(server.port()), LIMIT).unwrap()
}

#[test]
fn whose_request_ends_the_store_hears_that_it_was_carried_out() {
    for _ in 0..50 {
        let server = server();
        let client = client(&server);
        thread::scope(|scope| {
            let last = scope.spawn(|| client.set("all left", b""));
            server.wait(&["all left"], Some(LIMIT)).unwrap();
            drop(server);
            last.join().unwrap().unwrap();
        });
    }
}

#[test]
fn who_asks_a_store_that_ended_hears_so_and_does_not_dial_again() {
    let server = server();
    let client = client(&server);
    client.set("key", b"value").unwrap();
    thread::scope(|scope| {
        let wait = scope.spawn(|| client.wait(&["never"], Some(LIMIT)));
        client.add("round trip", 1).unwrap();
        drop(server);
        let error = wait.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("the store has ended"), "{error}");
    });
    let error = client.get("key").unwrap_err();
    assert!(error.to_string().contains("the store has ended"), "{error}");
}

#[test]
fn who_comes_to_a_store_while_it_ends_finds_the_next() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::scope(|scope| {
        let client = scope.spawn(move || {
            let client = WebSocketStore::connect(&url(port), LIMIT).unwrap();
            client.get("key").unwrap()
        });
        let mut socket = accept(listener.accept().unwrap().0).unwrap();
        drop(listener);
        let reason = "the store has ended".into();
        socket.close(Some(CloseFrame { code: CloseCode::Normal, reason })).unwrap();
        while socket.read().is_ok() {}
        drop(socket);
        let options = TcpStoreOptions::new("127.0.0.1", port).is_master(true).timeout(LIMIT);
        let next = TcpStore::new(options).unwrap();
        next.set("key", b"value").unwrap();
        assert_eq!(client.join().unwrap(), b"value");
    });
}
