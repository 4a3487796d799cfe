//! The backend of a group without members: one that was made for `reconfigure`, or is being
//! reconfigured. It refuses operations, and keeps the handle of what is being joined. Knows neither
//! how members meet nor how operations run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    Backend, Call, Capabilities, EndFuture, IssueOptions, IssuedOperation, Leaving, Transfer,
};
use crate::completion::Completion;
use crate::generated::error::{Error, Result};

/// Why what a group without members is asked for fails once it was left.
const DESTROYED: &str = "the process group was destroyed";

/// What stands for a backend while there are no members.
pub(crate) struct Memberless {
    /// The name of the backend that the members will have.
    backend: &'static str,
    group: String,
    state: Mutex<State>,
    /// Ends when the wait for members is to end.
    ended: Completion,
    left: AtomicBool,
}

struct State {
    /// Since when there are no members, or why.
    why: String,
    /// Why the last call for members failed, if it did.
    failed: Option<Error>,
    /// Why the wait for members is to end, if somebody ended it.
    aborted: Option<String>,
    /// That of the members, once there are some: who still has this one means that.
    successor: Option<Arc<dyn Backend>>,
}

impl Memberless {
    /// That of the group of this name, until it has members that run `backend`.
    pub(crate) fn new(backend: &'static str, group: &str, why: &str) -> Memberless {
        let state = State { why: why.to_owned(), failed: None, aborted: None, successor: None };
        let (state, left) = (Mutex::new(state), AtomicBool::new(false));
        Memberless { backend, group: group.to_owned(), state, ended: Completion::new(), left }
    }

    /// Notes why there are none: `call` has failed.
    pub(crate) fn explain(&self, call: &str, error: &Error) {
        let mut state = self.lock();
        state.why = format!("since {call} failed: {error}");
        state.failed = Some(match error {
            // Members that do not agree on who they are do not meet, whoever is wrong.
            Error::InvalidArgument { message } => Error::Rendezvous { message: message.clone() },
            other => other.clone(),
        });
    }

    /// Why the wait for members is to end, if somebody ended it.
    pub(crate) fn aborted(&self) -> Option<String> {
        self.lock().aborted.clone()
    }

    /// Ends when somebody ends the wait for members.
    pub(crate) async fn ended(&self) {
        self.ended.ended().await;
    }

    /// There are members, which have this backend: `replace` makes them those of the group, unless
    /// somebody ended the wait for them. Then this says why. What ends this one from now on ends
    /// that.
    pub(crate) fn hand_over(
        &self,
        backend: Arc<dyn Backend>,
        replace: impl FnOnce(),
    ) -> std::result::Result<(), String> {
        let mut state = self.lock();
        if let Some(why) = &state.aborted {
            return Err(why.clone());
        }
        replace();
        state.successor = Some(backend);
        Ok(())
    }

    /// What an operation fails with.
    pub(crate) fn error(&self, operation: &str) -> Error {
        let state = self.lock();
        let (group, operation) = (self.group.clone(), operation.to_owned());
        if self.left.load(Ordering::SeqCst) {
            let why = DESTROYED.to_owned();
            return Error::Aborted { group, rank: 0, why, collective: operation, sequence: 0 };
        }
        Error::NoMembers { group, why: state.why.clone(), operation }
    }

    fn successor(&self) -> Option<Arc<dyn Backend>> {
        self.lock().successor.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn refusal(&self, operation: &str) -> Option<Error> {
        Some(self.error(operation))
    }

    fn failure(&self) -> Option<Error> {
        let failed = self.lock().failed.clone();
        Some(failed.unwrap_or_else(|| self.error("get_error")))
    }

    fn is_broken(&self) -> bool {
        self.left.load(Ordering::SeqCst) || self.aborted().is_some()
    }

    fn abort(&self, why: &str) {
        let mut state = self.lock();
        if let Some(successor) = state.successor.clone() {
            drop(state);
            return successor.abort(why);
        }
        state.aborted.get_or_insert_with(|| why.to_owned());
        drop(state);
        self.ended.complete(Ok(()));
    }

    fn retire(self: Arc<Self>) -> EndFuture {
        Box::pin(std::future::ready(Ok(())))
    }

    fn shutdown(&self, leaving: Leaving) -> Result<()> {
        self.left.store(true, Ordering::SeqCst);
        match self.successor() {
            Some(successor) => successor.shutdown(leaving),
            None => {
                self.abort(DESTROYED);
                Ok(())
            }
        }
    }

    fn shutdown_async(self: Arc<Self>, leaving: Leaving) -> EndFuture {
        self.left.store(true, Ordering::SeqCst);
        match self.successor() {
            Some(successor) => successor.shutdown_async(leaving),
            None => Box::pin(std::future::ready(self.shutdown(leaving))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::blocking::poll_once;

    #[test]
    fn an_abort_is_for_the_members_once_there_are_some() {
        let [first, second] =
            ["first", "second"].map(|why| Arc::new(Memberless::new("tcp", "g", why)));
        let mut replaced = false;
        assert_eq!(first.hand_over(second.clone(), || replaced = true), Ok(()));
        assert!(replaced && second.aborted().is_none());
        first.abort("enough");
        assert_eq!((first.aborted(), second.aborted().as_deref()), (None, Some("enough")));
    }

    #[test]
    fn members_that_come_after_an_abort_are_not_those_of_the_group() {
        let [first, second] =
            ["first", "second"].map(|why| Arc::new(Memberless::new("tcp", "g", why)));
        first.abort("enough");
        assert!(poll_once(first.ended()).is_ready());
        let mut replaced = false;
        assert_eq!(first.hand_over(second.clone(), || replaced = true), Err("enough".to_owned()));
        assert!(!replaced);
        let left = Leaving { limit: Duration::ZERO, compare_until: None };
        assert_eq!(second.shutdown(left), Ok(()));
        assert!(second.error("barrier").to_string().contains(DESTROYED));
    }
}
