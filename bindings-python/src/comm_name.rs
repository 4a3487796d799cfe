//! The name that a `with` block gives to the operations that are called in it, by this thread or
//! asyncio task: `record_comm`. Knows no operations.

use polyrank::{CommName, set_comm_name_source};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

use crate::context_variable::ContextBlocks;
use crate::ending::attach;

static NAME: ContextBlocks = ContextBlocks::new("polyrank.comm_name");

/// The block in which operations have a name.
#[pyclass(frozen, module = "polyrank")]
pub(crate) struct CommNameBlock {
    name: Py<PyString>,
}

impl CommNameBlock {
    /// A block, not entered yet.
    pub(crate) fn new(name: &Bound<'_, PyString>) -> CommNameBlock {
        CommNameBlock { name: name.clone().unbind() }
    }
}

/// The name of the innermost block of what calls now.
fn current() -> Option<CommName> {
    attach(|py| {
        let name = NAME.innermost(py).ok()??;
        Some(CommName::new(name.cast::<PyString>().ok()?.to_str().ok()?))
    })?
}

#[pymethods]
impl CommNameBlock {
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<()> {
        set_comm_name_source(current);
        NAME.enter(slf.as_any(), slf.get().name.bind(slf.py()))
    }

    /// `function`, whose calls are in this block each; of a coroutine function, what it awaits.
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        function: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static DECORATED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        DECORATED.import(py, "polyrank._decorated", "decorated")?.call1((slf, function))
    }

    #[pyo3(signature = (_kind, _error, _traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        NAME.exit(slf.as_any())
    }
}
