//! Random bytes of the system, for names that nobody can guess.

use std::io;

/// Bytes that nobody can guess.
///
/// # Errors
/// The system provides none.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
