//! The backend of a group without members: one that was made for `reconfigure`, or is being
//! reconfigured. It refuses operations, and keeps the handle of what is being joined. Knows neither
//! how members meet nor how operations run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread::Thread;

use super::{
    Backend, Call, Capabilities, EndFuture, IssueOptions, IssuedOperation, Leaving, Transfer,
};
use crate::clock::{CAN_BLOCK, Instant};
use crate::completion::Completion;
use crate::generated::error::{Error, Result};

/// What stands for a backend while there are no members.
pub(crate) struct Memberless {
    /// The name of the backend that the members will have.
    backend: &'static str,
    group: String,
    /// Since when, or why.
    why: Mutex<String>,
    aborted: Mutex<Option<String>>,
    left: AtomicBool,
}

impl Memberless {
    /// That of the group of this name, until it has members that run `backend`.
    pub(crate) fn new(backend: &'static str, group: &str, why: &str) -> Memberless {
        let (group, why) = (group.to_owned(), Mutex::new(why.to_owned()));
        Memberless { backend, group, why, aborted: Mutex::default(), left: AtomicBool::new(false) }
    }

    /// Notes why there are none.
    pub(crate) fn explain(&self, why: &str) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why.to_owned();
    }

    /// Why the wait for members is to end, if somebody ended it.
    pub(crate) fn aborted(&self) -> Option<String> {
        self.aborted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What an operation fails with.
    pub(crate) fn error(&self, operation: &str) -> Error {
        if let Some(why) = self.aborted() {
            let (group, collective) = (self.group.clone(), operation.to_owned());
            return Error::Aborted { group, rank: 0, why, collective, sequence: 0 };
        }
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Error::NoMembers { group: self.group.clone(), why, operation: operation.to_owned() }
    }
}

impl Backend for Memberless {
    fn name(&self) -> &str {
        self.backend
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::complete()
    }

    fn collective(&self, call: Call, _: IssueOptions) -> Result<IssuedOperation> {
        Err(self.error(call.name))
    }

    fn send(&self, _: Transfer, _: IssueOptions) -> Result<IssuedOperation> {
        Err(self.error("send"))
    }

    fn recv(&self, _: Transfer, _: IssueOptions) -> Result<IssuedOperation> {
        Err(self.error("recv"))
    }

    fn wait(&self, completion: &Completion, until: Option<Instant>) -> bool {
        let waker = Waker::from(Arc::new(Unparker(std::thread::current())));
        while CAN_BLOCK && completion.register(&waker) {
            match until {
                None => std::thread::park(),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    std::thread::park_timeout(left);
                }
            }
        }
        completion.is_done()
    }

    fn refusal(&self, operation: &str) -> Option<Error> {
        Some(self.error(operation))
    }

    fn failure(&self) -> Option<Error> {
        Some(self.error("get_error"))
    }

    fn is_broken(&self) -> bool {
        self.left.load(Ordering::SeqCst) || self.aborted().is_some()
    }

    fn abort(&self, why: &str) {
        let mut aborted = self.aborted.lock().unwrap_or_else(PoisonError::into_inner);
        aborted.get_or_insert_with(|| why.to_owned());
    }

    fn retire(self: Arc<Self>) -> EndFuture {
        Box::pin(std::future::ready(Ok(())))
    }

    fn shutdown(&self, _: Leaving) -> Result<()> {
        self.left.store(true, Ordering::SeqCst);
        self.abort("the process group was destroyed");
        Ok(())
    }

    fn shutdown_async(self: Arc<Self>, leaving: Leaving) -> EndFuture {
        Box::pin(std::future::ready(self.shutdown(leaving)))
    }
}

/// Wakes a thread that waits.
struct Unparker(Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
