//! Calls that core runs, as for every other language: constructors, attributes, free functions, and
//! methods of groups and stores. Knows nothing of what any of them does.

use polyrank::calls::{self, Answer, Invocation, Object};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::answer::{answer, answer as as_object};
use super::call::{resolve, warn_left_out};
use super::detached::detached;
use super::exception::CoreResult;
use super::handles::{handle_of, handle_of_argument};
use super::lease::releasing;
use crate::classes::{MadeByCore, Store};

/// The method that gives another object of the class of its own.
const CLONES: &str = "STORE_CLONE";

/// Calls a free function.
pub(crate) fn invoke<'py>(
    py: Python<'py>,
    key: &'static str,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    answer(py, invoked(py, None, key, positional, keywords)?)
}

/// Calls a method of `this`, which is a group or a store.
pub(crate) fn invoke_on<'py>(
    this: &Bound<'py, PyAny>,
    key: &'static str,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    let handle = match handle_of(this)? {
        // Its methods may give it back.
        Some(Object::Mesh(_)) => handle_of_argument(this)?,
        handle => handle,
    };
    let given = invoked(py, handle, key, positional, keywords)?;
    if key == CLONES { clone_of(this, given) } else { answer(py, given) }
}

/// The value of an attribute of `this`, which is a group or a store.
pub(crate) fn attribute<'py>(
    this: &Bound<'py, PyAny>,
    key: &'static str,
) -> PyResult<Bound<'py, PyAny>> {
    let value = invoke_on(this, key, &PyTuple::empty(this.py()), None)?;
    // An attribute that is a list cannot be changed.
    Ok(match value.cast::<PyList>() {
        Ok(list) => list.to_tuple().into_any(),
        Err(_) => value,
    })
}

/// Sets an attribute of `this`, which is a group or a store.
pub(crate) fn set_attribute(
    this: &Bound<'_, PyAny>,
    key: &'static str,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    invoke_on(this, key, &PyTuple::new(this.py(), [value])?, None).map(drop)
}

/// Makes an object.
pub(crate) fn construct<T: MadeByCore>(
    key: &'static str,
    positional: &Bound<'_, PyTuple>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyClassInitializer<T>> {
    T::made_of(positional.py(), constructed(positional.py(), key, positional, keywords)?)
}

/// What core makes for an object that is there.
pub(crate) fn constructed(
    py: Python<'_>,
    key: &'static str,
    positional: &Bound<'_, PyTuple>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Answer> {
    invoked(py, None, key, positional, keywords)
}

/// `answer`, which a store of `this` class gave as another handle on itself, as an object of that
/// class, with all that `this` object knows besides. A class of this package has no more to it.
fn clone_of<'py>(this: &Bound<'py, PyAny>, answer: Answer) -> PyResult<Bound<'py, PyAny>> {
    let (py, class) = (this.py(), this.get_type());
    let is_ours = |class: &Bound<'py, PyAny>| {
        class.getattr(intern!(py, "__module__"))?.eq(intern!(py, "polyrank"))
    };
    if is_ours(class.as_any())? {
        return as_object(py, answer);
    }
    for base in class.mro() {
        if !is_ours(&base)? {
            continue;
        }
        // Neither `__new__` nor `__init__` of users: what they take is not known.
        let made = base.call_method1(intern!(py, "__new__"), (&class,))?;
        Store::make(made.cast::<Store>()?, answer)?;
        if let Ok(known) = this.getattr(intern!(py, "__dict__")) {
            made.getattr(intern!(py, "__dict__"))?.call_method1(intern!(py, "update"), (known,))?;
        }
        return Ok(made);
    }
    as_object(py, answer)
}

fn invoked<'py>(
    py: Python<'py>,
    this: Option<Object>,
    key: &'static str,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Answer> {
    let entry = calls::entry(key).or_raise(py)?;
    run(py, resolve(py, entry.method, positional, keywords)?.invocation(key, this)?)
}

/// Runs a call: without the GIL if it may wait.
pub(crate) fn run(py: Python<'_>, call: Invocation) -> PyResult<Answer> {
    if call.is_left_out() {
        warn_left_out(py, call.name())?;
    }
    if call.waits() {
        return detached(py, || call.run());
    }
    releasing(py, || call.run()).or_raise(py)
}
