//! What the server does with a request: PyTorch's TCPStore rules over the table and the waiters.
//! Knows clients by number, and nothing of sockets.

use std::collections::HashMap;
#[cfg(feature = "websocket")]
use std::collections::HashSet;

use super::holders::{Holder, Holders};
use super::output::Output;
use super::waiters::{ClientId, Waiters, WokenClient};
use crate::store::protocol::{
    Encode, LOCAL_NAME, NOT_READY, READY, Request, STOP_WAITING, WAIT_CANCELED,
};
use crate::store::table::{Refusal, Table};

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// Who waits, where that is asked for.
    pub(super) client: ClientId,
    /// Whose the member keys are that the request makes.
    pub(super) holder: Holder,
}

/// Everything that the clients of a server share.
#[derive(Debug)]
pub(super) struct Service {
    table: Table,
    waiters: Waiters,
    /// Clients that were told of a queue's element and have not fetched it yet.
    fetching: HashMap<ClientId, Vec<u8>>,
    /// Clients whose waits ended; the caller tells them.
    woken: Vec<WokenClient>,
    /// What stands at the key [`LOCAL_NAME`], which nobody can change.
    local_name: Option<Vec<u8>>,
    holders: Holders,
    /// The sessions that there are, by number.
    #[cfg(feature = "websocket")]
    sessions: HashSet<u64>,
}

impl Service {
    /// A service without keys that refuses to store more than about `limit_bytes`.
    pub(super) fn new(limit_bytes: usize, local_name: Option<Vec<u8>>) -> Self {
        Self {
            local_name,
            table: Table::new(limit_bytes),
            waiters: Waiters::default(),
            fetching: HashMap::new(),
            woken: Vec::new(),
            holders: Holders::default(),
            #[cfg(feature = "websocket")]
            sessions: HashSet::new(),
        }
    }

    /// The session with this number begins.
    #[cfg(feature = "websocket")]
    pub(super) fn enter(&mut self, session: u64) {
        self.sessions.insert(session);
    }

    /// The session with this number is over.
    #[cfg(feature = "websocket")]
    pub(super) fn exit(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.release(Holder::Session(session));
    }

    /// Notes whether the session with this number has lost its socket, and may come back.
    #[cfg(feature = "websocket")]
    pub(super) fn set_away(&mut self, session: u64, is_away: bool) {
        self.holders.set_away(Holder::Session(session), is_away);
    }

    /// Runs `request` of `client`, which holds keys as `holder`; its reply goes to `output`. A
    /// refusal costs the client its connection.
    pub(super) fn serve(
        &mut self,
        Caller { client, holder }: Caller,
        request: Request<'_>,
        output: &mut Output,
    ) -> Result<(), Refusal> {
        match request {
            Request::Set { key, value } => {
                self.table.set(key, value)?;
                self.written(key);
            }
            Request::CompareSet { key, expected, desired } => {
                let (reply, created) = self.table.compare_set(key, expected, desired)?;
                // PyTorch's server also wakes when no key came into being, so that its waiters
                // read a key that is not there. Who waited needs the key: nobody else is woken.
                if created {
                    self.written(key);
                }
                output.tail.blob(&[&reply]);
            }
            Request::Get { key } if key == LOCAL_NAME => {
                output.tail.blob(&[self.local_name.as_deref().unwrap_or_default()]);
            }
            Request::Get { key } => output.value(self.table.get(key)),
            Request::Add { key, amount } => {
                let sum = self.add(holder, key, amount)?;
                output.tail.number(sum);
            }
            Request::Check { mut keys } => {
                let ready = keys.all(|key| {
                    self.table.has(key) && !self.holders.are_away(key) || self.is_present(key)
                });
                output.tail.push(if ready { READY } else { NOT_READY });
            }
            Request::Wait { keys } => self.wait(client, keys, output),
            Request::NumKeys => output.tail.number(self.table.num_keys() as i64),
            Request::DeleteKey { key } => {
                self.holders.forget(key);
                output.tail.number(i64::from(self.table.delete(key)));
            }
            Request::Append { key, value } => {
                self.table.append(key, value)?;
                self.written(key);
            }
            Request::MultiGet { keys } => {
                keys.for_each(|key| output.value(self.table.get(key)));
            }
            Request::CancelWait => {
                self.waiters.cancel(client);
                self.pass_on(client);
                output.tail.push(WAIT_CANCELED);
            }
            Request::Ping { nonce } => output.tail.extend_from_slice(&nonce),
            Request::QueuePush { key, value } => {
                self.table.push(key, value)?;
                self.pushed(key);
            }
            Request::QueuePop { key } => self.pop(client, key, output),
            Request::QueueLen { key } => output.tail.number(self.table.queue_len(key) as i64),
            Request::ListKeys => {
                output.tail.number(self.table.num_keys() as i64);
                self.table.keys().for_each(|key| output.tail.blob(&[key]));
            }
            Request::Barrier { key, world_size } => self.arrive(client, key, world_size, output)?,
        }
        Ok(())
    }

    /// Forgets what `client` waits for: it is gone, or its request is over.
    pub(super) fn leave(&mut self, client: ClientId) {
        self.waiters.cancel(client);
        self.pass_on(client);
    }

    /// Removes the member keys that only `holder` held, which is gone.
    pub(super) fn release(&mut self, holder: Holder) {
        for key in self.holders.release(holder) {
            self.table.delete(&key);
        }
    }

    /// Whether `client` waits.
    #[cfg(feature = "websocket")]
    pub(super) fn is_waiting(&self, client: ClientId) -> bool {
        self.waiters.is_waiting(client)
    }

    /// Bytes of memory that the wait of `client` takes.
    pub(super) fn waiting_bytes(&self, client: ClientId) -> usize {
        self.waiters.bytes(client)
    }

    /// The clients whose waits ended since the last call; each gets [`STOP_WAITING`].
    pub(super) fn take_woken(&mut self) -> Vec<WokenClient> {
        std::mem::take(&mut self.woken)
    }

    /// Whether `key` is a name for what the server itself knows, such as a session that there is.
    fn is_present(&self, key: &[u8]) -> bool {
        (key == LOCAL_NAME && self.local_name.is_some()) || self.is_session(key)
    }

    #[cfg(feature = "websocket")]
    fn is_session(&self, key: &[u8]) -> bool {
        use crate::wire::channel::{Presence, presence};
        match presence(key) {
            Some(Presence::Known) => true,
            Some(Presence::Of(number)) => self.sessions.contains(&number),
            None => false,
        }
    }

    #[cfg(not(feature = "websocket"))]
    fn is_session(&self, _key: &[u8]) -> bool {
        false
    }

    fn wait<'a>(
        &mut self,
        client: ClientId,
        keys: impl Iterator<Item = &'a [u8]> + Clone,
        output: &mut Output,
    ) {
        let missing = keys.filter(|key| !self.table.has(key));
        if missing.clone().next().is_none() {
            output.tail.push(STOP_WAITING);
        } else {
            self.waiters.wait(client, missing);
        }
    }

    /// Adds to the number at `key`, which `holder` holds from now on if it is a member key.
    fn add(&mut self, holder: Holder, key: &[u8], amount: i64) -> Result<i64, Refusal> {
        if !self.holders.note(holder, key) {
            return Err(Refusal::Full);
        }
        let sum = self.table.add(key, amount)?;
        self.written(key);
        Ok(sum)
    }

    fn pop(&mut self, client: ClientId, key: &[u8], output: &mut Output) {
        self.fetching.remove(&client);
        output.tail.number(self.table.queue_len(key) as i64);
        if let Some(value) = self.table.pop(key) {
            output.value(Some(&value));
        }
    }

    /// One more at the barrier `key`. The count is the key's value, and is never taken back.
    fn arrive(
        &mut self,
        client: ClientId,
        key: &[u8],
        world_size: i64,
        output: &mut Output,
    ) -> Result<(), Refusal> {
        if self.table.add(key, 1)? >= world_size {
            self.written(key);
            output.tail.push(STOP_WAITING);
        } else {
            self.waiters.wait(client, std::iter::once(key));
        }
        Ok(())
    }

    /// Wakes those who waited for the value of `key`.
    fn written(&mut self, key: &[u8]) {
        if self.waiters.is_empty() {
            return;
        }
        let (table, has_queues) = (&self.table, self.table.queues() > 0);
        let queued = |key: &[u8]| has_queues && table.has_queued(key);
        self.woken.extend(self.waiters.written(key, queued));
    }

    /// Wakes one who waited for an element of the queue `key`.
    fn pushed(&mut self, key: &[u8]) {
        if let Some(woken) = self.waiters.pushed(key) {
            self.fetching.insert(woken.client, key.to_vec());
            self.woken.push(woken);
        }
    }

    /// `client` will not fetch the element that it was told of: tells the next one.
    fn pass_on(&mut self, client: ClientId) {
        if let Some(key) = self.fetching.remove(&client)
            && self.table.has_queued(&key)
        {
            self.pushed(&key);
        }
    }
}
