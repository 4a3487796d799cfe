//! Stores that are written in Python: subclasses of `Store` whose methods the core calls, on any
//! thread, with the GIL only while they run. Knows nothing of what they are used for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polyrank::store::{HashStore, Store as CoreStore};
use polyrank::{Error, Result};
use pyo3::exceptions::{PyNotImplementedError, PyTimeoutError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::classes::Store;
use crate::convert::error_kind;
use crate::ending::attach;

/// The methods of stores that a class may have of its own.
const METHODS: [&str; 15] = [
    "set",
    "get",
    "add",
    "append",
    "check",
    "compare_set",
    "delete_key",
    "wait",
    "multi_get",
    "multi_set",
    "num_keys",
    "list_keys",
    "queue_push",
    "queue_pop",
    "queue_len",
];

/// How many exceptions are kept for the errors that they became.
const MAX_CAUSES: usize = 16;

/// Exceptions of users' methods by the message of the core's error, the last ones.
static CAUSES: Mutex<VecDeque<(String, PyErr)>> = Mutex::new(VecDeque::new());

/// A store whose methods are those of a Python object.
pub(crate) struct PythonStore {
    object: Arc<Py<PyAny>>,
}

/// The store that `object` is to the core, if its class has methods of its own.
pub(crate) fn overridden(object: &Bound<'_, PyAny>) -> PyResult<Option<PythonStore>> {
    let py = object.py();
    for class in object.get_type().mro() {
        let module = class.getattr(intern!(py, "__module__"))?;
        if module.eq("polyrank")? || module.eq("builtins")? {
            break;
        }
        let own = class.getattr(intern!(py, "__dict__"))?;
        for method in METHODS {
            if own.contains(method)? {
                return Ok(Some(PythonStore { object: Arc::new(object.clone().unbind()) }));
            }
        }
    }
    Ok(None)
}

/// What a method of a user's class raised that became an error with this message.
pub(crate) fn cause(py: Python<'_>, message: &str) -> Option<PyErr> {
    let causes = CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    causes.iter().rev().find(|(known, _)| known == message).map(|(_, cause)| cause.clone_ref(py))
}

/// What the base class itself is: a store of which nothing is implemented. Its timeout is kept.
pub(crate) struct AbstractStore(HashStore);

impl AbstractStore {
    /// One with the usual timeout.
    pub(crate) fn new() -> AbstractStore {
        AbstractStore(HashStore::new())
    }
}

fn not_implemented<T>(operation: &str) -> Result<T> {
    Err(Error::Unsupported {
        who: "a Store whose class lacks it".into(),
        operation: operation.into(),
    })
}

impl PythonStore {
    /// The result of a method. `keys` are those that it waits for.
    fn ask<T: Send + 'static>(
        &self,
        method: &'static str,
        keys: &[&str],
        arguments: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyTuple>>,
        read: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
    ) -> Result<T> {
        let began = Instant::now();
        let mut answer = None;
        attach(|py| {
            let store = self.object.bind(py);
            let asked = arguments(py).and_then(|given| store.call_method1(method, given));
            answer = Some(match asked {
                Ok(value) => read(&value).map_err(|_| wrong_answer(store, method, &value)),
                Err(error) => Err(core_error(store, method, keys, began, error)),
            });
        });
        answer.unwrap_or_else(|| {
            Err(Error::Store { message: format!("{method}: the interpreter is ending") })
        })
    }
}

/// The core's error for an answer that a method is not to give.
fn wrong_answer(store: &Bound<'_, PyAny>, method: &str, answer: &Bound<'_, PyAny>) -> Error {
    let expected = match method {
        "get" | "compare_set" | "queue_pop" => "bytes or str",
        "multi_get" => "a list of bytes or str",
        "list_keys" => "a list of str",
        "add" | "num_keys" | "queue_len" => "int",
        _ => "bool",
    };
    let came = answer.get_type().name().map_or_else(|_| "another".to_owned(), |it| it.to_string());
    let store = class_name(store);
    Error::Store { message: format!("{store}.{method} must return {expected}, not {came}") }
}

fn class_name(store: &Bound<'_, PyAny>) -> String {
    store.get_type().name().map_or_else(|_| "Store".to_owned(), |it| it.to_string())
}

/// The core's error for what a method raised.
fn core_error(
    store: &Bound<'_, PyAny>,
    method: &str,
    keys: &[&str],
    began: Instant,
    error: PyErr,
) -> Error {
    let py = store.py();
    let kind = error_kind(error.value(py));
    match kind.as_deref() {
        Some("NotACounter") => return Error::NotACounter { key: keys.join(", ") },
        Some("QueueEmpty") => return Error::QueueEmpty,
        Some("Unsupported") => {
            // A part of what was asked may be what the class lacks.
            let part = error.value(py).getattr(intern!(py, "operation"));
            let part = part.and_then(|part| part.extract::<String>()).unwrap_or_default();
            let operation = match part.as_str() {
                "" => method.to_owned(),
                part if part == method => method.to_owned(),
                part => format!("{method}, which needs {part}"),
            };
            return Error::Unsupported { who: class_name(store), operation };
        }
        _ => {}
    }
    if error.is_instance_of::<PyTimeoutError>(py) {
        let waited_ms = began.elapsed().as_millis() as u64;
        return Error::StoreTimeout { operation: method.into(), keys: keys.join(", "), waited_ms };
    }
    if error.is_instance_of::<PyNotImplementedError>(py) {
        let who = class_name(store);
        return Error::Unsupported { who, operation: method.to_owned() };
    }
    let message = format!("{method}: the store's class raised {error}");
    let mut causes = CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    causes.push_back((message.clone(), error));
    let oldest = if causes.len() > MAX_CAUSES { causes.pop_front() } else { None };
    drop(causes);
    drop(oldest);
    Error::Store { message }
}

fn bytes(answer: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match answer.extract::<String>() {
        Ok(text) => Ok(text.into_bytes()),
        Err(_) => answer.extract(),
    }
}

/// A closure that makes arguments, whatever the lifetime of the GIL.
fn arguments<F: for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyTuple>>>(make: F) -> F {
    make
}

fn nothing(_: &Bound<'_, PyAny>) -> PyResult<()> {
    Ok(())
}

impl CoreStore for PythonStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.ask("set", &[key], |py| (key, PyBytes::new(py, value)).into_pyobject(py), nothing)
    }

    fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.ask("get", &[key], |py| (key,).into_pyobject(py), bytes)
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.ask("add", &[key], |py| (key, amount).into_pyobject(py), |it| it.extract())
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.ask("append", &[key], |py| (key, PyBytes::new(py, value)).into_pyobject(py), nothing)
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        self.ask("check", keys, |py| (keys.to_vec(),).into_pyobject(py), |it| it.is_truthy())
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        let arguments = arguments(|py| {
            (key, PyBytes::new(py, expected), PyBytes::new(py, desired)).into_pyobject(py)
        });
        self.ask("compare_set", &[key], arguments, bytes)
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        self.ask("delete_key", &[key], |py| (key,).into_pyobject(py), |it| it.is_truthy())
    }

    fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        let arguments = arguments(|py| match timeout {
            Some(timeout) => (keys.to_vec(), timeout).into_pyobject(py),
            None => (keys.to_vec(),).into_pyobject(py),
        });
        self.ask("wait", keys, arguments, nothing)
    }

    fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        let read = |it: &Bound<'_, PyAny>| it.try_iter()?.map(|value| bytes(&value?)).collect();
        self.ask("multi_get", keys, |py| (keys.to_vec(),).into_pyobject(py), read)
    }

    fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
        let arguments = arguments(|py| {
            let values: Vec<_> = values.iter().map(|value| PyBytes::new(py, value)).collect();
            (keys.to_vec(), values).into_pyobject(py)
        });
        self.ask("multi_set", keys, arguments, nothing)
    }

    fn num_keys(&self) -> Result<i64> {
        self.ask("num_keys", &[], |py| Ok(PyTuple::empty(py)), |it| it.extract())
    }

    fn list_keys(&self) -> Result<Vec<String>> {
        self.ask("list_keys", &[], |py| Ok(PyTuple::empty(py)), |it| it.extract())
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        let arguments = arguments(|py| (key, PyBytes::new(py, value)).into_pyobject(py));
        self.ask("queue_push", &[key], arguments, nothing)
    }

    fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>> {
        self.ask("queue_pop", &[key], |py| (key, block).into_pyobject(py), bytes)
    }

    fn queue_len(&self, key: &str) -> Result<i64> {
        self.ask("queue_len", &[key], |py| (key,).into_pyobject(py), |it| it.extract())
    }

    fn has_extended_api(&self) -> bool {
        let mut has = None;
        attach(|py| {
            let answer = self.object.bind(py).call_method0(intern!(py, "has_extended_api"));
            has = answer.and_then(|it| it.is_truthy()).ok();
        });
        has.unwrap_or(false)
    }

    fn timeout(&self) -> Duration {
        let mut timeout = None;
        attach(|py| {
            let attribute = self.object.bind(py).getattr(intern!(py, "timeout"));
            timeout = attribute.and_then(|it| it.extract::<Duration>()).ok();
        });
        timeout.unwrap_or(polyrank::store::DEFAULT_TIMEOUT)
    }

    fn set_timeout(&self, timeout: Duration) {
        attach(|py| {
            let object = self.object.bind(py);
            if let Err(error) = object.call_method1(intern!(py, "set_timeout"), (timeout,)) {
                error.write_unraisable(py, Some(object));
            }
        });
    }

    fn share(&self) -> Option<Arc<dyn CoreStore>> {
        Some(Arc::new(PythonStore { object: self.object.clone() }))
    }

    fn clone_store(&self) -> Result<Arc<dyn CoreStore>> {
        Ok(Arc::new(PythonStore { object: self.object.clone() }))
    }

    fn description(&self) -> String {
        let mut name = None;
        attach(|py| name = Some(class_name(self.object.bind(py))));
        format!("{}()", name.unwrap_or_else(|| "Store".to_owned()))
    }
}

impl CoreStore for AbstractStore {
    fn set(&self, _: &str, _: &[u8]) -> Result<()> {
        not_implemented("set")
    }

    fn get(&self, _: &str) -> Result<Vec<u8>> {
        not_implemented("get")
    }

    fn add(&self, _: &str, _: i64) -> Result<i64> {
        not_implemented("add")
    }

    fn append(&self, _: &str, _: &[u8]) -> Result<()> {
        not_implemented("append")
    }

    fn check(&self, _: &[&str]) -> Result<bool> {
        not_implemented("check")
    }

    fn compare_set(&self, _: &str, _: &[u8], _: &[u8]) -> Result<Vec<u8>> {
        not_implemented("compare_set")
    }

    fn delete_key(&self, _: &str) -> Result<bool> {
        not_implemented("delete_key")
    }

    fn wait(&self, _: &[&str], _: Option<Duration>) -> Result<()> {
        not_implemented("wait")
    }

    fn multi_get(&self, _: &[&str]) -> Result<Vec<Vec<u8>>> {
        not_implemented("multi_get")
    }

    fn multi_set(&self, _: &[&str], _: &[&[u8]]) -> Result<()> {
        not_implemented("multi_set")
    }

    fn num_keys(&self) -> Result<i64> {
        not_implemented("num_keys")
    }

    fn list_keys(&self) -> Result<Vec<String>> {
        not_implemented("list_keys")
    }

    fn queue_push(&self, _: &str, _: &[u8]) -> Result<()> {
        not_implemented("queue_push")
    }

    fn queue_pop(&self, _: &str, _: bool) -> Result<Vec<u8>> {
        not_implemented("queue_pop")
    }

    fn queue_len(&self, _: &str) -> Result<i64> {
        not_implemented("queue_len")
    }

    fn timeout(&self) -> Duration {
        self.0.timeout()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.0.set_timeout(timeout);
    }

    fn has_extended_api(&self) -> bool {
        false
    }

    fn clone_store(&self) -> Result<Arc<dyn CoreStore>> {
        not_implemented("clone")
    }

    fn description(&self) -> String {
        "Store()".to_owned()
    }
}

#[pymethods]
impl Store {
    /// Gives a class that is derived from it what is made of the methods that it has.
    #[classmethod]
    fn __init_subclass__(class: &Bound<'_, PyType>) -> PyResult<()> {
        static COMPLETE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = class.py();
        COMPLETE.import(py, "polyrank._stores", "complete")?.call1((class,)).map(drop)
    }

    /// For the classes that are derived from it.
    #[new]
    #[pyo3(signature = (*_positional, **_keywords), text_signature = None)]
    fn py_new(
        _positional: &Bound<'_, PyTuple>,
        _keywords: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> Store {
        Store { inner: polyrank::calls::StoreObject::any(Arc::new(AbstractStore::new())) }
    }
}
