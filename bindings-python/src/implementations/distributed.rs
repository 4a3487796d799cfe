//! The free functions that only Python has in this form: the current group, and messages.

use polyrank::backend::{Direction, WaitIntent};
use polyrank::calls::Object;
use polyrank::calls::parameters::distributed::*;
use polyrank::process_group::MessageRequest;
use polyrank::{Error, ProcessGroup, distributed};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

pub(crate) use super::objects::*;
use super::point_to_point;
pub(crate) use super::rendezvous::*;
use crate::classes::{CurrentProcessGroup, P2POp, ProcessGroup as PyProcessGroup};
use crate::convert::{Call, detached, device_tensor, give, nothing, object, raise, releasing};
use crate::current;
use crate::waiting::wait;

type Answer<'py> = PyResult<Bound<'py, PyAny>>;

/// The group that parameter `index` was given, or the default group.
pub(super) fn group_of(py: Python<'_>, call: &Call<'_>, index: usize) -> PyResult<ProcessGroup> {
    if call.is_outside(index) {
        let message = "this process is not a member of it".to_owned();
        return Err(raise(py, &Error::InvalidGroup { message }));
    }
    let given = call.instance::<PyProcessGroup>(index)?;
    let given = given.as_ref().map(|group| &group.get().inner);
    distributed::group_or_default(given).map_err(|error| raise(py, &error))
}

/// The other rank of a message, in the group: parameter `global` is a global rank, `in_group` a
/// rank in the group, and at most one of them is given.
pub(super) fn peer_of(
    py: Python<'_>,
    call: &mut Call<'_>,
    group: &ProcessGroup,
    name: &str,
    global: usize,
    in_group: usize,
) -> PyResult<Option<u32>> {
    let (global, in_group): (Option<u32>, Option<u32>) = (call.take(global)?, call.take(in_group)?);
    match (global, in_group) {
        (Some(_), Some(_)) => {
            let message = format!("Can't specify both {name} and group_{name}");
            Err(raise(py, &Error::InvalidArgument { message }))
        }
        (Some(global), None) => {
            group.group_rank(global).map(Some).map_err(|error| raise(py, &error))
        }
        (None, in_group) => Ok(in_group),
    }
}

/// The group of the innermost `process_group` block, else the default group.
pub(crate) fn current_process_group<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
    match current::current(py)? {
        Some(group) => Ok(group),
        None => {
            let group = distributed::default_group().map_err(|error| raise(py, &error))?;
            object(py, Object::Group(group))
        }
    }
}

/// Makes a group the current one for a block.
pub(crate) fn process_group<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    match call.instance::<PyProcessGroup>(process_group::PG)? {
        Some(group) => Ok(Bound::new(py, CurrentProcessGroup::new(group.unbind()))?.into_any()),
        None => object(py, Object::Group(group_of(py, &call, process_group::PG)?)),
    }
}

/// Sends a tensor, and waits until it may be changed again.
pub(crate) fn send<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(send::GROUP)? {
        return nothing(py);
    }
    releasing(py, || {
        let work = start_send(py, call, WaitIntent::Soon)?;
        wait(py, &work.inner, None)
    })?;
    nothing(py)
}

/// Receives a tensor; the sender's global rank.
pub(crate) fn recv<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(recv::GROUP)? {
        return give(py, -1);
    }
    let group = group_of(py, &call, recv::GROUP)?;
    let sender = releasing(py, || {
        let work = start_recv(py, call, WaitIntent::Soon)?;
        wait(py, &work.inner, None)?;
        Ok::<_, PyErr>(work.inner.source_rank())
    })?;
    match sender {
        Some(sender) => give(py, group.global_rank(sender).map_err(|error| raise(py, &error))?),
        None => give(py, -1),
    }
}

/// Sends a tensor, without waiting.
pub(crate) fn isend<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(isend::GROUP)? {
        return nothing(py);
    }
    releasing(py, || start_send(py, call, WaitIntent::Later)?.into_object(py))
}

/// Receives a tensor, without waiting.
pub(crate) fn irecv<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(irecv::GROUP)? {
        return nothing(py);
    }
    releasing(py, || start_recv(py, call, WaitIntent::Later)?.into_object(py))
}

fn start_send<'py>(
    py: Python<'py>,
    mut call: Call<'py>,
    waiting: WaitIntent,
) -> PyResult<crate::classes::Work> {
    let group = group_of(py, &call, send::GROUP)?;
    let tag: u32 = call.take(send::TAG)?;
    let peer =
        peer_of(py, &mut call, &group, "dst", send::DST, send::GROUP_DST)?.ok_or_else(|| {
            let message = "send: one of 'dst' and 'group_dst' must be given".to_owned();
            raise(py, &Error::InvalidArgument { message })
        })?;
    point_to_point::send(py, &group, &call, (peer, tag), waiting)
}

fn start_recv<'py>(
    py: Python<'py>,
    mut call: Call<'py>,
    waiting: WaitIntent,
) -> PyResult<crate::classes::Work> {
    let group = group_of(py, &call, recv::GROUP)?;
    let tag: u32 = call.take(recv::TAG)?;
    let peer = peer_of(py, &mut call, &group, "src", recv::SRC, recv::GROUP_SRC)?;
    point_to_point::recv(py, &group, &call, (peer, tag), waiting)
}

/// Issues sends and receives together.
pub(crate) fn batch_isend_irecv<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    let operations = call.instances::<P2POp>(batch_isend_irecv::P2P_OP_LIST)?;
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

/// Issues messages of one group whose tensors are on devices: there they are one operation. `None`
/// for any others.
fn on_device<'py>(
    py: Python<'py>,
    operations: &[Bound<'py, P2POp>],
) -> PyResult<Option<Vec<crate::classes::Work>>> {
    let Some(first) = operations.first() else { return Ok(None) };
    let group = &first.get().group;
    let mut messages = Vec::with_capacity(operations.len());
    for operation in operations {
        let operation = operation.get();
        let tensor = device_tensor(operation.tensor.bind(py))?;
        let same_group = operation.group.identity() == group.identity();
        let Some(tensor) = tensor.filter(|_| same_group) else { return Ok(None) };
        let direction = if operation.is_send { Direction::Send } else { Direction::Receive };
        messages.push(MessageRequest {
            direction,
            tensor,
            peer: operation.peer,
            tag: operation.tag,
        });
    }
    let issued = detached(py, || group.issue_messages(messages, None, WaitIntent::Later))?;
    let works = issued.into_iter().zip(operations).map(|(work, operation)| {
        let operation = operation.get();
        let outputs = match operation.is_send {
            true => Vec::new(),
            false => vec![operation.tensor.clone_ref(py)],
        };
        let sent = operation.is_send.then(|| operation.tensor.bind(py).get_type().unbind());
        crate::classes::Work::new(work, outputs, group.timeout()).reading(sent)
    });
    Ok(Some(works.collect()))
}

fn issue<'py>(
    py: Python<'py>,
    operation: &P2POp,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let name = if operation.is_send { "send" } else { "recv" };
    let group = Bound::new(py, PyProcessGroup { inner: operation.group.clone() })?;
    group.call_method1(name, arguments)
}
