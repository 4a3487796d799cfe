//! Clients that send what they must not: each is sent away with a reason, and the others continue.

use std::io::{Read, Write};
use std::net::TcpStream;

use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame};
use tungstenite::{Message, WebSocket};

use super::*;
use crate::store::{Store, WebSocketStore};
use crate::wire::session::{
    Hello, MAX_PACKET_BYTES, MAX_WINDOW_BYTES, MIN_WINDOW_BYTES, ResumeToken, SESSION_VERSION,
};

fn connect(port: u16, origin: Option<&str>) -> tungstenite::Result<WebSocket<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut request = url(port).into_client_request().unwrap();
    if let Some(origin) = origin {
        request.headers_mut().insert("Origin", origin.parse().unwrap());
    }
    match tungstenite::client(request, stream) {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::HandshakeError::Failure(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

/// What a client that has no session yet says.
fn hello() -> Hello {
    Hello {
        version: SESSION_VERSION,
        token: ResumeToken::NONE,
        received: 0,
        window_bytes: MIN_WINDOW_BYTES,
        grace_ms: 0,
    }
}

fn say(socket: &mut WebSocket<TcpStream>, packet: &[u8]) {
    socket.send(Message::Binary(packet.to_vec().into())).unwrap();
}

/// The close frame that the server sends, whatever comes before it.
fn closing(socket: &mut WebSocket<TcpStream>) -> (u16, String) {
    loop {
        match socket.read() {
            Ok(Message::Close(Some(CloseFrame { code, reason }))) => {
                return (code.into(), reason.to_string());
            }
            Ok(_) => {}
            Err(error) => panic!("no close frame came: {error}"),
        }
    }
}

/// A WebSocket that has a session.
fn welcomed(port: u16) -> WebSocket<TcpStream> {
    let mut socket = connect(port, None).unwrap();
    say(&mut socket, hello().encode().as_ref());
    assert!(socket.read().unwrap().is_binary());
    socket
}

#[test]
fn each_mistake_closes_its_own_connection_with_a_reason() {
    let server = server();
    let port = server.port();
    let witness = WebSocketStore::connect(&url(port), LIMIT).unwrap();
    let packet = |kind: u8, number: u64, channel: u8, body: &[u8]| {
        let mut packet = vec![kind, channel, 0, 0, 0, 0, 0, 0];
        packet.extend(number.to_le_bytes());
        packet.extend(0u64.to_le_bytes());
        packet.extend(body);
        packet
    };
    type Mistake = Box<dyn Fn(&mut WebSocket<TcpStream>)>;
    let send = |packet: Vec<u8>| -> Mistake { Box::new(move |socket| say(socket, &packet)) };
    let mut open_unknown = vec![1, 1, 0, 0, 0, 0, 0, 0];
    open_unknown.extend(999u64.to_le_bytes());
    open_unknown.extend(5u64.to_le_bytes());
    let cases: Vec<(&str, Mistake, u16, &str)> = vec![
        ("text", Box::new(|socket| socket.send(Message::text("hi")).unwrap()), 1003, "no text"),
        ("huge frame", send(vec![3; MAX_PACKET_BYTES + 1]), 1009, "longer"),
        ("empty packet", send(Vec::new()), 1002, "malformed"),
        ("unknown kind", send(vec![9; 30]), 1002, "malformed"),
        ("truncated data", send(packet(3, 1, 0, b"")[..20].to_vec()), 1002, "malformed"),
        ("truncated request", send(packet(3, 1, 0, b"abc")), 1002, "request"),
        ("second hello", send(hello().encode().as_ref().to_vec()), 1002, "out of place"),
        ("wrong number", send(packet(3, 7, 0, b"")), 1002, "message 7"),
        ("unknown channel", send(packet(3, 1, 9, b"")), 1002, "channel 9"),
        ("unknown rank", send(packet(3, 1, 1, &open_unknown)), 1008, "relay number 999"),
    ];
    for (name, mistake, code, reason) in cases {
        let mut socket = welcomed(port);
        mistake(&mut socket);
        let (closed, why) = closing(&mut socket);
        assert_eq!(closed, code, "{name}: {why}");
        assert!(why.contains(reason), "{name}: {why}");
        witness.set(name, b"still there").unwrap();
        assert_eq!(server.get(name).unwrap(), b"still there");
    }
}

/// Sends `frames` again and again until the server has enough; its close frame.
fn flood(socket: &mut WebSocket<TcpStream>, frames: &[u8]) -> (u16, String) {
    let many = frames.repeat((32 << 10) / frames.len());
    let mut writer = socket.get_ref().try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let mut sent = 0;
        while sent < 64 << 20 && writer.write_all(&many).is_ok() {
            sent += many.len();
        }
        sent
    });
    let close = closing(socket);
    let _ = socket.get_ref().shutdown(std::net::Shutdown::Both);
    assert!(writer.join().unwrap() < 64 << 20, "all of it was listened to");
    close
}

#[test]
fn a_client_that_sends_without_end_what_costs_nothing_is_sent_away() {
    let server = server();
    let port = server.port();
    let witness = WebSocketStore::connect(&url(port), LIMIT).unwrap();
    // Frames as a page sends them, with masks that change nothing.
    let frame =
        |first: u8, body: &[u8]| [&[first, 0x80 | body.len() as u8, 0, 0, 0, 0], body].concat();
    let ack = frame(0x82, &[[4, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat());
    let (ping, begin, part) = (frame(0x89, &[]), frame(0x02, &[]), frame(0x00, &[]));
    let cases: [(bool, &[u8], &[u8], &str); 5] = [
        (true, &[], &ack, "acknowledge nothing"),
        (true, &[], &ping, "too many pings"),
        (false, &[], &ping, "too many pings"),
        (true, &begin, &part, "without a message"),
        (false, &begin, &part, "without a message"),
    ];
    for (stands, begin, frames, says) in cases {
        let mut socket = if stands { welcomed(port) } else { connect(port, None).unwrap() };
        socket.get_mut().write_all(begin).unwrap();
        let (code, why) = flood(&mut socket, frames);
        assert_eq!(code, 1008, "{says}: {why}");
        assert!(why.contains(says), "{says}: {why}");
        witness.set(says, b"still there").unwrap();
    }
}

#[test]
fn a_session_that_is_not_known_is_not_resumed() {
    let server = server();
    let cases = [
        (Hello { token: ResumeToken([5; 16]), ..hello() }, 1008, "unknown session"),
        (Hello { version: 9, ..hello() }, 1008, "version 9"),
        (Hello { window_bytes: 1, ..hello() }, 1002, "window"),
        (Hello { window_bytes: MAX_WINDOW_BYTES + 1, ..hello() }, 1002, "window"),
    ];
    for (hello, code, reason) in cases {
        let mut socket = connect(server.port(), None).unwrap();
        say(&mut socket, hello.encode().as_ref());
        let (closed, why) = closing(&mut socket);
        assert_eq!(closed, code, "{why}");
        assert!(why.contains(reason), "{why}");
    }
}

#[test]
fn pages_from_elsewhere_are_refused_with_advice() {
    let server = server();
    for origin in ["http://localhost:5173", "http://127.0.0.1", "http://[::1]:8080"] {
        assert!(connect(server.port(), Some(origin)).is_ok(), "{origin}");
    }
    for origin in ["https://evil.example", "null", "http://localhost.evil.example"] {
        match connect(server.port(), Some(origin)) {
            Err(tungstenite::Error::Http(response)) => {
                assert_eq!(response.status(), 403);
                let body = response.body().clone().unwrap_or_default();
                let text = String::from_utf8_lossy(&body).into_owned();
                assert!(text.contains("POLYRANK_ALLOWED_ORIGINS"), "{text}");
                assert!(text.contains(origin), "{text}");
            }
            other => panic!("{origin}: {other:?}"),
        }
    }
    let origins = crate::wire::origin::AllowedOrigins::parse("https://good.example").unwrap();
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).allowed_origins(origins);
    let server = TcpStore::new(options).unwrap();
    assert!(connect(server.port(), Some("https://good.example")).is_ok());
    assert!(connect(server.port(), Some("https://evil.example")).is_err());
}

#[test]
fn bytes_that_are_no_websocket_harm_nobody() {
    let server = server();
    let port = server.port();
    for (request, status, part) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "426 Upgrade Required", "polyrank store"),
        ("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", "405 Method Not Allowed", "ws://HOST:PORT"),
        ("GET / HTTP/9\r\n\r\n", "400 Bad Request", "serves no pages"),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
        assert!(answer.contains(part), "{request}: {answer}");
    }
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"GARBAGE", b"G", b"\x16\x03\x01\x00\x00"] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // The server closes it, with or without a word.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // A frame whose length is announced and never comes, and one that is not masked.
    let mut socket = welcomed(port);
    socket.get_mut().write_all(&[0x82, 0xfe, 0xff, 0xff, 1, 2, 3, 4, 5]).unwrap();
    drop(socket);
    let mut socket = welcomed(port);
    socket.get_mut().write_all(&[0x82, 0x01, 0x00]).unwrap();
    assert_eq!(closing(&mut socket).0, 1002);
    // A message that is cut into frames is put together, up to its limit.
    let mut socket = welcomed(port);
    let part = |opcode, last| Frame::message(vec![3; 40_000], OpCode::Data(opcode), last);
    socket.send(Message::Frame(part(Data::Binary, false))).unwrap();
    socket.send(Message::Frame(part(Data::Continue, true))).unwrap();
    assert_eq!(closing(&mut socket).0, 1009);
    let store = WebSocketStore::connect(&url(port), LIMIT).unwrap();
    store.set("k", b"v").unwrap();
    assert_eq!(server.get("k").unwrap(), b"v");
}
