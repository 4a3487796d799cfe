//! Leaving groups that met at stores, several at the same time. Knows nothing of how they are kept.

use std::future::poll_fn;
use std::mem::replace;
use std::task::Poll;
use std::time::Duration;

use super::World;
use crate::generated::error::Result;

/// Leaves all of them; those whose store ends with this process last, as others of them may have
/// met there. Nobody waits for a group while others wait for this rank to leave the next one.
pub(super) async fn leave_all(worlds: Vec<World>, broken_limit: Duration) -> Result<()> {
    let (hosting, visiting) = worlds.into_iter().partition(|world| world.hosting);
    let left = leave_together(visiting, broken_limit).await;
    left.and(leave_together(hosting, broken_limit).await)
}

async fn leave_together(worlds: Vec<World>, broken_limit: Duration) -> Result<()> {
    let leaving = worlds.into_iter().map(|world| Box::pin(world.leave(broken_limit)));
    let (mut leaving, mut ended) = (leaving.collect::<Vec<_>>(), Ok(()));
    poll_fn(move |context| {
        leaving.retain_mut(|one| match one.as_mut().poll(context) {
            Poll::Ready(outcome) => {
                ended = replace(&mut ended, Ok(())).and(outcome);
                false
            }
            Poll::Pending => true,
        });
        if leaving.is_empty() { Poll::Ready(replace(&mut ended, Ok(()))) } else { Poll::Pending }
    })
    .await
}
