//! Small collectives in the caller's memory, begun and mostly ended without taking any: what is
//! given to MPI is a copy that the group keeps, so that MPI may go on with it if it has to. Knows
//! no deadline.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::abi::Handle;
use super::collectives::{Ranks, in_place};
use super::group::Group;
use super::running_operation::{RequestBuffers, Requests, RunningOperation, test};
use super::world::World;
use crate::backend::group_status::FoundBy;
use crate::backend::{Attempt, IssuedOperation, PersistentBuffers, SmallCall};
use crate::completion::{Completion, Outcome, WaitIntent};
use crate::generated::collective::Collective;
use crate::generated::error::Error;
use crate::spin::{Pause, SpinBudget};
use crate::tensor::{LentMemory, Region};
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;

/// Bytes of memory that is only lent up to which it is copied, so that an operation that fails can
/// leave it to MPI.
pub(super) const COPIED: usize = 64 << 10;

/// How the caller looks at an operation that it waits for before it becomes one among others: as
/// long as a small one takes, if all ranks are there. To look takes as long as a pause.
const LOOKS: SpinBudget = SpinBudget { spins: 400, pause: Pause::Nothing };
/// The same where looking takes a core that another rank needs.
const CROWDED_LOOKS: SpinBudget = SpinBudget { spins: 4, pause: Pause::Yield };

/// Runs `call`, or begins it; not if it is one of those that are issued as any other, or
/// another thread moves operations.
pub(super) fn attempt<'a, H: Handle>(
    world: &'static World<H>,
    group: &'a Arc<Group<H>>,
    fingerprint: Fingerprint,
    call: &SmallCall,
    memory: &mut LentMemory<'_>,
) -> Attempt<'a> {
    let LentMemory::InPlace(bytes) = memory else { return Attempt::Declined };
    let is_one = matches!(
        call.collective,
        Collective::Allreduce | Collective::Broadcast | Collective::Barrier
    );
    if !is_one || bytes.len() > COPIED {
        return Attempt::Declined;
    }
    // As long as it is held, nobody finalises MPI.
    let Some(active) = world.progress.try_lock() else { return Attempt::Declined };
    if group.status.is_broken() {
        return Attempt::Declined;
    }
    let scratch = group.take_scratch(bytes.len());
    scratch.write(|scratch| scratch[..bytes.len()].copy_from_slice(bytes));
    let Group { comm, rank, size, .. } = **group;
    let ranks = Ranks { job: &world.job, comm, rank, size };
    let mut request = match in_place(&ranks, call, scratch.as_mut_ptr(), bytes.len()) {
        Ok(request) => request,
        Err(error) => {
            drop(active);
            // The longer way says what is wrong.
            world.progress.change(|active, ended| active.not_started(group, &error, ended));
            return Attempt::Declined;
        }
    };
    let sequence = group.status.next_collective(fingerprint);
    group.in_flight.fetch_add(1, Ordering::SeqCst);
    group.in_library.fetch_add(1, Ordering::SeqCst);
    let budget = if world.progress.is_crowded() { CROWDED_LOOKS } else { LOOKS };
    let looks = match call.waiting {
        WaitIntent::Soon | WaitIntent::Likely => budget.spins,
        WaitIntent::Later | WaitIntent::OtherThread => 1,
    };
    let mut failed = None;
    for _ in 0..looks {
        match test(&world.job, &mut request) {
            Ok(false) => budget.pause.take(),
            Ok(true) => {
                scratch.read(|scratch| bytes.copy_from_slice(&scratch[..bytes.len()]));
                group.in_library.fetch_sub(1, Ordering::SeqCst);
                group.in_flight.fetch_sub(1, Ordering::SeqCst);
                drop(active);
                group.put_scratch(scratch);
                return Attempt::Done(sequence);
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    drop(active);
    let collective = call.collective;
    let begun =
        StartedCollective { world, group, collective, sequence, request: Some(request), scratch };
    let waiting = call.waiting;
    Attempt::Started(Box::new(move |lasting| begun.go_on(failed, waiting, lasting)))
}

/// An operation that MPI has and of which nobody waits for the end yet.
struct StartedCollective<'a, H: Handle> {
    world: &'static World<H>,
    group: &'a Arc<Group<H>>,
    collective: Collective,
    sequence: u64,
    request: Option<H>,
    scratch: Region,
}

impl<H: Handle> StartedCollective<'_, H> {
    fn go_on(
        mut self,
        failed: Option<Error>,
        waiting: WaitIntent,
        lasting: PersistentBuffers,
    ) -> IssuedOperation {
        let PersistentBuffers { deadline, output, finish, .. } = lasting;
        let StartedCollective { world, group, sequence, .. } = self;
        let completion = Arc::new(Completion::new());
        let issued = IssuedOperation { sequence, completion: completion.clone() };
        let Some(request) = self.request.take() else { return issued };
        if let Some(error) = failed {
            group.in_library.fetch_sub(1, Ordering::SeqCst);
            group.in_flight.fetch_sub(1, Ordering::SeqCst);
            let abort = Abort::Failed { rank: group.rank, why: error.to_string() };
            world.progress.break_group(group, abort, FoundBy::ThisRank);
            completion.complete(Err(error));
            return issued;
        }
        let kept = RequestBuffers::new(vec![self.scratch.clone()]);
        let place = (self.collective.facts().name, sequence);
        let running =
            RunningOperation::new(group.clone(), place, Requests::One(request), kept, deadline);
        let running = RunningOperation {
            is_collective: true,
            finish: Some(copy_out(self.scratch.clone(), output, finish)),
            completion: Some(completion),
            ..running
        };
        world.progress.change(|active, ended| active.admit(&world.job, running, ended));
        world.progress.leave_to(&world.job, waiting, issued.completion.is_done());
        issued
    }
}

impl<H: Handle> Drop for StartedCollective<'_, H> {
    /// MPI goes on with it, although the caller gave it up.
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let kept = RequestBuffers::new(vec![self.scratch.clone()]);
        let place = (self.collective.facts().name, self.sequence);
        let deadline = crate::clock::after(std::time::Duration::MAX);
        let requests = Requests::One(request);
        let running = RunningOperation::new(self.group.clone(), place, requests, kept, deadline);
        self.group.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.world.progress.change(|active, _| active.abandon(running));
    }
}

/// Takes the outcome to where it belongs; then what is left to do.
fn copy_out(scratch: Region, output: Vec<Region>, finish: Option<Outcome>) -> Outcome {
    Box::new(move || {
        for output in output.iter().filter(|output| !output.is_empty()) {
            output.write_from(&scratch.slice(0..output.len()), <[u8]>::copy_from_slice);
        }
        if let Some(finish) = finish {
            finish();
        }
    })
}
