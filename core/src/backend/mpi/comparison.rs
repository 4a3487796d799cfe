//! At debug level `DETAIL`, collectives wait until all ranks have said what they are about to run:
//! MPI is given what they agree on and nothing else. A thread for each group that has any asks the
//! store, so that the caller that issues an operation continues.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::abi::Handle;
use super::group::Group;
use super::world::World;
use crate::backend::group_status::{ComparisonOutcome, FoundBy};
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;

/// How long the store is waited for at a time: a group may break, or be left, meanwhile.
const SLICE: Duration = Duration::from_millis(200);

/// Starts the thread that compares the operations that `group` holds back and passes them to MPI in
/// order, if it does not run yet.
pub(super) fn start_comparing<H: Handle>(world: &'static World<H>, group: &Arc<Group<H>>) {
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
                    active.start_held(&world.job, group, sequence, ended);
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
