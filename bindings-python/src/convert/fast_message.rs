//! Sends and receives of the usual shape: a contiguous NumPy array, ranks and tags that are
//! numbers. Those of few bytes run immediately, larger ones are issued as they are and waited for.
//! What they mean is what the resolver finds; whatever is unusual goes there.

use polyrank::backend::WaitIntent;
use polyrank::calls::{Method, Parameter, Role};
use polyrank::process_group::{Envelope, MessageRequest};
use polyrank::{ProcessGroup, Tensor, distributed};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple};

use super::array::Array;
use super::detached::detached;
use super::exception::CoreResult;
use super::fast_call::{readable, region, writable};
use super::lease::{release_all, releasing};
use crate::classes::ProcessGroup as PyProcessGroup;
use crate::waiting::wait;

/// The answer of `method`, a free function that waits for one message, if its call is of the usual
/// shape. None if nothing was done.
pub(crate) fn fast_message<'py>(
    py: Python<'py>,
    method: &'static Method,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Option<PyResult<Bound<'py, PyAny>>> {
    let [form] = method.overloads else { return None };
    let mut message = Message::default();
    if positional.len() > form.parameters.len() {
        return None;
    }
    for (parameter, item) in form.parameters.iter().zip(positional.iter_borrowed()) {
        message.take(parameter, item)?;
    }
    let mut kept = Vec::new();
    if let Some(keywords) = keywords {
        kept.extend(keywords.iter());
    }
    for (name, item) in &kept {
        let name = name.cast_exact::<PyString>().ok()?.to_str().ok()?;
        let place = form.parameters.iter().position(|known| known.name == name)?;
        if place < positional.len() {
            return None;
        }
        message.take(&form.parameters[place], item.as_borrowed())?;
    }
    let done = match &message.group {
        Some(group) => message.run(py, &group.cast_exact::<PyProcessGroup>().ok()?.get().inner),
        None => distributed::with_default_group(|it| message.run(py, it))?,
    };
    release_all(py);
    done
}

/// What a call says.
#[derive(Default)]
struct Message<'a, 'py> {
    /// The tensor, with its object, and whether it is received.
    array: Option<(Array, Borrowed<'a, 'py, PyAny>, bool)>,
    global_peer: Option<u32>,
    peer: Option<u32>,
    tag: u32,
    group: Option<Borrowed<'a, 'py, PyAny>>,
}

impl<'a, 'py> Message<'a, 'py> {
    /// Takes an argument; none if it is unusual.
    fn take(&mut self, parameter: &Parameter, item: Borrowed<'a, 'py, PyAny>) -> Option<()> {
        let number = || item.cast_exact::<PyInt>().ok()?.extract::<u32>().ok();
        match parameter.role {
            Role::In | Role::Out => {
                self.array = Some((Array::of(&item)?, item, parameter.role == Role::Out));
            }
            Role::GlobalPeer | Role::Peer | Role::Group if item.is_none() => {}
            Role::GlobalPeer => self.global_peer = Some(number()?),
            Role::Peer => self.peer = Some(number()?),
            Role::Group => self.group = Some(item),
            Role::Tag => self.tag = number()?,
            _ => return None,
        }
        Some(())
    }

    fn run(&self, py: Python<'py>, group: &ProcessGroup) -> Option<PyResult<Bound<'py, PyAny>>> {
        if group.is_observed() {
            return None;
        }
        let (array, object, receives) = self.array?;
        let peer = match (self.global_peer, self.peer) {
            (Some(_), Some(_)) => return None,
            (Some(global), None) => Some(group.group_rank(global).ok()?),
            (None, peer) => peer,
        };
        let envelope = Envelope { peer, tag: self.tag, dtype: array.dtype };
        if receives {
            let sender = match group.receive_short(writable(&array)?, envelope) {
                Some(sender) => Ok(Some(sender)),
                None => receive(py, group, tensor(&array, &object), envelope),
            };
            return Some(sender.and_then(|sender| sender_answer(py, group, sender)));
        }
        let peer = peer?;
        let sent = match group.send_short(readable(&array), envelope) {
            true => Ok(()),
            false => send(py, group, tensor(&array, &object), (peer, self.tag)),
        };
        Some(sent.map(|()| py.None().into_bound(py)))
    }
}

/// Sends a tensor, and waits until its memory may be changed.
fn send(
    py: Python<'_>,
    group: &ProcessGroup,
    tensor: Tensor,
    (peer, tag): (u32, u32),
) -> PyResult<()> {
    let message = MessageRequest::send(tensor, peer, tag);
    releasing(py, || {
        let work = detached(py, || group.issue_message(message, None, WaitIntent::Soon))?;
        wait(py, &work, None)
    })
}

/// Receives a tensor; its sender, a rank of the group.
fn receive(
    py: Python<'_>,
    group: &ProcessGroup,
    tensor: Tensor,
    Envelope { peer, tag, .. }: Envelope,
) -> PyResult<Option<u32>> {
    let message = MessageRequest::receive(tensor, peer, tag);
    releasing(py, || {
        let work = detached(py, || group.issue_message(message, None, WaitIntent::Soon))?;
        wait(py, &work, None)?;
        Ok(work.source_rank())
    })
}

/// The answer of a receive: the global rank of the sender, -1 if there is none.
pub(crate) fn sender_answer<'py>(
    py: Python<'py>,
    group: &ProcessGroup,
    sender: Option<u32>,
) -> PyResult<Bound<'py, PyAny>> {
    let sender = sender.map_or(Ok(-1), |it| group.global_rank(it).or_raise(py).map(i64::from))?;
    Ok(sender.into_pyobject(py)?.into_any())
}

/// The tensor of `array`, which `object` is. What travels has no shape.
fn tensor(array: &Array, object: &Borrowed<'_, '_, PyAny>) -> Tensor {
    let elements = array.bytes / array.dtype.size_bytes();
    Tensor::contiguous(region(array, object), array.dtype, vec![elements])
}
