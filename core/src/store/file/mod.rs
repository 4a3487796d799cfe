//! The store in a file that all ranks can reach. Knows nothing of how records are laid out.

mod log;
pub(crate) mod membership;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::awaited_keys::{self, Finding};
use super::table::parse_number;
use super::{DEFAULT_TIMEOUT, Deadline, Store, TimeoutSetting, equal_lengths, expired};
use crate::generated::error::{Error, Result};
use log::{Access, CLOSED_STORES, LockedLog, Log, OPEN_STORES};

/// Pause between two looks at the file.
const POLL: Duration = Duration::from_millis(10);
/// How long closing a store may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The store in a file that all ranks can reach, in PyTorch's format. Needs a file system with
/// locks; who waits looks every 10 ms.
#[derive(Debug)]
pub struct FileStore {
    shared: Arc<SharedState>,
    timeout: TimeoutSetting,
}

#[derive(Debug)]
struct SharedState {
    path: PathBuf,
    world_size: Option<u32>,
    log: Mutex<Log>,
    /// The rank that is written in the file for this store.
    rank: Option<u32>,
    /// A forked child must not close its parent's store.
    process: u32,
}

impl FileStore {
    /// Opens the store in the file at `path`, which is created if it is missing. When `world_size`
    /// stores have been closed and none is open, the file is removed; never if it is `None`.
    ///
    /// # Errors
    /// [`Error::Store`] if the file cannot be opened or is not a store's.
    pub fn new(path: impl AsRef<Path>, world_size: Option<u32>) -> Result<Self> {
        Self::open(path.as_ref(), world_size, None, DEFAULT_TIMEOUT)
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Opens the store. If it is for a rank, the ranks in the file are looked at first.
    fn open(
        path: &Path,
        world_size: Option<u32>,
        rank: Option<u32>,
        timeout: Duration,
    ) -> Result<Self> {
        let deadline = Deadline::after(timeout);
        let member = rank.zip(world_size);
        let log = loop {
            let mut log = Log::new(path);
            let mut locked = log.create(&deadline)?;
            if let Some((rank, world_size)) = member
                && !membership::admit(&locked, path, rank, world_size)?
            {
                locked.remove()?;
                continue;
            }
            locked.add_internal(OPEN_STORES, 1)?;
            if let Some((rank, world_size)) = member {
                membership::register(&mut locked, rank, world_size, timeout)?;
            }
            drop(locked);
            break log;
        };
        let shared = SharedState {
            path: path.to_owned(),
            world_size,
            log: Mutex::new(log),
            rank,
            process: crate::clock::process_id(),
        };
        Ok(Self { shared: Arc::new(shared), timeout: TimeoutSetting::new(timeout) })
    }

    fn with<T>(
        &self,
        access: Access,
        run: impl FnOnce(&mut LockedLog<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut log = self.shared.log();
        run(&mut log.open(access, &Deadline::after(self.timeout()))?)
    }

    /// Reads the file until `ready` returns something.
    fn wait_until<T>(
        &self,
        keys: &[&str],
        timeout: Duration,
        access: Access,
        mut ready: impl FnMut(&mut LockedLog<'_>) -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(done) = self.with(access, &mut ready)? {
                return Ok(done);
            }
            awaited_keys::look(|| self.description(), || self.missing(keys));
            deadline.sleep(POLL).map_err(|why| expired(why, "wait", keys, &deadline))?;
        }
    }

    /// Those of `keys` that are not there.
    fn missing(&self, keys: &[&str]) -> Finding {
        let missing = self.with(Access::Read, |locked| Ok(locked.log.table.missing(keys)));
        missing.map_or(Finding::Nothing, Finding::Missing)
    }

    fn pop(locked: &mut LockedLog<'_>, key: &str) -> Result<Option<Vec<u8>>> {
        if !locked.log.table.has_queued(key.as_bytes()) {
            return Ok(None);
        }
        let value = locked.write(format!("-+/{key}").as_bytes(), b"")?;
        Ok(value.map(|value| value.bytes().to_vec()))
    }
}

impl SharedState {
    fn log(&self) -> MutexGuard<'_, Log> {
        // A panic elsewhere leaves at worst a record unread, which the next access reads.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the store out; the last one removes the file.
    fn close(&self) -> Result<()> {
        let mut log = self.log();
        let mut locked = log.open(Access::Write, &Deadline::after(CLOSE_LIMIT))?;
        if let Some(rank) = self.rank {
            membership::leave(&mut locked, rank)?;
        }
        let open = locked.add_internal(OPEN_STORES, -1)?;
        let closed = locked.add_internal(CLOSED_STORES, 1)?;
        match self.world_size {
            Some(world_size) if open <= 0 && closed >= i64::from(world_size) => locked.remove(),
            _ => Ok(()),
        }
    }
}

impl Drop for SharedState {
    fn drop(&mut self) {
        if self.process == crate::clock::process_id()
            && let Err(error) = self.close()
        {
            tracing::warn!("FileStore was not closed: {error}");
        }
    }
}

/// How the file spells a user's key.
fn user_key(key: &str) -> Vec<u8> {
    format!("/{key}").into_bytes()
}

fn bytes_of(locked: &LockedLog<'_>, key: &str) -> Option<Vec<u8>> {
    locked.log.table.get(key.as_bytes()).map(|value| value.bytes().to_vec())
}

impl Store for FileStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.with(Access::Write, |locked| locked.write(&user_key(key), value).map(drop))
    }

    fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.wait_until(&[key], self.timeout(), Access::Read, |locked| Ok(bytes_of(locked, key)))
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.with(Access::Write, |locked| {
            let present = match locked.log.table.get(key.as_bytes()) {
                None => Some(0),
                Some(value) => parse_number(value.bytes()),
            };
            let sum = present.and_then(|present| present.checked_add(amount));
            let sum = sum.ok_or_else(|| Error::NotACounter { key: key.into() })?;
            locked.write(&user_key(key), sum.to_string().as_bytes())?;
            Ok(sum)
        })
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.with(Access::Write, |locked| {
            let mut joined = bytes_of(locked, key).unwrap_or_default();
            joined.extend_from_slice(value);
            locked.write(&user_key(key), &joined).map(drop)
        })
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        self.with(Access::Read, |locked| {
            Ok(keys.iter().all(|key| locked.log.table.has(key.as_bytes())))
        })
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        self.with(Access::Write, |locked| match bytes_of(locked, key) {
            None if !expected.is_empty() => Ok(expected.to_vec()),
            Some(present) if present != expected => Ok(present),
            _ => {
                locked.write(&user_key(key), desired)?;
                Ok(desired.to_vec())
            }
        })
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        self.with(Access::Write, |locked| {
            let present = locked.log.table.get(key.as_bytes()).is_some();
            if present {
                locked.write(format!("-/{key}").as_bytes(), b"")?;
            }
            Ok(present)
        })
    }

    fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.unwrap_or_else(|| self.timeout());
        self.wait_until(keys, timeout, Access::Read, |locked| {
            Ok(keys.iter().all(|key| locked.log.table.has(key.as_bytes())).then_some(()))
        })
    }

    fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        self.wait_until(keys, self.timeout(), Access::Read, |locked| {
            Ok(keys.iter().map(|key| bytes_of(locked, key)).collect())
        })
    }

    fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
        equal_lengths(keys, values)?;
        self.with(Access::Write, |locked| {
            keys.iter()
                .zip(values)
                .try_for_each(|(key, value)| locked.write(&user_key(key), value).map(drop))
        })
    }

    fn num_keys(&self) -> Result<i64> {
        self.with(Access::Read, |locked| Ok(locked.log.table.num_keys() as i64))
    }

    fn list_keys(&self) -> Result<Vec<String>> {
        self.with(Access::Read, |locked| {
            let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
            Ok(locked.log.table.keys().map(text).collect())
        })
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.with(Access::Write, |locked| {
            locked.write(format!("+/{key}").as_bytes(), value).map(drop)
        })
    }

    fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>> {
        if !block {
            let popped = self.with(Access::Write, |locked| Self::pop(locked, key))?;
            return popped.ok_or(Error::QueueEmpty);
        }
        self.wait_until(&[key], self.timeout(), Access::Write, |locked| Self::pop(locked, key))
    }

    fn queue_len(&self, key: &str) -> Result<i64> {
        self.with(Access::Read, |locked| Ok(locked.log.table.queue_len(key.as_bytes()) as i64))
    }

    fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    fn share(&self) -> Option<Arc<dyn Store>> {
        self.clone_store().ok()
    }

    fn description(&self) -> String {
        format!("FileStore('{}')", self.path().display())
    }

    /// Another handle with a timeout of its own; the file is closed with the last one.
    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self { shared: self.shared.clone(), timeout: self.timeout.clone() }))
    }
}
