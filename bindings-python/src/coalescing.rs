//! Batches of collectives: what free functions issue for a group, on a thread, between the
//! beginning and the end of a batch is waited for at its end. Knows no operations.

use std::cell::RefCell;

use polyrank::distributed;
use pyo3::prelude::*;

use crate::classes::{ProcessGroup, Work};
use crate::convert::{CoreResult, invalid};

struct Batch {
    /// The identity of its group.
    group: u64,
    works: Vec<Py<Work>>,
}

thread_local! {
    /// The batches that this thread has begun, the innermost last.
    static BATCHES: RefCell<Vec<Batch>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread has begun a batch.
pub(crate) fn is_open() -> bool {
    BATCHES.with_borrow(|batches| !batches.is_empty())
}

/// Whether `group` has a batch on this thread.
pub(crate) fn is_open_for(group: &polyrank::ProcessGroup) -> bool {
    let identity = group.identity();
    BATCHES.with_borrow(|batches| batches.iter().any(|batch| batch.group == identity))
}

/// Adds an operation of `group` to its batch, if it has one on this thread.
pub(crate) fn add(group: &polyrank::ProcessGroup, work: &Bound<'_, Work>) {
    let identity = group.identity();
    BATCHES.with_borrow_mut(|batches| {
        if let Some(batch) = batches.iter_mut().find(|batch| batch.group == identity) {
            batch.works.push(work.clone().unbind());
        }
    });
}

/// Begins a batch of `group`, or of the default group.
#[pyfunction(name = "_begin_coalescing")]
pub(crate) fn begin(py: Python<'_>, group: Option<&Bound<'_, ProcessGroup>>) -> PyResult<()> {
    let group = match group {
        Some(group) => group.get().inner.clone(),
        None => distributed::default_group().or_raise(py)?,
    };
    if is_open_for(&group) {
        let name = group.group_name();
        return Err(invalid(
            py,
            format!(
                "group '{name}' is being coalesced already: a coalescing_manager of the same group \
                 cannot stand in another"
            ),
        ));
    }
    let batch = Batch { group: group.identity(), works: Vec::new() };
    BATCHES.with_borrow_mut(|batches| batches.push(batch));
    Ok(())
}

/// Ends the innermost batch: its operations, in the order of their calls.
#[pyfunction(name = "_end_coalescing")]
pub(crate) fn end() -> Vec<Py<Work>> {
    let batch = BATCHES.with_borrow_mut(Vec::pop);
    batch.map_or_else(Vec::new, |batch| batch.works)
}
