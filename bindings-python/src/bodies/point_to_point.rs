//! Sends and receives, for the methods of groups and for the free functions. The tensor is the
//! call's parameter 0.

use polyrank::ProcessGroup;
use pyo3::prelude::*;

use crate::classes::Work;
use crate::convert::{Call, detached};

/// Sends to `peer`, a rank in the group.
pub(super) fn send(
    py: Python<'_>,
    group: &ProcessGroup,
    call: &Call<'_>,
    peer: u32,
    tag: u32,
) -> PyResult<Work> {
    let tensor = call.tensor(0)?;
    let work = detached(py, || group.send_async(tensor, peer, tag))?;
    Ok(Work::new(work, Vec::new(), group.timeout()))
}

/// Receives from `peer`, a rank in the group; from whoever sends first if there is none.
pub(super) fn recv(
    py: Python<'_>,
    group: &ProcessGroup,
    call: &Call<'_>,
    peer: Option<u32>,
    tag: u32,
) -> PyResult<Work> {
    let tensor = call.tensor(0)?;
    let work = detached(py, || group.recv_async(tensor, peer, tag))?;
    Ok(Work::new(work, call.outputs(), group.timeout()))
}
