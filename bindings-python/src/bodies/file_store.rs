//! `FileStore`.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::classes::{FileStore, Store};
use crate::convert::{Call, detached};

/// Opens a file, or makes it.
pub(crate) fn new(py: Python<'_>, mut call: Call<'_>) -> PyResult<PyClassInitializer<FileStore>> {
    let file_name: String = call.take(0)?;
    let world_size: i32 = call.take(1)?;
    // A negative number of users, as in c10d, is an unknown one.
    let world_size = u32::try_from(world_size).ok();
    let inner = detached(py, || polyrank::store::FileStore::new(file_name, world_size))?;
    let inner = Arc::new(inner);
    let base = PyClassInitializer::from(Store { inner: inner.clone() });
    Ok(base.add_subclass(FileStore { inner }))
}
