//! Windows of a group, as a backend has them. Knows no particular backend.

use std::sync::Arc;
use std::sync::atomic::Ordering;
#[cfg(all(feature = "tcp", target_os = "linux"))]
use std::sync::{Mutex, PoisonError};

use super::scheduled::ScheduledBackend;
use super::{ExposedMemory, IssueOptions, IssuedOperation};
use crate::completion::{Completion, Outcome};
#[cfg(all(feature = "tcp", target_os = "linux"))]
use crate::env::{CopyChoice, TransportChoice, TransportEnvironment};
pub use crate::executor::WindowOperation;
use crate::executor::{GoneRanks, WindowCall};
#[cfg(all(feature = "tcp", target_os = "linux"))]
use crate::tensor::shared::MappingRef;

/// Memory of the ranks that others access, signals, and fences.
pub trait Windows: Send + Sync {
    /// Opens a window; its number, and who takes no part in it any more. Signals to it count from
    /// now on.
    fn open(&self) -> (u32, Arc<GoneRanks>);
    /// Closes a window, on which nobody here makes a call any more; the others are told.
    fn close(&self, window: u32);
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
    /// The process of a rank of this host, if the system has proved to this one that it is.
    fn process_of(&self, rank: u32) -> Option<u32>;
    /// Detaches a mapping of another rank's memory before this rank leaves the group, if it is
    /// there then: what that rank does with its memory afterwards concerns nobody here.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    fn detach_at_end(&self, mapping: MappingRef);
}

/// Mappings of other ranks' memory, of all windows of a group.
#[derive(Default)]
pub(super) struct Mappings {
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    all: Mutex<Vec<MappingRef>>,
}

impl Mappings {
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    fn add(&self, mapping: MappingRef) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(MappingRef::is_alive);
        all.push(mapping);
    }

    /// Detaches them all: once this rank has left, the memory is that of its owners alone.
    pub(super) fn detach(&self) {
        #[cfg(all(feature = "tcp", target_os = "linux"))]
        {
            let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            let all = std::mem::take(&mut *all);
            all.iter().for_each(MappingRef::detach);
        }
    }
}

impl Windows for ScheduledBackend {
    fn open(&self) -> (u32, Arc<GoneRanks>) {
        let window = self.windows_opened.fetch_add(1, Ordering::Relaxed) + 1;
        let gone = Arc::new(GoneRanks::new(self.size));
        self.driver.open_window(window, gone.clone());
        (window, gone)
    }

    fn close(&self, window: u32) {
        self.driver.close_window(window);
    }

    fn process_of(&self, rank: u32) -> Option<u32> {
        self.driver.process_of(rank)
    }

    #[cfg(all(feature = "tcp", target_os = "linux"))]
    fn detach_at_end(&self, mapping: MappingRef) {
        self.mappings.add(mapping);
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
