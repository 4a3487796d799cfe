//! The WebAssembly half of the browser package: what its JavaScript half calls. Knows the core, and
//! nothing of how the package is used. Empty on other platforms.

#![cfg(target_family = "wasm")]
// JavaScript reaches what no Rust does.
#![allow(unreachable_pub)]

mod backends;
mod calls;
mod connections;
mod convert;
pub mod drawing;
mod events;
mod foreign_stores;
mod memory;
mod numbered;
mod objects;
mod ports;
mod short;
mod slots;
mod sockets;
mod store;
mod turn;
mod work;

use std::sync::Arc;

use js_sys::Function;
use polyrank::clock;
use polyrank::transport::websocket::install_dialer;
use wasm_bindgen::prelude::wasm_bindgen;

/// The version of polyrank.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// Gives what is called from now on a name, until it is called with none.
#[wasm_bindgen(js_name = nameCalls)]
pub fn name_calls(name: Option<String>) {
    polyrank::set_thread_comm_name(name.as_deref());
}

/// How long operations may still go on when their group is left, ms.
#[wasm_bindgen(js_name = shutdownLimitMs)]
pub fn shutdown_limit_ms() -> f64 {
    polyrank::SHUTDOWN_LIMIT.as_secs_f64() * 1e3
}

/// Tells how to ask for events: `post()` has `turn` called, and `setTimer(ms)` `timeOut`.
#[wasm_bindgen]
pub fn start(post: Function, set_timer: Function) {
    events::listen(post, set_timer);
    clock::set_alarm(events::request_turn);
    install_dialer(Arc::new(sockets::BrowserDialer));
    store::install();
    // Only some builds have something to say, see `cargo xtask wasm --panic-messages`.
    #[cfg(feature = "panic-messages")]
    std::panic::set_hook(Box::new(|panic| {
        let text = format!("polyrank: {panic}");
        web_sys::console::error_1(&wasm_bindgen::JsValue::from_str(&text));
    }));
}
