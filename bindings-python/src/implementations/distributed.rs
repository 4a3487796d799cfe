//! The free functions that only Python has in this form: the current group, and messages.

use polyrank::backend::{Direction, WaitIntent};
use polyrank::calls::Object;
use polyrank::calls::parameters::distributed::*;
use polyrank::process_group::MessageRequest;
use polyrank::{Error, distributed};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

pub(crate) use self::{message as irecv, message as isend, sendrecv as ppermute};
use super::Answer;
pub(crate) use super::device_mesh::{current_device_mesh, init_device_mesh};
pub(crate) use super::objects::*;
use super::point_to_point;
pub(crate) use super::rendezvous::*;
use crate::classes::{
    CommNameBlock, CurrentProcessGroup, P2POp, ProcessGroup as PyProcessGroup, TensorObjects, Work,
};
use crate::convert::{
    Call, CoreResult, detached, device_tensor, give, invalid_type, nothing, object, releasing,
    sender_answer,
};
use crate::current;
use crate::custom_backend;
use crate::hooks::{CallObjects, NanCheck, with_objects};
use crate::waiting::wait;

/// The group of the innermost `process_group` block, else the default group.
pub(crate) fn current_process_group<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
    match current::current(py)? {
        Some(group) => {
            let inner = &group.cast::<PyProcessGroup>()?.get().inner;
            inner.unless_left().or_raise(py)?;
            Ok(group)
        }
        None => {
            let group = distributed::default_group().or_raise(py)?;
            object(py, Object::Group(group))
        }
    }
}

/// How much is compared.
pub(crate) fn get_debug_level<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
    let level = distributed::get_debug_level().or_raise(py)?;
    py.import("polyrank")?.getattr("DebugLevel")?.call1((level as u32,))
}

/// Makes a group the current one for a block.
pub(crate) fn process_group<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    match call.instance::<PyProcessGroup>(process_group::PG)? {
        Some(group) => Ok(Bound::new(py, CurrentProcessGroup::new(group.unbind()))?.into_any()),
        None => object(py, Object::Group(call.group_at(process_group::PG)?)),
    }
}

/// Gives the operations of a block a name.
pub(crate) fn record_comm<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let name: String = call.take(record_comm::NAME)?;
    Ok(Bound::new(py, CommNameBlock::new(&PyString::new(py, &name)))?.into_any())
}

/// Holds one rank in pdb, while the others wait.
pub(crate) fn breakpoint<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(breakpoint::GROUP)? {
        return nothing(py);
    }
    let (rank, skip): (u32, u32) = (call.take(breakpoint::RANK)?, call.take(breakpoint::SKIP)?);
    let limit = call.take(breakpoint::TIMEOUT_S)?;
    let group = call.group_at(breakpoint::GROUP)?;
    let module = py.import("polyrank._breakpoint")?;
    let caller = module.call_method1("caller", (skip,))?;
    if caller.is_none() {
        return nothing(py);
    }
    let breakpoint = distributed::Breakpoint::new(Some(group), rank, limit).or_raise(py)?;
    let held = match breakpoint.is_held() {
        true => Some(module.call_method1("hold", (rank, caller))?),
        false => None,
    };
    // The others wait, whether or not this rank could be held.
    detached(py, || breakpoint.pass_here())?;
    match held {
        Some(held) if held.is_instance_of::<PyString>() => {
            let (who, operation) = (held.extract()?, "breakpoint".to_owned());
            Err::<(), _>(Error::Unsupported { who, operation }).or_raise(py)?;
        }
        Some(go_on) => drop(go_on.call0()?),
        None => {}
    }
    nothing(py)
}

/// Registers a backend that is written in Python.
pub(crate) fn register_backend<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let name: String = call.take(register_backend::NAME)?;
    let extended_api: bool = call.take(register_backend::EXTENDED_API)?;
    let devices = call.object(register_backend::DEVICES).map(device_names);
    let devices = devices.transpose()?.unwrap_or_default();
    if let Some(func) = call.object(register_backend::FUNC) {
        custom_backend::register_backend(py, &name, func.clone().unbind(), extended_api, &devices)?;
        let backend = py.import("polyrank._enums")?.getattr("Backend")?;
        backend.call_method1("_add", (name,))?;
    }
    nothing(py)
}

/// The names of kinds of devices, of which one may be given alone.
fn device_names(given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(name) = given.extract::<String>() {
        return Ok(vec![name]);
    }
    let Ok(devices) = given.try_iter() else {
        let came = given.get_type().name()?;
        let message =
            format!("register_backend() takes a str or a list of str as devices, not {came}");
        return Err(invalid_type(given.py(), message));
    };
    devices.map(|device| Ok(device?.str()?.to_string())).collect()
}

/// A pre-hook that raises where an input is not finite.
pub(crate) fn nan_check<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let allow_infinity = call.take(nan_check::ALLOW_INFINITY)?;
    Ok(Bound::new(py, NanCheck { allow_infinity })?.into_any())
}

/// Sends a tensor, and waits until it may be changed again.
pub(crate) fn send<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_operation_left_out()? {
        return nothing(py);
    }
    let group = call.group()?;
    releasing(py, || {
        let work = point_to_point::issue(py, &group, call, WaitIntent::Soon)?;
        wait(py, &work.inner, None)
    })?;
    nothing(py)
}

/// Receives a tensor; the sender's global rank.
pub(crate) fn recv<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_operation_left_out()? {
        return give(py, -1);
    }
    let group = call.group()?;
    let sender = releasing(py, || {
        let work = point_to_point::issue(py, &group, call, WaitIntent::Soon)?;
        wait(py, &work.inner, None)?;
        Ok::<_, PyErr>(work.inner.source_rank())
    })?;
    sender_answer(py, &group, sender)
}

/// Sends a tensor and receives one; waits unless a handle is wanted.
pub(crate) fn sendrecv<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_operation_left_out()? {
        return nothing(py);
    }
    let group = call.group()?;
    if call.async_op() {
        return point_to_point::issue(py, &group, call, WaitIntent::Later)?.into_object(py);
    }
    releasing(py, || {
        let work = point_to_point::issue(py, &group, call, WaitIntent::Soon)?;
        wait(py, &work.inner, None)
    })?;
    nothing(py)
}

/// Sends or receives a tensor, without waiting.
pub(crate) fn message<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_operation_left_out()? {
        return nothing(py);
    }
    let group = call.group()?;
    releasing(py, || point_to_point::issue(py, &group, call, WaitIntent::Later)?.into_object(py))
}

/// Issues sends and receives together.
pub(crate) fn batch_isend_irecv<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    let operations = call.instances::<P2POp>(batch_isend_irecv::P2P_OP_LIST)?;
    let groups = operations.iter().map(|operation| &operation.get().group.get().inner);
    distributed::check_one_group(groups).or_raise(py)?;
    if let Some(works) = on_device(py, &operations)? {
        return Ok(PyList::new(py, works)?.into_any());
    }
    let works = PyList::empty(py);
    for operation in operations {
        let operation = operation.get();
        let tensors = PyList::new(py, [operation.tensor.bind(py)])?;
        let (peer, tag) = (operation.peer, operation.tag);
        let arguments = (tensors, peer, tag).into_pyobject(py)?;
        let work = issue(py, operation, &arguments)?;
        works.append(work)?;
    }
    Ok(works.into_any())
}

/// Issues messages whose tensors are on devices: there they are one operation. `None` for any
/// others.
fn on_device<'py>(
    py: Python<'py>,
    operations: &[Bound<'py, P2POp>],
) -> PyResult<Option<Vec<Work>>> {
    let Some(first) = operations.first() else { return Ok(None) };
    let group = &first.get().group.get().inner;
    let mut messages = Vec::with_capacity(operations.len());
    for operation in operations {
        let operation = operation.get();
        let Some(tensor) = device_tensor(operation.tensor.bind(py))? else { return Ok(None) };
        let direction = if operation.is_send { Direction::Send } else { Direction::Receive };
        messages.push(MessageRequest {
            direction,
            tensor,
            peer: Some(operation.peer),
            tag: operation.tag,
        });
    }
    let for_hooks = group.is_observed().then(|| CallObjects {
        tensors: messages
            .iter()
            .zip(operations)
            .map(|(it, operation)| (it.tensor.clone(), operation.get().tensor.clone_ref(py)))
            .collect(),
        timeout: group.timeout(),
        ..CallObjects::default()
    });
    let issued = with_objects(for_hooks, || {
        detached(py, || group.issue_messages(messages, None, WaitIntent::Later))
    })?;
    let works = issued.into_iter().zip(operations).map(|(work, operation)| {
        let operation = operation.get();
        let objects = match operation.is_send {
            true => TensorObjects {
                outputs: Vec::new(),
                read: Some(operation.tensor.bind(py).get_type().unbind()),
            },
            false => TensorObjects { outputs: vec![operation.tensor.clone_ref(py)], read: None },
        };
        Work::new(work, objects, group.timeout())
    });
    Ok(Some(works.collect()))
}

fn issue<'py>(py: Python<'py>, operation: &P2POp, arguments: &Bound<'py, PyTuple>) -> Answer<'py> {
    let name = if operation.is_send { "send" } else { "recv" };
    let group = operation.group.bind(py);
    group.call_method1(name, arguments)
}
