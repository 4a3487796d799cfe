//! Tensors that ought to be the same on all ranks are made so: ranks compare digests, and those that
//! differ from most others take what these have. Messages only, so that it needs no place in the
//! order of collectives. Knows no backend.

mod exchange;
mod plan;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::ProcessGroup;
use super::hook_arguments::without_tensors;
use crate::completion::WaitIntent;
use crate::generated::callback_arguments::PreHookArgs;
use crate::generated::error::{Error, Result};
use crate::tensor::{Buffers, OwnedBuffers, Tensor, lend_mut};
use crate::work::Work;
use exchange::Exchange;

/// The name of the method.
const NAME: &str = "sync_state";
/// Its messages have this tag and those behind it, one for each call: MPI has no larger ones.
const FIRST_TAG: u32 = 0x7000;
/// After so many calls the tags begin anew.
const TAGS: u64 = 0x0800;

impl ProcessGroup {
    /// Makes `tensors` the same on all ranks: those that differ from what most ranks have become
    /// that, or, if several states are as frequent, that of the lowest rank among these. All tensors
    /// together are one state, and only those of them travel that differ: from all ranks that have
    /// the right ones, a part from each, and compared with their digest (BLAKE3) when they have
    /// come. (PCCL's shared state: Keiblinger et al., 2025, arXiv:2505.14065.)
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`] if ranks have other numbers, dtypes or sizes of tensors, or if a
    /// tensor was changed while it was read; the failure of a rank. Then a tensor may have parts of
    /// both.
    pub fn sync_state<B: Buffers + ?Sized>(&self, tensors: &mut B) -> Result<()> {
        self.issue_state_sync(lend_mut(tensors), WaitIntent::Soon)?.wait(None)
    }

    /// As [`ProcessGroup::sync_state`], owning the tensors until the work is done.
    ///
    /// # Errors
    /// As [`ProcessGroup::sync_state`].
    pub fn sync_state_async(&self, tensors: impl OwnedBuffers) -> Result<Work> {
        self.issue_state_sync(tensors.into_tensors(), WaitIntent::Later)
    }

    /// Begins to make `tensors` the same.
    pub(crate) fn issue_state_sync(
        &self,
        tensors: Vec<Tensor>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        self.check_state(&tensors)?;
        let hooked =
            self.before(|| PreHookArgs { name: "SYNC_STATE", ..without_tensors(-1, waiting) })?;
        let issued = self.start(tensors);
        Self::after(hooked, issued)
    }

    /// Checks what can be known before anything travels.
    pub(crate) fn check_state(&self, tensors: &[Tensor]) -> Result<()> {
        self.require_members(NAME)?;
        for (index, tensor) in tensors.iter().enumerate() {
            if tensor.region().device().is_some() {
                let who = "a group over devices".to_owned();
                return Err(Error::Unsupported { who, operation: NAME.to_owned() });
            }
            if tensor.is_read_only() {
                let message = format!("{NAME}: the memory of tensor {index} is read-only");
                return Err(Error::InvalidArgument { message });
            }
        }
        Ok(())
    }

    /// It waits for several messages one after the other, and hashes much: on a thread of its own.
    fn start(&self, tensors: Vec<Tensor>) -> Result<Work> {
        let (work, end) = Work::ending_on(NAME, self.identity(), tensors.clone());
        let number = self.inner.call_counts.state_syncs.next();
        let tag = FIRST_TAG + (number % TAGS) as u32;
        let exchange = Exchange { group: self.clone(), tag };
        let thread = thread::Builder::new().name("polyrank-sync".to_owned());
        let spawned = thread.spawn(move || {
            // The end of a work that is dropped is a good one.
            let outcome = catch_unwind(AssertUnwindSafe(|| exchange.run(&tensors)));
            end.complete(outcome.unwrap_or_else(|_| {
                let message = format!("{NAME}: its thread has panicked");
                Err(Error::Network { message })
            }));
        });
        spawned.map_err(|why| {
            let message = format!("{NAME}: the system has no thread: {why}");
            Error::Network { message }
        })?;
        Ok(work)
    }
}
