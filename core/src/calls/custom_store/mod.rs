//! Stores of a language whose code runs on one thread: each request becomes a task, which that
//! thread takes and ends. What such a store has no method for is made of those that it has. Knows
//! no language.

mod derived;
mod task;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::answer::camel_case;
use super::object::{Object, StoreObject};
use crate::backend::custom::until_ended;
use crate::blocking::{WaitMode, block_on};
use crate::clock::{self, CAN_BLOCK, Instant};
use crate::generated::error::{Error, Result};
use crate::process_group::next_identity;
use crate::store::{
    Bound, DEFAULT_TIMEOUT, Relay, Store, StoreFuture, StoreReply, StoreRequest, TimeoutSetting,
    is_interrupted,
};

pub use task::{StoreCarrier, StoreTask};

/// The store that an object of the language is, under a name for messages: for the object alone,
/// which it does not keep. `base` is the store of this package that the object is besides.
///
/// # Errors
/// [`Error::InvalidType`] if `base` is not a store.
pub fn make(name: &str, carrier: Arc<dyn StoreCarrier>, base: Option<&Object>) -> Result<Object> {
    let interfaces = base.map_or(&["Store"] as &[_], Object::interfaces);
    let base = base.map(Object::store).transpose()?.map(|base| base.get().clone());
    let what = Arc::new(What {
        number: next_identity(),
        name: name.to_owned(),
        carrier,
        timeout: TimeoutSetting::new(DEFAULT_TIMEOUT),
        base,
        relay: OnceLock::new(),
    });
    let store = ForeignStore { what, methods: 0, hold: None, bounds: Vec::new() };
    Ok(Object::Store(StoreObject::foreign(Arc::new(store), interfaces)))
}

/// The same store, for the core: it keeps the object, which has these methods, names between
/// commas. A task, `forget`, tells when no copy of it is left.
///
/// # Errors
/// [`Error::InvalidType`] for what [`make`] did not make.
pub fn hold(made: &Object, methods: &str) -> Result<Object> {
    let (made, interfaces) = made.store()?.as_foreign().ok_or_else(Object::not_a_handle)?;
    let has = |name: &str| METHODS.iter().position(|known| *known == name);
    let methods = methods.split(',').filter_map(has).fold(0, |all, at| all | 1 << at);
    let hold = Hold { what: made.what.clone(), process: clock::process_id() };
    let (what, hold) = (made.what.clone(), Some(Arc::new(hold)));
    let held = ForeignStore { what, methods, hold, bounds: made.bounds.clone() };
    Ok(Object::Store(StoreObject::foreign(Arc::new(held), interfaces)))
}

/// Says what carries pipes between the ranks that meet in this store, if they cannot reach each
/// other otherwise. A second call does nothing.
///
/// # Errors
/// [`Error::InvalidType`] for what [`make`] did not make.
pub fn set_relay(made: &Object, relay: Arc<dyn Relay>) -> Result<()> {
    let (made, _) = made.store()?.as_foreign().ok_or_else(Object::not_a_handle)?;
    // An object has one way to other ranks, which it knows when it is made.
    let _ = made.what.relay.set(relay);
    Ok(())
}

/// The methods that an object may have of its own, in the IDL's names.
const METHODS: [&str; 16] = [
    "set",
    "get",
    "add",
    "append",
    "check",
    "compare_set",
    "delete_key",
    "wait",
    "multi_get",
    "multi_set",
    "num_keys",
    "list_keys",
    "queue_push",
    "queue_pop",
    "queue_len",
    "barrier",
];

/// What `has_extended_api` promises.
const EXTENDED: [&str; 4] = ["append", "queue_push", "queue_pop", "queue_len"];

/// A store whose methods are those of an object of the language.
pub(crate) struct ForeignStore {
    what: Arc<What>,
    /// Which methods the object has, as bits in the order of [`METHODS`].
    methods: u16,
    /// Keeps the object. None for the handle that the object itself has, which must not.
    hold: Option<Arc<Hold>>,
    /// What its requests keep to besides its timeout.
    bounds: Vec<Arc<Bound>>,
}

/// What all handles on one store have in common.
struct What {
    /// The number of the store, and of the object in the language.
    number: u64,
    /// What messages call it.
    name: String,
    carrier: Arc<dyn StoreCarrier>,
    timeout: TimeoutSetting,
    /// The store of this package that the object is besides, for what it does not do itself.
    base: Option<Arc<dyn Store>>,
    /// What carries pipes between its ranks, if the object brought that.
    relay: OnceLock<Arc<dyn Relay>>,
}

/// Has the language keep an object as long as this is there.
struct Hold {
    what: Arc<What>,
    process: u32,
}

impl ForeignStore {
    /// The number of the object.
    pub(super) fn number(&self) -> u64 {
        self.what.number
    }

    fn has(&self, method: &str) -> bool {
        let position = METHODS.iter().position(|known| *known == method);
        position.is_some_and(|position| self.methods & 1 << position != 0)
    }

    fn another(&self) -> ForeignStore {
        let (what, hold) = (self.what.clone(), self.hold.clone());
        ForeignStore { what, methods: self.methods, hold, bounds: self.bounds.clone() }
    }

    /// The answer of the object, of the store that it is besides, or what can be made of others.
    fn answer<'a>(&'a self, request: StoreRequest<'a>, limit: Limit) -> StoreFuture<'a> {
        let method = task::method_of(&request);
        if self.has(method) {
            return Box::pin(self.ask_object(method, request, limit));
        }
        let parts = derived::made_of(method);
        match &self.what.base {
            Some(base) if !parts.iter().any(|part| self.has(part)) => base.request(request),
            _ => Box::pin(derived::derive(self, method, request, limit)),
        }
    }

    /// The answer of a method of the object.
    async fn ask_object(
        &self,
        method: &'static str,
        request: StoreRequest<'_>,
        limit: Limit,
    ) -> Result<StoreReply> {
        let carrier = &self.what.carrier;
        let blocks = WaitMode::current() == WaitMode::Block;
        if blocks && carrier.is_here() {
            let who = format!("the thread that the store {} belongs to", self.what.name);
            let operation = format!("waiting for its {}", camel_case(method));
            return Err(Error::Unsupported { who, operation });
        }
        let (task, answer) = StoreTask::new(&self.what.name, self.what.number, method, &request);
        carrier.carry(task);
        // Requests of the same store that were called later are carried from now on.
        if !(blocks && is_interrupted()) && until_ended(answer.completion(), limit.until).await? {
            return answer.taken();
        }
        let keys = task::keys_of(&request).join(", ");
        if blocks && is_interrupted() {
            let message = format!("{method} was interrupted, keys: {keys}");
            return Err(Error::Store { message });
        }
        Err(limit.expired(method, keys))
    }

    /// As [`Store::request`], for a caller that blocks.
    fn ask(&self, request: StoreRequest<'_>) -> Result<StoreReply> {
        if CAN_BLOCK { block_on(self.request(request)) } else { Err(self.lacking("blocking")) }
    }

    /// What is said of a method that the object does not have.
    fn lacking(&self, method: &str) -> Error {
        let method = camel_case(method);
        let who = format!("the store {}", self.what.name);
        Error::Unsupported { who, operation: format!("{method}: it has no such method") }
    }
}

/// When a request gives up.
#[derive(Clone, Copy)]
struct Limit {
    until: Instant,
    ms: u64,
}

impl Limit {
    /// That of a request that begins now. Zero is none.
    fn after(limit: Duration) -> Limit {
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let limit = if limit.is_zero() { Duration::MAX } else { limit };
        Limit { until: clock::after(limit), ms }
    }

    /// The error of what took longer.
    fn expired(&self, method: &str, keys: String) -> Error {
        Error::StoreTimeout { operation: method.into(), keys, waited_ms: self.ms }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // What a forked child has of it is its parent's.
        if self.process == clock::process_id() {
            self.what.carrier.carry(StoreTask::forget(&self.what.name, self.what.number));
        }
    }
}

impl Store for ForeignStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.ask(StoreRequest::Set { key, value })?.done()
    }

    fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.ask(StoreRequest::Get { key })?.value()
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.ask(StoreRequest::Add { key, amount })?.number()
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.ask(StoreRequest::Append { key, value })?.done()
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        self.ask(StoreRequest::Check { keys })?.flag()
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        self.ask(StoreRequest::CompareSet { key, expected, desired })?.value()
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        self.ask(StoreRequest::DeleteKey { key })?.flag()
    }

    fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        self.ask(StoreRequest::Wait { keys, timeout })?.done()
    }

    fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        self.ask(StoreRequest::MultiGet { keys })?.values()
    }

    fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
        self.ask(StoreRequest::MultiSet { keys, values })?.done()
    }

    fn num_keys(&self) -> Result<i64> {
        self.ask(StoreRequest::NumKeys)?.number()
    }

    fn list_keys(&self) -> Result<Vec<String>> {
        self.ask(StoreRequest::ListKeys)?.keys()
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.ask(StoreRequest::QueuePush { key, value })?.done()
    }

    fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>> {
        self.ask(StoreRequest::QueuePop { key, block })?.value()
    }

    fn queue_len(&self, key: &str) -> Result<i64> {
        self.ask(StoreRequest::QueueLen { key })?.number()
    }

    fn barrier(&self, key: &str, world_size: u32, timeout: Option<Duration>) -> Result<()> {
        self.ask(StoreRequest::Barrier { key, world_size, timeout })?.done()
    }

    fn request<'a>(&'a self, request: StoreRequest<'a>) -> StoreFuture<'a> {
        let limit = match request {
            StoreRequest::Wait { timeout: Some(timeout), .. }
            | StoreRequest::Barrier { timeout: Some(timeout), .. } => timeout,
            _ => self.timeout(),
        };
        let limit = self.bounds.iter().fold(limit, |limit, bound| bound.within(limit));
        self.answer(request, Limit::after(limit))
    }

    fn has_extended_api(&self) -> bool {
        let base = self.what.base.as_ref();
        base.is_some_and(|base| base.has_extended_api())
            || EXTENDED.iter().all(|method| self.has(method))
    }

    fn timeout(&self) -> Duration {
        let base = self.what.base.as_ref();
        base.map_or_else(|| self.what.timeout.get(), |base| base.timeout())
    }

    fn set_timeout(&self, timeout: Duration) {
        match &self.what.base {
            Some(base) => base.set_timeout(timeout),
            None => self.what.timeout.set(timeout),
        }
    }

    fn local_address(&self) -> Option<IpAddr> {
        self.what.base.as_ref()?.local_address()
    }

    fn share(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.another()))
    }

    fn relay(&self) -> Option<Arc<dyn Relay>> {
        let base = || self.what.base.as_ref()?.relay();
        self.what.relay.get().cloned().or_else(base)
    }

    fn reconnect_grace(&self) -> Option<Duration> {
        self.what.base.as_ref()?.reconnect_grace()
    }

    fn bounded(&self, bound: &Arc<Bound>) -> Option<Arc<dyn Store>> {
        let mut another = self.another();
        another.bounds.retain(|known| !known.is_lifted());
        another.bounds.push(bound.clone());
        Some(Arc::new(another))
    }

    fn hosts_server(&self) -> bool {
        self.what.base.as_ref().is_some_and(|base| base.hosts_server())
    }

    fn description(&self) -> String {
        format!("{}()", self.what.name)
    }

    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.another()))
    }
}
