//! `TCPStore`.

use std::sync::Arc;
use std::time::Duration;

use polyrank::Error;
use polyrank::store::{TcpStore, TcpStoreOptions};
use pyo3::prelude::*;

use crate::classes::{Store, TCPStore};
use crate::convert::{Call, detached, give, listener_from_fd, raise};

/// Connects, and serves if asked to.
pub(crate) fn new(py: Python<'_>, mut call: Call<'_>) -> PyResult<PyClassInitializer<TCPStore>> {
    let host: String = call.take(0)?;
    let port: u16 = call.take(1)?;
    let world_size: Option<i32> = call.take(2)?;
    let is_master: bool = call.take(3)?;
    let timeout: Duration = call.take(4)?;
    let wait_for_workers: bool = call.take(5)?;
    let multi_tenant: bool = call.take(6)?;
    let listen_fd: Option<i32> = call.take(7)?;
    let use_libuv: bool = call.take(8)?;
    let mut options = TcpStoreOptions::new(host, port)
        // A negative number of users, as in c10d, is an unknown one.
        .world_size(world_size.and_then(|size| u32::try_from(size).ok()))
        .is_master(is_master)
        .timeout(timeout)
        .wait_for_workers(wait_for_workers)
        .multi_tenant(multi_tenant)
        .use_libuv(use_libuv);
    if let Some(fd) = listen_fd {
        let listener = listener_from_fd(fd).map_err(|error| {
            let message = format!("master_listen_fd {fd} cannot be used: {error}");
            raise(py, &Error::InvalidArgument { message })
        })?;
        options = options.listener(listener);
    }
    let inner = Arc::new(detached(py, || TcpStore::new(options))?);
    let base = PyClassInitializer::from(Store { inner: inner.clone() });
    Ok(base.add_subclass(TCPStore { inner }))
}

/// Whether the server is libuv's; never.
pub(crate) fn libuv_backend<'py>(store: &Bound<'py, TCPStore>) -> PyResult<Bound<'py, PyAny>> {
    give(store.py(), false)
}
