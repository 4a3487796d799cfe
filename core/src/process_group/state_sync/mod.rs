//! Tensors that ought to be the same on all ranks are made so: ranks compare digests, and who has
//! others than most takes theirs. It consists of collectives that the caller waits for. Knows no
//! backend.

mod exchange;
mod plan;

use std::time::Duration;

use super::ProcessGroup;
use super::hook_arguments::without_tensors;
use crate::blocking::block_on;
use crate::generated::callback_arguments::PreHookArgs;
use crate::generated::error::{Error, Result};
use crate::tensor::{Buffers, RepeatPolicy, Tensor, TensorRef, lend_mut, overlap};
use exchange::Exchange;

/// The name of the method.
const NAME: &str = "sync_state";

/// How tensors are made the same.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StateSyncOptions {
    /// Only states of the highest revision count, however few ranks have them.
    pub revision: i64,
    /// Limit of the call; the group's by default, zero is none.
    pub timeout: Option<Duration>,
}

setters! {
    StateSyncOptions {
        revision: i64 => revision,
        timeout: Duration => Some(timeout),
    }
}

impl ProcessGroup {
    /// Makes `tensors` the same on all ranks: who has others than most ranks takes those. Returns
    /// the positions of the tensors that were replaced here, in ascending order.
    ///
    /// All tensors together are one state, which holds as a whole: the one that most ranks have,
    /// among those of the highest revision, and of several as frequent that of the lowest rank.
    /// Only tensors that differ travel, a part of each from every rank that has the right ones, and
    /// what has come is compared with its digest (BLAKE3). It is the shared state of PCCL
    /// (Keiblinger et al., 2025, arXiv:2505.14065).
    ///
    /// ```
    /// # use polyrank::store::HashStore;
    /// # use polyrank::ProcessGroup;
    /// # use std::sync::Arc;
    /// # let store = Arc::new(HashStore::new());
    /// # let group = ProcessGroup::new(store, 0, 1, "alone", Default::default())?;
    /// let mut parameters = [vec![0.5f32; 1000], vec![0.; 10]];
    /// let replaced = group.sync_state(&mut parameters, Default::default())?;
    /// assert!(replaced.is_empty());
    /// # Ok::<(), polyrank::Error>(())
    /// ```
    ///
    /// # Errors
    /// On all ranks: [`Error::InvalidArgument`] if ranks have other numbers, dtypes or sizes of
    /// tensors, if those of one cannot be written or share memory, or if one that travels was
    /// changed meanwhile; the failure of a rank. Then a tensor may have elements of either state.
    pub fn sync_state<B: Buffers + ?Sized>(
        &self,
        tensors: &mut B,
        options: StateSyncOptions,
    ) -> Result<Vec<usize>> {
        block_on(self.sync_state_async(&lend_mut(tensors), options))
    }

    /// As [`ProcessGroup::sync_state`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::sync_state`].
    pub async fn sync_state_async(
        &self,
        tensors: &[Tensor],
        options: StateSyncOptions,
    ) -> Result<Vec<usize>> {
        let hooks_see = |waiting| {
            let input_tensors: Vec<_> = tensors.iter().map(TensorRef::of).collect();
            let output_tensors = input_tensors.clone();
            PreHookArgs { input_tensors, output_tensors, ..without_tensors(-1, waiting) }
        };
        let limit = options.timeout.unwrap_or_else(|| self.timeout());
        let exchange = Exchange::new(self, options.revision, limit);
        let run = exchange.run(check(tensors).map(|()| tensors));
        self.composed_of("SYNC_STATE", hooks_see, run).await
    }
}

/// Whether these tensors of the host can be overwritten, each for itself.
fn check(tensors: &[Tensor]) -> Result<()> {
    for (index, tensor) in tensors.iter().enumerate() {
        if tensor.region().device().is_some() {
            let who = format!("{NAME} of tensor {index}, in the memory of a device,");
            return Err(Error::Unsupported { who, operation: "synchronisation".to_owned() });
        }
        if tensor.is_read_only() {
            let message = format!("{NAME}: the memory of tensor {index} is read-only");
            return Err(Error::InvalidArgument { message });
        }
    }
    // A parameter may be given twice.
    match overlap(tensors, RepeatPolicy::Allowed) {
        Some(found) => Err(Error::InvalidArgument { message: found.of_outputs(NAME) }),
        None => Ok(()),
    }
}
