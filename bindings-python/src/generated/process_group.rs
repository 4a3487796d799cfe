//! Provisional.

use pyo3::prelude::*;

/// A group.
#[pyclass(frozen, module = "polyrank._core")]
pub(crate) struct ProcessGroup {
    pub(crate) inner: polyrank::ProcessGroup,
}
