//! The classes of the IDL's interfaces: what they hold, and the methods that only Python has
//! (`await`, `repr`). The other methods are generated.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polyrank::calls::replicas::LighthouseObject;
use polyrank::calls::{Answer, Object, StoreObject};
use polyrank::{OnDevice, Tensor, distributed};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use pyo3::{PyTraverseError, PyVisit};

use crate::awaiting::awaitable;
use crate::collector::DecisionOfRun;
pub(crate) use crate::comm_name::CommNameBlock;
use crate::convert::{CoreResult, current_streams, invalid, invalid_type, visit_memory};
pub(crate) use crate::current::CurrentProcessGroup;
pub(crate) use crate::device_mesh::DeviceMesh;
pub(crate) use crate::future::Future;
use crate::hooks;
pub(crate) use crate::manager::Manager;
use crate::python_store::{keeping, kept_apart};
use crate::reduce_op::ReduceOp;
use crate::waiting::wait_on;

/// A group of processes (ranks) that communicate by collective operations.
///
/// All ranks of a group call the same collectives in the same order; a disagreement raises
/// `CollectiveMismatchError` on every rank. Methods that take time return a `Work`. When an
/// operation fails or passes its deadline, the group is broken until it is made anew.
#[pyclass(frozen, subclass, weakref, module = "polyrank")]
pub(crate) struct ProcessGroup {
    pub(crate) inner: polyrank::ProcessGroup,
    /// How many prepared operations there are: each keeps this object, and a handle of core's of
    /// its own.
    parts: AtomicUsize,
    /// Whether nobody else has the group.
    is_alone: DecisionOfRun,
}

/// A group that does what another one does, which it wraps.
#[pyclass(frozen, subclass, extends = ProcessGroup, module = "polyrank")]
pub(crate) struct ProcessGroupWrapper;

/// A group whose operations never raise, around another one.
#[pyclass(frozen, subclass, extends = ProcessGroup, module = "polyrank")]
pub(crate) struct ErrorSwallowingProcessGroupWrapper;

/// The group of a manager, for what takes a group and knows no manager.
#[pyclass(frozen, subclass, extends = ProcessGroup, module = "polyrank")]
pub(crate) struct ManagedProcessGroup;

/// A group whose other ranks do not exist.
#[pyclass(frozen, subclass, extends = ProcessGroup, module = "polyrank")]
pub(crate) struct ProcessGroupDummy;

/// Stands for a group that this process is not a member of.
#[pyclass(frozen, module = "polyrank")]
pub(crate) struct NonGroupMember;

/// A handle on an operation that was issued.
///
/// Wait for it on a thread (`wait`), in a task (`await`), or look at it now and then
/// (`is_completed`). The tensors of the operation must not be touched before it is complete.
#[pyclass(frozen, weakref, module = "polyrank")]
pub(crate) struct Work {
    pub(crate) inner: polyrank::Work,
    objects: TensorObjects,
    /// The limit of the operation.
    pub(crate) timeout: Duration,
}

/// What an operation has to do with Python's objects of its tensors.
#[derive(Default)]
pub(crate) struct TensorObjects {
    /// Those that hold the result, in one flat list.
    pub(crate) outputs: Vec<Py<PyAny>>,
    /// The type of what is only read, where that is a tensor on a device: outputs tell their own.
    pub(crate) read: Option<Py<PyType>>,
}

impl TensorObjects {
    /// For Python's collector.
    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.outputs.iter().try_for_each(|object| visit.call(object))?;
        visit.call(&self.read)
    }

    /// The same objects once more.
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> TensorObjects {
        let outputs = self.outputs.iter().map(|object| object.clone_ref(py)).collect();
        TensorObjects { outputs, read: self.read.as_ref().map(|class| class.clone_ref(py)) }
    }
}

/// An operation that is started again and again.
///
/// Each start is a call like any other: it has the next number in its group, hooks and names see it
/// as the ordinary call, and other ranks may take part in it by that. `reconfigure` and the end of
/// the group end it.
#[pyclass(frozen, weakref, module = "polyrank")]
pub(crate) struct PreparedOperation {
    pub(crate) inner: polyrank::PreparedOperation,
    /// Its tensors, with their objects.
    pub(crate) tensors: Vec<(Tensor, Py<PyAny>)>,
    pub(crate) objects: TensorObjects,
    group: Py<ProcessGroup>,
    /// Its operator, if that is a function of the program.
    operator: Option<Py<ReduceOp>>,
}

/// A key-value store that ranks share. Keys are strings, values are bytes.
///
/// Requests that wait (`get`, `wait`, `multi_get`, a blocking `queue_pop`) wait up to the store's
/// timeout and then raise `StoreTimeoutError`. The base class of all stores.
#[pyclass(frozen, subclass, weakref, module = "polyrank")]
pub(crate) struct Store {
    /// None before `__init__` made it.
    parts: OnceLock<StoreParts>,
}

/// What a store is of.
struct StoreParts {
    inner: StoreObject,
    /// The store that is written in Python under its prefixes, which `inner` does not keep.
    underlying: Option<Py<PyAny>>,
}

/// A store in this process's memory, for threads as ranks and for tests.
#[pyclass(frozen, subclass, extends = Store, module = "polyrank")]
pub(crate) struct HashStore;

/// A store in one file of a directory that all ranks see; access is by file locks.
#[pyclass(frozen, subclass, extends = Store, module = "polyrank")]
pub(crate) struct FileStore;

/// A view of another store: every key gets a prefix. How several groups share one store.
#[pyclass(frozen, subclass, extends = Store, module = "polyrank")]
pub(crate) struct PrefixStore;

/// A store served by one process over TCP. Speaks PyTorch's wire protocol: server and clients may
/// each be PyTorch.
#[pyclass(frozen, subclass, extends = Store, module = "polyrank")]
pub(crate) struct TCPStore;

/// A store reached over a WebSocket, from a browser too. Every store server of polyrank answers
/// WebSockets on its port; one of PyTorch does not.
///
/// A WebSocket that breaks is opened again, and no request is lost or run twice.
#[pyclass(frozen, subclass, extends = Store, module = "polyrank")]
pub(crate) struct WebSocketStore;

/// Memory of all ranks of a group that each of them can reach without the owner's help.
///
/// All ranks make it together, by `ProcessGroup.new_window`, and register a tensor each. Then each
/// rank reads and writes the others' tensors, at offsets in elements. The owner's process serves
/// accesses even if none of its code calls polyrank.
#[pyclass(frozen, weakref, module = "polyrank")]
pub(crate) struct Window {
    pub(crate) inner: polyrank::Window,
}

/// Says which replicas of a job train together, as they come and go: torchft's lighthouse.
///
/// A page at the same address shows what it sees. It serves as long as the object is there.
#[pyclass(frozen, weakref, module = "polyrank")]
pub(crate) struct LighthouseServer {
    pub(crate) inner: LighthouseObject,
}

/// Who is whose neighbour among the ranks of a group: a grid (MPI's cartesian topology) or a graph.
///
/// All ranks make it together, by `create_cart` or `create_dist_graph_adjacent` of the group. Its
/// operations are collectives of the group.
#[pyclass(frozen, weakref, module = "polyrank")]
pub(crate) struct Topology {
    pub(crate) inner: polyrank::Topology,
}

/// What runs a group's operations on one kind of device.
#[pyclass(frozen, weakref, module = "polyrank")]
pub(crate) struct DeviceBackend {
    pub(crate) inner: polyrank::DeviceBackend,
}

/// One send or receive for `batch_isend_irecv`.
#[pyclass(frozen, module = "polyrank")]
pub(crate) struct P2POp {
    /// The function that was given.
    pub(crate) op: Py<PyAny>,
    pub(crate) is_send: bool,
    pub(crate) tensor: Py<PyAny>,
    /// The other rank, in the group.
    pub(crate) peer: u32,
    pub(crate) group: Py<ProcessGroup>,
    pub(crate) tag: u32,
}

/// A class whose objects core makes.
pub(crate) trait MadeByCore: pyo3::PyClass {
    /// What makes the instance of an object that core made.
    fn made_of(py: Python<'_>, answer: Answer) -> PyResult<PyClassInitializer<Self>>;
}

impl MadeByCore for ProcessGroup {
    fn made_of(_: Python<'_>, answer: Answer) -> PyResult<PyClassInitializer<Self>> {
        match answer {
            Answer::Object(Object::Group(inner)) => Ok(ProcessGroup::new(inner).into()),
            other => Err(unexpected(&other)),
        }
    }
}

impl MadeByCore for Window {
    fn made_of(_: Python<'_>, answer: Answer) -> PyResult<PyClassInitializer<Self>> {
        match answer {
            Answer::Object(Object::Window(inner)) => Ok(Window { inner }.into()),
            other => Err(unexpected(&other)),
        }
    }
}

impl MadeByCore for LighthouseServer {
    fn made_of(_: Python<'_>, answer: Answer) -> PyResult<PyClassInitializer<Self>> {
        match answer {
            Answer::Object(Object::Lighthouse(inner)) => Ok(LighthouseServer { inner }.into()),
            other => Err(unexpected(&other)),
        }
    }
}

impl MadeByCore for Topology {
    fn made_of(_: Python<'_>, answer: Answer) -> PyResult<PyClassInitializer<Self>> {
        match answer {
            Answer::Object(Object::Topology(inner)) => Ok(Topology { inner }.into()),
            other => Err(unexpected(&other)),
        }
    }
}

impl MadeByCore for DeviceMesh {
    fn made_of(_: Python<'_>, answer: Answer) -> PyResult<PyClassInitializer<Self>> {
        match answer {
            Answer::Object(Object::Mesh(inner)) => Ok(DeviceMesh { inner }.into()),
            other => Err(unexpected(&other)),
        }
    }
}

impl MadeByCore for Store {
    fn made_of(py: Python<'_>, answer: Answer) -> PyResult<PyClassInitializer<Self>> {
        match answer {
            Answer::Object(Object::Store(inner)) => Ok(Store::of(py, inner)?.into()),
            other => Err(unexpected(&other)),
        }
    }
}

macro_rules! derived {
    ($base:ident: $($class:ident),*) => {$(
        impl MadeByCore for $class {
            fn made_of(py: Python<'_>, answer: Answer) -> PyResult<PyClassInitializer<Self>> {
                Ok($base::made_of(py, answer)?.add_subclass($class))
            }
        }
    )*};
}

derived!(Store: HashStore, FileStore, PrefixStore, TCPStore, WebSocketStore);
derived!(
    ProcessGroup: ProcessGroupWrapper, ErrorSwallowingProcessGroupWrapper, ManagedProcessGroup,
    ProcessGroupDummy
);

pub(crate) fn unexpected(answer: &Answer) -> PyErr {
    PyTypeError::new_err(format!("core made {answer:?}, which is not an object of this class"))
}

impl Store {
    /// A store of core.
    pub(crate) fn of(py: Python<'_>, inner: StoreObject) -> PyResult<Store> {
        let (inner, underlying) = kept_apart(py, inner)?;
        Ok(Store { parts: OnceLock::from(StoreParts { inner, underlying }) })
    }

    /// What `__init__` is to make a store of.
    pub(crate) fn unmade() -> PyClassInitializer<Store> {
        Store { parts: OnceLock::new() }.into()
    }

    /// Refuses a second `__init__`: others may have the store that is there.
    pub(crate) fn unless_made(slf: &Bound<'_, Store>) -> PyResult<()> {
        if slf.get().parts.get().is_none() {
            return Ok(());
        }
        let message = format!("__init__() of this {} was called before", slf.get_type().name()?);
        Err(invalid(slf.py(), message))
    }

    /// Makes it the store that core made.
    pub(crate) fn make(slf: &Bound<'_, Store>, answer: Answer) -> PyResult<()> {
        let Answer::Object(Object::Store(inner)) = answer else { return Err(unexpected(&answer)) };
        let (inner, underlying) = kept_apart(slf.py(), inner)?;
        let made = slf.get().parts.set(StoreParts { inner, underlying });
        // Another thread was in `__init__` as well.
        made.or_else(|_| Store::unless_made(slf))
    }

    /// The store, for core, with what it needs of Python.
    pub(crate) fn get(slf: &Bound<'_, Store>) -> PyResult<StoreObject> {
        let Some(StoreParts { inner, underlying }) = slf.get().parts.get() else {
            let name = slf.get_type().name()?;
            let message = format!(
                "this {name} has no store: its class must call super().__init__() in __init__()"
            );
            return Err(invalid_type(slf.py(), message));
        };
        Ok(match underlying {
            Some(underlying) => keeping(slf.py(), inner, underlying),
            None => inner.clone(),
        })
    }
}

impl ProcessGroup {
    /// A group of core.
    pub(crate) fn new(inner: polyrank::ProcessGroup) -> ProcessGroup {
        ProcessGroup { inner, parts: AtomicUsize::new(0), is_alone: DecisionOfRun::default() }
    }
}

impl PreparedOperation {
    /// An operation that core prepared for `group`, with its operator.
    pub(crate) fn new(
        group: &Bound<'_, ProcessGroup>,
        inner: polyrank::PreparedOperation,
        tensors: Vec<(Tensor, Py<PyAny>)>,
        objects: TensorObjects,
        operator: Option<&Bound<'_, ReduceOp>>,
    ) -> PreparedOperation {
        let (group, operator) = (group.clone().unbind(), operator.map(|it| it.clone().unbind()));
        group.get().parts.fetch_add(1, Ordering::Relaxed);
        if let Some(parts) = operator.as_ref().and_then(|it| it.get().parts()) {
            parts.fetch_add(1, Ordering::Relaxed);
        }
        PreparedOperation { inner, tensors, objects, group, operator }
    }
}

impl Drop for PreparedOperation {
    fn drop(&mut self) {
        self.group.get().parts.fetch_sub(1, Ordering::Relaxed);
        if let Some(parts) = self.operator.as_ref().and_then(|it| it.get().parts()) {
            parts.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Work {
    /// A handle on `inner`.
    pub(crate) fn new(inner: polyrank::Work, objects: TensorObjects, timeout: Duration) -> Work {
        // What is in flight keeps its memory. This has the objects, where Python sees them.
        inner.release_outputs();
        Work { inner, objects, timeout }
    }

    /// Waits for the operation, as [`wait_on`] does. Of devices, the streams are ordered that are
    /// current now, which need not be those of the call.
    pub(crate) fn wait(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<()> {
        wait_on(py, &self.inner, timeout, &self.current_streams(py)?)
    }

    /// The streams that are current now in the libraries of tensors on devices.
    fn current_streams(&self, py: Python<'_>) -> PyResult<Vec<OnDevice>> {
        let mut indices: Vec<u32> = self.inner.devices().iter().map(|it| it.index).collect();
        if indices.is_empty() {
            return Ok(Vec::new());
        }
        indices.dedup();
        let outputs = self.objects.outputs.iter().map(|object| object.bind(py).get_type());
        let read = self.objects.read.iter().map(|class| class.bind(py).clone());
        current_streams(outputs.chain(read), &indices)
    }

    /// This handle as a Python object.
    pub(crate) fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, self)?.into_any())
    }

    /// The objects that hold the result.
    pub(crate) fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.objects.outputs)
    }
}

#[pymethods]
impl Work {
    /// c10d's name of `duration`, in milliseconds.
    fn _get_duration(&self) -> f64 {
        self.inner.duration().as_secs_f64() * 1e3
    }

    /// c10d's name of `sequence`.
    fn _get_sequence_number(&self) -> u64 {
        self.inner.sequence()
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        awaitable(slf.py(), &slf.get().inner, |py| {
            Ok(true.into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }

    fn __repr__(&self) -> String {
        self.inner.to_string()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.objects.visit(&visit)
    }
}

#[pymethods]
impl Store {
    fn __repr__(&self) -> String {
        match self.parts.get() {
            Some(parts) => parts.inner.to_string(),
            None => "Store(), before its __init__()".to_owned(),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.parts.get().map_or(Ok(()), |parts| visit.call(&parts.underlying))
    }
}

#[pymethods]
impl PreparedOperation {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for (tensor, object) in &self.tensors {
            visit_memory(tensor, &visit)?;
            visit.call(object)?;
        }
        visit.call(&self.group)?;
        visit.call(&self.operator)?;
        self.objects.visit(&visit)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.inner)
    }
}

#[pymethods]
impl P2POp {
    fn __repr__(&self) -> String {
        let P2POp { is_send, peer, group, tag, .. } = self;
        let name = if *is_send { "isend" } else { "irecv" };
        format!("P2POp({name}, peer {peer} of {}, tag {tag})", group.get().inner.group_name())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.op)?;
        visit.call(&self.tensor)?;
        visit.call(&self.group)
    }
}

#[pymethods]
impl ProcessGroup {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever else has the group can still cause calls of its hooks.
        let handles = 1 + self.parts.load(Ordering::Relaxed);
        if self.is_alone.get(|| self.inner.keeps_hooks_alone(handles)) {
            hooks::visit(self.inner.identity(), &visit)?;
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.inner)
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        slf.get().inner.unless_left().or_raise(slf.py())?;
        Ok(slf.clone())
    }

    /// Leaves the group, as `destroy_process_group` or `shutdown` does. What the block raised comes
    /// before what leaving raises.
    #[pyo3(signature = (kind, _error, _traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = slf.py();
        let left = if distributed::is_registered(&slf.get().inner) {
            let module = py.import(intern!(py, "polyrank._core"))?;
            module.call_method1(intern!(py, "destroy_process_group"), (slf,))
        } else {
            slf.call_method0(intern!(py, "shutdown"))
        };
        if kind.is_none() { left.map(drop) } else { Ok(()) }
    }
}

#[pymethods]
impl Window {
    fn __repr__(&self) -> String {
        format!("{:?}", self.inner)
    }
}

#[pymethods]
impl Topology {
    fn __repr__(&self) -> String {
        format!("{:?}", self.inner)
    }
}

#[pymethods]
impl LighthouseServer {
    fn __repr__(&self) -> String {
        format!("{:?}", self.inner)
    }
}

#[pymethods]
impl DeviceBackend {
    fn __repr__(&self) -> String {
        format!("{:?}", self.inner)
    }
}

#[pymethods]
impl NonGroupMember {
    fn __bool__(&self) -> bool {
        false
    }

    fn __repr__(&self) -> &'static str {
        "GroupMember.NON_GROUP_MEMBER"
    }
}
