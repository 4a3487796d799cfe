//! What a request may hold, checked before it is sent. Pure.

use super::{MAX_KEY_BYTES, MAX_KEY_LIST_BYTES, MAX_KEYS, MAX_VALUE_BYTES, PREFIX};
use crate::generated::error::{Error, Result};

/// Refuses keys that a server would answer by closing the connection.
pub(in crate::store) fn check_keys(keys: &[&str]) -> Result<()> {
    if keys.len() > MAX_KEYS {
        let message = format!("{} keys in one request; a TCPStore takes {MAX_KEYS}", keys.len());
        return Err(Error::InvalidArgument { message });
    }
    let max = MAX_KEY_BYTES - PREFIX.len();
    if let Some(key) = keys.iter().find(|key| key.len() > max) {
        let start: String = key.chars().take(40).collect();
        let message =
            format!("key '{start}…' has {} bytes; a TCPStore takes keys of {max}", key.len());
        return Err(Error::InvalidArgument { message });
    }
    let total: usize = keys.iter().map(|key| PREFIX.len() + key.len() + 8).sum();
    if total > MAX_KEY_LIST_BYTES {
        let message =
            format!("{total} bytes of keys in one request; a TCPStore takes {MAX_KEY_LIST_BYTES}");
        return Err(Error::InvalidArgument { message });
    }
    Ok(())
}

/// Refuses a value that a server would answer by closing the connection.
pub(in crate::store) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() <= MAX_VALUE_BYTES {
        return Ok(());
    }
    let message = format!(
        "the value has {} bytes; a TCPStore takes values of {MAX_VALUE_BYTES}",
        value.len()
    );
    Err(Error::InvalidArgument { message })
}
