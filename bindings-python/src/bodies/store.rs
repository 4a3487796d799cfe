//! `Store`, the base class.

use std::time::Duration;

use pyo3::prelude::*;

use crate::classes::Store;
use crate::convert::{Call, blocking, references};

/// Waits until all keys are there.
pub(crate) fn wait<'py>(
    store: &Bound<'py, Store>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let keys: Vec<String> = call.take(0)?;
    let timeout: Option<Duration> = if call.overload() == 0 { None } else { call.take(1)? };
    let inner = &store.get().inner;
    blocking(store.py(), || inner.wait(&references(&keys), timeout))
}
