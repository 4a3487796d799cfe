//! The store of a group as users get it: a view that ends with the group, also where a
//! caller still has it.
//! Knows nothing of groups but their names.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

#[cfg(feature = "tcp")]
use super::awaited_keys::{store_name, waiting_call};
use super::request::perform;
use super::{
    Bound, DEFAULT_TIMEOUT, Store, StoreFuture, StoreReply, StoreRequest, elsewhere, interrupt_when,
};
use crate::blocking::WaitMode;
use crate::clock::CAN_BLOCK;
use crate::generated::error::{Error, Result};
use crate::transport::websocket::Relay;

/// A handle on a group's store. When one of them is closed, all clones of it are: they keep nothing
/// open, refuse every request, and give up those that wait.
pub(crate) struct GroupStore {
    ending: Arc<Ending>,
    link: Arc<Link>,
}

/// What all handles on the store of one group have in common.
struct Ending {
    group: String,
    is_closed: AtomicBool,
    /// Whether that is since the group got other members.
    is_former: AtomicBool,
    /// Whether it is since the group has no members, and was not left.
    lacks_members: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: Vec<Weak<Link>>,
    /// Tasks that wait in the store.
    tasks: Vec<Waker>,
}

/// A connection, until the group is left.
struct Link {
    store: Mutex<Option<Arc<dyn Store>>>,
}

impl GroupStore {
    /// A view of `store`, the store of the group of this name.
    pub(crate) fn new(group: &str, store: Arc<dyn Store>) -> GroupStore {
        GroupStore::over(&Arc::new(Ending::of(group, false)), store)
    }

    /// What a group of this name has instead of its store once it was left.
    pub(crate) fn closed(group: &str) -> GroupStore {
        let link = Arc::new(Link { store: Mutex::default() });
        GroupStore { ending: Arc::new(Ending::of(group, true)), link }
    }

    /// What a group of this name has instead of its store as long as it has no members.
    pub(crate) fn without_members(group: &str) -> GroupStore {
        let store = GroupStore::closed(group);
        store.ending.lacks_members.store(true, Ordering::SeqCst);
        store
    }

    fn over(ending: &Arc<Ending>, store: Arc<dyn Store>) -> GroupStore {
        let link = Arc::new(Link { store: Mutex::new(Some(store)) });
        let mut state = ending.state();
        state.links.retain(|link| link.strong_count() > 0);
        state.links.push(Arc::downgrade(&link));
        // A thread that closes it sets that first, and then takes the lock.
        if ending.is_closed() {
            drop(link.take());
        }
        drop(state);
        GroupStore { ending: ending.clone(), link }
    }

    /// Refuses all requests from now on, through every handle, and ends those that wait.
    pub(crate) fn close(&self) {
        self.ending.is_closed.store(true, Ordering::SeqCst);
        self.ending.lacks_members.store(false, Ordering::SeqCst);
        let mut state = self.ending.state();
        let (links, tasks) = (std::mem::take(&mut state.links), std::mem::take(&mut state.tasks));
        drop(state);
        // The last one ends a server, which may take a moment.
        links.iter().filter_map(Weak::upgrade).for_each(|link| drop(link.take()));
        tasks.into_iter().for_each(Waker::wake);
    }

    /// As [`GroupStore::close`], as the group gets other members.
    pub(crate) fn close_as_former(&self) {
        self.ending.is_former.store(true, Ordering::SeqCst);
        self.close();
    }

    /// The group's name.
    pub(crate) fn name(&self) -> &str {
        &self.ending.group
    }

    /// Whether the group was left.
    pub(crate) fn is_closed(&self) -> bool {
        self.ending.is_closed()
    }

    /// Whether the group was not left, but has no members.
    pub(crate) fn lacks_members(&self) -> bool {
        self.ending.lacks_members.load(Ordering::SeqCst)
    }

    /// The store itself, which stays open: for the groups that are made out of this one.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] once it was closed.
    pub(crate) fn underlying(&self) -> Result<Arc<dyn Store>> {
        let open = self.link.lock().clone();
        open.filter(|_| !self.ending.is_closed()).ok_or_else(|| self.ending.error())
    }

    /// Runs a request until the group is left.
    fn ask(&self, request: StoreRequest<'_>) -> Result<StoreReply> {
        let key = request.key();
        let keys = request.keys().unwrap_or(key.as_slice());
        let run = || self.run(keys, |store| perform(store, request));
        #[cfg(feature = "tcp")]
        if let Some(call) = waiting_call(&request, || store_name(self)) {
            return call.run(run);
        }
        run()
    }

    fn run<T>(&self, keys: &[&str], run: impl FnOnce(&dyn Store) -> Result<T>) -> Result<T> {
        let store = self.underlying()?;
        let ending = self.ending.clone();
        let _interrupt = CAN_BLOCK.then(|| interrupt_when(move || ending.is_closed()));
        run(&*store).map_err(|error| self.ending.explain(error, keys))
    }

    /// As [`GroupStore::ask`], for a store that answers later and holds no thread meanwhile.
    async fn answer_later<T>(
        &self,
        keys: &[&str],
        answer: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut answer = pin!(answer);
        let answered = poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => {
                let mut state = self.ending.state();
                if self.ending.is_closed() {
                    return Poll::Ready(Err(self.ending.error()));
                }
                if !state.tasks.iter().any(|task| task.will_wake(context.waker())) {
                    state.tasks.push(context.waker().clone());
                }
                Poll::Pending
            }
        });
        answered.await.map_err(|error| self.ending.explain(error, keys))
    }
}

impl Ending {
    fn of(group: &str, is_closed: bool) -> Ending {
        let is_closed = AtomicBool::new(is_closed);
        Ending {
            group: group.to_owned(),
            is_closed,
            is_former: AtomicBool::new(false),
            lacks_members: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn error(&self) -> Error {
        let group = &self.group;
        if self.lacks_members.load(Ordering::SeqCst) {
            let (why, operation) = ("now".to_owned(), "its store".to_owned());
            return Error::NoMembers { group: group.clone(), why, operation };
        }
        let why = match self.is_former.load(Ordering::SeqCst) {
            true => {
                "its members were replaced, and the new ones have another: ask the group for it"
            }
            false => "the group was destroyed",
        };
        let message = format!("the store of group '{group}' is closed: {why}");
        Error::InvalidGroup { message }
    }

    /// The error of a request for `keys`, as the user knows them: without the group's prefix.
    fn explain(&self, error: Error, keys: &[&str]) -> Error {
        if self.is_closed() {
            return self.error();
        }
        match error {
            Error::StoreTimeout { operation, waited_ms, .. } => {
                Error::StoreTimeout { operation, keys: keys.join(", "), waited_ms }
            }
            Error::NotACounter { .. } => Error::NotACounter { key: keys.join(", ") },
            other => other,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn Store>>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Arc<dyn Store>> {
        self.lock().take()
    }
}

impl Store for GroupStore {
    methods_by_request!();

    fn has_extended_api(&self) -> bool {
        self.underlying().map_or(true, |store| store.has_extended_api())
    }

    fn timeout(&self) -> Duration {
        self.underlying().map_or(DEFAULT_TIMEOUT, |store| store.timeout())
    }

    fn set_timeout(&self, timeout: Duration) {
        if let Ok(store) = self.underlying() {
            store.set_timeout(timeout);
        }
    }

    fn local_address(&self) -> Option<IpAddr> {
        self.underlying().ok()?.local_address()
    }

    fn server_address(&self) -> Option<String> {
        self.underlying().ok()?.server_address()
    }

    fn socket_url(&self) -> Option<String> {
        self.underlying().ok()?.socket_url()
    }

    fn request<'a>(&'a self, request: StoreRequest<'a>) -> StoreFuture<'a> {
        if CAN_BLOCK && (WaitMode::current() == WaitMode::Block || self.share().is_some()) {
            return Box::pin(elsewhere::run(self, request));
        }
        Box::pin(async move {
            let store = self.underlying()?;
            let key = request.key();
            let keys = request.keys().unwrap_or(key.as_slice());
            self.answer_later(keys, store.request(request)).await
        })
    }

    fn share(&self) -> Option<Arc<dyn Store>> {
        // Its requests say themselves that it is closed.
        let can_share = self.underlying().map_or(true, |store| store.share().is_some());
        let same = || GroupStore { ending: self.ending.clone(), link: self.link.clone() };
        can_share.then(|| Arc::new(same()) as Arc<dyn Store>)
    }

    fn relay(&self) -> Option<Arc<dyn Relay>> {
        self.underlying().ok()?.relay()
    }

    fn reconnect_grace(&self) -> Option<Duration> {
        self.underlying().ok()?.reconnect_grace()
    }

    fn shared_connection(&self) -> Option<Arc<dyn Store>> {
        let store = self.underlying().ok()?.shared_connection()?;
        Some(Arc::new(GroupStore::over(&self.ending, store)))
    }

    fn has_no_clients(&self) -> bool {
        self.underlying().is_ok_and(|store| store.has_no_clients())
    }

    fn hosts_server(&self) -> bool {
        self.underlying().is_ok_and(|store| store.hosts_server())
    }

    fn reopen(&self, limit: Duration) -> Result<Arc<dyn Store>> {
        let store = self.run(&[], |store| store.reopen(limit))?;
        Ok(Arc::new(GroupStore::over(&self.ending, store)))
    }

    fn description(&self) -> String {
        let left = |_| format!("Store(of {}, left)", self.ending.group);
        self.underlying().map_or_else(left, |store| store.description())
    }

    fn bounded(&self, bound: &Arc<Bound>) -> Option<Arc<dyn Store>> {
        let store = self.underlying().ok()?.bounded(bound)?;
        Some(Arc::new(GroupStore::over(&self.ending, store)))
    }

    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        let store = self.run(&[], |store| store.clone_store())?;
        Ok(Arc::new(GroupStore::over(&self.ending, store)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::{HashStore, PrefixStore};

    fn is_closed<T: std::fmt::Debug>(result: Result<T>) -> bool {
        matches!(result, Err(Error::InvalidGroup { message }) if message.contains("'g'"))
    }

    #[test]
    fn every_handle_ends_with_the_group_and_keeps_nothing() {
        let users: Arc<dyn Store> = Arc::new(HashStore::new());
        let under: Arc<dyn Store> = Arc::new(PrefixStore::new("p", users.clone()));
        let kept = Arc::downgrade(&under);
        let store = Arc::new(GroupStore::new("g", under));
        let (cloned, shared) = (store.clone_store().unwrap(), store.share().unwrap());
        let view = PrefixStore::new("v", store.clone() as Arc<dyn Store>);
        cloned.set("a", b"1").unwrap();
        assert_eq!(users.get("p/a").unwrap(), b"1");
        store.close();
        assert!(kept.upgrade().is_none());
        assert!(is_closed(store.get("a")) && is_closed(cloned.get("a")));
        assert!(is_closed(shared.get("a")) && is_closed(view.set("a", b"2")));
        assert!(store.clone_store().is_err() && cloned.clone_store().is_err());
        assert_eq!(users.get("p/a").unwrap(), b"1");
    }

    #[test]
    fn errors_name_the_keys_of_the_user() {
        let under = PrefixStore::new("p", Arc::new(HashStore::new()) as Arc<dyn Store>);
        let store = GroupStore::new("g", Arc::new(under));
        let waited = store.wait(&["never"], Some(Duration::from_millis(1)));
        assert!(matches!(waited, Err(Error::StoreTimeout { keys, .. }) if keys == "never"));
    }

    #[test]
    fn who_waits_is_freed_and_told() {
        let store = Arc::new(GroupStore::new("g", Arc::new(HashStore::new())));
        store.set_timeout(Duration::ZERO);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| store.get("never"));
            store.close();
            assert!(is_closed(waits.join().unwrap()));
        });
    }
}
