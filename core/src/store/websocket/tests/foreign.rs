//! Servers that are not a store's of polyrank, and URLs that lead nowhere.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;
use crate::generated::error::Error;
use crate::store::WebSocketStore;

/// A server that answers every connection's first bytes with `reply`, and hangs up.
fn answering(reply: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(reply);
        }
    });
    port
}

#[test]
fn a_store_without_a_websocket_side_is_named_as_such() {
    // PyTorch's server closes a connection whose first byte is not a request's.
    let replies: [&[u8]; 3] =
        [b"", b"\x00\x00\x00\x00 what", b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"];
    for reply in replies {
        let error = WebSocketStore::connect(&url(answering(reply)), LIMIT).unwrap_err();
        assert!(matches!(error, Error::Network { .. }), "{error:?}");
        let text = error.to_string();
        for part in ["no WebSocket side", "PyTorch", "polyrank store"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn a_refusal_is_told_in_the_servers_words() {
    let reply = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 11\r\n\r\nnot for you";
    let error = WebSocketStore::connect(&url(answering(reply)), LIMIT).unwrap_err().to_string();
    assert!(error.contains("403") && error.contains("not for you"), "{error}");
}

#[test]
fn a_server_that_does_not_come_is_waited_for_until_the_timeout() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let limit = Duration::from_millis(200);
    let error = WebSocketStore::connect(&url(free), limit).unwrap_err().to_string();
    assert!(error.contains("was not reached within 200 ms"), "{error}");
    assert!(error.contains("refused"), "{error}");
    let error = WebSocketStore::connect("http://x", limit).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
}

#[test]
fn a_server_that_comes_late_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| WebSocketStore::connect(&url(port), LIMIT));
        let options = TcpStoreOptions::new("127.0.0.1", port).is_master(true);
        let server = TcpStore::new(options).unwrap();
        crate::store::Store::set(&client.join().unwrap().unwrap(), "k", b"v").unwrap();
        assert_eq!(crate::store::Store::get(&server, "k").unwrap(), b"v");
    });
}
