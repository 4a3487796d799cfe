//! The current process group of a thread or an asyncio task: a context variable, set for a `with`
//! block. Knows no operations.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::classes::ProcessGroup;

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
    let group = variable(py)?.call_method0(intern!(py, "get"))?;
    Ok((!group.is_none()).then_some(group))
}

fn variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let variable = VARIABLE.get_or_try_init(py, || {
        let options = PyDict::new(py);
        options.set_item("default", py.None())?;
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        class.call(("polyrank.current_process_group",), Some(&options)).map(Bound::unbind)
    })?;
    Ok(variable.bind(py))
}

#[pymethods]
impl CurrentProcessGroup {
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, ProcessGroup>> {
        let group = self.group.bind(py);
        let token = variable(py)?.call_method1(intern!(py, "set"), (group,))?;
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(token.unbind());
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
        let token = token.ok_or_else(|| PyRuntimeError::new_err("the block was not entered"))?;
        variable(py)?.call_method1(intern!(py, "reset"), (token,))?;
        Ok(())
    }
}
