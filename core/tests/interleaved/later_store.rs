//! A store as a browser has it: nothing blocks, and every request is answered later, in an order
//! that a seed decides. Knows nothing of groups.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use polyrank::store::{HashStore, Store, StoreFuture, StoreReply, StoreRequest};
use polyrank::{Error, Result};

/// Handles share their data and their queue.
#[derive(Clone)]
pub(crate) struct LaterStore {
    shared: Arc<Shared>,
}

struct Shared {
    table: HashStore,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    tickets: Vec<Ticket>,
    next: u64,
    /// How many requests have changed something.
    changes: u64,
}

/// A request that waits for its turn.
struct Ticket {
    number: u64,
    waker: Waker,
    called: bool,
    /// It need not be called before something has changed since, or this time has come.
    not_before: Option<(u64, Option<Instant>)>,
}

impl LaterStore {
    pub(crate) fn new() -> LaterStore {
        let shared = Shared { table: HashStore::new(), queue: Mutex::default() };
        LaterStore { shared: Arc::new(shared) }
    }

    /// Lets one request have its turn, the one that `choice` picks; whether there was one.
    pub(crate) fn answer_one(&self, choice: u64) -> bool {
        let mut queue = self.queue();
        let (changes, now) = (queue.changes, Instant::now());
        let mut ready: Vec<&mut Ticket> =
            queue.tickets.iter_mut().filter(|ticket| ticket.is_ready(changes, now)).collect();
        if ready.is_empty() {
            return false;
        }
        let index = choice as usize % ready.len();
        ready[index].called = true;
        let waker = ready[index].waker.clone();
        drop(queue);
        waker.wake();
        true
    }

    /// When a request that waits gives up.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let queue = self.queue();
        queue.tickets.iter().filter_map(|ticket| ticket.not_before?.1).min()
    }

    /// Requests that are not answered.
    pub(crate) fn requests(&self) -> usize {
        self.queue().tickets.len()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.shared.queue.lock().unwrap()
    }

    /// Waits until this request is called.
    async fn turn(&self, not_before: Option<(u64, Option<Instant>)>) {
        let mut place = Place { store: self, number: None };
        poll_fn(|context| {
            let mut queue = self.queue();
            let Some(number) = place.number else {
                queue.next += 1;
                let number = queue.next;
                let waker = context.waker().clone();
                queue.tickets.push(Ticket { number, waker, called: false, not_before });
                place.number = Some(number);
                return Poll::Pending;
            };
            let ticket = queue.tickets.iter_mut().find(|ticket| ticket.number == number).unwrap();
            ticket.waker = context.waker().clone();
            if ticket.called { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What the request comes to, if that does not have to wait.
    fn attempt(&self, request: StoreRequest<'_>) -> Option<Result<StoreReply>> {
        let table: &dyn Store = &self.shared.table;
        use StoreRequest as R;
        let reply = match request {
            R::Get { key } if table.check(&[key]).unwrap() => table.get(key).map(StoreReply::Value),
            R::MultiGet { keys } if table.check(keys).unwrap() => {
                table.multi_get(keys).map(StoreReply::Values)
            }
            R::Wait { keys, .. } if table.check(keys).unwrap() => Ok(StoreReply::Done),
            R::QueuePop { key, .. } if table.queue_len(key).unwrap() > 0 => {
                table.queue_pop(key, false).map(StoreReply::Value)
            }
            R::Get { .. } | R::MultiGet { .. } | R::Wait { .. } | R::Barrier { .. } => return None,
            R::QueuePop { block: true, .. } => return None,
            R::QueuePop { .. } => Err(Error::QueueEmpty),
            R::Set { key, value } => table.set(key, value).map(|()| StoreReply::Done),
            R::Add { key, amount } => table.add(key, amount).map(StoreReply::Number),
            R::Append { key, value } => table.append(key, value).map(|()| StoreReply::Done),
            R::Check { keys } => table.check(keys).map(StoreReply::Flag),
            R::CompareSet { key, expected, desired } => {
                table.compare_set(key, expected, desired).map(StoreReply::Value)
            }
            R::DeleteKey { key } => table.delete_key(key).map(StoreReply::Flag),
            R::MultiSet { keys, values } => {
                table.multi_set(keys, values).map(|()| StoreReply::Done)
            }
            R::NumKeys => table.num_keys().map(StoreReply::Number),
            R::ListKeys => table.list_keys().map(StoreReply::Keys),
            R::QueuePush { key, value } => table.queue_push(key, value).map(|()| StoreReply::Done),
            R::QueueLen { key } => table.queue_len(key).map(StoreReply::Number),
        };
        self.queue().changes += 1;
        Some(reply)
    }

    async fn answer(&self, request: StoreRequest<'_>) -> Result<StoreReply> {
        let opened;
        let keys;
        let request = match request {
            StoreRequest::Barrier { key, world_size, timeout } => {
                self.turn(None).await;
                let came = self.shared.table.add(&format!("{key}/came"), 1)?;
                opened = format!("{key}/opened");
                keys = [opened.as_str()];
                if came == i64::from(world_size) {
                    self.shared.table.set(&opened, b"1")?;
                    self.queue().changes += 1;
                }
                StoreRequest::Wait { keys: &keys, timeout }
            }
            other => other,
        };
        let limit = match request {
            StoreRequest::Wait { timeout, .. } => timeout.unwrap_or(self.timeout()),
            _ => self.timeout(),
        };
        let deadline = (!limit.is_zero()).then(|| Instant::now() + limit);
        let mut not_before = None;
        loop {
            self.turn(not_before).await;
            let changes = self.queue().changes;
            if let Some(reply) = self.attempt(request) {
                return reply;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                let keys = format!("{request:?}");
                let waited_ms = limit.as_millis() as u64;
                return Err(Error::StoreTimeout { operation: "wait".into(), keys, waited_ms });
            }
            not_before = Some((changes, deadline));
        }
    }
}

impl Ticket {
    fn is_ready(&self, changes: u64, now: Instant) -> bool {
        !self.called
            && self.not_before.is_none_or(|(seen, deadline)| {
                changes > seen || deadline.is_some_and(|deadline| deadline <= now)
            })
    }
}

/// A request's place in the queue, which it leaves when it is dropped.
struct Place<'a> {
    store: &'a LaterStore,
    number: Option<u64>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let number = self.number;
        self.store.queue().tickets.retain(|ticket| Some(ticket.number) != number);
    }
}

fn blocks<T>(operation: &str) -> Result<T> {
    Err(Error::Unsupported { who: "this store".into(), operation: operation.into() })
}

impl Store for LaterStore {
    fn set(&self, _: &str, _: &[u8]) -> Result<()> {
        blocks("set")
    }
    fn get(&self, _: &str) -> Result<Vec<u8>> {
        blocks("get")
    }
    fn add(&self, _: &str, _: i64) -> Result<i64> {
        blocks("add")
    }
    fn append(&self, _: &str, _: &[u8]) -> Result<()> {
        blocks("append")
    }
    fn check(&self, _: &[&str]) -> Result<bool> {
        blocks("check")
    }
    fn compare_set(&self, _: &str, _: &[u8], _: &[u8]) -> Result<Vec<u8>> {
        blocks("compare_set")
    }
    fn delete_key(&self, _: &str) -> Result<bool> {
        blocks("delete_key")
    }
    fn wait(&self, _: &[&str], _: Option<Duration>) -> Result<()> {
        blocks("wait")
    }
    fn multi_get(&self, _: &[&str]) -> Result<Vec<Vec<u8>>> {
        blocks("multi_get")
    }
    fn multi_set(&self, _: &[&str], _: &[&[u8]]) -> Result<()> {
        blocks("multi_set")
    }
    fn num_keys(&self) -> Result<i64> {
        blocks("num_keys")
    }
    fn list_keys(&self) -> Result<Vec<String>> {
        blocks("list_keys")
    }
    fn queue_push(&self, _: &str, _: &[u8]) -> Result<()> {
        blocks("queue_push")
    }
    fn queue_pop(&self, _: &str, _: bool) -> Result<Vec<u8>> {
        blocks("queue_pop")
    }
    fn queue_len(&self, _: &str) -> Result<i64> {
        blocks("queue_len")
    }
    fn barrier(&self, _: &str, _: u32, _: Option<Duration>) -> Result<()> {
        blocks("barrier")
    }
    fn has_extended_api(&self) -> bool {
        true
    }
    fn timeout(&self) -> Duration {
        self.shared.table.timeout()
    }
    fn set_timeout(&self, timeout: Duration) {
        self.shared.table.set_timeout(timeout);
    }
    fn request<'a>(&'a self, request: StoreRequest<'a>) -> StoreFuture<'a> {
        Box::pin(self.answer(request))
    }
    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.clone()))
    }
}
