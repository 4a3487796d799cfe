//! Who keeps the object of a store that is written in Python. What of the core leads to it keeps it
//! by itself; but where that is part of a Python object, as the store under a `PrefixStore` is, the
//! Python object does, so that Python's collector sees it. Knows nothing of requests.

use std::sync::Arc;

use polyrank::calls::StoreObject;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use super::PythonStore;

/// How a store has its object.
pub(super) enum StoreReference {
    Strong(Py<PyAny>),
    /// Somebody else keeps it.
    Weak(Py<PyWeakrefReference>),
}

impl StoreReference {
    /// The object, if it is still there.
    pub(super) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match self {
            StoreReference::Strong(object) => Some(object.bind(py).clone()),
            StoreReference::Weak(known) => known.bind(py).upgrade(),
        }
    }
}

/// What a Python object is to have of `store`: the same without what that keeps of Python, and the
/// object that it kept, if it is over a store that is written in Python.
pub(crate) fn kept_apart(
    py: Python<'_>,
    store: StoreObject,
) -> PyResult<(StoreObject, Option<Py<PyAny>>)> {
    let underlying = store.underlying().as_any().and_then(|it| it.downcast_ref::<PythonStore>());
    let Some(object) = underlying.and_then(|it| it.object.get(py)) else {
        return Ok((store, None));
    };
    let weak = PyWeakrefReference::new(&object)?.unbind();
    let apart = PythonStore { object: Arc::new(StoreReference::Weak(weak)) };
    Ok((store.over(Arc::new(apart)), Some(object.unbind())))
}

/// The store that core is to have: it keeps the object that its Python object keeps.
pub(crate) fn keeping(py: Python<'_>, store: &StoreObject, object: &Py<PyAny>) -> StoreObject {
    store.over(Arc::new(PythonStore::keeping(object.clone_ref(py))))
}
