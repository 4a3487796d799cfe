//! What a store holds: values and queues, and PyTorch's rules for changing them.
//! Knows nothing of waiting, threads or sockets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::member::scope_of;
use crate::sorted::LargeMap;

/// What a stored value costs beside its bytes: the map's entry and the allocations.
const ENTRY_BYTES: usize = 160;

/// Why the table refused a change. It is unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The value is not a decimal number, or the sum would be none of 64 bits.
    NotANumber,
    /// The table would outgrow its limit.
    Full,
}

/// A stored value. Replies share it instead of copying; it stays charged to the table until the
/// last of them has been sent.
#[derive(Debug)]
pub(crate) struct Value {
    bytes: Vec<u8>,
    charged: usize,
    account: Arc<AtomicUsize>,
}

impl Value {
    fn new(key_bytes: usize, bytes: Vec<u8>, account: &Arc<AtomicUsize>) -> Arc<Self> {
        let charged = key_bytes + bytes.len() + ENTRY_BYTES;
        account.fetch_add(charged, Ordering::Relaxed);
        Arc::new(Self { bytes, charged, account: account.clone() })
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Changes the bytes in place, and the charge with them.
    fn edit(&mut self, edit: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        edit(&mut self.bytes);
        let after = self.bytes.len();
        self.charged = self.charged - before + after;
        if after >= before {
            self.account.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.account.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.account.fetch_sub(self.charged, Ordering::Relaxed);
    }
}

/// Values and queues, two namespaces.
#[derive(Debug)]
pub(crate) struct Table {
    values: LargeMap<Vec<u8>, Arc<Value>>,
    queues: LargeMap<Vec<u8>, VecDeque<Arc<Value>>>,
    /// The number of member keys of each scope.
    members: LargeMap<Vec<u8>, usize>,
    account: Arc<AtomicUsize>,
    limit_bytes: usize,
}

impl Table {
    /// An empty table that refuses to hold more than about `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            values: LargeMap::new(),
            queues: LargeMap::new(),
            members: LargeMap::new(),
            account: Arc::default(),
            limit_bytes,
        }
    }

    /// The value of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Arc<Value>> {
        self.values.get(key)
    }

    /// Whether `key` has a value or a queue that is not empty.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.has_queued(key)
    }

    /// The positions of those of `keys` that are not there. A value is no element of a queue: of
    /// one key that is waited for although it has a value, the queue has none.
    pub(crate) fn missing(&self, keys: &[&str]) -> Vec<usize> {
        let is_missing = |key: &str| match keys.len() {
            // Whatever is queued is there, so that this holds for a value, too.
            1 => !self.has_queued(key.as_bytes()),
            _ => !self.has(key.as_bytes()),
        };
        (0..).zip(keys).filter(|(_, key)| is_missing(key)).map(|(at, _)| at).collect()
    }

    /// Whether the queue `key` has an element.
    pub(crate) fn has_queued(&self, key: &[u8]) -> bool {
        self.queues.contains_key(key)
    }

    /// The number of queues that are not empty.
    #[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "only the server needs it"))]
    pub(crate) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// The number of values; queues do not count.
    pub(crate) fn num_keys(&self) -> usize {
        self.values.len()
    }

    /// The keys of all values, in no order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.values.keys().map(Vec::as_slice)
    }

    /// Sets `key` to `value`.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let fits = self.fits(value.len());
        let Some(slot) = self.values.get_mut(key) else {
            return self.create(key, value);
        };
        if !fits && value.len() > slot.bytes.len() {
            return Err(Refusal::Full);
        }
        match Arc::get_mut(slot) {
            // The allocation is kept for values that are set again and again, but not the one
            // of a huge value for a tiny one.
            Some(present) if present.bytes.capacity() <= 2 * value.len() + 64 => {
                present.edit(|bytes| {
                    bytes.clear();
                    bytes.extend_from_slice(value);
                });
            }
            _ => *slot = Value::new(key.len(), value.to_vec(), &self.account),
        }
        Ok(())
    }

    /// Appends `value` to the value of `key`, empty if there is none.
    pub(crate) fn append(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let fits = self.fits(value.len());
        let Some(slot) = self.values.get_mut(key) else {
            return self.create(key, value);
        };
        if !fits {
            return Err(Refusal::Full);
        }
        match Arc::get_mut(slot) {
            Some(present) => present.edit(|bytes| bytes.extend_from_slice(value)),
            None => {
                let joined = [slot.bytes(), value].concat();
                *slot = Value::new(key.len(), joined, &self.account);
            }
        }
        Ok(())
    }

    /// Adds `amount` to the decimal number at `key`; wraps around on overflow.
    pub(crate) fn add(&mut self, key: &[u8], amount: i64) -> Result<i64, Refusal> {
        let present = match self.values.get(key) {
            None => 0,
            Some(value) => parse_number(value.bytes()).ok_or(Refusal::NotANumber)?,
        };
        let sum = present.checked_add(amount).ok_or(Refusal::NotANumber)?;
        self.set(key, sum.to_string().as_bytes())?;
        Ok(sum)
    }

    /// c10d's compare_set. The reply, and whether a key came into being.
    pub(crate) fn compare_set(
        &mut self,
        key: &[u8],
        expected: &[u8],
        desired: &[u8],
    ) -> Result<(Vec<u8>, bool), Refusal> {
        match self.values.get(key) {
            None if expected.is_empty() => {
                self.create(key, desired)?;
                Ok((desired.to_vec(), true))
            }
            // Nothing is stored, yet the reply is what was expected: c10d's rule.
            None => Ok((expected.to_vec(), false)),
            Some(present) if present.bytes() == expected => {
                self.set(key, desired)?;
                Ok((desired.to_vec(), false))
            }
            Some(present) => Ok((present.bytes().to_vec(), false)),
        }
    }

    /// Removes the value of `key`; whether there was one. Queues stay. Everything in a scope goes
    /// with its last member key.
    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        let was_there = self.values.remove(key).is_some();
        if was_there
            && let Some(scope) = scope_of(key)
            && let Some(members) = self.members.get_mut(scope)
        {
            *members -= 1;
            if *members == 0 {
                self.values.retain(|key, _| !key.starts_with(scope));
                self.queues.retain(|key, _| !key.starts_with(scope));
                self.members.retain(|other, _| !other.starts_with(scope));
            }
        }
        was_there
    }

    /// Appends `value` to the queue `key`.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if !self.fits(key.len() + value.len() + ENTRY_BYTES) {
            return Err(Refusal::Full);
        }
        let value = Value::new(key.len(), value.to_vec(), &self.account);
        match self.queues.get_mut(key) {
            Some(queue) => queue.push_back(value),
            None => {
                self.queues.insert(key.to_vec(), VecDeque::from([value]));
            }
        }
        Ok(())
    }

    /// Takes the first element of the queue `key`.
    pub(crate) fn pop(&mut self, key: &[u8]) -> Option<Arc<Value>> {
        let queue = self.queues.get_mut(key)?;
        let value = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(key);
        }
        value
    }

    /// Length of the queue `key`.
    pub(crate) fn queue_len(&self, key: &[u8]) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    fn create(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if !self.fits(key.len() + value.len() + ENTRY_BYTES) {
            return Err(Refusal::Full);
        }
        let value = Value::new(key.len(), value.to_vec(), &self.account);
        self.values.insert(key.to_vec(), value);
        if let Some(scope) = scope_of(key) {
            *self.members.entry(scope.to_vec()).or_default() += 1;
        }
        Ok(())
    }

    fn fits(&self, more_bytes: usize) -> bool {
        self.account.load(Ordering::Relaxed).saturating_add(more_bytes) <= self.limit_bytes
    }
}

/// The number at the front of `text` as C's `strtoll` reads it: blanks, a sign, digits, then
/// anything. `None` if there are no digits or the number does not fit.
pub(crate) fn parse_number(text: &[u8]) -> Option<i64> {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    let text = &text[text.iter().take_while(|byte| blank(byte)).count()..];
    let signs = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = text[signs..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..signs + digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, number) in [
            (&b"12abc"[..], Some(12)),
            (b" \t\n\x0b\x0c\r-7", Some(-7)),
            (b"+5", Some(5)),
            (b"007", Some(7)),
            (b"9223372036854775807", Some(i64::MAX)),
            (b"-9223372036854775808", Some(i64::MIN)),
            (b"9223372036854775808", None),
            (b"", None),
            (b"-", None),
            (b"+-1", None),
            (b"abc", None),
            (b"\xff", None),
        ] {
            assert_eq!(parse_number(text), number, "{text:?}");
        }
    }

    #[test]
    fn a_full_table_refuses_and_frees_what_is_no_longer_used() {
        let mut table = Table::new(1000);
        table.set(b"a", &[1; 300]).unwrap();
        table.push(b"q", &[2; 300]).unwrap();
        assert_eq!(table.set(b"b", &[3; 300]), Err(Refusal::Full));
        assert_eq!(table.push(b"q", &[3; 300]), Err(Refusal::Full));
        assert_eq!(table.append(b"a", &[3; 300]), Err(Refusal::Full));
        let popped = table.pop(b"q").unwrap();
        // A reply under way still pins the bytes.
        assert_eq!(table.set(b"b", &[3; 300]), Err(Refusal::Full));
        drop(popped);
        table.set(b"b", &[3; 300]).unwrap();
        assert!(table.delete(b"a") && table.delete(b"b"));
        assert_eq!(table.account.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn everything_in_a_scope_goes_with_its_last_member() {
        let key = |scope: &str, token: u8| {
            let token = format!("{token:032x}");
            crate::store::member::member_key(scope, &token).into_bytes()
        };
        let mut table = Table::new(usize::MAX);
        for (scope, token) in [("g", 1), ("g/0", 1), ("g", 2), ("g/0", 2), ("g1", 3)] {
            table.add(&key(scope, token), 1).unwrap();
        }
        for name in [&b"g/0/a"[..], b"g/b", b"g1/c", b"g"] {
            table.set(name, b"value").unwrap();
        }
        table.push(b"g/0/queue", b"element").unwrap();
        assert!(table.delete(&key("g/0", 1)) && !table.delete(&key("g/0", 1)));
        assert!(table.has(b"g/0/a") && table.has(b"g/0/queue"));
        assert!(table.delete(&key("g/0", 2)));
        assert!(!table.has(b"g/0/a") && !table.has(b"g/0/queue") && table.has(b"g/b"));
        assert!(table.delete(&key("g", 1)) && table.delete(&key("g", 2)));
        let mut left: Vec<_> = table.keys().collect();
        left.sort_unstable();
        assert_eq!(left, [b"g", &b"g1/\x01member/00000000000000000000000000000003"[..], b"g1/c"]);
        assert_eq!(table.members.len(), 1);
    }

    #[test]
    fn a_value_that_is_being_sent_does_not_change() {
        let mut table = Table::new(usize::MAX);
        table.set(b"k", b"one").unwrap();
        let sent = table.get(b"k").unwrap().clone();
        table.set(b"k", b"two").unwrap();
        table.append(b"k", b"!").unwrap();
        assert_eq!(sent.bytes(), b"one");
        assert_eq!(table.get(b"k").unwrap().bytes(), b"two!");
    }
}
