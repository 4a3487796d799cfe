//! A variable of Python that has a value of its own in each thread and each asyncio task: set for
//! a `with` block. Knows no operations.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// A variable, none outside of all blocks.
pub(crate) struct ContextVariable {
    name: &'static str,
    made: PyOnceLock<Py<PyAny>>,
}

impl ContextVariable {
    /// The variable of this name, for Python's tools that show variables.
    pub(crate) const fn new(name: &'static str) -> ContextVariable {
        ContextVariable { name, made: PyOnceLock::new() }
    }

    /// Its value here and now, if it has one.
    pub(crate) fn get<'py>(&'py self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.variable(py)?.call_method0(intern!(py, "get"))?;
        Ok((!value.is_none()).then_some(value))
    }

    /// Gives it a value; what puts back the one before.
    pub(crate) fn set(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        Ok(self.variable(py)?.call_method1(intern!(py, "set"), (value,))?.unbind())
    }

    /// Puts back the value before, by what [`ContextVariable::set`] returned to the block.
    pub(crate) fn reset(&self, py: Python<'_>, token: Option<Py<PyAny>>) -> PyResult<()> {
        let token = token.ok_or_else(|| PyRuntimeError::new_err("the block was not entered"))?;
        self.variable(py)?.call_method1(intern!(py, "reset"), (token,))?;
        Ok(())
    }

    fn variable<'py>(&'py self, py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
        let variable = self.made.get_or_try_init(py, || {
            let options = PyDict::new(py);
            options.set_item("default", py.None())?;
            let class = py.import("contextvars")?.getattr("ContextVar")?;
            class.call((self.name,), Some(&options)).map(Bound::unbind)
        })?;
        Ok(variable.bind(py))
    }
}
