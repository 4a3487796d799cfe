//! The connections to store servers of this realm, moved by its events. Knows nothing of what they
//! say.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use polyrank::clock::Instant;
use polyrank::store::websocket::{Client, ClientConnection, ConnectionUse};
use polyrank::transport::websocket::Dialer;
use wasm_bindgen::JsValue;

use crate::events;

thread_local! {
    static CONNECTIONS: RefCell<Vec<ClientConnection>> = RefCell::default();
}

/// Opens a session with the server at `url`, as [`ClientConnection::new`].
pub(crate) fn open(
    url: String,
    dialer: Box<dyn Dialer>,
    grace_ms: u32,
    limit: Duration,
) -> (Client, Arc<ConnectionUse>) {
    let owner = Waker::from(Arc::new(TurnRequest));
    let (connection, client, used) = ClientConnection::new(url, dialer, grace_ms, limit, &owner);
    CONNECTIONS.with_borrow_mut(|all| all.push(connection));
    events::request_turn();
    (client, used)
}

/// Moves all connections; when it must be called again at the latest.
pub(crate) fn advance(now: Instant) -> Option<Instant> {
    // What is woken may open another one.
    let mut connections = CONNECTIONS.take();
    connections.retain_mut(|connection| {
        let goes_on = connection.advance(now);
        if let Some(warning) = connection.take_warning() {
            web_sys::console::warn_1(&JsValue::from_str(&format!("polyrank: {warning}")));
        }
        goes_on
    });
    let deadlines = connections.iter().filter_map(|connection| connection.deadline(now));
    let next = deadlines.min();
    CONNECTIONS.with_borrow_mut(|all| all.extend(connections));
    next
}

/// Makes the event loop move the packets.
struct TurnRequest;

impl Wake for TurnRequest {
    fn wake(self: Arc<Self>) {
        events::request_turn();
    }
}
