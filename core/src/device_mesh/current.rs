//! The current mesh of a thread or of a task. Knows no groups.

use std::cell::RefCell;
use std::future::Future;

use super::DeviceMesh;
use super::layout::invalid;
use crate::context;
use crate::generated::error::Result;

thread_local! {
    static CURRENT: RefCell<Vec<DeviceMesh>> = const { RefCell::new(Vec::new()) };
}

/// The mesh of the innermost [`with_device_mesh`] of this thread or task.
///
/// # Errors
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument) outside of all.
pub fn current_device_mesh() -> Result<DeviceMesh> {
    let current = context::innermost(&CURRENT);
    current.map_or_else(|| invalid("No device mesh is currently active!".into()), Ok)
}

/// Runs `f`, on this thread, with `mesh` as the current mesh.
pub fn with_device_mesh<R>(mesh: &DeviceMesh, f: impl FnOnce() -> R) -> R {
    context::within(&CURRENT, mesh.clone(), f)
}

/// Runs a task with `mesh` as its current mesh, on whatever threads it is polled.
pub async fn with_device_mesh_async<F: Future>(mesh: &DeviceMesh, task: F) -> F::Output {
    context::within_async(&CURRENT, mesh.clone(), task).await
}
