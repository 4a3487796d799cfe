//! `P2POp`.

use polyrank::Error;
use polyrank::calls::parameters::p2p_op::*;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::distributed::{group_of, peer_of};
use crate::classes::P2POp;
use crate::convert::{Call, raise};

/// One send or receive, for later.
pub(crate) fn new(py: Python<'_>, mut call: Call<'_>) -> PyResult<PyClassInitializer<P2POp>> {
    let function = call.object(new::OP).and_then(|op| op.getattr("__name__").ok());
    let function = function.and_then(|name| Some(name.cast::<PyString>().ok()?.to_string()));
    let is_send = match function.as_deref() {
        Some("isend") => true,
        Some("irecv") => false,
        _ => {
            let message = "Invalid ``op``. Expected ``op`` to be isend or irecv".to_owned();
            return Err(raise(py, &Error::InvalidArgument { message }));
        }
    };
    let tensor = call.tensor_object(new::TENSOR)?.unbind();
    let group = group_of(py, &call, new::GROUP)?;
    let tag: u32 = call.take(new::TAG)?;
    let peer =
        peer_of(py, &mut call, &group, "peer", new::PEER, new::GROUP_PEER)?.ok_or_else(|| {
            let message = "P2POp: one of 'peer' and 'group_peer' must be given".to_owned();
            raise(py, &Error::InvalidArgument { message })
        })?;
    Ok(P2POp { is_send, tensor, peer, group, tag }.into())
}
