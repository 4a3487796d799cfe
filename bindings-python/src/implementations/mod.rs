//! What only Python has, or has in its own form: handles that can be awaited, futures, messages,
//! objects, rendezvous handlers. One module for each class, and one for the free functions; each
//! function gets the object and the call whose overload is known. Core runs all other calls.

pub(crate) mod device_backend;
pub(crate) mod device_mesh;
pub(crate) mod distributed;
pub(crate) mod future;
pub(crate) mod manager;
mod objects;
pub(crate) mod p2p_op;
mod point_to_point;
pub(crate) mod prepared_operation;
pub(crate) mod process_group;
mod rendezvous;
pub(crate) mod tcp_store;
pub(crate) mod topology;
pub(crate) mod window;
pub(crate) mod work;

use pyo3::prelude::*;

/// What a function returns to Python.
type Answer<'py> = PyResult<Bound<'py, PyAny>>;
