//! The current process group of a thread or an asyncio task. Knows no operations.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::classes::ProcessGroup;
use crate::context_variable::ContextBlocks;
use crate::convert::CoreResult;

static CURRENT: ContextBlocks = ContextBlocks::new("polyrank.current_process_group");

/// The block in which a group is the current one.
#[pyclass(frozen, module = "polyrank")]
pub(crate) struct CurrentProcessGroup {
    group: Py<ProcessGroup>,
}

impl CurrentProcessGroup {
    /// A block, not entered yet.
    pub(crate) fn new(group: Py<ProcessGroup>) -> CurrentProcessGroup {
        CurrentProcessGroup { group }
    }
}

/// The group of the innermost block; none outside of all.
pub(crate) fn current(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    CURRENT.innermost(py)
}

#[pymethods]
impl CurrentProcessGroup {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.group)
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, ProcessGroup>> {
        let group = slf.get().group.bind(slf.py());
        group.get().inner.unless_left().or_raise(slf.py())?;
        CURRENT.enter(slf.as_any(), group.as_any())?;
        Ok(group.clone())
    }

    #[pyo3(signature = (_kind, _error, _traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        CURRENT.exit(slf.as_any())
    }
}
