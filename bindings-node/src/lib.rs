//! The native half of the Node package: what its JavaScript half calls. Knows the core, and nothing
//! of how the package is used.
//!
//! Calls come by the names of the core's tables, with neutral values; the JavaScript half has the
//! classes. No array of the user is ever kept: the copies of `polyrank::calls::staged` are what is
//! in flight, so that an array may go away, move or shrink at any time. Each JavaScript thread (the
//! main one, and every Worker) is a realm of its own.

// What JavaScript sees is `pub` for the macro, and reached by no other crate.
#![allow(unreachable_pub)]

mod backends;
mod call_frames;
mod convert;
mod device;
mod held_ranks;
mod log;
mod memory;
mod native;
mod object;
mod realm;
mod short;
mod stores;
mod work;

/// Whoever loads this has the manager of replicas, too.
#[napi_derive::module_init]
fn install_replicas() {
    polyrank_replicas::calls::install();
}
