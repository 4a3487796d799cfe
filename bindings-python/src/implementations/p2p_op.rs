//! `P2POp`.

use polyrank::calls::parameters::p2p_op::*;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::classes::P2POp;
use crate::convert::{Call, invalid};

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
    let group = call.group_at(new::GROUP)?;
    let tag: u32 = call.take(new::TAG)?;
    let peer = call.take_rank(&group, new::PEER, new::GROUP_PEER)?;
    let peer =
        peer.ok_or_else(|| invalid(py, "P2POp: one of 'peer' and 'group_peer' must be given"))?;
    Ok(P2POp { is_send, tensor, peer, group, tag }.into())
}
