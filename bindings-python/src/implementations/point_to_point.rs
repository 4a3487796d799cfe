//! Sends and receives, for the methods of groups and for the free functions.

use polyrank::ProcessGroup;
use polyrank::backend::WaitIntent;
use pyo3::prelude::*;

use crate::classes::Work;
use crate::convert::{Call, detached};
use crate::hooks::with_objects;

/// Issues the message that a call is, in `group`; the caller then waits as it says.
pub(super) fn issue(
    py: Python<'_>,
    group: &ProcessGroup,
    call: Call<'_>,
    waiting: WaitIntent,
) -> PyResult<Work> {
    let for_hooks = call.objects_for_hooks(group);
    let (resolved, objects) = call.into_operation();
    let work = with_objects(for_hooks, || detached(py, || resolved.issue_message(group, waiting)))?;
    Ok(Work::new(work, objects, group.timeout()))
}
