//! Functions of Python as reduction operators. Knows no operations.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use polyrank::CustomReduction;
use polyrank::calls::Answer;
use polyrank::request::{Combine, ReductionTask};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::convert::answer;
use crate::ending::attach;

/// How many exceptions are kept for the errors that they became.
const MAX_CAUSES: usize = 64;

/// What functions raised, the last ones, with the messages of the errors that they became.
static CAUSES: Mutex<VecDeque<(String, PyErr)>> = Mutex::new(VecDeque::new());

/// A function of two arrays.
pub(crate) struct PythonFunction {
    /// The function.
    pub(crate) function: Py<PyAny>,
    /// Whether it commutes, as its caller says.
    pub(crate) commute: bool,
}

impl PythonFunction {
    /// The operator that it is.
    pub(crate) fn into_reduction(self) -> CustomReduction {
        CustomReduction::foreign(self)
    }
}

/// What a function raised that became an error with this message.
pub(crate) fn cause(py: Python<'_>, message: &str) -> Option<PyErr> {
    let causes = CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut known = causes.iter().rev();
    known.find(|(text, _)| text == message).map(|(_, cause)| cause.clone_ref(py))
}

impl Combine for PythonFunction {
    fn combine(&self, task: ReductionTask) {
        let mut folded = None;
        attach(|py| {
            folded = Some(self.fold(py, &task).map_err(|error| {
                let text =
                    error.value(py).str().map_or_else(|_| String::new(), |it| it.to_string());
                let name =
                    error.get_type(py).name().map_or_else(|_| "?".into(), |it| it.to_string());
                let text = if text.is_empty() { name } else { format!("{name}: {text}") };
                let message = task.message(&text);
                // Where it happened; an exception that takes no notes says less.
                error.value(py).call_method1(intern!(py, "add_note"), (&message,)).ok();
                keep(message, error);
                text
            }));
        });
        let Some(first) = task.operands().first().cloned() else { return };
        match folded {
            Some(Ok(())) => task.end_with(&first),
            Some(Err(text)) => task.fail(&text),
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

/// Keeps an exception for the error that it becomes.
fn keep(message: String, error: PyErr) {
    let mut causes = CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    causes.push_back((message, error));
    let oldest = if causes.len() > MAX_CAUSES { causes.pop_front() } else { None };
    drop(causes);
    // That may run any code.
    drop(oldest);
}
