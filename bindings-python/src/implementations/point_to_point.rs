//! Sends and receives, for the methods of groups and for the free functions.

use polyrank::ProcessGroup;
use polyrank::backend::WaitIntent;
use pyo3::prelude::*;

use crate::classes::Work;
use crate::convert::{Call, detached};

/// Issues the message that a call is, in `group`; the caller then waits as it says.
pub(super) fn issue(
    py: Python<'_>,
    group: &ProcessGroup,
    call: Call<'_>,
    waiting: WaitIntent,
) -> PyResult<Work> {
    let (resolved, objects) = call.into_operation();
    let work = detached(py, || resolved.issue_message(group, waiting))?;
    Ok(Work::new(work, objects, group.timeout()))
}
