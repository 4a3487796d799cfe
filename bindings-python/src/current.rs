//! The current process group of a thread or an asyncio task. Knows no operations.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::classes::ProcessGroup;
use crate::context_variable::ContextVariable;

static CURRENT: ContextVariable = ContextVariable::new("polyrank.current_process_group");

/// The block in which a group is the current one.
#[pyclass(frozen, module = "polyrank")]
pub(crate) struct CurrentProcessGroup {
    group: Py<ProcessGroup>,
    /// What each `with` that is under way puts back at its end.
    tokens: Mutex<Vec<Py<PyAny>>>,
}

impl CurrentProcessGroup {
    /// A block, not entered yet.
    pub(crate) fn new(group: Py<ProcessGroup>) -> CurrentProcessGroup {
        CurrentProcessGroup { group, tokens: Mutex::default() }
    }
}

/// The group of the innermost block; none outside of all.
pub(crate) fn current(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    CURRENT.get(py)
}

#[pymethods]
impl CurrentProcessGroup {
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, ProcessGroup>> {
        let group = self.group.bind(py);
        let token = CURRENT.set(py, group.as_any())?;
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        Ok(group.clone())
    }

    #[pyo3(signature = (_kind, _error, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let token = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).pop();
        CURRENT.reset(py, token)
    }
}
