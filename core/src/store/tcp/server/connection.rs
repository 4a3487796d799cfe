//! One client's connection: bytes in, requests to the service, bytes out. Knows nothing of what
//! requests mean.
//!
//! What a client can make the server hold is bounded: a request at a time (its lengths are checked
//! before its bytes are awaited), replies up to [`HIGH_WATER_BYTES`] and the last one on top, and
//! all connections together [`MAX_BUFFERED_BYTES`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use super::Settings;
use super::busy_poll::Activity;
use super::client_count::ClientCount;
use super::holders::Holder;
use super::output::Output;
use super::service::{Caller, Service};
use super::socket::{From as Incoming, To as Outgoing};
use super::waiters::{ClientId, WokenClient};
use crate::store::protocol::{Decoded, Decoder, Malformed, STOP_WAITING};
use crate::store::table::Refusal;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// A client with this many unsent bytes of replies is not read from.
const HIGH_WATER_BYTES: usize = 1 << 20;
/// Most bytes of unfinished requests, unsent replies and waits of all connections together.
const MAX_BUFFERED_BYTES: usize = 1 << 30;
/// Most bytes of keys and values, as the table counts them.
const MAX_STORED_BYTES: usize = 4 << 30;
/// How long a client may take for its first frame.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Everything that the connections of a server share.
#[derive(Debug)]
pub(super) struct Host {
    service: RefCell<Service>,
    clients: RefCell<HashMap<ClientId, Rc<Client>>>,
    next_client: Cell<ClientId>,
    buffered_bytes: Cell<usize>,
    #[cfg(feature = "websocket")]
    pub(super) web: super::websocket::Web,
    scratch: RefCell<Box<[u8]>>,
    /// That clients asked for something.
    pub(super) activity: Activity,
    client_count: ClientCount,
}

#[derive(Debug)]
struct Client {
    id: ClientId,
    to: Outgoing,
    output: RefCell<Output>,
    /// Wakes the client's task when another client's request left bytes in `output`.
    waker: RefCell<Waker>,
}

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

impl Host {
    /// What the connections of a server share. Clients of this host that ask find it at the socket
    /// `local_name`.
    pub(super) fn new(
        settings: Settings,
        client_count: ClientCount,
        local_name: Option<Vec<u8>>,
    ) -> Rc<Self> {
        #[cfg(not(feature = "websocket"))]
        let _ = settings;
        Rc::new(Self {
            #[cfg(feature = "websocket")]
            web: super::websocket::Web::new(settings, client_count.clone()),
            service: RefCell::new(Service::new(MAX_STORED_BYTES, local_name)),
            clients: RefCell::default(),
            next_client: Cell::new(0),
            buffered_bytes: Cell::new(0),
            scratch: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
            activity: Activity::default(),
            client_count,
        })
    }

    /// Serves a client that may want a WebSocket, until it leaves or is sent away.
    pub(super) async fn serve(self: Rc<Self>, stream: TcpStream) {
        let _guard = self.client_count.enter();
        #[cfg(feature = "websocket")]
        let stream = match super::websocket::serve(&self, stream).await {
            Some(stream) => stream,
            None => return,
        };
        let (from, to) = stream.into_split();
        self.serve_between(Incoming::Tcp(from), Outgoing::Tcp(to)).await;
    }

    /// Serves a client of this host until it leaves or is sent away.
    #[cfg(target_os = "linux")]
    pub(super) async fn serve_local(self: Rc<Self>, from: Incoming, to: Outgoing) {
        let _guard = self.client_count.enter();
        self.serve_between(from, to).await;
    }

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

    /// Tells the clients whose waits have ended. `current` flushes its own output later.
    pub(super) fn tell_woken(&self, current: Option<ClientId>) {
        loop {
            let woken = self.service.borrow_mut().take_woken();
            if woken.is_empty() {
                break;
            }
            woken.into_iter().for_each(|woken| self.tell(woken, current));
        }
        #[cfg(feature = "websocket")]
        self.web.wake_touched();
    }

    fn tell(&self, woken: WokenClient, current: Option<ClientId>) {
        #[cfg(feature = "websocket")]
        if self.web.woken(woken.client, &mut self.service.borrow_mut()) {
            return;
        }
        let client = self.clients.borrow().get(&woken.client).cloned();
        let Some(client) = client else { return };
        let mut output = client.output.borrow_mut();
        let told = output.tail.len() + woken.replies;
        output.tail.resize(told, STOP_WAITING);
        drop(output);
        // An error is found again by the client's own task, which then ends.
        if Some(woken.client) != current && (client.flush().is_err() || client.has_output()) {
            client.waker.borrow().wake_by_ref();
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

    /// Ends the session of a WebSocket that keeps more memory than `bytes`, and most of all;
    /// whether there was one.
    pub(super) fn relieve(&self, bytes: usize) -> bool {
        #[cfg(feature = "websocket")]
        let relieved = self.web.relieve(bytes, &mut self.service.borrow_mut());
        #[cfg(not(feature = "websocket"))]
        let relieved = {
            let _ = bytes;
            false
        };
        self.tell_woken(None);
        relieved
    }

    /// Whether all connections together keep more memory than they may.
    pub(super) fn is_overloaded(&self) -> bool {
        let buffered = self.buffered_bytes.get();
        #[cfg(feature = "websocket")]
        let buffered = buffered + self.web.held_bytes();
        buffered > MAX_BUFFERED_BYTES
    }

    /// What clients ask, as long as `act` lasts.
    pub(super) fn with_service<T>(&self, act: impl FnOnce(&mut Service) -> T) -> T {
        act(&mut self.service.borrow_mut())
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

impl Client {
    fn has_output(&self) -> bool {
        !self.output.borrow().is_empty()
    }

    fn flush(&self) -> io::Result<()> {
        let mut output = self.output.borrow_mut();
        if output.is_empty() {
            return Ok(());
        }
        output.flush(|bytes| self.to.try_write(bytes))
    }
}
