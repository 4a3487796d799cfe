//! How ranks fail that `spawn` started. Knows not how that is noticed.

use std::io;

use crate::generated::error::Error;

/// Why [`spawn`](crate::spawn()) failed: what the rank did that failed first.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The function returned an error.
    #[error("rank {rank} (process {pid}) failed: {message}")]
    Failed {
        /// Which one.
        rank: u32,
        /// Its process id.
        pid: u32,
        /// The error's text.
        message: String,
    },
    /// The function panicked.
    #[error("rank {rank} (process {pid}) panicked: {message}")]
    Panicked {
        /// Which one.
        rank: u32,
        /// Its process id.
        pid: u32,
        /// What it panicked with.
        message: String,
    },
    /// The process ended with an exit code.
    #[error("rank {rank} (process {pid}) ended with exit code {code}")]
    Exited {
        /// Which one.
        rank: u32,
        /// Its process id.
        pid: u32,
        /// The code.
        code: i32,
    },
    /// A signal ended the process.
    #[error("rank {rank} (process {pid}) was ended by {name}")]
    Killed {
        /// Which one.
        rank: u32,
        /// Its process id.
        pid: u32,
        /// The signal's number.
        signal: i32,
        /// Its name: `SIGKILL`.
        name: String,
    },
    /// The process ended well, and never called the function.
    #[error(
        "rank {rank} (process {pid}) ended before it came to the call of spawn(): a rank runs the \
         program from its beginning, with the same arguments"
    )]
    NotCalled {
        /// Which one.
        rank: u32,
        /// Its process id.
        pid: u32,
    },
    /// The process could not be started.
    #[error("rank {rank} cannot be started: {source}")]
    Start {
        /// Which one.
        rank: u32,
        /// Why.
        source: io::Error,
    },
    /// The call was wrong, or the store cannot be served in which the ranks meet.
    #[error(transparent)]
    Setup(Error),
}
