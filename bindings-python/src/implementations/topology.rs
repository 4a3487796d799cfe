//! `Topology`: exchanges between neighbours, which return a handle.

use polyrank::backend::WaitIntent;
use pyo3::prelude::*;

pub(crate) use self::{
    issue as neighbor_allgather, issue as neighbor_allgather_single, issue as neighbor_alltoall,
    issue as neighbor_alltoall_single,
};
use super::Answer;
use crate::classes::{Topology, Work};
use crate::convert::{Call, detached};
use crate::hooks::with_objects;

/// Issues the call.
pub(crate) fn issue<'py>(topology: &Bound<'py, Topology>, call: Call<'py>) -> Answer<'py> {
    let (py, inner) = (topology.py(), &topology.get().inner);
    let for_hooks = call.objects_for_hooks(inner.group());
    let (resolved, objects) = call.into_operation();
    let issue = || detached(py, || resolved.issue_on_topology(inner, WaitIntent::Later));
    Work::new(with_objects(for_hooks, issue)?, objects, inner.group().timeout()).into_object(py)
}
