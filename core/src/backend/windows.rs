//! Windows of a group, as a backend has them. Knows no particular backend.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::scheduled::ScheduledBackend;
use super::{ExposedMemory, IssueOptions, IssuedOperation};
use crate::completion::{Completion, Outcome};
#[cfg(all(feature = "tcp", target_os = "linux"))]
use crate::env::{CopyChoice, TransportChoice, TransportEnvironment};
use crate::executor::WindowCall;
pub use crate::executor::WindowOperation;

/// Memory of the ranks that others access, signals, and fences.
pub trait Windows: Send + Sync {
    /// Opens a window; its number. Signals to it count from now on.
    fn open(&self) -> u32;
    /// Lets others access `memory`, or nothing any more.
    fn expose(&self, window: u32, memory: Option<ExposedMemory>);
    /// Issues a call; `finish` is what is left to do on this rank at the end.
    fn issue(
        &self,
        operation: WindowOperation,
        options: IssueOptions,
        finish: Option<Outcome>,
    ) -> IssuedOperation;
    /// What is equal on ranks that may map one another's memory; none if nobody may map this
    /// rank's.
    fn sharing(&self) -> Option<u64>;
}

impl Windows for ScheduledBackend {
    fn open(&self) -> u32 {
        let window = self.windows_opened.fetch_add(1, Ordering::Relaxed) + 1;
        self.driver.open_window(window);
        window
    }

    fn expose(&self, window: u32, memory: Option<ExposedMemory>) {
        self.driver.expose(window, memory);
    }

    fn issue(
        &self,
        operation: WindowOperation,
        options: IssueOptions,
        finish: Option<Outcome>,
    ) -> IssuedOperation {
        let completion = Arc::new(Completion::new());
        let call =
            WindowCall { deadline: options.deadline, finish, completion: completion.clone() };
        let sequence = self.window_calls.fetch_add(1, Ordering::Relaxed) + 1;
        drop(self.driver.start_on_window(operation, call, options.waiting));
        IssuedOperation { sequence, completion }
    }

    #[cfg(all(feature = "tcp", target_os = "linux"))]
    fn sharing(&self) -> Option<u64> {
        let chosen = TransportEnvironment::read().ok()?;
        if chosen.transport == TransportChoice::Tcp || chosen.copy == CopyChoice::Slots {
            return None;
        }
        let namespace = crate::transport::host::process_namespace()?;
        let mut hash = crate::fnv::Fnv::new();
        hash.bytes(namespace.bytes());
        Some(hash.value())
    }

    #[cfg(not(all(feature = "tcp", target_os = "linux")))]
    fn sharing(&self) -> Option<u64> {
        None
    }
}
