//! What is known of a call whose operations are issued later, or on another thread: the name that
//! its block gives them, and where it was called. Knows no operations.

use super::AnswerFuture;
#[cfg(feature = "tcp")]
use crate::call_site::CallOrigin;
use crate::work::comm_name::CommName;

/// What is known of a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    /// What the caller calls its operations.
    comm_name: Option<CommName>,
    #[cfg(feature = "tcp")]
    lines: CallOrigin,
}

impl Origin {
    /// That of the call that this thread is in.
    pub(super) fn here() -> Origin {
        Origin {
            comm_name: CommName::current(),
            #[cfg(feature = "tcp")]
            lines: CallOrigin::here(),
        }
    }

    /// As [`Origin::here`], of a call that issues no operations: nobody asks where it came from.
    pub(super) fn of_no_operation() -> Origin {
        Origin {
            comm_name: CommName::current(),
            #[cfg(feature = "tcp")]
            lines: CallOrigin::default(),
        }
    }

    /// What messages call `operation` of the call.
    pub(super) fn beside(&self, operation: &str) -> String {
        let named = self.comm_name.as_ref().map(|name| name.beside(operation));
        named.unwrap_or_else(|| operation.to_owned())
    }

    /// Runs `f`, which issues operations of the call.
    pub(super) fn apply<R>(&self, f: impl FnOnce() -> R) -> R {
        let named = || match &self.comm_name {
            Some(name) => name.apply(f),
            None => f(),
        };
        #[cfg(feature = "tcp")]
        return self.lines.apply(named);
        #[cfg(not(feature = "tcp"))]
        named()
    }

    /// `future`, which issues operations of the call.
    pub(super) fn apply_to(self, mut future: AnswerFuture) -> AnswerFuture {
        if let Some(name) = self.comm_name {
            future = Box::pin(name.apply_to(future));
        }
        #[cfg(feature = "tcp")]
        match self.lines.apply_to(future) {
            Ok(located) => future = Box::pin(located),
            Err(plain) => future = plain,
        }
        future
    }
}
