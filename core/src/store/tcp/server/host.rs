//! What the connections of a server share, and how a client learns that its wait has ended. Knows
//! nothing of what requests mean.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::task::Waker;

use super::Settings;
use super::busy_poll::Activity;
use super::client_count::ClientCount;
use super::output::Output;
use super::service::Service;
use super::socket::To as Outgoing;
use super::waiters::{ClientId, WokenClient};
#[cfg(feature = "websocket")]
use super::websocket::web::Web;
use crate::store::protocol::STOP_WAITING;

/// Bytes read at once.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Most bytes of unfinished requests, unsent replies and waits of all connections together.
const MAX_BUFFERED_BYTES: usize = 1 << 30;
/// Most bytes of keys and values, as the table counts them.
pub(super) const MAX_STORED_BYTES: usize = 4 << 30;

/// Everything that the connections of a server share.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) service: RefCell<Service>,
    pub(super) clients: RefCell<HashMap<ClientId, Rc<Client>>>,
    pub(super) next_client: Cell<ClientId>,
    pub(super) buffered_bytes: Cell<usize>,
    #[cfg(feature = "websocket")]
    pub(super) web: Web,
    pub(super) scratch: RefCell<Box<[u8]>>,
    /// That clients asked for something.
    pub(super) activity: Activity,
    pub(super) client_count: ClientCount,
}

/// One client of TCPStore's protocol.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: ClientId,
    pub(super) to: Outgoing,
    pub(super) output: RefCell<Output>,
    /// Wakes the client's task when another client's request left bytes in `output`.
    pub(super) waker: RefCell<Waker>,
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
            web: Web::new(settings, client_count.clone()),
            service: RefCell::new(Service::new(MAX_STORED_BYTES, local_name)),
            clients: RefCell::default(),
            next_client: Cell::new(0),
            buffered_bytes: Cell::new(0),
            scratch: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
            activity: Activity::default(),
            client_count,
        })
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
        self.web.wake_unsent();
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
}

impl Client {
    /// Whether there is something to send.
    pub(super) fn has_output(&self) -> bool {
        !self.output.borrow().is_empty()
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&self) -> io::Result<()> {
        let mut output = self.output.borrow_mut();
        if output.is_empty() {
            return Ok(());
        }
        output.flush(|bytes| self.to.try_write(bytes))
    }
}
