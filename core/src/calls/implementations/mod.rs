//! What the calls do that the generator cannot write. One module for each interface or namespace;
//! the functions have the names of the IDL. Knows no language.

pub(crate) mod device_mesh;
pub(crate) mod distributed;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod error_swallowing_process_group_wrapper;
pub(crate) mod file_store;
mod groups;
pub(crate) mod hash_store;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod lighthouse_server;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod managed_process_group;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod manager;
mod objects;
pub(crate) mod prefix_store;
pub(crate) mod process_group;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod process_group_dummy;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod process_group_wrapper;
mod settings;
#[cfg(feature = "tcp")]
mod statistics;
pub(crate) mod store;
pub(crate) mod tcp_store;
pub(crate) mod topology;
pub(crate) mod web_socket_store;
pub(crate) mod window;

pub use settings::device_named;
