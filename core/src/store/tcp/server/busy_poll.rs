//! The server busy-polls for the next request for a moment before its thread sleeps: to wake a
//! thread takes longer than to answer a request, and who asked once mostly asks again. Knows
//! nothing of requests.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;

use crate::spin::BusyPoll;

/// How long a server busy-polls after the last request. Others that want the core get it meanwhile.
///
/// It pays over TCP as well, where a client sleeps until it is answered. One that asked again and
/// again got 41,000 to 44,000 answers a second on an idle machine of two cores, 12,000 from a
/// server that sleeps immediately and as many from PyTorch's; 56,000, 48,000 and 45,000 where
/// client and server shared a core; 47,000, 52,000 and 52,000 where somebody else computed on one
/// of them.
const POLL_LIMIT: Duration = Duration::from_micros(50);

/// Whether there was a request lately.
#[derive(Debug, Default)]
pub(super) struct Activity {
    requests: Cell<u64>,
    /// Whether [`busy_poll`] sleeps until there is a request.
    sleeps: Cell<bool>,
    wake: Notify,
}

impl Activity {
    /// There is a request.
    pub(super) fn mark(&self) {
        self.requests.set(self.requests.get().wrapping_add(1));
        if self.sleeps.replace(false) {
            self.wake.notify_one();
        }
    }
}

/// Keeps the thread awake for a moment after every request, as long as the server lives.
pub(super) async fn busy_poll(activity: &Activity) {
    loop {
        activity.sleeps.set(true);
        activity.wake.notified().await;
        let mut last = activity.requests.get();
        let Some(mut poll) = BusyPoll::start(POLL_LIMIT) else { continue };
        while poll.goes_on() {
            // Every turn of the runtime looks at the sockets, without sleep as there is this task.
            tokio::task::yield_now().await;
            if activity.requests.get() != last {
                last = activity.requests.get();
                poll.restart();
            }
        }
    }
}
