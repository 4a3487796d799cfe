//! Calls on windows, which are issued as messages are.

use std::sync::Arc;

use super::{DeferredCompletions, Driver};
use crate::completion::WaitIntent;
use crate::executor::windows::{ExposedMemory, GoneRanks, WindowCall, WindowOperation};

impl Driver {
    /// Opens a window, whose signals count from now on; `gone` is kept up to date.
    pub fn open_window(&self, window: u32, gone: Arc<GoneRanks>) {
        self.change(|executor, now| executor.open_window(window, gone, now));
        // From now on it looks out for what others do to it.
        self.background.request_check();
    }

    /// Closes a window, on which nobody here makes a call any more; the others are told.
    pub fn close_window(&self, window: u32) {
        self.change(|executor, now| executor.close_window(window, now));
    }

    /// Lets others access `memory`, or nothing any more.
    pub fn expose(&self, window: u32, memory: Option<ExposedMemory>) {
        self.change(|executor, now| executor.expose(window, memory, now));
    }

    /// Starts a call on a window, as [`Driver::submit`] starts a collective.
    pub fn start_on_window(
        &self,
        operation: WindowOperation,
        call: WindowCall,
        waiting: WaitIntent,
    ) -> DeferredCompletions<'_> {
        let completion = call.completion.clone();
        self.start(&completion, waiting, |executor, now| {
            executor.start_on_window(operation, call, now);
        })
    }
}
