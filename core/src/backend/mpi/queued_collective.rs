//! A collective that was issued and that MPI does not know yet, and how it is given to MPI. Knows
//! no progress of MPI's, nor what the collective waits for.

use std::sync::Arc;

use super::abi::Handle;
use super::collectives::{self, Ranks, StartedRequests};
use super::group::Group;
use super::job::Job;
use super::running_operation::RunningOperation;
use crate::backend::Call;
use crate::clock::Instant;
use crate::completion::Completion;
use crate::generated::error::{Error, Result};
use crate::wire::frame::Fingerprint;

/// A collective that was issued and that MPI does not know yet, so that it can be given up at any
/// time.
pub(super) struct QueuedCollective<H: Handle> {
    pub(super) group: Arc<Group<H>>,
    pub(super) call: Call,
    pub(super) sequence: u64,
    pub(super) fingerprint: Fingerprint,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
    pub(super) completion: Arc<Completion>,
}

impl<H: Handle> QueuedCollective<H> {
    /// Gives it to MPI. What it is then, or its completion and why that failed.
    pub(super) fn start(
        self,
        job: &Job<H>,
    ) -> std::result::Result<RunningOperation<H>, (Arc<Completion>, Error)> {
        let QueuedCollective { group, call, sequence, since, deadline, completion, .. } = self;
        let name = call.name;
        match start(job, &group, call) {
            Ok(started) => {
                let running = started.running(group, (name, sequence), deadline, completion);
                Ok(RunningOperation { since: Some(since), ..running })
            }
            Err(error) => Err((completion, error)),
        }
    }
}

/// Starts a collective of `group`.
///
/// # Errors
/// What MPI says of it.
pub(super) fn start<H: Handle>(
    job: &Job<H>,
    group: &Group<H>,
    call: Call,
) -> Result<StartedRequests<H>> {
    let Group { comm, rank, size, .. } = *group;
    collectives::start(&Ranks { job, comm, rank, size }, call)
}
