//! The Python objects of core's groups, meshes, topologies, windows and stores: one for each, for
//! as long as Python keeps it.

use std::sync::Arc;

use polyrank::calls::{Object, StoreObject};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::classes::{
    DeviceMesh, ErrorSwallowingProcessGroupWrapper, FileStore, HashStore, LighthouseServer,
    MadeByCore, ManagedProcessGroup, Manager, NonGroupMember, PrefixStore, ProcessGroup,
    ProcessGroupDummy, ProcessGroupWrapper, Store, TCPStore, Topology, WebSocketStore, Window,
};
use crate::python_store::overridden;

/// What `object` stands for in core, if it is an object of core.
pub(super) fn handle_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Object>> {
    if let Ok(group) = object.cast::<ProcessGroup>() {
        return Ok(Some(Object::Group(group.get().inner.clone())));
    }
    if let Ok(store) = object.cast::<Store>() {
        return Ok(Some(Object::Store(Store::get(store)?)));
    }
    if let Ok(window) = object.cast::<Window>() {
        return Ok(Some(Object::Window(window.get().inner.clone())));
    }
    if let Ok(topology) = object.cast::<Topology>() {
        return Ok(Some(Object::Topology(topology.get().inner.clone())));
    }
    if let Ok(manager) = object.cast::<Manager>() {
        return Ok(Some(Object::Manager(manager.get().get()?.clone())));
    }
    if let Ok(lighthouse) = object.cast::<LighthouseServer>() {
        return Ok(Some(Object::Lighthouse(lighthouse.get().inner.clone())));
    }
    if let Ok(mesh) = object.cast::<DeviceMesh>() {
        return Ok(Some(Object::Mesh(mesh.get().inner.clone())));
    }
    Ok(object.is_instance_of::<NonGroupMember>().then_some(Object::NonGroupMember))
}

/// As [`handle_of`], for an argument: core may give the same object back later.
pub(crate) fn handle_of_argument(object: &Bound<'_, PyAny>) -> PyResult<Option<Object>> {
    if let Ok(store) = object.cast::<Store>() {
        return store_of(store).map(|store| Some(Object::Store(store)));
    }
    let handle = handle_of(object)?;
    match &handle {
        None | Some(Object::NonGroupMember) => {}
        Some(handle) => note(object, handle.identity())?,
    }
    Ok(handle)
}

/// As [`handle_of_argument`], of a store: it may be one that is written in Python.
pub(crate) fn store_of(store: &Bound<'_, Store>) -> PyResult<StoreObject> {
    let found = match overridden(store.as_any())? {
        Some(own) => StoreObject::any(Arc::new(own)),
        None => Store::get(store)?,
    };
    note(store.as_any(), Object::Store(found.clone()).identity())?;
    Ok(found)
}

/// Notes the Python object of the object of core with this identity, unless there is one.
fn note(object: &Bound<'_, PyAny>, identity: u64) -> PyResult<()> {
    let known = known(object.py())?;
    known.call_method1(intern!(object.py(), "setdefault"), (identity, object)).map(drop)
}

/// The Python object of one of core.
pub(crate) fn object(py: Python<'_>, object: Object) -> PyResult<Bound<'_, PyAny>> {
    if let Object::NonGroupMember = object {
        return non_group_member(py);
    }
    let (known, identity) = (known(py)?, object.identity());
    let found = known.call_method1(intern!(py, "get"), (identity,))?;
    if !found.is_none() {
        return Ok(found);
    }
    let made = match object.type_name() {
        "ProcessGroup" => made::<ProcessGroup>(py, object),
        "ProcessGroupWrapper" => made::<ProcessGroupWrapper>(py, object),
        "ErrorSwallowingProcessGroupWrapper" => {
            made::<ErrorSwallowingProcessGroupWrapper>(py, object)
        }
        "ManagedProcessGroup" => made::<ManagedProcessGroup>(py, object),
        "ProcessGroupDummy" => made::<ProcessGroupDummy>(py, object),
        "Window" => made::<Window>(py, object),
        "LighthouseServer" => made::<LighthouseServer>(py, object),
        "Manager" => made::<Manager>(py, object),
        "Topology" => made::<Topology>(py, object),
        "DeviceMesh" => made::<DeviceMesh>(py, object),
        "HashStore" => made::<HashStore>(py, object),
        "FileStore" => made::<FileStore>(py, object),
        "PrefixStore" => made::<PrefixStore>(py, object),
        "TCPStore" => made::<TCPStore>(py, object),
        "WebSocketStore" => made::<WebSocketStore>(py, object),
        _ => made::<Store>(py, object),
    }?;
    known.set_item(identity, &made)?;
    Ok(made)
}

fn made<T: MadeByCore>(py: Python<'_>, object: Object) -> PyResult<Bound<'_, PyAny>> {
    let initializer = T::made_of(py, polyrank::calls::Answer::Object(object))?;
    Ok(Bound::new(py, initializer)?.into_any())
}

/// Python's objects by the identity of core's, held weakly.
fn known(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static KNOWN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let known = KNOWN.get_or_try_init(py, || {
        let class = py.import("weakref")?.getattr("WeakValueDictionary")?;
        class.call0().map(Bound::unbind)
    })?;
    Ok(known.bind(py))
}

/// The one instance of `NonGroupMember`.
pub(crate) fn non_group_member(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static INSTANCE: PyOnceLock<Py<NonGroupMember>> = PyOnceLock::new();
    let instance = INSTANCE.get_or_try_init(py, || Py::new(py, NonGroupMember))?;
    Ok(instance.bind(py).clone().into_any())
}
