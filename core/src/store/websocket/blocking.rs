//! A request to the store while the calling thread waits. Knows nothing of how packets travel.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use super::client::Client;
use super::requests::{awaited, gave_up};
use crate::generated::error::{Error, Result};
use crate::store::awaited_keys::{AwaitedKeys, Found};
use crate::store::deadline::{SLICE, WaitError};
use crate::store::{Deadline, StoreReply, StoreRequest};

/// How long a server may take to confirm that a wait is cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// How long a look at what is missing may take.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// Carries `request` out at the `server` of this address, within `timeout`, zero for none.
pub(super) fn ask(
    client: &Client,
    server: &str,
    request: &StoreRequest<'_>,
    timeout: Duration,
) -> Result<StoreReply> {
    let deadline = Deadline::after(timeout);
    // What ends the wait, as soon as something does.
    let end = RefCell::new(None);
    let cancelled = poll_fn(|_| match end.borrow_mut().take() {
        Some(error) => Poll::Ready(error),
        None => Poll::Pending,
    });
    let key = request.key();
    let mut wait = awaited(request, key.as_slice()).map(AwaitedKeys::of);
    let mut answered = pin!(client.request(*request, cancelled));
    // Polled at least once in a slice.
    let watched = poll_fn(|context| {
        let answer = answered.as_mut().poll(context);
        if let Some(wait) = wait.as_mut().filter(|_| answer.is_pending()) {
            let find = || find(client, server, request.keys().unwrap_or(key.as_slice()));
            wait.look(|| format!("the store at {server}"), find);
        }
        answer
    });
    let waited = wait_for(watched, &deadline, |why| {
        *end.borrow_mut() = Some(gave_up(why, request, &deadline));
    });
    waited.unwrap_or_else(|| {
        let message = "The server no longer answers".into();
        Err(Error::Network { message })
    })
}

/// Those of `keys` that are not there.
fn find(client: &Client, server: &str, keys: &[&str]) -> Found {
    let mut missing = Vec::new();
    for key in keys {
        match ask(client, server, &StoreRequest::Check { keys: &[key] }, LOOK_LIMIT) {
            Ok(StoreReply::Flag(true)) => {}
            Ok(_) => missing.push((*key).to_owned()),
            Err(Error::StoreTimeout { .. }) => return Found::Silence,
            Err(_) => return Found::Nothing,
        }
    }
    Found::Missing(missing)
}

/// Waits for `future`; when `deadline` passes, `give_up` is called, and the future has a few
/// seconds to end after that. `None` if it did not.
pub(super) fn wait_for<T>(
    future: impl Future<Output = T>,
    deadline: &Deadline,
    mut give_up: impl FnMut(WaitError),
) -> Option<T> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut grace: Option<Deadline> = None;
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Some(result);
        }
        let step = match &grace {
            Some(grace) => grace.remaining().filter(|left| !left.is_zero())?.min(SLICE),
            None => match deadline.slice(SLICE) {
                Ok(step) => step,
                Err(why) => {
                    give_up(why);
                    grace = Some(Deadline::after(CANCEL_GRACE));
                    continue;
                }
            },
        };
        std::thread::park_timeout(step);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
