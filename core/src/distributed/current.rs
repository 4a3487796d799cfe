//! The current group of a thread or a future. Knows no operations.

use std::cell::RefCell;
use std::future::Future;

use super::default_group;
use crate::context;
use crate::generated::error::Result;
use crate::process_group::ProcessGroup;

thread_local! {
    static CURRENT: RefCell<Vec<ProcessGroup>> = const { RefCell::new(Vec::new()) };
}

/// The group of the innermost [`with_process_group`] that this thread or future is in, else the
/// default group.
///
/// # Errors
/// [`Error::NotInitialized`](crate::Error::NotInitialized);
/// [`Error::InvalidGroup`](crate::Error::InvalidGroup) if the block's group was destroyed.
pub fn current_process_group() -> Result<ProcessGroup> {
    let Some(group) = context::innermost(&CURRENT) else { return default_group() };
    group.unless_left().map(|()| group)
}

/// Runs `f`, on this thread, with `group` as the current group. What asks for the default group
/// gets that all the same.
pub fn with_process_group<R>(group: &ProcessGroup, f: impl FnOnce() -> R) -> R {
    context::within(&CURRENT, group.clone(), f)
}

/// As [`with_process_group`], through everything that `future` awaits, whatever threads and
/// runtime run it: a task that it starts is not in the block.
///
/// ```
/// # use polyrank::store::HashStore;
/// # use polyrank::{ProcessGroup, distributed};
/// # use std::sync::Arc;
/// # let group = ProcessGroup::new(Arc::new(HashStore::new()), 0, 1, "a", Default::default())?;
/// # fn run<F: Future>(future: F) -> F::Output {
/// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #     let mut future = std::pin::pin!(future);
/// #     loop {
/// #         if let std::task::Poll::Ready(it) = future.as_mut().poll(&mut context) { return it; }
/// #     }
/// # }
/// # run(async {
/// distributed::with_process_group_async(&group, async {
///     let current = distributed::current_process_group()?;
///     current.barrier_async(())?.await
/// })
/// .await?;
/// # Ok::<(), polyrank::Error>(()) })?;
/// # Ok::<(), polyrank::Error>(())
/// ```
pub async fn with_process_group_async<F: Future>(group: &ProcessGroup, future: F) -> F::Output {
    context::within_async(&CURRENT, group.clone(), future).await
}
