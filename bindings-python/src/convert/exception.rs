//! The core's errors as Python exceptions. Knows nothing of calls.
//!
//! Every kind of error is a class, made at import from the table that is in the IDL; an
//! instance has the error's fields as attributes, and `kind`, `rank`, `collective`, `seq` and
//! `group` whatever its kind (None where they have no meaning).

use std::collections::HashMap;

use polyrank::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::custom_backend;
use crate::generated::errors::describe;
use crate::hooks;
use crate::python_store::cause;

/// One exception class.
pub(crate) struct ErrorClass {
    /// The kind of error: `CollectiveTimeout`.
    pub(crate) kind: &'static str,
    /// The class: `CollectiveTimeoutError`.
    pub(crate) python: &'static str,
    /// The kind that it is a case of; `None`: no more than an error of polyrank.
    pub(crate) parent: Option<&'static str>,
    /// The built-in exceptions that it is as well.
    pub(crate) bases: &'static [&'static str],
    /// What it means.
    pub(crate) doc: &'static str,
}

/// One field of an error.
pub(crate) enum Field {
    /// A number.
    Number(u64),
    /// Ranks.
    Ranks(Vec<u32>),
    /// A text.
    Text(String),
}

/// Classes by kind.
static CLASSES: PyOnceLock<HashMap<&'static str, Py<PyType>>> = PyOnceLock::new();

/// The class that all others are cases of; c10d's name for it is `DistError`.
const ROOT: ErrorClass = ErrorClass {
    kind: "",
    python: "PolyrankError",
    parent: None,
    bases: &["RuntimeError"],
    doc: "The root of all errors of polyrank. A failure that has no better class is one of it.",
};

/// Attributes that every exception has.
const COMMON: [&str; 5] = ["kind", "rank", "collective", "seq", "group"];

/// Makes the classes of `table` and puts them into `module`.
pub(crate) fn add_exceptions(
    module: &Bound<'_, PyModule>,
    table: &'static [ErrorClass],
) -> PyResult<()> {
    let py = module.py();
    let root = make_class(py, &ROOT, None)?;
    module.add(ROOT.python, &root)?;
    module.add("DistError", &root)?;
    let mut classes = HashMap::from([(ROOT.kind, root.unbind())]);
    // Parents may stand after their children: each round makes the classes that have theirs.
    let mut waiting: Vec<&'static ErrorClass> = table.iter().collect();
    while !waiting.is_empty() {
        let before = waiting.len();
        for class in std::mem::take(&mut waiting) {
            let Some(parent) = classes.get(class.parent.unwrap_or(ROOT.kind)) else {
                waiting.push(class);
                continue;
            };
            let made = make_class(py, class, Some(parent))?;
            module.add(class.python, &made)?;
            classes.insert(class.kind, made.unbind());
        }
        if waiting.len() == before {
            return Err(PyRuntimeError::new_err("an error class has an unknown parent"));
        }
    }
    // A second interpreter's import keeps the first one's classes.
    let _ = CLASSES.set(py, classes);
    Ok(())
}

fn make_class<'py>(
    py: Python<'py>,
    class: &ErrorClass,
    parent: Option<&Py<PyType>>,
) -> PyResult<Bound<'py, PyType>> {
    let builtins = py.import(intern!(py, "builtins"))?;
    let mut bases = Vec::new();
    if let Some(parent) = parent {
        bases.push(parent.bind(py).clone().into_any());
    }
    for base in class.bases {
        bases.push(builtins.getattr(*base)?);
    }
    let members = PyDict::new(py);
    members.set_item("__doc__", class.doc)?;
    members.set_item("__module__", "polyrank")?;
    if parent.is_none() {
        for name in COMMON {
            members.set_item(name, py.None())?;
        }
        // That of KeyError would be in quotes.
        let text = builtins.getattr("BaseException")?.getattr("__str__")?;
        members.set_item("__str__", text)?;
    } else {
        members.set_item("kind", class.kind)?;
    }
    let made = py.get_type::<PyType>().call1((class.python, PyTuple::new(py, bases)?, members))?;
    Ok(made.cast_into()?)
}

/// What core returns, as a function of Python returns it.
pub(crate) trait CoreResult<T> {
    /// The value, or the exception for the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> CoreResult<T> for polyrank::Result<T> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, &error))
    }
}

#[cold]
fn raised(py: Python<'_>, error: &Error) -> PyErr {
    hooks::raised(error).unwrap_or_else(|| raise(py, error))
}

/// The exception for an argument that cannot be.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raise(py, &Error::InvalidArgument { message: message.into() })
}

/// The exception for an argument of a type that cannot be.
pub(crate) fn invalid_type(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raise(py, &Error::InvalidType { message: message.into() })
}

/// The exception for `error`.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).map_or_else(|failure| failure, PyErr::from_value)
}

/// The instance that [`raise`] raises: of a reduction function that raised, what that was.
pub(crate) fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    if let Error::ReductionFailed { cause, .. } = error
        && let Some(raised) = cause.get::<PyErr>()
    {
        return Ok(raised.clone_ref(py).into_value(py).into_bound(py).into_any());
    }
    let (kind, fields) = describe(error);
    let classes = CLASSES.get(py);
    let class = classes.and_then(|classes| classes.get(kind).or_else(|| classes.get(ROOT.kind)));
    let Some(class) = class else {
        let plain = PyRuntimeError::new_err(error.to_string());
        return Ok(plain.into_value(py).into_bound(py).into_any());
    };
    let instance = class.bind(py).call1((error.to_string(),))?;
    for (name, field) in fields {
        let value = match field {
            Field::Number(number) => number.into_pyobject(py)?.into_any(),
            Field::Ranks(ranks) => ranks.into_pyobject(py)?.into_any(),
            Field::Text(text) => text.into_pyobject(py)?.into_any(),
        };
        if name == "sequence" {
            instance.setattr(intern!(py, "seq"), &value)?;
        }
        instance.setattr(name, value)?;
    }
    if let Error::Store { message } = error
        && let Some(cause) = cause(py, message)
    {
        PyErr::from_value(instance.clone()).set_cause(py, Some(cause));
    }
    if let Error::Backend { message, .. } = error
        && let Some(cause) = custom_backend::cause(py, message)
    {
        PyErr::from_value(instance.clone()).set_cause(py, Some(cause));
    }
    Ok(instance)
}

/// The kind of error that an exception of polyrank is; none for any other.
pub(crate) fn error_kind(exception: &Bound<'_, PyAny>) -> Option<String> {
    let root = CLASSES.get(exception.py())?.get(ROOT.kind)?;
    let is_ours = exception.is_instance(root.bind(exception.py())).unwrap_or(false);
    exception.getattr(intern!(exception.py(), "kind")).ok().filter(|_| is_ours)?.extract().ok()
}
