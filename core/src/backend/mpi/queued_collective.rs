//! At debug level `DETAIL`, collectives that wait until all ranks have said what they are about to
//! run: MPI is given what they agree on and nothing else. A thread for each group that has any asks
//! the store, so that whoever issues an operation goes on. Knows no progress of MPI's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::abi::Handle;
use super::collectives::{self, Ranks, StartedRequests};
use super::group::Group;
use super::running_operation::RunningOperation;
use super::world::World;
use crate::backend::Call;
use crate::backend::group_status::{ComparisonOutcome, FoundBy};
use crate::clock::Instant;
use crate::completion::Completion;
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;
use crate::{Error, Result};

/// How long the store is waited for at a time: a group may break, or be left, meanwhile.
const SLICE: Duration = Duration::from_millis(200);

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
        world: &World<H>,
    ) -> std::result::Result<RunningOperation<H>, (Arc<Completion>, Error)> {
        let QueuedCollective { group, call, sequence, since, deadline, completion, .. } = self;
        let name = call.name;
        match start(world, &group, call) {
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
    world: &World<H>,
    group: &Group<H>,
    call: Call,
) -> Result<StartedRequests<H>> {
    let Group { comm, rank, size, .. } = *group;
    collectives::start(&Ranks { world, comm, rank, size }, call)
}

/// Has what `group` holds compared and given to MPI, in order.
pub(super) fn attend<H: Handle>(world: &'static World<H>, group: &Arc<Group<H>>) {
    if group.comparing.swap(true, Ordering::SeqCst) {
        return;
    }
    let group = group.clone();
    let ours = group.clone();
    let thread = std::thread::Builder::new().name("polyrank-compare".to_owned());
    if let Err(error) = thread.spawn(move || compare_all(world, &ours)) {
        let why = format!("cannot start a thread that compares what the ranks run: {error}");
        fail(world, &group, why);
    }
}

/// Ends when nothing is held, or nothing can be started any more.
fn compare_all<H: Handle>(world: &World<H>, group: &Arc<Group<H>>) {
    while let Some((sequence, fingerprint)) = next(world, group) {
        match group.status.compare_for(sequence, fingerprint, SLICE) {
            Ok(ComparisonOutcome::Equal) => {
                world.progress.change(|active, ended| {
                    active.start_held(world, group, sequence, ended);
                });
            }
            Ok(ComparisonOutcome::Different(abort)) => {
                world.progress.break_group(group, abort, FoundBy::ThisRank);
            }
            Ok(ComparisonOutcome::Unknown) => {}
            Err(error) => fail(world, group, format!("the ranks cannot be compared: {error}")),
        }
    }
}

/// What is to be compared next. If there is nothing, another thread begins with what comes.
fn next<H: Handle>(world: &World<H>, group: &Arc<Group<H>>) -> Option<(u64, Fingerprint)> {
    world.progress.change(|active, _| {
        let can_start = !group.status.is_broken() && world.check_process().is_ok();
        let next = active.first_held(group).filter(|_| can_start);
        if next.is_none() {
            group.comparing.store(false, Ordering::SeqCst);
        }
        next
    })
}

fn fail<H: Handle>(world: &World<H>, group: &Arc<Group<H>>, why: String) {
    let abort = Abort::Failed { rank: group.rank, why };
    world.progress.break_group(group, abort, FoundBy::ThisRank);
}
