//! A rank whose members were replaced while it waited for them, by itself or by the others, which
//! left it out: its calls say that, whatever followed from it. Knows no call.

use std::future::Future;

use super::ProcessGroup;
use crate::generated::error::{Error, Result};

impl ProcessGroup {
    /// What `call` returns, the operation `name`; where the members are others than they were, or
    /// went on without this rank, it is that what it fails with.
    ///
    /// # Errors
    /// Those of `call`, and [`Error::Reconfigured`].
    pub(in crate::process_group) async fn among_members<T>(
        &self,
        name: &str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match self.is_left_out(name) {
            Some(replaced) => Err(replaced),
            None => self.explained_by_members(name, call).await,
        }
    }

    /// As [`ProcessGroup::among_members`], of a call that may end well without the others.
    ///
    /// # Errors
    /// As [`ProcessGroup::among_members`].
    pub(in crate::process_group) async fn explained_by_members<T>(
        &self,
        name: &str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let epoch = self.epoch();
        let called = call.await;
        called.map_err(|error| match &error {
            // What was wrong with the call itself.
            Error::InvalidArgument { .. } | Error::NoMembers { .. } => error,
            _ => match self.check_epoch(epoch, name) {
                Ok(()) => self.is_left_out(name).unwrap_or(error),
                Err(replaced) => replaced,
            },
        })
    }

    /// What the operation `name` fails with, if the others went on without this rank.
    fn is_left_out(&self, name: &str) -> Option<Error> {
        match self.inner.cpu.failure()? {
            Error::Reconfigured { group, rank, .. } => {
                let collective = name.to_owned();
                Some(Error::Reconfigured { group, rank, collective, sequence: 0 })
            }
            _ => None,
        }
    }
}
