//! `WebSocketStore`.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;

use crate::classes::{Store, WebSocketStore};
use crate::convert::{Call, detached};

/// Connects.
pub(crate) fn new(
    py: Python<'_>,
    mut call: Call<'_>,
) -> PyResult<PyClassInitializer<WebSocketStore>> {
    let url: String = call.take(0)?;
    let timeout: Duration = call.take(1)?;
    let connected = detached(py, || polyrank::store::WebSocketStore::connect(&url, timeout))?;
    let inner = Arc::new(connected);
    let base = PyClassInitializer::from(Store { inner: inner.clone() });
    Ok(base.add_subclass(WebSocketStore { inner }))
}
