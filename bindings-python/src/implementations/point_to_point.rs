//! Sends and receives, for the methods of groups and for the free functions. The tensor is the
//! call's parameter 0.

use polyrank::ProcessGroup;
use polyrank::backend::WaitIntent;
use pyo3::prelude::*;

use crate::classes::Work;
use crate::convert::{Call, detached};

/// Sends to `peer`, a rank in the group; the caller then waits as it says.
pub(super) fn send(
    py: Python<'_>,
    group: &ProcessGroup,
    call: &Call<'_>,
    (peer, tag): (u32, u32),
    waiting: WaitIntent,
) -> PyResult<Work> {
    let tensor = call.tensor(0)?;
    let sent = call.type_on_device(&tensor);
    let work = detached(py, || group.issue_send(tensor, peer, tag, None, waiting))?;
    Ok(Work::new(work, Vec::new(), group.timeout()).reading(sent))
}

/// Receives from `peer`, a rank in the group; from whoever sends first if there is none. The caller
/// then waits as it says.
pub(super) fn recv(
    py: Python<'_>,
    group: &ProcessGroup,
    call: &Call<'_>,
    (peer, tag): (Option<u32>, u32),
    waiting: WaitIntent,
) -> PyResult<Work> {
    let tensor = call.tensor(0)?;
    let work = detached(py, || group.issue_recv(tensor, peer, tag, None, waiting))?;
    Ok(Work::new(work, call.outputs(), group.timeout()))
}
