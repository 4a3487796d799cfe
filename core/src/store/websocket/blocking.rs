//! A request to the store while the calling thread waits. Knows nothing of how packets travel.

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use super::client::Client;
use super::requests::gave_up;
use crate::generated::error::{Error, Result};
use crate::store::awaited_keys::{self, Finding};
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
    let mut answered = pin!(client.request(*request, cancelled));
    let key = request.key();
    let mut look = LookAtMissing::new(client, request.keys().unwrap_or(key.as_slice()));
    // Polled at least once in a slice.
    let watched = poll_fn(|context| {
        let answer = answered.as_mut().poll(context);
        if answer.is_pending() {
            look.poll(server, context);
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

/// Looks, now and then, which of the keys have not come that a request waits for.
struct LookAtMissing<'a> {
    client: &'a Client,
    keys: &'a [&'a str],
    open: Option<OpenLook<'a>>,
}

/// A look that is under way.
struct OpenLook<'a> {
    look: Pin<Box<dyn Future<Output = Result<()>> + 'a>>,
    seen: Rc<RefCell<Seen>>,
    limit: Deadline,
}

/// What a look has found so far.
#[derive(Default)]
struct Seen {
    has_answer: bool,
    missing: Vec<usize>,
}

impl<'a> LookAtMissing<'a> {
    fn new(client: &'a Client, keys: &'a [&'a str]) -> LookAtMissing<'a> {
        LookAtMissing { client, keys, open: None }
    }

    /// Begins a look when it is due, and says what was found when it is over.
    fn poll(&mut self, server: &str, context: &mut Context<'_>) {
        if self.open.is_none() && awaited_keys::is_due() {
            let seen = Rc::<RefCell<Seen>>::default();
            let look = Box::pin(look(self.client, self.keys, seen.clone()));
            let limit = Deadline::uninterrupted(LOOK_LIMIT);
            self.open = Some(OpenLook { look, seen, limit });
        }
        let Some(OpenLook { look, seen, limit }) = &mut self.open else { return };
        let is_over = look.as_mut().poll(context).is_ready();
        if !is_over && limit.remaining().is_some_and(|left| !left.is_zero()) {
            return;
        }
        let seen = seen.take();
        let found = match (seen.has_answer, is_over) {
            (false, false) => Finding::Silence,
            (false, true) => Finding::Nothing,
            (true, false) if seen.missing.is_empty() => Finding::Nothing,
            (true, _) => Finding::Missing(seen.missing),
        };
        self.open = None;
        awaited_keys::say(&found, &format!("the store at {server}"));
    }
}

async fn look(client: &Client, keys: &[&str], seen: Rc<RefCell<Seen>>) -> Result<()> {
    for (at, key) in keys.iter().enumerate() {
        let check = StoreRequest::Check { keys: &[key] };
        let is_there = client.request(check, pending()).await? == StoreReply::Flag(true);
        let mut seen = seen.borrow_mut();
        seen.has_answer = true;
        seen.missing.extend((!is_there).then_some(at));
    }
    Ok(())
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
