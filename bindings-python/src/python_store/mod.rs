//! Stores that are written in Python: subclasses of `Store` whose methods the core calls, on any
//! thread, with the GIL only while they run. Knows nothing of what they are used for.

mod answers;
mod base;
mod held;
mod raised;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrank::store::Store as CoreStore;
use polyrank::{Error, Result};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use answers::{Reading, bytes, integer, nothing, truth, unless_awaitable};
use held::StoreReference;
pub(crate) use held::{keeping, kept_apart};
pub(crate) use raised::cause;
use raised::{class_name, core_error};

use crate::convert::timedelta;
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

/// A store whose methods are those of a Python object.
pub(crate) struct PythonStore {
    object: Arc<StoreReference>,
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
                return Ok(Some(PythonStore::keeping(object.clone().unbind())));
            }
        }
    }
    Ok(None)
}

impl PythonStore {
    /// That of an object, which is kept.
    fn keeping(object: Py<PyAny>) -> PythonStore {
        PythonStore { object: Arc::new(StoreReference::Strong(object)) }
    }

    /// Calls `f` with the object, if it is there, and Python is.
    fn with_object(&self, f: impl FnOnce(&Bound<'_, PyAny>)) {
        attach(|py| {
            if let Some(object) = self.object.get(py) {
                f(&object);
            }
        });
    }

    /// The result of a method. `keys` are those that it waits for.
    fn ask<T: Send + 'static>(
        &self,
        method: &'static str,
        keys: &[&str],
        arguments: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyTuple>>,
        read: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> Reading<T>,
    ) -> Result<T> {
        let began = Instant::now();
        let mut answer = None;
        self.with_object(|store| {
            let py = store.py();
            let asked = arguments(py).and_then(|given| store.call_method1(method, given));
            answer = Some(match asked {
                Ok(value) => unless_awaitable(&value)
                    .and_then(|()| read(&value))
                    .map_err(|wrong| wrong_answer(store, method, &wrong)),
                Err(error) => Err(core_error(store, method, keys, began, error)),
            });
        });
        answer.unwrap_or_else(|| {
            let why = "the interpreter is ending, or nobody has the store any more";
            Err(Error::Store { message: format!("{method}: {why}") })
        })
    }
}

/// The core's error for an answer that a method is not to give.
fn wrong_answer(store: &Bound<'_, PyAny>, method: &str, wrong: &str) -> Error {
    Error::Store { message: format!("{}.{method} {wrong}", class_name(store)) }
}

/// A closure that makes arguments, whatever the lifetime of the GIL.
fn arguments<F: for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyTuple>>>(make: F) -> F {
    make
}

impl CoreStore for PythonStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.ask("set", &[key], |py| (key, PyBytes::new(py, value)).into_pyobject(py), nothing)
    }

    fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.ask("get", &[key], |py| (key,).into_pyobject(py), bytes)
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.ask("add", &[key], |py| (key, amount).into_pyobject(py), integer)
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.ask("append", &[key], |py| (key, PyBytes::new(py, value)).into_pyobject(py), nothing)
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        self.ask("check", keys, |py| (keys.to_vec(),).into_pyobject(py), truth)
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        let arguments = arguments(|py| {
            (key, PyBytes::new(py, expected), PyBytes::new(py, desired)).into_pyobject(py)
        });
        self.ask("compare_set", &[key], arguments, bytes)
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        self.ask("delete_key", &[key], |py| (key,).into_pyobject(py), truth)
    }

    fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        let arguments = arguments(|py| match timeout {
            Some(timeout) => (keys.to_vec(), timedelta(py, timeout)?).into_pyobject(py),
            None => (keys.to_vec(),).into_pyobject(py),
        });
        self.ask("wait", keys, arguments, nothing)
    }

    fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        let arguments = arguments(|py| (keys.to_vec(),).into_pyobject(py));
        self.ask("multi_get", keys, arguments, |it| answers::values(keys.len(), it))
    }

    fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
        if keys.len() != values.len() {
            let (keys, values) = (keys.len(), values.len());
            let message =
                format!("multi_set needs one value for each key, got {keys} keys, {values} values");
            return Err(Error::InvalidArgument { message });
        }
        let arguments = arguments(|py| {
            let values: Vec<_> = values.iter().map(|value| PyBytes::new(py, value)).collect();
            (keys.to_vec(), values).into_pyobject(py)
        });
        self.ask("multi_set", keys, arguments, nothing)
    }

    fn num_keys(&self) -> Result<i64> {
        self.ask("num_keys", &[], |py| Ok(PyTuple::empty(py)), integer)
    }

    fn list_keys(&self) -> Result<Vec<String>> {
        self.ask("list_keys", &[], |py| Ok(PyTuple::empty(py)), answers::keys)
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        let arguments = arguments(|py| (key, PyBytes::new(py, value)).into_pyobject(py));
        self.ask("queue_push", &[key], arguments, nothing)
    }

    fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>> {
        self.ask("queue_pop", &[key], |py| (key, block).into_pyobject(py), bytes)
    }

    fn queue_len(&self, key: &str) -> Result<i64> {
        self.ask("queue_len", &[key], |py| (key,).into_pyobject(py), integer)
    }

    fn has_extended_api(&self) -> bool {
        let mut has = None;
        self.with_object(|object| {
            let answer = object.call_method0(intern!(object.py(), "has_extended_api"));
            has = answer.and_then(|it| it.is_truthy()).ok();
        });
        has.unwrap_or(false)
    }

    fn timeout(&self) -> Duration {
        let mut timeout = None;
        self.with_object(|object| {
            let attribute = object.getattr(intern!(object.py(), "timeout"));
            timeout = attribute.and_then(|it| it.extract::<Duration>()).ok();
        });
        timeout.unwrap_or(polyrank::store::DEFAULT_TIMEOUT)
    }

    fn set_timeout(&self, timeout: Duration) {
        self.with_object(|object| {
            let py = object.py();
            let set = timedelta(py, timeout)
                .and_then(|it| object.call_method1(intern!(py, "set_timeout"), (it,)));
            if let Err(error) = set {
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

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn description(&self) -> String {
        let mut name = None;
        self.with_object(|object| name = Some(class_name(object)));
        format!("{}()", name.unwrap_or_else(|| "Store".to_owned()))
    }
}
