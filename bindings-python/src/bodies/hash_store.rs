//! `HashStore`.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::classes::{HashStore, Store};
use crate::convert::Call;

/// An empty store.
pub(crate) fn new(_py: Python<'_>, _call: Call<'_>) -> PyResult<PyClassInitializer<HashStore>> {
    let inner = Arc::new(polyrank::store::HashStore::new());
    Ok(PyClassInitializer::from(Store { inner }).add_subclass(HashStore))
}
