//! How an operation or a group ended, as a number: c10d's `WorkResult`. Knows no particular
//! operation.

use crate::generated::error::Error;

/// How an operation ended, or how a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkResult {
    /// Well.
    Success = 0,
    /// It passed its deadline.
    Timeout = 1,
    /// A peer or the network failed, or somebody ended it.
    CommError = 2,
    /// Another error.
    Unknown = 100,
}

impl WorkResult {
    /// That of an operation that failed so.
    pub fn of(error: &Error) -> WorkResult {
        match error {
            Error::CollectiveTimeout { .. } | Error::RendezvousTimeout { .. } => {
                WorkResult::Timeout
            }
            Error::RankFailed { .. }
            | Error::Rendezvous { .. }
            | Error::Network { .. }
            | Error::Aborted { .. }
            | Error::Reconfigured { .. } => WorkResult::CommError,
            _ => WorkResult::Unknown,
        }
    }
}
