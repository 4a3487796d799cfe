//! From a connection that speaks HTTP to a WebSocket, or to an answer that a person understands.
//! Knows nothing of sessions.

use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{Request, create_response, write_response};
use tokio_tungstenite::tungstenite::http::header::ORIGIN;
use tokio_tungstenite::tungstenite::http::{Response, StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::store::websocket::Measured;
use crate::wire::origin::AllowedOrigins;
use crate::wire::session::MAX_PACKET_BYTES;

/// Most bytes of a request.
const MAX_REQUEST_BYTES: usize = 16 << 10;

/// What is said to a visitor that takes this for a web server.
const NO_PAGES: &str = "This is the port of a polyrank store. It serves no pages: ranks meet here, \
                        by ws://HOST:PORT from browsers and by tcp://HOST:PORT from other \
                        programs.\n";

/// Makes a WebSocket of `stream`, whose client may be anybody and connected to the address `local`.
/// An error says why there is none; the client has been told.
pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: Measured<S>,
    origins: &AllowedOrigins,
    local: Option<IpAddr>,
) -> Result<WebSocketStream<Measured<S>>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut received = Vec::with_capacity(1024);
    let judged = loop {
        match Request::try_parse(&received) {
            Ok(Some((used, request))) => {
                break judge(&request, origins, local).map(|it| (it, used));
            }
            Ok(None) if received.len() < MAX_REQUEST_BYTES => {
                let mut limited = (&mut stream).take((MAX_REQUEST_BYTES - received.len()) as u64);
                if limited.read_buf(&mut received).await.map_err(failed)? == 0 {
                    return Err("it ended in the middle of an HTTP request".into());
                }
            }
            Ok(None) => break Err(refusal(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, NO_PAGES)),
            Err(error) => break Err(refuse(&error)),
        }
    };
    let mut answer = Vec::new();
    let written = match &judged {
        Ok((response, _)) => write_response(&mut answer, response),
        Err(response) => write_response(&mut answer, response),
    };
    written.map_err(|error| error.to_string())?;
    if let Err(response) = &judged {
        answer.extend_from_slice(response.body().as_bytes());
    }
    stream.write_all(&answer).await.map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    match judged {
        Ok((_, used)) => {
            let config = WebSocketConfig::default()
                .read_buffer_size(16 << 10)
                .write_buffer_size(64 << 10)
                .max_message_size(Some(MAX_PACKET_BYTES))
                .max_frame_size(Some(MAX_PACKET_BYTES));
            let rest = received.split_off(used);
            let role = Role::Server;
            Ok(WebSocketStream::from_partially_read(stream, rest, role, Some(config)).await)
        }
        Err(response) => {
            super::hear_out(stream.into_inner()).await;
            Err(format!("{}: {}", response.status(), response.body().trim_end()))
        }
    }
}

/// The answer that makes a WebSocket, or the one that says why there is none.
#[allow(clippy::result_large_err, reason = "both answers are made once for a connection")]
fn judge(
    request: &Request,
    origins: &AllowedOrigins,
    local: Option<IpAddr>,
) -> Result<Response<()>, Response<String>> {
    let response = create_response(request).map_err(|error| refuse(&error))?;
    let origin = request.headers().get(ORIGIN).map(|value| value.to_str().unwrap_or("?"));
    if origins.allow(origin, local) {
        return Ok(response);
    }
    let why = AllowedOrigins::refusal(origin.unwrap_or_default());
    Err(refusal(StatusCode::FORBIDDEN, &why))
}

/// The answer to a request that asks for no WebSocket.
fn refuse(error: &Error) -> Response<String> {
    use ProtocolError as Wrong;
    match error {
        Error::Protocol(
            Wrong::MissingConnectionUpgradeHeader | Wrong::MissingUpgradeWebSocketHeader,
        ) => refusal(StatusCode::UPGRADE_REQUIRED, NO_PAGES),
        Error::Protocol(Wrong::WrongHttpMethod) => {
            refusal(StatusCode::METHOD_NOT_ALLOWED, NO_PAGES)
        }
        other => refusal(StatusCode::BAD_REQUEST, &format!("{other}. {NO_PAGES}")),
    }
}

fn refusal(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    headers.insert(header::CONTENT_LENGTH, text.len().into());
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, plain);
    if status == StatusCode::UPGRADE_REQUIRED {
        headers.insert(header::UPGRADE, header::HeaderValue::from_static("websocket"));
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, header::HeaderValue::from_static("GET"));
    }
    response
}
