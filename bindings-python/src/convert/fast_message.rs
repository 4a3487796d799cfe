//! Sends and receives of the usual shape, run immediately: a contiguous NumPy array of few
//! bytes, ranks and tags that are numbers. What they mean is what the resolver finds; whatever is
//! unusual goes there.

use polyrank::calls::{Method, Parameter, Role};
use polyrank::process_group::Envelope;
use polyrank::{ProcessGroup, distributed};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple};

use super::array::Array;
use super::fast_call::{readable, writable};
use super::lease::releasing;
use crate::classes::ProcessGroup as PyProcessGroup;

/// The answer of `method`, a free function that waits for one message, if it could be run
/// immediately. None if nothing was done.
pub(crate) fn message_at_once<'py>(
    py: Python<'py>,
    method: &'static Method,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Option<Bound<'py, PyAny>> {
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
    releasing(py, || match &message.group {
        Some(group) => message.run(py, &group.cast_exact::<PyProcessGroup>().ok()?.get().inner),
        None => message.run(py, &distributed::default_group().ok()?),
    })
}

/// What a call says.
#[derive(Default)]
struct Message<'a, 'py> {
    /// The tensor, and whether it is received.
    array: Option<(Array, bool)>,
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
                self.array = Some((Array::of(&item)?, parameter.role == Role::Out));
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

    fn run(&self, py: Python<'py>, group: &ProcessGroup) -> Option<Bound<'py, PyAny>> {
        let (array, receives) = self.array?;
        let peer = match (self.global_peer, self.peer) {
            (Some(_), Some(_)) => return None,
            (Some(global), None) => Some(group.group_rank(global).ok()?),
            (None, peer) => peer,
        };
        let envelope = Envelope { peer, tag: self.tag, dtype: array.dtype };
        if receives {
            let sender = group.receive_short(writable(&array)?, envelope)?;
            let sender = group.global_rank(sender).ok()?;
            return sender.into_pyobject(py).ok().map(Bound::into_any);
        }
        group.send_short(readable(&array), envelope).then(|| py.None().into_bound(py))
    }
}
