//! The file behind a FileStore: records, locks, replay. Knows nothing of waiting for keys.
//!
//! The format is PyTorch's: a record is a u32 key length, the key, a u32 value length, the value
//! (little-endian), and later records win. Users' keys begin with "/"; "-" in front of a key
//! removes it. Ours alone: "+/key" appends to a queue, "-+/key" takes its first element.
//!
//! Every access opens the file anew, as PyTorch does: on NFS, that is when a client sees what
//! others wrote.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::generated::error::{Error, Result};
use crate::store::deadline::{Deadline, WaitError};
use crate::store::table::{Table, Value, parse_number};

/// Open stores on the file.
pub(super) const OPEN_STORES: &str = "refcount/";
/// Stores that were closed.
pub(super) const CLOSED_STORES: &str = "cleanup/";
/// Pause between two attempts at a lock that another process holds.
const LOCK_POLL: Duration = Duration::from_micros(300);

/// How long to hold on to the file, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// What the records say, as far as they were read.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// What tells the file from another one under the same name, and the file: as long as it is
    /// open, no other gets the same number.
    identity: Option<((u64, u64), File)>,
    /// End of the last record that was read.
    position: u64,
    /// Users' keys, without "/".
    pub(super) table: Table,
    /// The store's own keys.
    internal: HashMap<Vec<u8>, Vec<u8>>,
}

/// The log while the file is locked and everything in it was read.
pub(super) struct LockedLog<'a> {
    pub(super) log: &'a mut Log,
    file: File,
}

impl Log {
    /// A log of the file at `path`, which need not exist yet.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            identity: None,
            position: 0,
            table: Table::new(usize::MAX),
            internal: HashMap::new(),
        }
    }

    /// Opens and locks the file for the first time, and creates it if it is missing.
    pub(super) fn create(&mut self, deadline: &Deadline) -> Result<LockedLog<'_>> {
        loop {
            let file = OpenOptions::new().read(true).append(true).create(true).open(&self.path);
            let file = file.map_err(|error| self.failed("open", &error))?;
            self.lock(&file, Access::Write, deadline)?;
            // The last user of an earlier store may have removed the file before the lock.
            if !self.is_current(&file)? {
                continue;
            }
            // Not a duplicate of `file`, which would hold the lock as well.
            let pinned = File::open(&self.path).map_err(|error| self.failed("open", &error))?;
            self.identity = identity(&file).map(|number| (number, pinned));
            let mut locked = LockedLog { log: self, file };
            locked.refresh(Access::Write)?;
            return Ok(locked);
        }
    }

    /// Opens and locks the file, and reads what is new in it.
    pub(super) fn open(&mut self, access: Access, deadline: &Deadline) -> Result<LockedLog<'_>> {
        let file = OpenOptions::new().read(true).append(access == Access::Write).open(&self.path);
        let file = file.map_err(|error| self.failed("open", &error))?;
        if identity(&file) != self.identity.as_ref().map(|(number, _)| *number) {
            return Err(self.taken_over("replaced"));
        }
        self.lock(&file, access, deadline)?;
        let mut locked = LockedLog { log: self, file };
        locked.refresh(access)?;
        Ok(locked)
    }

    /// One of the store's own values.
    pub(super) fn internal(&self, key: &str) -> Option<&[u8]> {
        self.internal.get(key.as_bytes()).map(Vec::as_slice)
    }

    /// One of the store's own numbers, 0 if there is none.
    pub(super) fn internal_number(&self, key: &str) -> i64 {
        self.internal(key).and_then(parse_number).unwrap_or(0)
    }

    /// The store's own keys that begin with `prefix`: the rest of each, and the value.
    pub(super) fn internal_under<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let rest = |key: &'a Vec<u8>| key.strip_prefix(prefix.as_bytes());
        self.internal.iter().filter_map(move |(key, value)| Some((rest(key)?, &value[..])))
    }

    /// Whether there is no record.
    pub(super) fn is_empty(&self) -> bool {
        self.position == 0
    }

    fn lock(&self, file: &File, access: Access, deadline: &Deadline) -> Result<()> {
        loop {
            let tried = match access {
                Access::Read => file.try_lock_shared(),
                Access::Write => file.try_lock(),
            };
            match tried {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(self.failed("lock", &error)),
            }
            deadline.sleep(LOCK_POLL).map_err(|why| Error::Store {
                message: match why {
                    WaitError::Interrupted => "waiting for the store's file was interrupted".into(),
                    WaitError::TimedOut => format!(
                        "another process has locked '{}' for {} ms",
                        self.path.display(),
                        deadline.limit_ms()
                    ),
                },
            })?;
        }
    }

    fn is_current(&self, file: &File) -> Result<bool> {
        match File::open(&self.path) {
            Ok(present) => Ok(identity(&present) == identity(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed("open", &error)),
        }
    }

    /// What one record says; the element if it takes one from a queue.
    fn apply(&mut self, key: &[u8], value: &[u8]) -> Option<Arc<Value>> {
        // The table has no limit and refuses no set, append or push.
        match key {
            [b'/', key @ ..] => drop(self.table.set(key, value)),
            [b'+', b'/', key @ ..] => drop(self.table.push(key, value)),
            [b'-', b'+', b'/', key @ ..] => return self.table.pop(key),
            [b'-', b'/', key @ ..] => drop(self.table.delete(key)),
            [b'-', key @ ..] => drop(self.internal.remove(key)),
            key => drop(self.internal.insert(key.to_vec(), value.to_vec())),
        }
        None
    }

    fn failed(&self, what: &str, error: &io::Error) -> Error {
        let path = self.path.display();
        Error::Store { message: format!("cannot {what} the store's file '{path}': {error}") }
    }

    fn taken_over(&self, how: &str) -> Error {
        let path = self.path.display();
        Error::Store { message: format!("the store's file '{path}' was {how} by another run") }
    }
}

impl LockedLog<'_> {
    /// Appends a record and applies it; the element if it takes one from a queue.
    pub(super) fn write(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Arc<Value>>> {
        let record = record(key, value)?;
        self.file.write_all(&record).map_err(|error| self.log.failed("write", &error))?;
        self.log.position += record.len() as u64;
        Ok(self.log.apply(key, value))
    }

    /// Adds `amount` to one of the store's own numbers.
    pub(super) fn add_internal(&mut self, key: &str, amount: i64) -> Result<i64> {
        let sum = self.log.internal_number(key) + amount;
        self.write(key.as_bytes(), sum.to_string().as_bytes())?;
        Ok(sum)
    }

    /// Removes the file.
    pub(super) fn remove(&mut self) -> Result<()> {
        std::fs::remove_file(&self.log.path).map_err(|error| self.log.failed("remove", &error))
    }

    fn refresh(&mut self, access: Access) -> Result<()> {
        let end = self.read_news().map_err(|error| self.log.failed("read", &error))?;
        if end < self.log.position {
            return Err(self.log.taken_over("cleared"));
        }
        if self.log.is_empty() && end > 0 {
            let path = self.log.path.display();
            return Err(Error::Store { message: format!("'{path}' is not a store's file") });
        }
        if access == Access::Write && end > self.log.position {
            // A writer died in the middle of a record, which nobody has read.
            let whole = self.log.position;
            self.file.set_len(whole).map_err(|error| self.log.failed("repair", &error))?;
        }
        Ok(())
    }

    /// Applies the records that others have added. The file's length.
    fn read_news(&mut self) -> io::Result<u64> {
        let end = self.file.metadata()?.len();
        if end <= self.log.position {
            return Ok(end);
        }
        self.file.seek(SeekFrom::Start(self.log.position))?;
        let mut news = Vec::new();
        self.file.read_to_end(&mut news)?;
        let mut rest = &news[..];
        while let Some((key, value, after)) = split_record(rest) {
            let first = self.log.is_empty();
            if first && key != OPEN_STORES.as_bytes() {
                break;
            }
            self.log.apply(key, value);
            self.log.position += (rest.len() - after.len()) as u64;
            rest = after;
        }
        Ok(end)
    }
}

fn record(key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    let mut record = Vec::with_capacity(8 + key.len() + value.len());
    for part in [key, value] {
        let Ok(length) = u32::try_from(part.len()) else {
            let message = format!(
                "a FileStore takes keys and values below 4 GiB, got {length}",
                length = part.len()
            );
            return Err(Error::InvalidArgument { message });
        };
        record.extend_from_slice(&length.to_le_bytes());
        record.extend_from_slice(part);
    }
    Ok(record)
}

/// The key, the value and the rest after the record at the front, if it is whole.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let part = |bytes| {
        let (length, rest) = <[u8]>::split_first_chunk::<4>(bytes)?;
        rest.split_at_checked(u32::from_le_bytes(*length) as usize)
    };
    let (key, rest) = part(bytes)?;
    let (value, rest) = part(rest)?;
    Some((key, value, rest))
}

#[cfg(unix)]
fn identity(file: &File) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    file.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(_file: &File) -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn records_are_those_of_torch() {
        let seen = b"\x02\0\0\0/k\x02\0\0\0v1";
        assert_eq!(record(b"/k", b"v1").unwrap(), seen);
        assert_eq!(split_record(seen), Some((&b"/k"[..], &b"v1"[..], &b""[..])));
        let seen = b"\x09\0\0\0refcount/\x01\0\0\x001";
        assert_eq!(record(OPEN_STORES.as_bytes(), b"1").unwrap(), seen);
        for cut in 0..seen.len() {
            assert_eq!(split_record(&seen[..cut]), None);
        }
    }
}
