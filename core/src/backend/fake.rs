//! The backend `fake`, for programs that are tried without their other ranks: one process is a rank
//! of a group of any size, and every operation is over when it is called. Knows no transport.
//!
//! What operations leave in the tensors of the caller:
//!
//! | operation | result |
//! |---|---|
//! | `allreduce`, `reduce`, `broadcast` | the tensor stays as it is |
//! | `allgather`, `gather` at the root | this rank's input, in every output |
//! | `scatter` | at the root, its input for this rank; elsewhere the output stays as it is |
//! | `reduce_scatter` | the input for this rank |
//! | `alltoall` | output `i` is input `i` |
//! | `recv` | the tensor stays as it is; the sender is the one that is named, or this rank |
//! | `barrier`, `send` | – |
//!
//! It is as if the other ranks contributed nothing to a reduction. So a scaled sum is this rank's
//! tensor times the factor, and an average is it divided by the number of ranks. Where an input and
//! its output have different sizes, as much is copied as both have.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::registration::{Bootstrap, ConnectFuture, KnownPlace, PlaceInJob, Registration};
use super::{Backend, Call, Capabilities, IssueOptions, IssuedOperation, Leaving, Transfer};
use crate::completion::Completion;
use crate::env::variable;
use crate::generated::collective::{Blocks, Collective};
use crate::generated::error::{Error, Result};
use crate::rendezvous::Rendezvous;
use crate::store::HashStore;
use crate::tensor::Region;

/// Its row.
pub(super) const REGISTRATION: Registration = Registration {
    find_place: Some(find_place),
    other_devices: &["cuda"],
    ..Registration::new("fake", "cpu", connect)
};

/// A rank of a group whose other ranks do not exist.
struct Fake {
    group: String,
    rank: u32,
    numbers: AtomicU64,
    /// Why nothing can be issued any more.
    aborted: Mutex<Option<String>>,
}

/// Without a store or a URL, the ranks that there are not need none.
fn find_place(known: &KnownPlace, _: std::time::Duration) -> Result<PlaceInJob> {
    let said = |given: Option<u32>, variable: variable::Variable| {
        given.or_else(|| variable.text().and_then(|text| text.parse().ok()))
    };
    let rank = said(known.rank, variable::RANK).unwrap_or(0);
    let world_size = said(known.world_size, variable::WORLD_SIZE).unwrap_or(1);
    let rendezvous = match known.has_store {
        true => None,
        false => Some(Rendezvous::new(Arc::new(HashStore::new()), rank, world_size)?),
    };
    Ok(PlaceInJob { rank, world_size, rendezvous })
}

fn connect(bootstrap: Bootstrap<'_>) -> ConnectFuture<'_> {
    let (group, rank) = (bootstrap.group.to_owned(), bootstrap.rank);
    let backend: Arc<dyn Backend> =
        Arc::new(Fake { group, rank, numbers: AtomicU64::new(0), aborted: Mutex::default() });
    Box::pin(std::future::ready(Ok(backend)))
}

impl Fake {
    /// Ends an operation.
    fn done(&self, name: &str, source: Option<u32>, run: impl FnOnce()) -> Result<IssuedOperation> {
        let sequence = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(why) = self.why() {
            let (group, collective) = (self.group.clone(), name.to_owned());
            return Err(Error::Aborted { group, rank: self.rank, why, collective, sequence });
        }
        run();
        let completion = Arc::new(Completion::new());
        source.iter().for_each(|&source| completion.set_source_rank(source));
        completion.complete(Ok(()));
        Ok(IssuedOperation { sequence, completion })
    }

    fn why(&self) -> Option<String> {
        self.aborted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Copies what this rank contributes to where it comes to.
    fn copy(&self, call: &Call) {
        let Call { input, output, .. } = call;
        let own = self.rank as usize;
        match (call.collective, call.collective.facts().input) {
            (Collective::Alltoall, _) => input.iter().zip(output).for_each(|(i, o)| fill(o, i)),
            (_, Blocks::One) => {
                input.iter().for_each(|input| output.iter().for_each(|it| fill(it, input)));
            }
            (_, Blocks::All | Blocks::AllAtRoot) => {
                input.get(own).iter().for_each(|i| output.iter().for_each(|o| fill(o, i)));
            }
            _ => {}
        }
    }
}

impl Backend for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::complete()
    }

    fn collective(&self, mut call: Call, _: IssueOptions) -> Result<IssuedOperation> {
        self.done(call.name, None, || {
            self.copy(&call);
            if let Some(finish) = call.finish.take() {
                finish();
            }
        })
    }

    fn send(&self, transfer: Transfer, _: IssueOptions) -> Result<IssuedOperation> {
        self.done("send", None, || transfer.finish.into_iter().for_each(|finish| finish()))
    }

    fn recv(&self, transfer: Transfer, _: IssueOptions) -> Result<IssuedOperation> {
        let source = transfer.peer.unwrap_or(self.rank);
        self.done("recv", Some(source), || {
            transfer.finish.into_iter().for_each(|finish| finish());
        })
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn is_broken(&self) -> bool {
        self.why().is_some()
    }

    fn abort(&self, why: &str) {
        let mut aborted = self.aborted.lock().unwrap_or_else(PoisonError::into_inner);
        aborted.get_or_insert_with(|| why.to_owned());
    }

    fn shutdown(&self, _: Leaving) -> Result<()> {
        self.abort("the process group was destroyed");
        Ok(())
    }
}

/// Copies as many bytes as both have; memory of a device is left as it is.
fn fill(into: &Region, from: &Region) {
    let bytes = into.len().min(from.len());
    let (into, from) = (into.slice(0..bytes), from.slice(0..bytes));
    let is_on_device = into.device().is_some() || from.device().is_some();
    if bytes > 0 && !is_on_device && !into.overlaps(&from) {
        into.write_from(&from, |into, from| into.copy_from_slice(from));
    }
}
