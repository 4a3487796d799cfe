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
struct AbstractStore(HashStore);

impl AbstractStore {
    /// One with the usual timeout.
    fn new() -> AbstractStore {
        AbstractStore(HashStore::new())
    }
}

fn not_implemented<T>(operation: &str) -> Result<T> {
    Err(Error::Unsupported {
        who: "a Store whose class lacks it".into(),
        operation: operation.into(),
    })
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
    #[pyo3(signature = (*positional, **_keywords), text_signature = None)]
    fn py_new(
        positional: &Bound<'_, PyTuple>,
        _keywords: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<Store> {
        let inner = polyrank::calls::StoreObject::any(Arc::new(AbstractStore::new()));
        Store::of(positional.py(), inner)
    }
}
