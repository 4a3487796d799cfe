//! `P2POp`.

use polyrank::calls::Object;
use polyrank::calls::parameters::p2p_op::*;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::Answer;
use crate::classes::{P2POp, ProcessGroup};
use crate::convert::{Call, CoreResult, give, invalid, object};

/// One send or receive, for later.
pub(crate) fn new(py: Python<'_>, mut call: Call<'_>) -> PyResult<PyClassInitializer<P2POp>> {
    let function = call.object(new::OP).and_then(|op| op.getattr("__name__").ok());
    // The text itself: to ask Python for it anew would run handlers of signals, and lose what they
    // raise.
    let function = function.as_ref().and_then(|name| name.cast::<PyString>().ok());
    let is_send = match function.map(|name| name.to_str()).transpose()? {
        Some("isend") => true,
        Some("irecv") => false,
        _ => return Err(invalid(py, "Invalid ``op``. Expected ``op`` to be isend or irecv")),
    };
    let tensor = call.tensor_object(new::TENSOR)?.unbind();
    let known = call.group_at(new::GROUP)?;
    // The caller's own object.
    let group = match call.instance::<ProcessGroup>(new::GROUP)? {
        Some(group) => group,
        None => object(py, Object::Group(known))?.cast_into()?,
    };
    let tag: u32 = call.take(new::TAG)?;
    let peer = call.take_rank(&group.get().inner, new::PEER, new::GROUP_PEER)?;
    let peer =
        peer.ok_or_else(|| invalid(py, "P2POp: one of 'peer' and 'group_peer' must be given"))?;
    let op = call.object(new::OP).map_or_else(|| py.None(), |op| op.clone().unbind());
    let group = group.unbind();
    Ok(P2POp { op, is_send, tensor, peer, group, tag }.into())
}

/// The function.
pub(crate) fn op<'py>(operation: &Bound<'py, P2POp>) -> Answer<'py> {
    Ok(operation.get().op.bind(operation.py()).clone())
}

/// What is sent, or received into.
pub(crate) fn tensor<'py>(operation: &Bound<'py, P2POp>) -> Answer<'py> {
    Ok(operation.get().tensor.bind(operation.py()).clone())
}

/// The other rank, global.
pub(crate) fn peer<'py>(operation: &Bound<'py, P2POp>) -> Answer<'py> {
    let P2POp { group, peer, .. } = operation.get();
    let group = &group.get().inner;
    give(operation.py(), group.global_rank(*peer).or_raise(operation.py())?)
}

/// The process group.
pub(crate) fn group<'py>(operation: &Bound<'py, P2POp>) -> Answer<'py> {
    Ok(operation.get().group.bind(operation.py()).clone().into_any())
}

/// The tag.
pub(crate) fn tag<'py>(operation: &Bound<'py, P2POp>) -> Answer<'py> {
    give(operation.py(), operation.get().tag)
}

/// The other rank, in the group.
pub(crate) fn group_peer<'py>(operation: &Bound<'py, P2POp>) -> Answer<'py> {
    give(operation.py(), operation.get().peer)
}
