//! The name that a `with` block gives to the operations that are called in it, by this thread or
//! asyncio task: `record_comm`. Knows no operations.

use std::sync::{Mutex, PoisonError};

use polyrank::{CommName, CommNameBlock as CoreBlock, set_comm_name_source};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::context_variable::ContextVariable;

static NAME: ContextVariable = ContextVariable::new("polyrank.comm_name");

/// The block in which operations have a name.
#[pyclass(frozen, module = "polyrank")]
pub(crate) struct CommNameBlock {
    name: Py<PyString>,
    /// What each `with` that is under way puts back at its end.
    entered: Mutex<Vec<(Py<PyAny>, CoreBlock)>>,
}

impl CommNameBlock {
    /// A block, not entered yet.
    pub(crate) fn new(name: &Bound<'_, PyString>) -> CommNameBlock {
        CommNameBlock { name: name.clone().unbind(), entered: Mutex::default() }
    }
}

/// The name of the innermost block of what calls now.
fn current() -> Option<CommName> {
    Python::try_attach(|py| {
        let name = NAME.get(py).ok()??;
        Some(CommName::new(name.cast::<PyString>().ok()?.to_str().ok()?))
    })?
}

#[pymethods]
impl CommNameBlock {
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        set_comm_name_source(current);
        let token = NAME.set(py, self.name.bind(py).as_any())?;
        let entered = (token, CoreBlock::new());
        self.entered.lock().unwrap_or_else(PoisonError::into_inner).push(entered);
        Ok(())
    }

    #[pyo3(signature = (_kind, _error, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner).pop();
        NAME.reset(py, entered.map(|(token, _)| token))
    }
}
