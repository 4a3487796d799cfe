//! What core's calls return, as Python objects.

use std::time::Duration;

use polyrank::Tensor;
use polyrank::calls::Answer;
use pyo3::BoundObject;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::handles::object;
use super::memory::Memory;

/// What a call of core returned, as a Python object.
pub(crate) fn answer(py: Python<'_>, answered: Answer) -> PyResult<Bound<'_, PyAny>> {
    match answered {
        Answer::Nothing => nothing(py),
        Answer::Bool(truth) => give(py, truth),
        Answer::Int(number) => give(py, number),
        Answer::Float(number) => give(py, number),
        Answer::Str(text) => give(py, text),
        Answer::Bytes(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
        Answer::Duration(duration) => timedelta(py, duration),
        Answer::List(items) => {
            let items = items.into_iter().map(|item| answer(py, item));
            Ok(PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any())
        }
        Answer::Record(members) => Ok(named(py, members)?.into_any()),
        Answer::Options(name, members) => {
            let class = py.import(intern!(py, "polyrank._core"))?.getattr(name)?;
            class.call((), Some(&named(py, members)?))
        }
        Answer::Tensor(tensor) => array(py, &tensor),
        Answer::Object(it) => object(py, it),
    }
}

fn named<'py>(
    py: Python<'py>,
    members: Vec<(&'static str, Answer)>,
) -> PyResult<Bound<'py, PyDict>> {
    let record = PyDict::new(py);
    for (name, member) in members {
        record.set_item(name, answer(py, member)?)?;
    }
    Ok(record)
}

/// A NumPy array over the memory of a tensor, which it keeps.
fn array<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let memory = Bound::new(py, Memory::of(tensor.region().clone()))?;
    let module = py.import("polyrank._memory")?;
    let shape = PyTuple::new(py, tensor.shape())?;
    module.call_method1("array_over", (memory, shape, tensor.dtype().name()))
}

/// The longest `datetime.timedelta`.
const LONGEST: Duration = Duration::new(86_399_999_999_999, 999_999_000);
/// The longest limit of a group, 584 years: every longer one becomes this.
const MAX_OF_GROUP: Duration = Duration::from_nanos(u64::MAX);

/// A limit as a Python object. What stands for every longer limit is the longest `timedelta`.
pub(crate) fn timedelta(py: Python<'_>, limit: Duration) -> PyResult<Bound<'_, PyAny>> {
    // Stores keep whole milliseconds.
    let is_longest = limit == MAX_OF_GROUP || limit.as_millis() >= LONGEST.as_millis();
    give(py, if is_longest { LONGEST } else { limit })
}

/// A plain value as a Python object.
pub(crate) fn give<'py, T: IntoPyObject<'py>>(
    py: Python<'py>,
    value: T,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(value.into_pyobject(py).map_err(Into::<PyErr>::into)?.into_any().into_bound())
}

/// `None`
pub(crate) fn nothing(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    Ok(py.None().into_bound(py))
}
