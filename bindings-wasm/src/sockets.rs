//! The browser's WebSockets, for the core. Knows nothing of what the messages say.
//!
//! The core's side of a socket is a number: JavaScript's objects stay in the realm that made them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use js_sys::{ArrayBuffer, Uint8Array};
use polyrank::transport::websocket::{Dialer, Socket, SocketClose, SocketEvent, close_code};
use polyrank::{Error, Result};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{BinaryType, CloseEvent, MessageEvent, WebSocket};

use crate::numbered::Numbered;
use crate::turn::turn;

/// What a page may say of 1002, 1008 and so on: browsers let it send 1000 and 3000 to 4999 alone.
const PRIVATE_CODES: u16 = 3000;

/// Opens WebSockets of the browser.
pub(crate) struct BrowserDialer;

/// The core's side of a WebSocket.
struct BrowserSocket {
    id: u32,
    events: Inbox,
}

type Inbox = Arc<Mutex<VecDeque<SocketEvent>>>;

/// The browser's side of a WebSocket. The closures are what it calls.
struct OpenSocket {
    socket: WebSocket,
    _on_open: Closure<dyn Fn()>,
    _on_message: Closure<dyn Fn(MessageEvent)>,
    _on_close: Closure<dyn Fn(CloseEvent)>,
}

thread_local! {
    static OPEN: RefCell<Numbered<OpenSocket>> = const { RefCell::new(Numbered::new()) };
}

impl Dialer for BrowserDialer {
    fn dial(&self, url: &str) -> Result<Box<dyn Socket>> {
        let socket = WebSocket::new(url).map_err(|error| {
            let why = js_sys::Error::from(error).to_string();
            Error::InvalidArgument { message: format!("cannot connect to {url}: {why}") }
        })?;
        socket.set_binary_type(BinaryType::Arraybuffer);
        let inbox = Inbox::default();
        let open = OpenSocket::listen(socket, &inbox);
        let id = OPEN.with_borrow_mut(|all| all.add(open));
        Ok(Box::new(BrowserSocket { id, events: inbox }))
    }
}

impl OpenSocket {
    fn listen(socket: WebSocket, inbox: &Inbox) -> OpenSocket {
        let events = inbox.clone();
        let on_open = Closure::<dyn Fn()>::new(move || note(&events, SocketEvent::Opened));
        let events = inbox.clone();
        let on_message = Closure::<dyn Fn(MessageEvent)>::new(move |message: MessageEvent| {
            note(&events, received(&message.data()));
        });
        let events = inbox.clone();
        let on_close = Closure::<dyn Fn(CloseEvent)>::new(move |close: CloseEvent| {
            let (clean, code, reason) = (close.was_clean(), close.code(), close.reason());
            note(&events, SocketEvent::Closed(SocketClose { clean, code, reason }));
        });
        socket.set_onopen(Some(on_open.as_ref().unchecked_ref()));
        socket.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        socket.set_onclose(Some(on_close.as_ref().unchecked_ref()));
        OpenSocket { socket, _on_open: on_open, _on_message: on_message, _on_close: on_close }
    }
}

/// A binary message; what is none ends the connection, as the core sees it.
fn received(data: &JsValue) -> SocketEvent {
    match data.dyn_ref::<ArrayBuffer>() {
        Some(buffer) => SocketEvent::Packet(Bytes::from(Uint8Array::new(buffer).to_vec())),
        None => SocketEvent::Closed(SocketClose {
            clean: false,
            code: close_code::UNSUPPORTED,
            reason: "the server sent a text message".to_owned(),
        }),
    }
}

fn note(inbox: &Inbox, event: SocketEvent) {
    inbox.lock().unwrap_or_else(PoisonError::into_inner).push_back(event);
    turn();
}

impl BrowserSocket {
    fn with<T>(&self, f: impl FnOnce(&WebSocket) -> T) -> Option<T> {
        OPEN.with_borrow(|all| all.get(self.id).map(|open| f(&open.socket)))
    }

    fn close_with(&self, code: u16, reason: &str) {
        let code = if code == close_code::NORMAL { code } else { PRIVATE_CODES + code };
        // It refuses only codes and reasons that the core does not use.
        self.with(|socket| socket.close_with_code_and_reason(code, reason));
    }
}

impl Socket for BrowserSocket {
    fn send(&mut self, packet: Bytes) {
        // It refuses only before it is open, and then the core does not send. What the other side
        // has closed closes before that is told here: browsers complain of what is sent then.
        self.with(|socket| match socket.ready_state() {
            WebSocket::OPEN => socket.send_with_u8_array(&packet),
            _ => Ok(()),
        });
    }

    /// What was sent is the browser's: it tells nobody when the bytes leave, so that a wait for
    /// that would be one for some other event. The session's window bounds them.
    fn buffered(&self) -> usize {
        0
    }

    fn receive(&mut self) -> Option<SocketEvent> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn close(&mut self, code: u16, reason: &str) {
        self.close_with(code, reason);
    }
}

impl Drop for BrowserSocket {
    fn drop(&mut self) {
        let open = OPEN.with_borrow_mut(|all| all.remove(self.id));
        if let Some(OpenSocket { socket, .. }) = &open {
            socket.set_onopen(None);
            socket.set_onmessage(None);
            socket.set_onclose(None);
            if socket.ready_state() < WebSocket::CLOSING {
                // Not in order: the other side may wait for this one to come back.
                let code = PRIVATE_CODES + close_code::ABNORMAL;
                let _ = socket.close_with_code(code);
            }
        }
    }
}
