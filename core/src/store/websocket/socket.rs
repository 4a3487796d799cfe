//! One WebSocket of a native client: its packets in and out, pings, and how it ended. Knows nothing
//! of what comes after it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Sink, Stream as _};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::error::Error as SocketError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::client::Client;
use super::connect::Stream;
use crate::transport::websocket::{Closed, close_code};

/// Time between two pings.
const PING: Duration = Duration::from_secs(10);
/// Without any sign of life for so long, the socket is lost.
const SILENCE: Duration = Duration::from_secs(30);
/// How long the last words may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// How a socket ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client wants no more.
    Stopped,
    /// The server wants no more, or the session broke a rule: there is no use in another socket.
    Closed(String),
    /// It broke, or is silent.
    Lost(String),
}

/// Moves packets until the socket or `stop` ends.
pub(super) async fn run(
    client: &Client,
    stream: &mut Stream,
    stop: impl Future<Output = ()>,
) -> End {
    let mut pings = tokio::time::interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    let mut heard = Instant::now();
    let end = {
        let mut stopped = pin!(stop);
        poll_fn(|context| {
            if stopped.as_mut().poll(context).is_ready() {
                return Poll::Ready(End::Stopped);
            }
            client.set_owner(context.waker());
            poll_run(client, stream, (&mut pings, &mut heard), context)
        })
        .await
    };
    let farewell = match &end {
        End::Stopped => (CloseCode::Normal, "the client is done"),
        End::Closed(_) => (CloseCode::Policy, "the session is over"),
        End::Lost(_) => return end,
    };
    let said = tokio::time::timeout(FAREWELL, async {
        flush(client, stream).await;
        let frame = CloseFrame { code: farewell.0, reason: farewell.1.into() };
        // Whoever is gone needs no farewell.
        let _ = stream.close(Some(frame)).await;
        while poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await.is_some() {}
    });
    let _ = said.await;
    end
}

/// Gives the socket what is still to be said.
async fn flush(client: &Client, stream: &mut Stream) {
    let flushed = poll_fn(|context| match write(client, stream, context) {
        Ok(()) if !client.is_flushed() && client.is_open() => Poll::Pending,
        result => Poll::Ready(result),
    });
    let _ = flushed.await;
}

fn poll_run(
    client: &Client,
    stream: &mut Stream,
    (pings, heard): (&mut Interval, &mut Instant),
    context: &mut Context<'_>,
) -> Poll<End> {
    while pings.poll_tick(context).is_ready() {
        if heard.elapsed() >= SILENCE {
            return Poll::Ready(End::Lost(format!("nothing came for {} s", SILENCE.as_secs())));
        }
        client.acknowledge();
        let mut stream = Pin::new(&mut *stream);
        if let Poll::Ready(Ok(())) = stream.as_mut().poll_ready(context) {
            // If it fails, so does the next read.
            let _ = stream.as_mut().start_send(Message::Ping(Bytes::new()));
            let _ = stream.poll_flush(context);
        }
    }
    loop {
        if let Err(end) = write(client, stream, context) {
            return Poll::Ready(end);
        }
        let Poll::Ready(message) = Pin::new(&mut *stream).poll_next(context) else {
            return Poll::Pending;
        };
        *heard = Instant::now();
        let end = match message {
            Some(Ok(Message::Binary(packet))) => match client.receive(packet.into()) {
                Ok(()) => continue,
                Err(violation) => {
                    End::Closed(format!("the store's server is at fault: {violation}"))
                }
            },
            Some(Ok(Message::Close(frame))) => closed(frame),
            Some(Ok(Message::Text(_))) => End::Closed("the store's server sends text".into()),
            Some(Ok(_)) => continue,
            Some(Err(error)) => End::Lost(error.to_string()),
            None => End::Lost("it was closed".into()),
        };
        return Poll::Ready(end);
    }
}

/// What a server means that closes the socket.
fn closed(frame: Option<CloseFrame>) -> End {
    let code = frame.as_ref().map_or(close_code::NO_STATUS, |frame| frame.code.into());
    let reason = frame.map_or(String::new(), |frame| frame.reason.to_string());
    let closed = Closed { clean: true, code, reason };
    let Closed { code, reason, .. } = &closed;
    if closed.is_final() {
        End::Closed(format!("the store's server closed the connection ({code}): {reason}"))
    } else {
        End::Lost(format!("it was closed with code {code}: {reason}"))
    }
}

/// Sends what the socket takes.
fn write(client: &Client, stream: &mut Stream, context: &mut Context<'_>) -> Result<(), End> {
    let lost = |error: SocketError| End::Lost(error.to_string());
    let mut stream = Pin::new(stream);
    loop {
        match stream.as_mut().poll_ready(context) {
            Poll::Ready(ready) => ready.map_err(lost)?,
            // The rest follows when the socket takes bytes again.
            Poll::Pending => return Ok(()),
        }
        let Some(packet) = client.next_packet() else { break };
        stream.as_mut().start_send(Message::Binary(Bytes::from_owner(packet))).map_err(lost)?;
    }
    // What an earlier flush left behind goes now, even if nothing was added to it.
    if let Poll::Ready(flushed) = stream.poll_flush(context) {
        flushed.map_err(lost)?;
    }
    Ok(())
}
