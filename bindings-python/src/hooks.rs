//! Functions of Python as the hooks of a group. Knows no operations.
//!
//! Core calls a hook on the thread that issues an operation, with core's tensors. The objects that
//! the user passed for them are on that thread, for as long as the call lasts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polyrank::process_group::check_input;
use polyrank::{
    CompletionHookArgs, DType, Device, Error, PostHookArgs, PreHookArgs, Tensor, TensorRef,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyo3::{PyTraverseError, PyVisit};

use crate::classes::{TensorObjects, Work};
use crate::convert::{CoreResult, exception, invalid_type, object_of_value, tensor};
use crate::ending::attach;
use crate::generated::callback_arguments as given;

/// The objects of a call, for the hooks of its operation.
#[derive(Default)]
pub(crate) struct CallObjects {
    /// The tensors, and what the user passed for them.
    pub(crate) tensors: Vec<(Tensor, Py<PyAny>)>,
    /// Those that hold the result.
    pub(crate) outputs: TensorObjects,
    /// The limit of the operation.
    pub(crate) timeout: Duration,
}

thread_local! {
    /// The objects of the call that this thread makes.
    static CALL: RefCell<Option<CallObjects>> = const { RefCell::new(None) };
    /// What a hook raised that stopped the operation which this thread was to issue.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The functions that are hooks. They stand here, where Python's collector finds those of a group.
static FUNCTIONS: Mutex<Functions> = Mutex::new(BTreeMap::new());

/// By the identity of the group, and numbers.
type Functions = BTreeMap<(u64, u64), Py<PyAny>>;

/// A function that is a hook of a group, as long as this is there.
pub(crate) struct HookFunction {
    key: (u64, u64),
}

impl HookFunction {
    /// `function` as a hook of the group of this identity.
    pub(crate) fn new(group: u64, function: &Bound<'_, PyAny>) -> HookFunction {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let key = (group, LAST.fetch_add(1, Ordering::Relaxed));
        functions().insert(key, function.clone().unbind());
        HookFunction { key }
    }

    fn get<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        let functions = functions();
        let function = functions.get(&self.key).map(|function| function.bind(py).clone());
        function.unwrap_or_else(|| py.None().into_bound(py))
    }
}

impl Drop for HookFunction {
    fn drop(&mut self) {
        let function = functions().remove(&self.key);
        // Without the lock: that may run any code.
        drop(function);
    }
}

/// Nobody runs code of Python while holding them.
fn functions() -> MutexGuard<'static, Functions> {
    FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows Python's collector the hooks of the group of this identity.
pub(crate) fn visit(group: u64, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    let functions = functions();
    let mut hooks = functions.range((group, 0)..=(group, u64::MAX));
    hooks.try_for_each(|(_, function)| visit.call(function))
}

/// Calls `issue` where hooks find the objects of the call, if there are hooks for which to keep
/// them.
pub(crate) fn with_objects<R>(objects: Option<CallObjects>, issue: impl FnOnce() -> R) -> R {
    let Some(objects) = objects else { return issue() };
    let outer = CALL.replace(Some(objects));
    let result = issue();
    // Objects are dropped when they are borrowed no more: that may run any code.
    let inner = CALL.replace(outer);
    Python::attach(|_| drop(inner));
    result
}

/// The limit of the operation that this thread issues.
pub(crate) fn note_timeout(timeout: Duration) {
    CALL.with_borrow_mut(|call| {
        if let Some(call) = call {
            call.timeout = timeout;
        }
    });
}

/// The exception of a hook, if that is what `error` stands for.
pub(crate) fn raised(error: &Error) -> Option<PyErr> {
    if matches!(error, Error::HookFailed { .. }) { RAISED.take() } else { None }
}

/// What calls `hook` before an operation.
pub(crate) fn pre_hook(
    hook: HookFunction,
) -> impl Fn(&PreHookArgs<'_>) -> polyrank::Result<()> + Send + Sync + 'static {
    move |operation| {
        let mut result = Ok(());
        attach(|py| {
            let called = arguments_before(py, operation)
                .and_then(|arguments| hook.get(py).call1((arguments,)))
                .and_then(|returned| refuse_awaitable(&returned));
            if let Err(error) = called {
                result = Err(Error::HookFailed { message: error.to_string() });
                RAISED.set(Some(error));
            }
        });
        result
    }
}

/// What calls `hook` after an operation was issued.
pub(crate) fn post_hook(hook: HookFunction) -> impl Fn(&PostHookArgs) + Send + Sync + 'static {
    move |operation| {
        attach(|py| {
            let (objects, timeout) = CALL.with_borrow(|call| match call {
                Some(call) => (call.outputs.clone_ref(py), call.timeout),
                None => (TensorObjects::default(), Duration::ZERO),
            });
            let work = Work::new(operation.work.clone(), objects, timeout);
            let arguments = work.into_object(py).and_then(|work| {
                let arguments = given::PostHookArgs {
                    name: text(py, operation.name)?,
                    op_id: number(py, operation.op_id)?,
                    work: work.unbind(),
                    comm_name: comm_name(py, operation.comm_name.as_deref())?,
                };
                Bound::new(py, arguments)
            });
            let hook = hook.get(py);
            report(&hook, arguments.and_then(|arguments| hook.call1((arguments,))));
        });
    }
}

/// What calls `hook` when an operation has ended.
pub(crate) fn completion_hook(
    hook: HookFunction,
) -> impl Fn(&CompletionHookArgs) + Send + Sync + 'static {
    move |operation| {
        attach(|py| {
            let arguments = || {
                let error = match &operation.error {
                    Some(error) => exception(py, error)?.unbind(),
                    None => py.None(),
                };
                let arguments = given::CompletionHookArgs {
                    name: text(py, operation.name)?,
                    op_id: number(py, operation.op_id)?,
                    duration: operation.duration.into_pyobject(py)?.into_any().unbind(),
                    error,
                    comm_name: comm_name(py, operation.comm_name.as_deref())?,
                };
                Bound::new(py, arguments)
            };
            let hook = hook.get(py);
            report(&hook, arguments().and_then(|arguments| hook.call1((arguments,))));
        });
    }
}

/// What calls `hook` when the group fails.
pub(crate) fn abort_hook(hook: HookFunction) -> impl Fn() + Send + Sync + 'static {
    move || {
        attach(|py| {
            let hook = hook.get(py);
            report(&hook, hook.call0());
        });
    }
}

/// A hook that raises what core's search for NaN and infinity finds.
#[pyclass(frozen, module = "polyrank")]
pub(crate) struct NanCheck {
    pub(crate) allow_infinity: bool,
}

#[pymethods]
impl NanCheck {
    /// Looks at the operation that is about to be issued.
    fn __call__(&self, py: Python<'_>, args: &Bound<'_, given::PreHookArgs>) -> PyResult<()> {
        let given::PreHookArgs { name, rank, input_tensors, .. } = args.get();
        let name: String = name.extract(py)?;
        let rank: u32 = rank.extract(py)?;
        let inputs: Vec<Bound<'_, PyAny>> = input_tensors.extract(py)?;
        for (position, input) in inputs.iter().enumerate() {
            let Some(tensor) = tensor(input)? else { continue };
            let input = TensorRef::of(&tensor);
            check_input(&name, rank, position, input, self.allow_infinity).or_raise(py)?;
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        let allowed = if self.allow_infinity { "allow_infinity=True" } else { "" };
        format!("nan_check({allowed})")
    }
}

/// Refuses what a hook that is a coroutine returns: nobody would await it.
fn refuse_awaitable(returned: &Bound<'_, PyAny>) -> PyResult<()> {
    if !returned.hasattr("__await__")? {
        return Ok(());
    }
    if returned.hasattr("close")? {
        returned.call_method0("close")?;
    }
    let message = "a pre-hook is called before its operation, which does not wait for a coroutine";
    Err(invalid_type(returned.py(), message))
}

fn arguments_before<'py>(
    py: Python<'py>,
    operation: &PreHookArgs<'_>,
) -> PyResult<Bound<'py, given::PreHookArgs>> {
    let reduce_op = match operation.reduce_op {
        Some(reduce_op) => {
            object_of_value(py, &polyrank::calls::Value::ReduceOp(reduce_op))?.unbind()
        }
        None => py.None(),
    };
    let arguments = given::PreHookArgs {
        name: text(py, operation.name)?,
        rank: number(py, operation.rank.into())?,
        async_op: operation.async_op.into_pyobject(py)?.to_owned().into_any().unbind(),
        input_tensors: objects_of(py, &operation.input_tensors)?,
        output_tensors: objects_of(py, &operation.output_tensors)?,
        root: operation.root.into_pyobject(py)?.into_any().unbind(),
        reduce_op,
        op_id: number(py, operation.op_id)?,
        comm_name: comm_name(py, operation.comm_name.as_deref())?,
    };
    Bound::new(py, arguments)
}

/// What the user passed for these tensors.
fn objects_of(py: Python<'_>, tensors: &[TensorRef<'_>]) -> PyResult<Py<PyAny>> {
    let objects = tensors.iter().map(|tensor| object_of(py, *tensor));
    let objects = objects.collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, objects)?.into_any().unbind())
}

fn object_of(py: Python<'_>, tensor: TensorRef<'_>) -> PyResult<Py<PyAny>> {
    let known = CALL.with_borrow(|call| {
        let mut tensors = call.iter().flat_map(|call| &call.tensors);
        let found = tensors.find(|(known, _)| tensor.is_same(known));
        found.map(|(_, object)| object.clone_ref(py))
    });
    match known {
        Some(object) => Ok(object),
        None => copy_of(py, tensor),
    }
}

/// A copy of a tensor that has no object; nothing for one on a device.
fn copy_of(py: Python<'_>, tensor: TensorRef<'_>) -> PyResult<Py<PyAny>> {
    if tensor.device() != Device::Cpu {
        return Ok(py.None());
    }
    let bytes = tensor.read(|bytes| PyBytes::new(py, bytes).unbind()).or_raise(py)?;
    let view = py.import("builtins")?.getattr("memoryview")?.call1((bytes,))?;
    let format = match tensor.dtype() {
        DType::Bool => "?",
        DType::I8 => "b",
        DType::U16 => "H",
        DType::I16 => "h",
        DType::U32 => "I",
        DType::I32 => "i",
        DType::U64 => "Q",
        DType::I64 => "q",
        DType::F32 => "f",
        DType::F64 => "d",
        _ => return Ok(view.unbind()),
    };
    Ok(view.call_method1("cast", (format,))?.unbind())
}

/// Reports what a hook raised that changes nothing.
fn report(hook: &Bound<'_, PyAny>, called: PyResult<Bound<'_, PyAny>>) {
    if let Err(error) = called {
        error.write_unraisable(hook.py(), Some(hook));
    }
}

fn comm_name(py: Python<'_>, name: Option<&str>) -> PyResult<Py<PyAny>> {
    name.map_or_else(|| Ok(py.None()), |name| text(py, name))
}

fn text(py: Python<'_>, text: &str) -> PyResult<Py<PyAny>> {
    Ok(text.into_pyobject(py)?.into_any().unbind())
}

fn number(py: Python<'_>, number: u64) -> PyResult<Py<PyAny>> {
    Ok(number.into_pyobject(py)?.into_any().unbind())
}
