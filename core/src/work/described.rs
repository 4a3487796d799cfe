//! What errors of an operation say of it beside what its backend knows: the method that was called,
//! what the user calls it, and where ranks that disagree have called. Knows no operation.

use std::ops::Range;
#[cfg(feature = "tcp")]
use std::sync::Arc;

use super::called_name::as_called;
use super::{CommName, Inner};
use crate::generated::error::{Error, Result};
#[cfg(feature = "tcp")]
use crate::recorder::Recorder;

/// What is known of the operation.
struct Description {
    /// The method that was called.
    called: &'static str,
    /// The numbers of its operations.
    numbers: Range<u64>,
    comm_name: Option<CommName>,
    #[cfg(feature = "tcp")]
    recorder: Option<Arc<Recorder>>,
}

impl Inner {
    /// A result of it, whose error says what the user called, and calls it.
    pub(super) fn described<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.description().describe(error))
    }

    /// `callback`, which is told of errors that say what the user calls it.
    pub(super) fn describing(
        &self,
        callback: impl FnOnce(&Result<()>) + Send + 'static,
    ) -> impl FnOnce(&Result<()>) + Send + 'static {
        let description = self.description();
        move |result| match result {
            Ok(()) => callback(result),
            Err(error) => callback(&Err(description.describe(error.clone()))),
        }
    }

    fn description(&self) -> Description {
        Description {
            called: self.name,
            numbers: self.sequence..self.sequence + self.parts.len().max(1) as u64,
            comm_name: self.comm_name.clone(),
            #[cfg(feature = "tcp")]
            recorder: self.recorder.clone(),
        }
    }
}

impl Description {
    fn describe(self, error: Error) -> Error {
        let sequence = Some(self.numbers.start);
        #[cfg(feature = "tcp")]
        let error = match &self.recorder {
            Some(recorder) => recorder.with_sites(error),
            None => error,
        };
        let error = as_called(error, self.called, self.numbers);
        match &self.comm_name {
            Some(name) => name.describe(error, sequence),
            None => error,
        }
    }
}
