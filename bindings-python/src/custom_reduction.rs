//! Functions of Python as reduction operators. Knows no operations.

use std::any::Any;
use std::sync::atomic::AtomicUsize;

use polyrank::calls::Answer;
use polyrank::request::{Combine, ReductionTask};
use polyrank::{Cause, CustomReduction};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::collector::DecisionOfRun;
use crate::convert::answer;
use crate::ending::attach;

/// A function of two arrays.
pub(crate) struct PythonFunction {
    /// The function.
    pub(crate) function: Py<PyAny>,
    /// Whether it commutes, as its caller says.
    pub(crate) commute: bool,
    /// How many prepared operations there are: each keeps the operator's object, and a handle of
    /// core's.
    pub(crate) parts: AtomicUsize,
    /// Whether no operation in flight may call it.
    pub(crate) is_alone: DecisionOfRun,
}

impl PythonFunction {
    /// A function, and whether it commutes.
    pub(crate) fn new(function: &Bound<'_, PyAny>, commute: bool) -> PythonFunction {
        PythonFunction {
            function: function.clone().unbind(),
            commute,
            parts: AtomicUsize::new(0),
            is_alone: DecisionOfRun::default(),
        }
    }

    /// The operator that it is.
    pub(crate) fn into_reduction(self) -> CustomReduction {
        CustomReduction::foreign(self)
    }
}

impl Combine for PythonFunction {
    fn combine(&self, task: ReductionTask) {
        let folded = attach(|py| {
            self.fold(py, &task).map_err(|error| {
                let text =
                    error.value(py).str().map_or_else(|_| String::new(), |it| it.to_string());
                let name =
                    error.get_type(py).name().map_or_else(|_| "?".into(), |it| it.to_string());
                let text = if text.is_empty() { name } else { format!("{name}: {text}") };
                let message = task.message(&text);
                // Where it happened; an exception that takes no notes says less.
                error.value(py).call_method1(intern!(py, "add_note"), (&message,)).ok();
                (text, Cause::of(error))
            })
        });
        let Some(first) = task.operands().first().cloned() else { return };
        match folded {
            Some(Ok(())) => task.end_with(&first),
            Some(Err((text, cause))) => task.fail_because(&text, cause),
            None => task.fail("the interpreter ends"),
        }
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl PythonFunction {
    /// Leaves the result in the first operand.
    fn fold(&self, py: Python<'_>, task: &ReductionTask) -> PyResult<()> {
        static FOLD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let fold = FOLD.import(py, "polyrank._reductions", "fold")?;
        let arrays = task.operands().iter().map(|it| answer(py, Answer::Tensor(it.clone())));
        let arrays = PyList::new(py, arrays.collect::<PyResult<Vec<_>>>()?)?;
        fold.call1((self.function.bind(py), arrays))?;
        Ok(())
    }
}
