//! One client's connection: bytes in, requests to the service, bytes out. Knows nothing of what
//! requests mean.
//!
//! What a client can make the server hold is bounded: a request at a time (its lengths are checked
//! before its bytes are awaited), replies up to [`HIGH_WATER_BYTES`] and the last one on top, and
//! all connections together what [`super::host`] says.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use super::holders::Holder;
use super::host::{Client, Host, MAX_STORED_BYTES, READ_BYTES};
use super::service::Caller;
use super::socket::{From as Incoming, To as Outgoing};
use crate::store::protocol::{Decoded, Decoder, Malformed};
use crate::store::table::Refusal;

/// A client with this many unsent bytes of replies is not read from.
const HIGH_WATER_BYTES: usize = 1 << 20;
/// How long a client may take for its first frame.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// What arrived from a client and is not run yet.
#[derive(Debug, Default)]
struct Input {
    decoder: Decoder,
    pending: Vec<u8>,
    /// There is no use in looking at `pending` before it has this many bytes.
    needed: usize,
    /// Requests stay in `pending` until the client has taken its replies.
    paused: bool,
    /// What of [`Host::buffered_bytes`] is this client's.
    charged: usize,
}

/// Why a connection ends.
#[derive(Debug)]
enum End {
    Closed,
    Malformed(Malformed),
    Refused(Refusal),
    Overloaded,
    Io(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

enum SocketReadiness {
    /// So many bytes were received into the scratch buffer.
    Received(usize),
    /// The socket takes bytes again.
    Write,
}

/// Serves a client that may want a WebSocket, until it leaves or is sent away.
pub(super) async fn serve(host: Rc<Host>, stream: TcpStream) {
    let _guard = host.client_count.enter();
    #[cfg(feature = "websocket")]
    let stream = match super::websocket::serve(&host, stream).await {
        Some(stream) => stream,
        None => return,
    };
    let (from, to) = stream.into_split();
    host.serve_between(Incoming::Tcp(from), Outgoing::Tcp(to)).await;
}

/// Serves a client of this host until it leaves or is sent away.
#[cfg(target_os = "linux")]
pub(super) async fn serve_local(host: Rc<Host>, from: Incoming, to: Outgoing) {
    let _guard = host.client_count.enter();
    host.serve_between(from, to).await;
}

impl Host {
    /// Serves one client of TCPStore's protocol until it leaves or is sent away.
    async fn serve_between(self: Rc<Self>, mut from: Incoming, to: Outgoing) {
        let id = self.next_client.get();
        self.next_client.set(id + 1);
        let output = RefCell::default();
        let waker = RefCell::new(Waker::noop().clone());
        let client = Rc::new(Client { id, to, output, waker });
        self.clients.borrow_mut().insert(id, client.clone());
        let mut input = Input::default();
        let greeting = self.exchange(&client, &mut from, &mut input, true);
        let end = match tokio::time::timeout(HANDSHAKE, greeting).await {
            Ok(Ok(())) => self.exchange(&client, &mut from, &mut input, false).await,
            Ok(end) => end,
            Err(_) => Err(End::Malformed(Malformed::NotValidated)),
        };
        match end {
            Ok(()) | Err(End::Closed) => {}
            Err(End::Io(error)) => tracing::debug!("TCPStore lost a connection: {error}"),
            Err(End::Malformed(why)) => tracing::warn!("TCPStore closes a connection: {why}"),
            Err(End::Refused(Refusal::NotANumber)) => {
                tracing::debug!("TCPStore closes a connection: it adds to what is not a number");
            }
            Err(End::Refused(Refusal::Full)) => {
                tracing::warn!("TCPStore closes a connection: {MAX_STORED_BYTES} bytes are stored");
            }
            Err(End::Overloaded) => {
                tracing::warn!("TCPStore closes a connection: too many bytes are under way");
            }
        }
        self.clients.borrow_mut().remove(&id);
        self.with_service(|service| {
            service.leave(id);
            service.release(Holder::Connection(id));
        });
        self.buffered_bytes.set(self.buffered_bytes.get() - input.charged);
        self.tell_woken(Some(id));
    }

    /// Reads, runs and answers; returns after the first frame if `greeting`.
    async fn exchange(
        &self,
        client: &Client,
        from: &mut Incoming,
        input: &mut Input,
        greeting: bool,
    ) -> Result<(), End> {
        loop {
            let reading = !input.paused;
            match poll_fn(|cx| self.poll_ready(client, from, reading, cx)).await? {
                SocketReadiness::Write => {
                    client.flush()?;
                    if input.paused {
                        self.take(client, input, &[])?;
                        client.flush()?;
                    }
                }
                SocketReadiness::Received(0) => return Err(End::Closed),
                SocketReadiness::Received(bytes) => {
                    self.activity.mark();
                    // Nobody else has run since they were received.
                    self.take(client, input, &self.scratch.borrow()[..bytes])?;
                    client.flush()?;
                }
            }
            self.charge(client, input)?;
            if greeting && input.decoder.validated() {
                return Ok(());
            }
        }
    }

    /// Runs the requests that `received` completes.
    fn take(&self, client: &Client, input: &mut Input, received: &[u8]) -> Result<(), End> {
        if input.pending.is_empty() {
            let used = self.execute(client, input, received)?;
            input.pending.extend_from_slice(&received[used..]);
            return Ok(());
        }
        input.pending.extend_from_slice(received);
        if input.pending.len() < input.needed {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut input.pending);
        let used = self.execute(client, input, &pending)?;
        pending.drain(..used);
        pending.shrink_to(READ_BYTES);
        input.pending = pending;
        Ok(())
    }

    /// Runs the requests at the front of `bytes`; how many bytes they took.
    fn execute(&self, client: &Client, input: &mut Input, bytes: &[u8]) -> Result<usize, End> {
        let mut at = 0;
        loop {
            input.paused = client.output.borrow().unsent_bytes() > HIGH_WATER_BYTES;
            if input.paused {
                input.needed = 0;
                return Ok(at);
            }
            match input.decoder.next(&bytes[at..]).map_err(End::Malformed)? {
                Decoded::Incomplete { used, needed } => {
                    input.needed = needed;
                    return Ok(at + used);
                }
                Decoded::Request { request, used } => {
                    let mut output = client.output.borrow_mut();
                    let mut service = self.service.borrow_mut();
                    let caller =
                        Caller { client: client.id, holder: Holder::Connection(client.id) };
                    let served = service.serve(caller, request, &mut output);
                    drop((output, service));
                    self.tell_woken(Some(client.id));
                    served.map_err(End::Refused)?;
                    at += used;
                }
            }
        }
    }

    /// Keeps account of the memory that `client` uses.
    fn charge(&self, client: &Client, input: &mut Input) -> Result<(), End> {
        let charged = input.pending.len()
            + client.output.borrow().own_bytes()
            + self.service.borrow().waiting_bytes(client.id);
        let total = self.buffered_bytes.get() - input.charged + charged;
        self.buffered_bytes.set(total);
        input.charged = charged;
        if self.is_overloaded() && !self.relieve(charged) { Err(End::Overloaded) } else { Ok(()) }
    }

    /// One of what `client` can do next. Reads once and no more: a client that is quick to send
    /// again must not keep the others waiting, which tokio's budget for a task sees to (128 reads,
    /// so 8 MiB). It is not made smaller: what a client sent before another one asks is run
    /// before that, as far as the budget goes, and callers of `set`, which does not wait, count on
    /// it.
    fn poll_ready(
        &self,
        client: &Client,
        from: &mut Incoming,
        reading: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<SocketReadiness>> {
        client.waker.borrow_mut().clone_from(cx.waker());
        if client.has_output()
            && let Poll::Ready(ready) = client.to.poll_write_ready(cx)
        {
            return Poll::Ready(ready.map(|()| SocketReadiness::Write));
        }
        if !reading {
            return Poll::Pending;
        }
        let mut scratch = self.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        let read = from.poll_read(cx, &mut buffer);
        read.map_ok(|()| SocketReadiness::Received(buffer.filled().len()))
    }
}
