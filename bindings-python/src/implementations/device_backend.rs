//! `DeviceBackend`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::Answer;
use crate::classes::DeviceBackend;
use crate::convert::{Call, give, timedelta};

/// The backend's name.
pub(crate) fn name<'py>(backend: &Bound<'py, DeviceBackend>, _call: Call<'py>) -> Answer<'py> {
    give(backend.py(), backend.get().inner.name())
}

/// This process's rank.
pub(crate) fn rank<'py>(backend: &Bound<'py, DeviceBackend>, _call: Call<'py>) -> Answer<'py> {
    give(backend.py(), backend.get().inner.rank())
}

/// The number of ranks.
pub(crate) fn size<'py>(backend: &Bound<'py, DeviceBackend>, _call: Call<'py>) -> Answer<'py> {
    give(backend.py(), backend.get().inner.size())
}

/// The options with which it was made.
pub(crate) fn options<'py>(backend: &Bound<'py, DeviceBackend>) -> Answer<'py> {
    let (py, inner) = (backend.py(), &backend.get().inner);
    let members = PyDict::new(py);
    members.set_item("backend", inner.name())?;
    members.set_item("timeout", timedelta(py, inner.timeout())?)?;
    members.set_item("group_name", inner.group().group_name())?;
    members.set_item("global_ranks_in_group", inner.group().ranks())?;
    py.import("polyrank._core")?.getattr("BackendOptions")?.call((), Some(&members))
}

/// Its kind.
pub(crate) fn backend_type<'py>(backend: &Bound<'py, DeviceBackend>) -> Answer<'py> {
    let kind = backend.get().inner.backend_type() as u8;
    backend.py().import("polyrank._enums")?.getattr("BackendType")?.call1((kind,))
}
