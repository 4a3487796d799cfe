//! One WebSocket of a native client, from its first packet to the last words. Knows nothing of what
//! comes after it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream as _;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::client::Client;
use super::connect::Stream;
use super::packets::{Ended, PacketSocket, Packets};
use crate::transport::websocket::SocketClose;
use crate::wire::session::{Packet, Violation};

/// How long the last words may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

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

/// Moves packets over `stream` until it or `stop` ends.
pub(super) async fn run(client: &Client, stream: Stream, stop: impl Future<Output = ()>) -> End {
    let mut socket = PacketSocket::new(stream);
    let mut packets = client;
    let end = {
        let mut stopped = pin!(stop);
        poll_fn(|context| {
            if stopped.as_mut().poll(context).is_ready() {
                return Poll::Ready(End::Stopped);
            }
            socket.poll_run(&mut packets, context).map(|ended| meaning(ended, client.is_welcomed()))
        })
        .await
    };
    let reason = match &end {
        End::Stopped => (CloseCode::Normal, "the client is done"),
        End::Closed(_) => (CloseCode::Policy, "the session is over"),
        End::Lost(_) => return end,
    };
    let said = tokio::time::timeout(CLOSE_LIMIT, async {
        flush(client, &mut socket).await;
        let frame = CloseFrame { code: reason.0, reason: reason.1.into() };
        // A peer that is gone needs no goodbye.
        let _ = socket.stream().close(Some(frame)).await;
        while poll_fn(|context| Pin::new(socket.stream()).poll_next(context)).await.is_some() {}
    });
    let _ = said.await;
    end
}

impl Packets for &Client {
    type Fault = Violation;

    fn begin(&mut self, context: &mut Context<'_>) -> Result<(), Violation> {
        self.set_owner(context.waker());
        Ok(())
    }

    fn next_packet(&mut self) -> Result<Option<Packet>, Violation> {
        Ok(Client::next_packet(self))
    }

    fn receive(&mut self, packet: Vec<u8>) -> Result<(), Violation> {
        Client::receive(self, packet)
    }

    fn acknowledge(&mut self) {
        Client::acknowledge(self);
    }
}

/// Gives the socket what is still to be said.
async fn flush<S>(client: &Client, socket: &mut PacketSocket<S>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut packets = client;
    let flushed = poll_fn(|context| match socket.write(&mut packets, context) {
        Ok(()) if !client.is_flushed() && client.is_open() => Poll::Pending,
        result => Poll::Ready(result),
    });
    let _ = flushed.await;
}

/// What the end of a socket means for the session.
fn meaning(ended: Ended<Violation>, welcomed: bool) -> End {
    match ended {
        Ended::Closed(closed) => {
            let SocketClose { code, reason, .. } = &closed;
            if closed.is_final(welcomed) {
                End::Closed(format!("the store's server closed the connection ({code}): {reason}"))
            } else {
                End::Lost(format!("it was closed with code {code}: {reason}"))
            }
        }
        Ended::Lost(why) => End::Lost(why),
        Ended::Refused(_, why) => End::Closed(format!("the store's server is at fault: {why}")),
        Ended::Fault(why) => End::Closed(format!("the store's server is at fault: {why}")),
    }
}
