//! A TCPStore client: its methods, the lock around its connection, and what becomes of that when
//! an exchange fails. Knows nothing of how connections are made (`client/opening.rs`) or waits are
//! cancelled.
//!
//! Every key of a user travels with "/" in front. Codes above 0x0d are only sent by the methods
//! that need them, because older servers close the connection on them.

mod opening;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::client_errors::{given_up, in_the_middle, no_files, wait_expired};
use super::connect;
use super::connection::{Connection, Fault};
use super::exchange::{get_at_once, plain_get, pop, settle, stop_waiting, stored, wait};
#[cfg(target_os = "linux")]
use super::local::LocalName;
use super::timed_mutex::{LockError, TimedMutex, TimedMutexGuard};
use crate::generated::error::{Error, Result};
use crate::store::member::scope_of;
use crate::store::protocol::{Encode, Kind, PREFIX, READY, WORKERS, check_keys, check_value};
use crate::store::silence::Silence;
use crate::store::table::parse_number;
use crate::store::url::authority;
use crate::store::{Deadline, TimeoutSetting, expired};

/// How long one attempt to come back to a server may take.
const RETURN_GRACE: Duration = Duration::from_secs(2);
/// Pause before the successor of a server that ended is looked for.
const SUCCESSION: Duration = Duration::from_millis(5);
/// Values up to this size are copied after their request; larger ones are sent from where they
/// are.
const INLINE_BYTES: usize = 8 << 10;

/// One client: a connection, its timeout, and the server's address.
#[derive(Debug)]
pub(super) struct Client {
    host: String,
    port: u16,
    local_address: Option<IpAddr>,
    /// What the server calls its socket for this host, if this client came by that.
    #[cfg(target_os = "linux")]
    local_name: Option<LocalName>,
    /// For one thread at a time.
    state: TimedMutex<State>,
    timeout: TimeoutSetting,
    /// Whether WAIT and GET may travel together. PyTorch's legacy server closes the connection on
    /// a GET whose key is missing; that is noticed, and such a server gets them one by one.
    pipelines: AtomicBool,
    /// The member keys that the server holds for this client. It must have them from another
    /// connection before it loses this one.
    members: Mutex<Vec<String>>,
}

#[derive(Debug)]
enum State {
    Open(Connection),
    /// This side gave the connection up in the middle of a reply, and has it still if it is not
    /// known what the server did with the requests; the next request opens another.
    Abandoned(Option<Connection>),
    /// The server is gone.
    Lost(String),
}

impl Default for State {
    fn default() -> Self {
        Self::Abandoned(None)
    }
}

impl State {
    /// Whether a forked child has it from its parent; it needs a connection of its own.
    fn is_inherited(&self) -> bool {
        match self {
            Self::Open(connection) | Self::Abandoned(Some(connection)) => connection.is_inherited(),
            Self::Abandoned(None) | Self::Lost(_) => false,
        }
    }
}

impl Client {
    /// The address of this host's interface that leads to the server.
    pub(super) fn local_address(&self) -> Option<IpAddr> {
        self.local_address
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    pub(super) fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    /// Counts this client at the server; the count.
    pub(super) fn count_worker(&self) -> Result<i64> {
        self.add_at(&[WORKERS.as_bytes()], WORKERS, 1)
    }

    /// The number of clients that were counted.
    pub(super) fn workers(&self) -> Result<i64> {
        self.add_at(&[WORKERS.as_bytes()], WORKERS, 0)
    }

    pub(super) fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.put(Kind::Set, key, value)
    }

    pub(super) fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.put(Kind::Append, key, value)
    }

    pub(super) fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.put(Kind::QueuePush, key, value)
    }

    pub(super) fn get(&self, key: &str) -> Result<Vec<u8>> {
        check_keys(&[key])?;
        let deadline = Deadline::after(self.timeout());
        let mut state = self.state("wait", &[key], &deadline)?;
        if self.pipelines.load(Ordering::Relaxed) {
            match get_at_once(usable(&mut state)?, key, &deadline) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(why)) => return Err(wait_expired(why, &[key], &deadline)),
                Err(Fault::Closed(why)) => {
                    if !self.come_back(&mut state) {
                        return Err(self.lost(&mut state, why));
                    }
                    self.pipelines.store(false, Ordering::Relaxed);
                }
                Err(fault) => return Err(self.fail(&mut state, fault, "wait", &[key], &deadline)),
            }
        }
        let connection = usable(&mut state)?;
        let value = wait(connection, &[key], &deadline).and_then(|waited| match waited {
            Ok(()) => plain_get(connection, key, &deadline).map(Ok),
            Err(why) => Ok(Err(why)),
        });
        match value {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(why)) => Err(wait_expired(why, &[key], &deadline)),
            Err(fault) => Err(self.fail(&mut state, fault, "get", &[key], &deadline)),
        }
    }

    pub(super) fn add(&self, key: &str, amount: i64) -> Result<i64> {
        check_keys(&[key])?;
        let sum = self.add_at(&[PREFIX, key.as_bytes()], key, amount)?;
        if scope_of(key.as_bytes()).is_some() {
            let mut members = self.members();
            members.retain(|known| known != key);
            members.push(key.to_owned());
        }
        Ok(sum)
    }

    fn add_at(&self, wire_key: &[&[u8]], key: &str, amount: i64) -> Result<i64> {
        let deadline = Deadline::after(self.timeout());
        let mut state = self.state("add", &[key], &deadline)?;
        let connection = usable(&mut state)?;
        connection.request.kind(Kind::Add);
        connection.request.blob(wire_key);
        connection.request.number(amount);
        let sum = connection.send(&[], &deadline).and_then(|()| connection.number(&deadline));
        match sum {
            // The server's only answer is to hang up, if it cannot add.
            Err(Fault::Closed(why)) => {
                if !self.come_back(&mut state) {
                    return Err(self.lost(&mut state, why));
                }
                let present = usable(&mut state).ok().and_then(|connection| {
                    let check = Deadline::uninterrupted(RETURN_GRACE);
                    stored(connection, wire_key, &check).ok().flatten()
                });
                match present {
                    Some(value) if !can_add(&value, amount) => {
                        Err(Error::NotACounter { key: key.into() })
                    }
                    _ => Err(self.lost(&mut state, why)),
                }
            }
            sum => sum.map_err(|fault| self.fail(&mut state, fault, "add", &[key], &deadline)),
        }
    }

    pub(super) fn check(&self, keys: &[&str]) -> Result<bool> {
        check_keys(keys)?;
        self.exchange("check", keys, |connection, deadline| {
            connection.request.kind(Kind::Check);
            connection.request.keys(PREFIX, keys);
            connection.send(&[], deadline)?;
            Ok(connection.array(deadline)? == [READY])
        })
    }

    pub(super) fn compare_set(
        &self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>> {
        check_keys(&[key])?;
        check_value(expected)?;
        check_value(desired)?;
        self.exchange("compare_set", &[key], |connection, deadline| {
            connection.request.kind(Kind::CompareSet);
            connection.request.blob(&[PREFIX, key.as_bytes()]);
            connection.request.blob(&[expected]);
            connection.request.number(desired.len() as i64);
            connection.send(desired, deadline)?;
            connection.blob(deadline)
        })
    }

    pub(super) fn delete_key(&self, key: &str) -> Result<bool> {
        self.members().retain(|known| known != key);
        Ok(self.ask(Kind::DeleteKey, "delete_key", key)? > 0)
    }

    pub(super) fn queue_len(&self, key: &str) -> Result<i64> {
        self.ask(Kind::QueueLen, "queue_len", key)
    }

    pub(super) fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        check_keys(keys)?;
        let deadline = Deadline::after(timeout.unwrap_or_else(|| self.timeout()));
        let mut state = self.state("wait", keys, &deadline)?;
        let waited = wait(usable(&mut state)?, keys, &deadline);
        waited
            .map_err(|fault| self.fail(&mut state, fault, "wait", keys, &deadline))?
            .map_err(|why| wait_expired(why, keys, &deadline))
    }

    pub(super) fn barrier(
        &self,
        key: &str,
        world_size: u32,
        timeout: Option<Duration>,
    ) -> Result<()> {
        check_keys(&[key])?;
        let deadline = Deadline::after(timeout.unwrap_or_else(|| self.timeout()));
        let mut state = self.state("barrier", &[key], &deadline)?;
        let connection = usable(&mut state)?;
        connection.request.kind(Kind::Barrier);
        connection.request.blob(&[PREFIX, key.as_bytes()]);
        connection.request.number(i64::from(world_size));
        stop_waiting(connection, &[key], &deadline)
            .map_err(|fault| self.fail(&mut state, fault, "barrier", &[key], &deadline))?
            .map_err(|why| expired(why, "barrier", &[key], &deadline))
    }

    pub(super) fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        check_keys(keys)?;
        let deadline = Deadline::after(self.timeout());
        let mut state = self.state("multi_get", keys, &deadline)?;
        let connection = usable(&mut state)?;
        let values = wait(connection, keys, &deadline).and_then(|waited| {
            let Ok(()) = waited else { return Ok(waited.map(|()| Vec::new())) };
            connection.request.kind(Kind::MultiGet);
            connection.request.keys(PREFIX, keys);
            connection.send(&[], &deadline)?;
            keys.iter().map(|_| connection.blob(&deadline)).collect::<Result<_, _>>().map(Ok)
        });
        values
            .map_err(|fault| self.fail(&mut state, fault, "multi_get", keys, &deadline))?
            .map_err(|why| wait_expired(why, keys, &deadline))
    }

    pub(super) fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
        crate::store::equal_lengths(keys, values)?;
        check_keys(keys)?;
        values.iter().try_for_each(|value| check_value(value))?;
        self.exchange("multi_set", keys, |connection, deadline| {
            connection.request.kind(Kind::MultiSet);
            connection.request.number(keys.len() as i64);
            for (key, value) in keys.iter().zip(values) {
                connection.request.blob(&[PREFIX, key.as_bytes()]);
                connection.request.number(value.len() as i64);
                if value.len() <= INLINE_BYTES {
                    connection.request.extend_from_slice(value);
                } else {
                    connection.send(value, deadline)?;
                }
            }
            connection.send(&[], deadline)
        })
    }

    pub(super) fn num_keys(&self) -> Result<i64> {
        self.exchange("num_keys", &[], |connection, deadline| {
            connection.request.kind(Kind::Check);
            connection.request.keys(&[], &[WORKERS]);
            connection.request.kind(Kind::NumKeys);
            connection.send(&[], deadline)?;
            let counted_workers = connection.array(deadline)? == [READY];
            Ok(connection.number(deadline)? - i64::from(counted_workers))
        })
    }

    pub(super) fn list_keys(&self) -> Result<Vec<String>> {
        let deadline = Deadline::after(self.timeout());
        let mut state = self.state("list_keys", &[], &deadline)?;
        match keys(usable(&mut state)?, &deadline) {
            Ok(keys) => Ok(keys),
            // PyTorch's servers up to 2.8 hang up on what they do not know, and live on.
            Err(Fault::Closed(_)) if self.come_back(&mut state) => Err(Error::Unsupported {
                who: format!(
                    "the store's server at {} (PyTorch's?)",
                    authority(&self.host, self.port)
                ),
                operation: "list_keys".into(),
            }),
            Err(fault) => Err(self.fail(&mut state, fault, "list_keys", &[], &deadline)),
        }
    }

    pub(super) fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>> {
        check_keys(&[key])?;
        let deadline = Deadline::after(self.timeout());
        let mut state = self.state("queue_pop", &[key], &deadline)?;
        loop {
            let connection = usable(&mut state)?;
            let waited = if block { wait(connection, &[key], &deadline) } else { Ok(Ok(())) };
            let popped = waited.and_then(|waited| match waited {
                Ok(()) => pop(connection, key, &deadline).map(Ok),
                Err(why) => Ok(Err(why)),
            });
            match popped {
                Ok(Ok(Some(value))) => return Ok(value),
                // Another client was faster: back to waiting.
                Ok(Ok(None)) if block => {}
                Ok(Ok(None)) => return Err(Error::QueueEmpty),
                Ok(Err(why)) => return Err(wait_expired(why, &[key], &deadline)),
                Err(fault) => {
                    return Err(self.fail(&mut state, fault, "queue_pop", &[key], &deadline));
                }
            }
        }
    }

    /// A request of a key and a value, which has no reply.
    fn put(&self, kind: Kind, key: &str, value: &[u8]) -> Result<()> {
        check_keys(&[key])?;
        check_value(value)?;
        let deadline = Deadline::after(self.timeout());
        let mut state = self.state("set", &[key], &deadline)?;
        let connection = usable(&mut state)?;
        connection.request.kind(kind);
        connection.request.blob(&[PREFIX, key.as_bytes()]);
        let sent = if value.len() <= INLINE_BYTES {
            connection.request.blob(&[value]);
            connection.send(&[], &deadline)
        } else {
            connection.request.number(value.len() as i64);
            connection.send(value, &deadline)
        };
        sent.map_err(|fault| self.fail(&mut state, fault, "set", &[key], &deadline))
    }

    /// A request of a key whose reply is a number.
    fn ask(&self, kind: Kind, operation: &str, key: &str) -> Result<i64> {
        check_keys(&[key])?;
        self.exchange(operation, &[key], |connection, deadline| {
            connection.request.kind(kind);
            connection.request.blob(&[PREFIX, key.as_bytes()]);
            connection.send(&[], deadline)?;
            connection.number(deadline)
        })
    }

    fn exchange<T>(
        &self,
        operation: &str,
        keys: &[&str],
        run: impl FnOnce(&mut Connection, &Deadline) -> Result<T, Fault>,
    ) -> Result<T> {
        let deadline = Deadline::after(self.timeout());
        let mut state = self.state(operation, keys, &deadline)?;
        run(usable(&mut state)?, &deadline)
            .map_err(|fault| self.fail(&mut state, fault, operation, keys, &deadline))
    }

    /// The connection, as soon as no other thread has it and the server has caught up: opened again
    /// if this side gave the last one up.
    fn state(
        &self,
        operation: &str,
        keys: &[&str],
        deadline: &Deadline,
    ) -> Result<TimedMutexGuard<'_, State>> {
        let mut silence = None;
        let server = || authority(&self.host, self.port);
        let say = || silence.get_or_insert_with(|| Silence::of_taken_client(&server())).look();
        let mut state = self.state.lock(deadline, say).map_err(|why| match why {
            LockError::Expired(why) => given_up(why, operation, keys, deadline),
            LockError::Reentrant => Error::InvalidArgument { message: in_the_middle(operation) },
        })?;
        if state.is_inherited() {
            // The server holds the parent's keys as long as the parent is connected to it.
            self.members().clear();
            *state = State::Abandoned(None);
        }
        let fault = match &mut *state {
            State::Open(connection) => match settle(connection, deadline) {
                Ok(Ok(())) => return Ok(state),
                // The server is still silent; the connection is as good as before.
                Ok(Err(why)) => return Err(given_up(why, operation, keys, deadline)),
                Err(fault) => fault,
            },
            State::Abandoned(last) => match self.succeed(last.as_mut(), deadline) {
                Ok(connection) => {
                    *state = State::Open(connection);
                    return Ok(state);
                }
                Err(fault) => fault,
            },
            State::Lost(_) => return Ok(state),
        };
        Err(self.fail(&mut state, fault, operation, keys, deadline))
    }

    /// A connection in place of `last`, as soon as the server has run every request that was sent
    /// over that: they must not come after those that follow.
    fn succeed(
        &self,
        last: Option<&mut Connection>,
        deadline: &Deadline,
    ) -> Result<Connection, Fault> {
        let next = self.open_another(deadline)?;
        match last {
            None => Ok(next),
            Some(last) => last.finish(deadline).map(|()| next),
        }
    }

    /// Another connection to the same server, which holds this client's member keys for it.
    fn open_another(&self, deadline: &Deadline) -> Result<Connection, Fault> {
        let mut connection = connect::attempt(&self.host, self.port, deadline, None)?;
        for key in self.members().iter() {
            connection.request.kind(Kind::Add);
            connection.request.blob(&[PREFIX, key.as_bytes()]);
            connection.request.number(0);
            connection.send(&[], deadline)?;
            connection.number(deadline)?;
        }
        Ok(connection)
    }

    fn members(&self) -> MutexGuard<'_, Vec<String>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of an exchange that ended early; the connection cannot be used for another.
    fn fail(
        &self,
        state: &mut State,
        fault: Fault,
        operation: &str,
        keys: &[&str],
        deadline: &Deadline,
    ) -> Error {
        match fault {
            Fault::Closed(why) | Fault::Malformed(why) => self.lost(state, why),
            Fault::NoFiles => self.lost(state, no_files()),
            Fault::Expired(why) => {
                *state = match std::mem::take(state) {
                    State::Open(connection) => State::Abandoned(Some(connection)),
                    other => other,
                };
                given_up(why, operation, keys, deadline)
            }
        }
    }

    /// The error of this request and of all that follow.
    fn lost(&self, state: &mut State, why: String) -> Error {
        let message = format!("lost the store at {}: {why}", authority(&self.host, self.port));
        *state = State::Lost(message.clone());
        Error::Network { message }
    }

    /// One attempt at a new connection.
    fn come_back(&self, state: &mut State) -> bool {
        match self.open_another(&Deadline::uninterrupted(RETURN_GRACE)) {
            Ok(connection) => {
                *state = State::Open(connection);
                true
            }
            Err(_) => false,
        }
    }
}

/// All keys of the server that users gave.
fn keys(connection: &mut Connection, deadline: &Deadline) -> Result<Vec<String>, Fault> {
    connection.request.kind(Kind::ListKeys);
    connection.send(&[], deadline)?;
    let mut keys = Vec::new();
    for _ in 0..connection.number(deadline)? {
        if let Some(key) = connection.blob(deadline)?.strip_prefix(PREFIX) {
            keys.push(String::from_utf8_lossy(key).into_owned());
        }
    }
    Ok(keys)
}

/// The open connection.
fn usable(state: &mut State) -> Result<&mut Connection> {
    match state {
        State::Open(connection) => {
            connection.request.clear();
            Ok(connection)
        }
        State::Lost(why) => Err(Error::Network { message: why.clone() }),
        State::Abandoned(_) => {
            Err(Error::Network { message: "The connection was given up".into() })
        }
    }
}

/// Whether `value` is a number, and the sum with `amount` one of 64 bits.
fn can_add(value: &[u8], amount: i64) -> bool {
    parse_number(value).and_then(|present| present.checked_add(amount)).is_some()
}
