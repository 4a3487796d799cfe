//! Random bytes of the system or the browser. Knows nothing of what they are for.

use crate::generated::error::{Error, Result};

/// Bytes that nobody can guess.
///
/// # Errors
/// [`Error::Network`] if the system provides none: nobody can be joined without them.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Error::Network {
        message: format!("the system gave no random bytes: {error}"),
    })?;
    Ok(bytes)
}
