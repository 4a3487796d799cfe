//! What counts for what a thread or a future calls, as the current group does: a value for each
//! block that it is in, the innermost last. Knows nothing of what the values are for.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::thread::LocalKey;

/// The values of the blocks that a thread is in.
pub(crate) type Blocks<T> = LocalKey<RefCell<Vec<T>>>;

/// The value of the innermost block; none outside of all.
pub(crate) fn innermost<T: Clone>(blocks: &'static Blocks<T>) -> Option<T> {
    blocks.with_borrow(|values| values.last().cloned())
}

/// Runs `f`, on this thread, in a block with this value.
pub(crate) fn within<T, R>(blocks: &'static Blocks<T>, value: T, f: impl FnOnce() -> R) -> R {
    blocks.with_borrow_mut(|values| values.push(value));
    let _leave = LeaveGuard(blocks);
    f()
}

/// Runs a future in a block with this value, whatever threads poll it.
pub(crate) async fn within_async<T: Clone, F: Future>(
    blocks: &'static Blocks<T>,
    value: T,
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| within(blocks, value.clone(), || future.as_mut().poll(context))).await
}

/// Leaves the innermost block, after a panic as well.
struct LeaveGuard<T: 'static>(&'static Blocks<T>);

impl<T> Drop for LeaveGuard<T> {
    fn drop(&mut self) {
        // Dropped outside of the borrow: the last handle of a group does more than a `pop`.
        drop(self.0.with_borrow_mut(Vec::pop));
    }
}
