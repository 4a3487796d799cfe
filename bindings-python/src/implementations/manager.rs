//! `Manager`: operations, which return a handle, and what takes functions.

use polyrank::calls::parameters::manager::*;
use pyo3::prelude::*;

pub(crate) use self::{reduce as allreduce, reduce as allreduce_coalesced};
use super::Answer;
use crate::classes::{Manager, Work};
use crate::convert::{Call, CoreResult, detached, nothing};

/// Has two functions give and take a part of the state.
pub(crate) fn register_state_dict_fn<'py>(
    manager: &Bound<'py, Manager>,
    mut call: Call<'py>,
) -> Answer<'py> {
    use register_state_dict_fn::{KEY, LOAD_STATE_DICT, STATE_DICT};
    let py = manager.py();
    let key: String = call.take(KEY)?;
    let function = |position| call.object(position).cloned().map(Bound::unbind);
    // The resolver refuses what is not a function.
    if let (Some(save), Some(load)) = (function(STATE_DICT), function(LOAD_STATE_DICT)) {
        manager.get().register(py, &key, (save, load))?;
    }
    nothing(py)
}

/// Reduces tensors over the replicas.
pub(crate) fn reduce<'py>(manager: &Bound<'py, Manager>, call: Call<'py>) -> Answer<'py> {
    let (py, inner) = (manager.py(), manager.get().get()?);
    let (resolved, objects) = call.into_operation();
    let timeout = inner.get().or_raise(py)?.group().timeout();
    let work = detached(py, || resolved.issue_on_manager(inner))?;
    Work::new(work, objects, timeout).into_object(py)
}
