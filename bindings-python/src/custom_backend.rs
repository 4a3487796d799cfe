//! Backends that are written in Python: what the core asks of them is handed, as tasks, to
//! `polyrank._backends`, which has a thread for each. Knows nothing of what they do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polyrank::backend::BackendContext;
use polyrank::backend::registry::BackendName;
use polyrank::calls::custom_backend::{BackendTask, TaskCarrier, register};
use polyrank::calls::{Answer, Object, StoreObject, Value};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use crate::convert::{CoreResult, answer, error_kind, object, object_of_value};
use crate::ending::attach;

/// How many exceptions are kept at most for the errors that they became.
const MAX_CAUSES: usize = 16;

/// An exception of a backend.
struct Cause {
    /// Which backend of one rank in one group raised it; none for one that could not be made.
    instance: Option<u64>,
    /// How the message of its error ends.
    told: String,
    raised: PyErr,
}

/// The last ones, of groups that are still there.
static CAUSES: Mutex<VecDeque<Cause>> = Mutex::new(VecDeque::new());

/// What a backend is asked to do.
#[pyclass(frozen, name = "_BackendTask", module = "polyrank._core")]
pub(crate) struct Task {
    task: BackendTask,
}

/// Hands tasks to Python.
struct Carrier {
    factory: Py<PyAny>,
    extended_api: bool,
}

/// Registers a backend whose parts `factory` makes.
pub(crate) fn register_backend(
    py: Python<'_>,
    name: &str,
    factory: Py<PyAny>,
    extended_api: bool,
    devices: &[String],
) -> PyResult<()> {
    register(name, &devices.join(","), Arc::new(Carrier { factory, extended_api })).or_raise(py)?;
    let module = py.import("polyrank._backends")?;
    module.call_method1("_note_registered", (name, extended_api)).map(drop)
}

/// The kinds of devices that a backend may be named for.
#[pyfunction]
pub(crate) fn backend_devices(py: Python<'_>, backend: &str) -> PyResult<Vec<&'static str>> {
    let backend = backend.parse::<BackendName>().or_raise(py)?;
    Ok(backend.devices())
}

/// What a backend raised that became an error with this message.
pub(crate) fn cause(py: Python<'_>, message: &str) -> Option<PyErr> {
    let mut causes = causes();
    let found = causes.iter().rposition(|cause| message.ends_with(cause.told.as_str()))?;
    if causes[found].instance.is_none() {
        // The error of a factory is raised once.
        return causes.remove(found).map(|cause| cause.raised);
    }
    Some(causes[found].raised.clone_ref(py))
}

fn causes() -> MutexGuard<'static, VecDeque<Cause>> {
    CAUSES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TaskCarrier for Carrier {
    fn carry(&self, task: BackendTask) {
        static DELIVER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let left = (task.method == "forget").then_some(task.instance);
        attach(|py| {
            if left.is_some() {
                forget(left);
            }
            let delivered = DELIVER.import(py, "polyrank._backends", "_deliver").and_then(|it| {
                let task = Bound::new(py, Task { task })?;
                it.call1((task, self.factory.bind(py), self.extended_api))
            });
            if let Err(error) = delivered {
                error.write_unraisable(py, None);
            }
        });
    }
}

#[pymethods]
impl Task {
    #[getter]
    fn instance(&self) -> u64 {
        self.task.instance
    }

    #[getter]
    fn backend(&self) -> &str {
        &self.task.backend
    }

    #[getter]
    fn method(&self) -> &'static str {
        self.task.method
    }

    /// What the factory is told, by name.
    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(context) = &self.task.context else { return Ok(None) };
        let BackendContext { store, rank, size, timeout, group_name, .. } = context;
        let store = object(py, Object::Store(StoreObject::any(store.clone())))?;
        let members = PyDict::new(py);
        members.set_item("store", store)?;
        members.set_item("group_rank", rank)?;
        members.set_item("group_size", size)?;
        members.set_item("timeout", *timeout)?;
        members.set_item("group_id", group_name)?;
        members.set_item("global_ranks_in_group", &context.global_ranks_in_group)?;
        Ok(Some(members))
    }

    /// What the group was given as options, for the factory.
    #[getter]
    fn options(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        Some(self.task.given_options()?.get::<Py<PyAny>>()?.clone_ref(py))
    }

    /// Arrays of what is read.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        arrays(py, &self.task, &self.task.inputs)
    }

    /// Arrays of what is written, in place.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        arrays(py, &self.task, &self.task.outputs)
    }

    #[getter]
    fn reduce_op<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reduce_op = self.task.reduce_op;
        reduce_op.map(|op| object_of_value(py, &Value::ReduceOp(op))).transpose()
    }

    #[getter]
    fn root(&self) -> Option<u32> {
        self.task.root
    }

    #[getter]
    fn peer(&self) -> Option<u32> {
        self.task.peer
    }

    #[getter]
    fn tag(&self) -> u32 {
        self.task.tag
    }

    #[getter]
    fn timeout(&self) -> Option<Duration> {
        self.task.timeout
    }

    /// It is done. `source` is the sender of what was received, if the backend said it.
    #[pyo3(signature = (source = None))]
    fn end(&self, py: Python<'_>, source: Option<u32>) {
        py.detach(|| self.task.end(Ok(()), source));
    }

    /// The backend has no such method.
    fn lack(&self, py: Python<'_>) {
        py.detach(|| self.task.end(Err(self.task.lacking()), None));
    }

    /// The backend raised this.
    fn fail(&self, py: Python<'_>, raised: &Bound<'_, PyAny>, text: String) {
        let error = match error_kind(raised).as_deref() {
            Some("Unsupported") => self.task.lacking(),
            _ => {
                let instance = (self.task.method != "make").then_some(self.task.instance);
                let raised = PyErr::from_value(raised.clone());
                keep(Cause { instance, told: self.task.told(&text), raised });
                self.task.failure(text)
            }
        };
        py.detach(|| self.task.end(Err(error), None));
    }
}

/// Keeps an exception for the error that it becomes.
fn keep(cause: Cause) {
    let mut causes = causes();
    causes.push_back(cause);
    let oldest = if causes.len() > MAX_CAUSES { causes.pop_front() } else { None };
    drop(causes);
    // That may run any code.
    drop(oldest);
}

/// Forgets what a backend raised whose group is gone: nobody has a work of it any more.
fn forget(instance: Option<u64>) {
    let mut causes = causes();
    let is_gone = |cause: &Cause| cause.instance == instance;
    let (gone, kept) = std::mem::take(&mut *causes).into_iter().partition::<Vec<_>, _>(is_gone);
    causes.extend(kept);
    drop(causes);
    // Without the lock: that may run any code.
    drop(gone);
}

fn arrays<'py>(
    py: Python<'py>,
    task: &BackendTask,
    regions: &[polyrank::Region],
) -> PyResult<Bound<'py, PyList>> {
    let arrays = task.tensors(regions).into_iter().map(|tensor| answer(py, Answer::Tensor(tensor)));
    PyList::new(py, arrays.collect::<PyResult<Vec<_>>>()?)
}
