//! Turns: whatever happens in the realm, everything that can be moved is moved once.

use polyrank::executor::drive_all;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::{connections, events};

/// Moves everything that can be moved now.
#[wasm_bindgen]
pub fn turn() {
    events::run_turn(|now| {
        // What came goes to those that wait for it, and what they send leaves.
        connections::advance(now);
        let next = drive_all(now);
        next.into_iter().chain(connections::advance(now)).min()
    });
}

/// The timer has fired: a [`turn`] that knows of no timer any more. It may come a little too early,
/// for Node counts in whole milliseconds; the turn then sets it again.
#[wasm_bindgen(js_name = timeOut)]
pub fn time_out() {
    events::forget_timer();
    turn();
}
