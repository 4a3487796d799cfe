//! The `with` blocks that a thread or asyncio task of Python is in, each with a value: a context
//! variable, whose value is the list of them. Knows no operations.
//!
//! The same block may be entered by several threads at a time, and blocks of generators may end in
//! another order than they began: each leaves what it entered itself.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

/// The blocks of one sort.
pub(crate) struct ContextBlocks {
    name: &'static str,
    made: PyOnceLock<Py<PyAny>>,
}

impl ContextBlocks {
    /// Blocks in the variable of this name, for Python's tools that show variables.
    pub(crate) const fn new(name: &'static str) -> ContextBlocks {
        ContextBlocks { name, made: PyOnceLock::new() }
    }

    /// The value of the innermost block; none outside of all.
    pub(crate) fn innermost<'py>(
        &'py self,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let blocks = self.blocks(py)?;
        match blocks.len() {
            0 => Ok(None),
            count => Ok(Some(blocks.get_item(count - 1)?.cast_into::<PyTuple>()?.get_item(1)?)),
        }
    }

    /// Enters `block`, whose value is `value`.
    pub(crate) fn enter(
        &'static self,
        block: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = block.py();
        let entered = PyTuple::new(py, [block, value])?;
        let mut blocks: Vec<Bound<'_, PyAny>> = self.blocks(py)?.iter().collect();
        blocks.push(entered.into_any());
        self.set(py, blocks)
    }

    /// Leaves `block`, the innermost one of it.
    pub(crate) fn exit(&'static self, block: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = block.py();
        let mut blocks: Vec<Bound<'_, PyAny>> = self.blocks(py)?.iter().collect();
        let is_of = |entered: &Bound<'_, PyAny>| {
            let entered = entered.cast::<PyTuple>().ok();
            entered.and_then(|it| it.get_item(0).ok()).is_some_and(|it| it.is(block))
        };
        let place = blocks
            .iter()
            .rposition(is_of)
            .ok_or_else(|| PyRuntimeError::new_err("the block was not entered"))?;
        blocks.remove(place);
        self.set(py, blocks)
    }

    fn blocks<'py>(&'py self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let blocks = self.variable(py)?.call_method0(intern!(py, "get"))?;
        Ok(blocks.cast_into::<PyTuple>()?)
    }

    fn set(&'static self, py: Python<'_>, blocks: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let blocks = PyTuple::new(py, blocks)?;
        self.variable(py)?.call_method1(intern!(py, "set"), (blocks,))?;
        Ok(())
    }

    fn variable<'py>(&'py self, py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
        let variable = self.made.get_or_try_init(py, || {
            let options = PyDict::new(py);
            options.set_item("default", PyTuple::empty(py))?;
            let class = py.import("contextvars")?.getattr("ContextVar")?;
            class.call((self.name,), Some(&options)).map(Bound::unbind)
        })?;
        Ok(variable.bind(py))
    }
}
