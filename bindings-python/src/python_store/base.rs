//! The class `Store` itself: a store of which nothing is implemented, from which those of users are
//! derived. Knows nothing of what they have.

use std::sync::Arc;
use std::time::Duration;

use polyrank::store::{HashStore, Store as CoreStore};
use polyrank::{Error, Result};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use crate::classes::Store;

/// What the base class itself is: a store of which nothing is implemented. Its timeout is kept.
struct AbstractStore {
    /// The class of which it is an object.
    class: String,
    timeout: HashStore,
}

impl AbstractStore {
    /// One with the usual timeout.
    fn new(class: String) -> AbstractStore {
        AbstractStore { class, timeout: HashStore::new() }
    }

    fn not_implemented<T>(&self, operation: &str) -> Result<T> {
        let who = format!("the class '{}', which defines no '{operation}',", self.class);
        Err(Error::Unsupported { who, operation: operation.to_owned() })
    }
}

impl CoreStore for AbstractStore {
    fn set(&self, _: &str, _: &[u8]) -> Result<()> {
        self.not_implemented("set")
    }

    fn get(&self, _: &str) -> Result<Vec<u8>> {
        self.not_implemented("get")
    }

    fn add(&self, _: &str, _: i64) -> Result<i64> {
        self.not_implemented("add")
    }

    fn append(&self, _: &str, _: &[u8]) -> Result<()> {
        self.not_implemented("append")
    }

    fn check(&self, _: &[&str]) -> Result<bool> {
        self.not_implemented("check")
    }

    fn compare_set(&self, _: &str, _: &[u8], _: &[u8]) -> Result<Vec<u8>> {
        self.not_implemented("compare_set")
    }

    fn delete_key(&self, _: &str) -> Result<bool> {
        self.not_implemented("delete_key")
    }

    fn wait(&self, _: &[&str], _: Option<Duration>) -> Result<()> {
        self.not_implemented("wait")
    }

    fn multi_get(&self, _: &[&str]) -> Result<Vec<Vec<u8>>> {
        self.not_implemented("multi_get")
    }

    fn multi_set(&self, _: &[&str], _: &[&[u8]]) -> Result<()> {
        self.not_implemented("multi_set")
    }

    fn num_keys(&self) -> Result<i64> {
        self.not_implemented("num_keys")
    }

    fn list_keys(&self) -> Result<Vec<String>> {
        self.not_implemented("list_keys")
    }

    fn queue_push(&self, _: &str, _: &[u8]) -> Result<()> {
        self.not_implemented("queue_push")
    }

    fn queue_pop(&self, _: &str, _: bool) -> Result<Vec<u8>> {
        self.not_implemented("queue_pop")
    }

    fn queue_len(&self, _: &str) -> Result<i64> {
        self.not_implemented("queue_len")
    }

    fn timeout(&self) -> Duration {
        self.timeout.timeout()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout.set_timeout(timeout);
    }

    fn has_extended_api(&self) -> bool {
        false
    }

    fn clone_store(&self) -> Result<Arc<dyn CoreStore>> {
        self.not_implemented("clone")
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
    #[classmethod]
    #[pyo3(signature = (*_positional, **_keywords), text_signature = None)]
    fn py_new(
        class: &Bound<'_, PyType>,
        _positional: &Bound<'_, PyTuple>,
        _keywords: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<Store> {
        let store = AbstractStore::new(class.name()?.to_string());
        Store::of(class.py(), polyrank::calls::StoreObject::any(Arc::new(store)))
    }
}
