//! A session with a store's server, shared by those that ask and the mover of its packets. Knows
//! nothing of sockets: their owner calls in.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use super::link::{Answer, Link};
use super::requests;
use crate::generated::error::{Error, Result};
use crate::store::{StoreReply, StoreRequest};
use crate::transport::websocket::Relay;
use crate::wire::session::{Packet, Session, Violation};

/// What moves the packets of a client, until it is dropped.
pub trait PacketMover: Send + Sync {
    /// The address of this host's interface that leads to the server, if it is known.
    fn local_address(&self) -> Option<IpAddr> {
        None
    }
}

/// A client of a store's server, over a WebSocket that somebody else owns. Clones are the same one.
///
/// The owner of the socket calls [`Client::attach`] when it opens (again), [`Client::receive`] for
/// each binary message, [`Client::next_packet`] until there is none whenever its waker was woken or
/// it received something, [`Client::detach`] when the socket is gone, and [`Client::lose`] when
/// there will be no other.
#[derive(Clone, Debug)]
pub struct Client(Arc<Mutex<Link>>);

impl Client {
    /// A client without a socket; `grace_ms` as in [`Session::client`].
    pub fn new(window_bytes: u32, grace_ms: u32) -> Client {
        Client(Arc::new(Mutex::new(Link::new(Session::client(window_bytes, grace_ms)))))
    }

    /// A socket is open: say hello on it.
    pub fn attach(&self) {
        self.with(|link| link.session().attach());
    }

    /// The socket is gone; another may follow.
    pub fn detach(&self) {
        self.with(|link| link.session().detach());
    }

    /// Reads a packet that the socket brought.
    ///
    /// # Errors
    /// The server does not follow the protocol: close the socket, and [`Client::lose`].
    pub fn receive(&self, packet: Vec<u8>) -> std::result::Result<(), Violation> {
        self.with(|link| link.receive(packet))
    }

    /// The next packet for the socket.
    pub fn next_packet(&self) -> Option<Packet> {
        self.with(Link::next_packet)
    }

    /// The session is over: whatever waits gets an error that says `why`.
    pub fn lose(&self, why: impl Into<String>) {
        self.with(|link| link.lose(why.into()));
    }

    /// Why the session is over, if it is.
    pub fn end(&self) -> Option<String> {
        self.with(|link| link.end().map(str::to_owned))
    }

    /// Wakes `owner` whenever there may be a packet to send, or the session is over.
    pub fn set_owner(&self, owner: &Waker) {
        self.with(|link| link.set_owner(owner));
    }

    /// Makes the next packet acknowledge what was received; for a timer, every ten seconds or so.
    pub fn acknowledge(&self) {
        self.with(|link| link.session().acknowledge());
    }

    /// Whether messages can travel now.
    pub fn is_open(&self) -> bool {
        self.with(|link| link.session().is_open())
    }

    /// Whether the server has ever welcomed this client.
    pub fn is_welcomed(&self) -> bool {
        self.with(|link| link.session().number() != 0)
    }

    /// Whether everything that was to be sent has been given to the socket.
    pub fn is_flushed(&self) -> bool {
        self.with(|link| link.session().is_flushed())
    }

    /// How long the server waits for this client after a lost socket, ms.
    pub fn grace_ms(&self) -> u32 {
        self.with(|link| link.session().grace_ms())
    }

    /// Ends when the server has welcomed this client.
    ///
    /// # Errors
    /// [`Error::Network`] if the session is lost before.
    pub async fn opened(&self) -> Result<()> {
        let opened = poll_fn(|context| self.with(|link| link.poll_open(context.waker())));
        opened.await.map_err(|message| Error::Network { message })
    }

    /// Asks the store. If `cancelled` ends first, the server is asked to end the wait, and the
    /// error is what `cancelled` returned unless the reply was under way.
    ///
    /// # Errors
    /// Those of the store's methods; [`Error::Network`] if the session is lost.
    pub async fn request(
        &self,
        request: StoreRequest<'_>,
        cancelled: impl Future<Output = Error>,
    ) -> Result<StoreReply> {
        let bytes = requests::encode(&request)?;
        let mut cancelled = std::pin::pin!(cancelled);
        let mut why = None;
        loop {
            let asked = RequestGuard { client: self, id: self.with(|link| link.begin(&bytes)) };
            let answer = poll_fn(|context| {
                if why.is_none()
                    && let std::task::Poll::Ready(error) = cancelled.as_mut().poll(context)
                {
                    why = Some(error);
                    self.with(|link| link.cancel(asked.id));
                }
                self.with(|link| link.poll(asked.id, context.waker()))
            });
            let key = || request.key().unwrap_or_default().to_owned();
            match answer.await {
                Answer::Replied(bytes) => {
                    if let Some(reply) = requests::decode(&request, &bytes)? {
                        return Ok(reply);
                    }
                    // Another client took the queue's element: back to waiting.
                    if let Some(error) = why {
                        return Err(error);
                    }
                }
                Answer::Cancelled => {
                    return Err(why.unwrap_or_else(|| Error::Store {
                        message: "the store cancelled a wait by itself".into(),
                    }));
                }
                Answer::NotANumber => return Err(Error::NotACounter { key: key() }),
                Answer::Full => {
                    let message = format!("the store is full, key: {}", key());
                    return Err(Error::Store { message });
                }
                Answer::Lost(message) => return Err(Error::Network { message }),
            }
        }
    }

    /// The server as a way to other ranks.
    pub fn relay(&self) -> Arc<dyn Relay> {
        Arc::new(self.clone())
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Link) -> T) -> T {
        // A link is consistent between its methods, which do not panic half way.
        let mut link = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut link);
        let woken = link.take_woken();
        drop(link);
        // Whom they wake may come back immediately.
        woken.into_iter().for_each(Waker::wake);
        result
    }
}

/// A request under way; a caller that stops waiting for it takes it back.
struct RequestGuard<'a> {
    client: &'a Client,
    id: u32,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.client.with(|link| link.abandon(self.id));
    }
}
