//! Waits for a completion, by a thread that blocks or by a task. Knows nothing of what ends it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use crate::blocking::unblock;
use crate::clock::{self, CAN_BLOCK, Instant};
use crate::completion::Completion;
use crate::generated::error::{Error, Result};
use crate::store::{INTERRUPT_CHECK_INTERVAL, is_interrupted};

/// Waits until `completion` is done or `until` has come; whether it is done.
///
/// # Errors
/// [`Error::Store`] if the thread is interrupted; [`Error::Network`] if the system starts no more
/// threads.
pub(crate) async fn until_ended(completion: &Arc<Completion>, until: Instant) -> Result<bool> {
    if completion.is_done() {
        return Ok(true);
    }
    if CAN_BLOCK {
        let completion = completion.clone();
        return unblock(move || park(&completion, until)).await;
    }
    let mut sleep = clock::sleep_until(until);
    let is_done = std::future::poll_fn(|context| {
        if !completion.register(context.waker()) {
            return Poll::Ready(true);
        }
        Pin::new(&mut sleep).poll(context).map(|()| false)
    });
    Ok(is_done.await)
}

fn park(completion: &Completion, until: Instant) -> Result<bool> {
    loop {
        let slice = clock::after(INTERRUPT_CHECK_INTERVAL);
        if completion.park(Some(slice.min(until))) {
            return Ok(true);
        }
        if is_interrupted() {
            return Err(Error::Store { message: "interrupted while waiting".to_owned() });
        }
        if until <= Instant::now() {
            return Ok(false);
        }
    }
}
