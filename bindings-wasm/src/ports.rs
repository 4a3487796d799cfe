//! Pipes to other Workers of a page, which the JavaScript half carries. Knows nothing of how it
//! does, nor of what the chunks say.
//!
//! The core's side of a pipe is a number: JavaScript's objects stay in the realm that made them.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use js_sys::Uint8Array;
use polyrank::calls::Object;
use polyrank::calls::custom_store::set_relay;
use polyrank::clock::Instant;
use polyrank::transport::LossReason;
use polyrank::transport::websocket::{Pipe, PipeState, Relay};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::convert;
use crate::objects::given;

#[wasm_bindgen]
extern "C" {
    /// What carries pipes: `PipeCarrier` of `ports/pipes.js`.
    pub type PipeCarrier;

    /// The end of the pipe `id` to `peer` of this realm as the member `own`; its number.
    #[wasm_bindgen(method)]
    fn open(this: &PipeCarrier, own: u32, peer: f64, id: f64) -> u32;
    /// Whether it is being connected (0), is open (1), was closed in order (2) or is lost (3).
    #[wasm_bindgen(method)]
    fn state(this: &PipeCarrier, pipe: u32) -> u32;
    /// Why it is lost.
    #[wasm_bindgen(method)]
    fn why(this: &PipeCarrier, pipe: u32) -> String;
    /// Bytes that may be sent now.
    #[wasm_bindgen(method)]
    fn room(this: &PipeCarrier, pipe: u32) -> u32;
    /// Adds `part` to a chunk of `bytes` bytes, which leaves when it has all of them.
    #[wasm_bindgen(method)]
    fn send(this: &PipeCarrier, pipe: u32, part: &[u8], bytes: u32);
    /// The next chunk that came, which must be copied before the next call.
    #[wasm_bindgen(method)]
    fn take(this: &PipeCarrier, pipe: u32) -> Option<Uint8Array>;
    /// Closes it, and tells the other side.
    #[wasm_bindgen(method)]
    fn close(this: &PipeCarrier, pipe: u32, orderly: bool);
}

/// Digits of a name that a number of JavaScript has.
const ID_BITS: u32 = 52;

thread_local! {
    static CARRIER: RefCell<Option<PipeCarrier>> = const { RefCell::new(None) };
}

/// Has `carrier` carry pipes between the ranks that meet in `store`, an object of JavaScript, where
/// this realm has the number `number`; it calls that membership `own` itself.
///
/// # Errors
/// Those of a handle that is none of such a store.
#[wasm_bindgen(js_name = carryPipes)]
pub fn carry_pipes(
    store: &JsValue,
    own: u32,
    number: u32,
    carrier: PipeCarrier,
) -> Result<(), JsValue> {
    CARRIER.set(Some(carrier));
    let store = given(store).and_then(|store| store.ok_or_else(Object::not_a_handle));
    let set = store.and_then(|store| set_relay(&store, Arc::new(Member { own, number })));
    set.map_err(|error| convert::error(&error))
}

/// What `act` does with the carrier.
fn with<T>(act: impl FnOnce(&PipeCarrier) -> T) -> Option<T> {
    CARRIER.with_borrow(|carrier| carrier.as_ref().map(act))
}

/// This realm among those that meet in a store.
struct Member {
    own: u32,
    number: u32,
}

impl Relay for Member {
    fn number(&self) -> u64 {
        self.number.into()
    }

    fn open(&self, peer: u64, id: u64) -> Box<dyn Pipe> {
        let id = (id >> (u64::BITS - ID_BITS)) as f64;
        let number = with(|carrier| carrier.open(self.own, peer as f64, id));
        Box::new(PortPipe { number: number.unwrap_or_default(), is_closed: false })
    }
}

/// A pipe to another Worker.
struct PortPipe {
    number: u32,
    is_closed: bool,
}

impl Pipe for PortPipe {
    fn advance(&mut self, _now: Instant) -> bool {
        // What comes, comes by itself.
        false
    }

    fn state(&self) -> PipeState {
        match with(|carrier| carrier.state(self.number)) {
            Some(0) => PipeState::Connecting,
            Some(1) => PipeState::Open,
            Some(2) => PipeState::Lost(LossReason::Goodbye),
            _ => {
                let why = with(|carrier| carrier.why(self.number));
                PipeState::Lost(LossReason::Died(why.unwrap_or_default()))
            }
        }
    }

    fn room(&self) -> usize {
        with(|carrier| carrier.room(self.number)).unwrap_or_default() as usize
    }

    fn send(&mut self, parts: &[&[u8]]) {
        // No more than there is room for.
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>() as u32;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            with(|carrier| carrier.send(self.number, part, bytes));
        }
    }

    fn receive(&mut self) -> Option<Bytes> {
        let chunk = with(|carrier| carrier.take(self.number))??;
        Some(Bytes::from(chunk.to_vec()))
    }

    fn close(&mut self, orderly: bool) {
        if !std::mem::replace(&mut self.is_closed, true) {
            with(|carrier| carrier.close(self.number, orderly));
        }
    }

    /// What was sent is in the other's memory, or on its way there.
    fn is_flushed(&self) -> bool {
        true
    }
}

impl Drop for PortPipe {
    fn drop(&mut self) {
        self.close(false);
    }
}
