//! `PrefixStore`.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::classes::{PrefixStore, Store};
use crate::convert::Call;

/// A view of another store.
pub(crate) fn new(
    _py: Python<'_>,
    mut call: Call<'_>,
) -> PyResult<PyClassInitializer<PrefixStore>> {
    let prefix: String = call.take(0)?;
    let store = call.instance::<Store>(1)?;
    let store = store.ok_or_else(|| PyTypeError::new_err("'store' must be a Store"))?;
    let inner = Arc::new(polyrank::store::PrefixStore::new(prefix, store.get().inner.clone()));
    let base = PyClassInitializer::from(Store { inner: inner.clone() });
    Ok(base.add_subclass(PrefixStore { inner, underlying: store.into_any().unbind() }))
}

/// The store that this one is a view of, as it was given.
pub(crate) fn underlying_store<'py>(
    store: &Bound<'py, PrefixStore>,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(store.get().underlying.bind(store.py()).clone())
}
