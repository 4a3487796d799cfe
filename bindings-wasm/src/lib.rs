//! The WebAssembly half of the browser package: what its JavaScript half calls. Knows the core, and
//! nothing of how the package is used. Empty on other platforms.

#![cfg(target_family = "wasm")]
// JavaScript reaches what no Rust does.
#![allow(unreachable_pub)]

mod calls;
mod connections;
mod convert;
pub mod drawing;
mod events;
mod memory;
mod objects;
mod sockets;
mod store;
mod work;

use wasm_bindgen::prelude::wasm_bindgen;

/// The version of polyrank.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// How long operations may still go on when their group is left, ms.
#[wasm_bindgen(js_name = shutdownLimitMs)]
pub fn shutdown_limit_ms() -> f64 {
    polyrank::SHUTDOWN_LIMIT.as_secs_f64() * 1e3
}
