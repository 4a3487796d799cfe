//! Small collectives in the caller's memory, usually completed without allocating. MPI works on a
//! scratch copy that the group keeps, so that it may continue with it after the caller has given
//! up. Knows no deadline.

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

/// Largest borrowed buffer that is copied, so that a failed operation can leave the copy to MPI.
pub(super) const MAX_COPIED_BYTES: usize = 64 << 10;

/// How often the caller polls its operation before handing it to the progress engine: for as long
/// as a small one takes when all ranks have called it. One poll takes about as long as a pause.
const POLL_BUDGET: SpinBudget = SpinBudget { spins: 400, pause: Pause::Nothing };
/// The same where polling takes a core that another rank needs.
const CONTENDED_POLL_BUDGET: SpinBudget = SpinBudget { spins: 4, pause: Pause::Yield };

/// Tries to run `call` to completion. Declines collectives without a fast path, and any while
/// another thread is making progress.
pub(super) fn attempt<'a, H: Handle>(
    world: &'static World<H>,
    group: &'a Arc<Group<H>>,
    fingerprint: Fingerprint,
    call: &SmallCall,
    memory: &mut LentMemory<'_>,
) -> Attempt<'a> {
    let (_, bytes) = memory.lengths();
    let has_fast_path = matches!(
        call.collective,
        Collective::Allreduce | Collective::Broadcast | Collective::Barrier
    );
    if !has_fast_path || !memory.is_in_place() || bytes > MAX_COPIED_BYTES {
        return Attempt::Declined;
    }
    // While this lock is held, nobody finalises MPI.
    let Some(active) = world.progress.try_lock() else { return Attempt::Declined };
    if group.status.is_broken() {
        return Attempt::Declined;
    }
    let scratch = group.take_scratch(bytes);
    memory.read(|given| scratch.write(|scratch| scratch[..bytes].copy_from_slice(given)));
    let Group { comm, rank, size, .. } = **group;
    let ranks = Ranks { job: &world.job, comm, rank, size };
    let mut request = match in_place(&ranks, call, scratch.as_mut_ptr(), bytes) {
        Ok(request) => request,
        Err(error) => {
            drop(active);
            // The general path reports what is wrong.
            world.progress.change(|active, ended| active.not_started(group, &error, ended));
            return Attempt::Declined;
        }
    };
    let sequence = group.status.next_collective(fingerprint);
    group.in_flight.fetch_add(1, Ordering::SeqCst);
    group.in_library.fetch_add(1, Ordering::SeqCst);
    let is_crowded = world.progress.is_crowded();
    let budget = if is_crowded { CONTENDED_POLL_BUDGET } else { POLL_BUDGET };
    let polls = match call.waiting {
        WaitIntent::Soon | WaitIntent::Likely => budget.spins,
        WaitIntent::Later | WaitIntent::OtherThread => 1,
    };
    for _ in 0..polls {
        match test(&world.job, &mut request) {
            Ok(false) => budget.pause.take(),
            Ok(true) => {
                memory.write(|result| {
                    scratch.read(|scratch| result.copy_from_slice(&scratch[..bytes]));
                });
                group.in_library.fetch_sub(1, Ordering::SeqCst);
                group.in_flight.fetch_sub(1, Ordering::SeqCst);
                drop(active);
                group.put_scratch(scratch);
                return Attempt::Done(sequence);
            }
            Err(error) => {
                drop(active);
                return fail(world, group, sequence, error);
            }
        }
    }
    drop(active);
    let collective = call.collective;
    let started =
        StartedCollective { world, group, collective, sequence, request: Some(request), scratch };
    let waiting = call.waiting;
    Attempt::Started(Box::new(move |buffers| started.proceed(waiting, buffers)))
}

/// Breaks the group in which MPI failed a collective: now, as the caller may drop what it is
/// given instead of asking for the outcome.
#[cold]
fn fail<'a, H: Handle>(
    world: &'static World<H>,
    group: &'a Arc<Group<H>>,
    sequence: u64,
    error: Error,
) -> Attempt<'a> {
    group.in_library.fetch_sub(1, Ordering::SeqCst);
    group.in_flight.fetch_sub(1, Ordering::SeqCst);
    let abort = Abort::Failed { rank: group.rank, why: error.to_string() };
    world.progress.break_group(group, abort, FoundBy::ThisRank);
    Attempt::Started(Box::new(move |_| {
        let completion = Arc::new(Completion::new());
        completion.complete(Err(error));
        IssuedOperation { sequence, completion }
    }))
}

/// A collective that MPI has accepted, before anybody waits for it.
struct StartedCollective<'a, H: Handle> {
    world: &'static World<H>,
    group: &'a Arc<Group<H>>,
    collective: Collective,
    sequence: u64,
    request: Option<H>,
    scratch: Region,
}

impl<H: Handle> StartedCollective<'_, H> {
    fn proceed(mut self, waiting: WaitIntent, buffers: PersistentBuffers) -> IssuedOperation {
        let PersistentBuffers { deadline, output, finish, .. } = buffers;
        let StartedCollective { world, group, sequence, .. } = self;
        let completion = Arc::new(Completion::new());
        let issued = IssuedOperation { sequence, completion: completion.clone() };
        let Some(request) = self.request.take() else { return issued };
        let buffers = RequestBuffers::new(vec![self.scratch.clone()]);
        let label = (self.collective.facts().name, sequence);
        let running =
            RunningOperation::new(group.clone(), label, Requests::One(request), buffers, deadline);
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
    /// MPI continues with it, although the caller gave it up.
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let buffers = RequestBuffers::new(vec![self.scratch.clone()]);
        let label = (self.collective.facts().name, self.sequence);
        let deadline = crate::clock::after(std::time::Duration::MAX);
        let requests = Requests::One(request);
        let running = RunningOperation::new(self.group.clone(), label, requests, buffers, deadline);
        self.group.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.world.progress.change(|active, _| active.abandon(running));
    }
}

/// Copies the result to the outputs, then runs `finish`.
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
