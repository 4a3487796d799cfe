//! From the URL of a store's server to a WebSocket whose handshake is done. Knows nothing of
//! sessions or packets.

use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{Error as SocketError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::url::SocketUrl;
use crate::fork;
use crate::store::tcp::open_files;
use crate::wire::session::MAX_PACKET_BYTES;

/// Most bytes of a server's refusal that are shown.
const SHOWN_BYTES: usize = 500;

/// A WebSocket over TCP or TLS.
pub(super) type Stream = WebSocketStream<Box<dyn Duplex>>;

/// What a WebSocket goes over.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// Why there is no WebSocket.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody answers; somebody may later.
    Unreachable(String),
    /// The server hung up during the handshake.
    HungUp(String),
    /// The server, or this host, will not have it.
    Refused(String),
}

/// One attempt; the address of this host's end beside the WebSocket.
pub(super) async fn connect(target: &SocketUrl) -> Result<(Stream, Option<IpAddr>), Failure> {
    let text = &target.text;
    let unreachable = |error: io::Error| {
        let why = format!("{text}: {error}");
        // Waiting does not help a process that has too many files open.
        match open_files::is_exhausted(&error) {
            true => Failure::Refused(why),
            false => Failure::Unreachable(why),
        }
    };
    let plain = open(&target.host, target.port).await.map_err(unreachable)?;
    // A connection without it is slower, not wrong.
    let _ = plain.set_nodelay(true);
    let local = plain.local_addr().map_err(unreachable)?;
    if plain.peer_addr().is_ok_and(|peer| peer == local) {
        // A port of the ephemeral range may be given to this very socket.
        return Err(Failure::Unreachable(format!("{text}: nobody listens")));
    }
    let stream: Box<dyn Duplex> =
        if target.secure { secure(plain, target).await? } else { Box::new(plain) };
    let config = WebSocketConfig::default()
        .read_buffer_size(64 << 10)
        .write_buffer_size(64 << 10)
        .max_message_size(Some(MAX_PACKET_BYTES))
        .max_frame_size(Some(MAX_PACKET_BYTES));
    let asked = tokio_tungstenite::client_async_with_config(text.as_str(), stream, Some(config));
    match asked.await {
        Ok((stream, _)) => Ok((stream, Some(local.ip()))),
        Err(error) => Err(explain(text, error)),
    }
}

/// A connection to the first of the host's addresses that answers.
async fn open(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in lookup_host((host, port)).await? {
        let socket = fork::unshared(|| match address.is_ipv4() {
            true => TcpSocket::new_v4(),
            false => TcpSocket::new_v6(),
        });
        match socket?.connect(address).await {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What a failed handshake says of the one who answers.
fn explain(text: &str, error: SocketError) -> Failure {
    let foreign = |how: String| {
        format!(
            "{text} {how}: it has no WebSocket side. A TCPStore of PyTorch has none, and browsers \
             cannot reach it; let polyrank host the store (rank 0 by init_method tcp:// or ws://, \
             or `polyrank store`)"
        )
    };
    match error {
        SocketError::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            let said = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES)]);
            let (status, said) = (response.status(), said.trim());
            Failure::Refused(if said.is_empty() {
                foreign(format!("answers with HTTP {status}"))
            } else {
                format!("{text} refuses with HTTP {status}: {said}")
            })
        }
        SocketError::Protocol(ProtocolError::HandshakeIncomplete) => {
            Failure::HungUp(foreign("hangs up when it is asked for a WebSocket".into()))
        }
        SocketError::Io(error) => {
            let how = format!("hangs up when it is asked for a WebSocket ({error})");
            Failure::HungUp(foreign(how))
        }
        other => {
            Failure::Refused(foreign(format!("does not answer as a WebSocket does ({other})")))
        }
    }
}

#[cfg(feature = "tls")]
async fn secure(plain: TcpStream, target: &SocketUrl) -> Result<Box<dyn Duplex>, Failure> {
    match super::tls::secure(plain, &target.host).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err((why, is_final)) => {
            let why = format!("{}: {why}", target.text);
            Err(if is_final { Failure::Refused(why) } else { Failure::HungUp(why) })
        }
    }
}

#[cfg(not(feature = "tls"))]
async fn secure(_: TcpStream, target: &SocketUrl) -> Result<Box<dyn Duplex>, Failure> {
    Err(Failure::Refused(format!(
        "{}: this build of polyrank has no TLS; it was built without the feature `tls`",
        target.text
    )))
}
