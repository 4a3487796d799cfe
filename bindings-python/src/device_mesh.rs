//! `DeviceMesh` as only Python has it: `mesh["dp"]`, `with mesh:`, comparison. Knows no groups.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use pyo3::intern;
use pyo3::prelude::*;

use crate::context_variable::ContextBlocks;

static ENTERED: ContextBlocks = ContextBlocks::new("polyrank.current_device_mesh");

/// The ranks of a job in an n-dimensional array, with a group along each of its dimensions.
///
/// In a group of a dimension, ranks stand as in the mesh. `mesh["dp"]` is the part of the mesh that
/// has this process and the dimension `dp`; `with mesh:` makes it the current one.
#[pyclass(frozen, weakref, module = "polyrank")]
pub(crate) struct DeviceMesh {
    pub(crate) inner: polyrank::DeviceMesh,
}

/// The mesh of the innermost block; none outside of all.
pub(crate) fn current(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    ENTERED.innermost(py)
}

#[pymethods]
impl DeviceMesh {
    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        mesh_dim_names: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.call_method1(intern!(slf.py(), "slice"), (mesh_dim_names,))
    }

    /// It cannot be iterated over: Python would try 0, 1, … as names.
    #[classattr]
    const __iter__: Option<u8> = None;

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().inner == self.inner)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.inner.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        self.inner.to_string()
    }

    /// Whether this process is in the mesh.
    fn _is_current_rank_part_of_mesh(&self) -> bool {
        self.inner.coordinate().is_some()
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        ENTERED.enter(slf.as_any(), slf.as_any())?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (_kind, _error, _traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        ENTERED.exit(slf.as_any())
    }
}
