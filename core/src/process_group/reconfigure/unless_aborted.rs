//! Waits for members that end when the group is aborted. Knows not what is waited for.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::backend::memberless::Memberless;
use crate::blocking::WaitMode;
use crate::generated::error::Result;
use crate::store::interrupt_when;

/// The result of `waits`, or an error soon after somebody ended the wait for members. Why, is known
/// to `memberless`.
pub(super) async fn unless_aborted<T>(
    memberless: &Arc<Memberless>,
    waits: impl Future<Output = Result<T>>,
) -> Result<T> {
    // A thread that blocks looks at this from time to time.
    let interrupt = (WaitMode::current() == WaitMode::Block).then(|| {
        let ends = memberless.clone();
        interrupt_when(move || ends.aborted().is_some())
    });
    let (mut waits, mut ended) = (pin!(waits), pin!(memberless.ended()));
    let result = poll_fn(|context| match waits.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => ended.as_mut().poll(context).map(|()| None),
    })
    .await;
    drop(interrupt);
    result.unwrap_or_else(|| Err(memberless.error("reconfigure")))
}
