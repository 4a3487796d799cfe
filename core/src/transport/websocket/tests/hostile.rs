//! What anybody may send to the data port of a rank, from a web page or by hand: that connection
//! ends with a reason, and the group continues.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};
use tungstenite::{Error, Message, WebSocket};

use super::super::{Dialer, NativeDialer, Options};
use super::groups::{GENERATION, connect, means};
use crate::transport::suite::world::World;
use crate::wire::handshake::{Hello, Refusal, Token, Welcome};
use crate::wire::session::{
    self, MAX_PACKET_BYTES, MIN_WINDOW_BYTES, ResumeToken, SESSION_VERSION, Session,
};

/// A group of rank 0, which listens, and rank 1, which dials; and where rank 0 listens.
pub(super) fn group() -> (World, SocketAddr) {
    let dialer: Arc<dyn Dialer> = Arc::new(NativeDialer);
    let (means, cards) = means(2, |rank| rank == 1, &dialer);
    let address = cards[0].tcp[0];
    let transports = connect((means, cards), Options::default());
    (World::new(transports, Box::new(std::thread::yield_now)), address)
}

/// Lets rank 0 move while `stranger` does its worst on a thread of its own.
fn endure<T: Send>(world: &mut World, stranger: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let stranger = scope.spawn(stranger);
        while !stranger.is_finished() {
            world.turn(0);
            std::thread::yield_now();
        }
        stranger.join().unwrap()
    })
}

fn stream(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

pub(super) fn socket(
    address: SocketAddr,
    origin: Option<&str>,
) -> Result<WebSocket<TcpStream>, String> {
    let mut request = format!("ws://{address}/").into_client_request().unwrap();
    if let Some(origin) = origin {
        request.headers_mut().insert("Origin", origin.parse().unwrap());
    }
    let upgraded = tungstenite::client::client(request, stream(address));
    upgraded.map(|(socket, _)| socket).map_err(|error| match error {
        tungstenite::HandshakeError::Failure(Error::Http(response)) => {
            let body = response.body().clone().unwrap_or_default();
            format!("{} {}", response.status(), String::from_utf8_lossy(&body))
        }
        error => error.to_string(),
    })
}

/// Sends `messages` and reads on until the close; its code and reason.
fn closing(address: SocketAddr, messages: Vec<Message>) -> (u16, String) {
    let mut socket = socket(address, None).unwrap();
    for message in messages {
        socket.send(message).unwrap();
    }
    loop {
        if let Message::Close(frame) = socket.read().unwrap() {
            let frame = frame.expect("a code");
            return (frame.code.into(), frame.reason.to_string());
        }
    }
}

pub(super) fn session_hello(token: ResumeToken) -> Message {
    let hello = session::Hello {
        version: SESSION_VERSION,
        token,
        received: 0,
        window_bytes: MIN_WINDOW_BYTES,
        grace_ms: 0,
    };
    Message::binary(hello.encode().as_ref().to_vec())
}

/// Whether rank 1 still gets in, and frames pass.
fn check_group(mut world: World) {
    assert!(world.events.is_empty(), "{:?}", world.events);
    world.send(0, 1, 1, 100_000);
    world.send(1, 0, 1, 100_000);
    world.drive_until_all_arrived();
    world.check_order_and_contents();
}

#[test]
fn wrong_messages_end_their_connection_with_a_reason() {
    let (mut world, address) = group();
    let unmasked = Frame::from_payload(
        FrameHeader {
            is_final: true,
            opcode: OpCode::Data(Data::Reserved(3)),
            ..FrameHeader::default()
        },
        vec![1].into(),
    );
    for (message, code, says) in [
        (Message::text("hello"), 1003, "only binary ones"),
        (Message::binary(vec![0; MAX_PACKET_BYTES + 1]), 1009, "too long"),
        (Message::binary(vec![7; 40]), 1002, "malformed"),
        (Message::binary(Vec::new()), 1002, "malformed"),
        (Message::Frame(unmasked), 1002, "protocol"),
        (session_hello(ResumeToken([5; 16])), 1008, "unknown session"),
    ] {
        let shown = format!("{message:?}").chars().take(60).collect::<String>();
        let (closed, reason) = endure(&mut world, || closing(address, vec![message]));
        assert_eq!(closed, code, "{shown}: {reason}");
        assert!(reason.to_lowercase().contains(says), "{shown}: {reason}");
    }
    check_group(world);
}

#[test]
fn pages_of_other_origins_are_turned_away() {
    let (mut world, address) = group();
    let turned_away = endure(&mut world, || socket(address, Some("https://evil.example")));
    let why = turned_away.expect_err("it was let in");
    assert!(why.starts_with("403") && why.contains("POLYRANK_ALLOWED_ORIGINS"), "{why}");
    for origin in ["http://localhost:5173", "http://127.0.0.1", "http://[::1]:80"] {
        let socket = endure(&mut world, || socket(address, Some(origin)));
        assert!(socket.is_ok(), "{origin}: {:?}", socket.err());
    }
    check_group(world);
}

#[test]
fn a_client_that_speaks_no_websocket_is_dropped() {
    let (mut world, address) = group();
    let mut endless = b"GET / HTTP/1.1\r\nX: ".to_vec();
    endless.resize(1 << 20, b'x');
    let half = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x82\xfe";
    for bytes in [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), endless, half.to_vec()] {
        endure(&mut world, || {
            let mut stream = stream(address);
            // The other side may be gone before it has read everything.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        });
    }
    check_group(world);
}

#[test]
fn a_client_that_does_not_know_the_group_is_refused() {
    let (mut world, address) = group();
    let hello = Hello::new(Token([1; 16]), GENERATION, 1, 2, 0);
    let refused = endure(&mut world, || {
        let mut socket = socket(address, None).unwrap();
        let mut session = Session::client(MIN_WINDOW_BYTES, 0);
        session.attach();
        session.send(session::Message::new(0, &hello.encode()));
        loop {
            while let Some(packet) = session.next_packet() {
                socket.send(Message::binary(packet.as_ref().to_vec())).unwrap();
            }
            match socket.read().unwrap() {
                Message::Binary(packet) => session.receive(packet.to_vec()).unwrap(),
                other => panic!("{other:?} came first"),
            };
            if let Some(message) = session.take() {
                return Welcome::decode(message.body()).unwrap().refusal;
            }
        }
    });
    assert_eq!(refused, Some(Refusal::Token));
    check_group(world);
}
