//! The group of a manager as what takes a group sees it, over replicas that are threads.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Rank, bits, lighthouse, options, replicas, until};
use polyrank::options::AllreduceCoalescedOptions;
use polyrank::{Error, ReduceOp, Tensor};
use polyrank_replicas::{ManagerError, ManagerOptions, StartQuorum, WorldSizeMode};

/// A step in which only the group is asked; what the average was.
fn averaged(rank: &Rank, own: &[f64]) -> Vec<f64> {
    let group = rank.manager.managed_group();
    loop {
        rank.manager.start_quorum(StartQuorum::default()).unwrap();
        let mut average = own.to_vec();
        // At once, while the quorum comes: the operation waits in a queue.
        group.wrapped().swallowing_errors().allreduce(&mut average, ReduceOp::Avg).unwrap();
        let tensors = vec![Tensor::from(vec![1f32; 3]), Tensor::from(vec![2f32; 1001])];
        let work = group.allreduce_coalesced_async(tensors, AllreduceCoalescedOptions::default());
        work.unwrap().wait(None).unwrap();
        if rank.manager.should_commit(None).unwrap() {
            return average;
        }
    }
}

#[test]
fn averages_are_those_of_the_participants() {
    let lighthouse = lighthouse(2);
    let adapt = |_, options: ManagerOptions| {
        options.min_replica_size(2).world_size_mode(WorldSizeMode::FixedWithSpares)
    };
    let all = replicas(&lighthouse, (3, 1), adapt, |rank| {
        until(|| {
            averaged(rank, &[1.0]);
            rank.manager.replicas().len() == 3
        });
        averaged(rank, &[1.0]);
        let own = [f64::from(1 << (2 * rank.replica)), rank.replica as f64];
        // The third is a spare, whose numbers count for nothing.
        let own = if rank.replica == 2 { [f64::NAN; 2] } else { own };
        let group = rank.manager.managed_group();
        (averaged(rank, &own), group.wrapped().participants(), group.size(), group.error())
    });
    for ranks in &all {
        let (average, participants, size, error) = &ranks[0];
        assert_eq!(bits(average), bits(&[2.5, 0.5]));
        assert_eq!((*participants, *size, error.as_deref()), (2, 3, None));
    }
}

#[test]
fn between_two_steps_operations_are_run_or_raise() {
    let lighthouse = lighthouse(1);
    let rank = Rank::new(options(&lighthouse, "a"), 0, vec![1.0]);
    let (manager, group) = (&rank.manager, rank.manager.managed_group());
    manager.start_quorum(StartQuorum::default()).unwrap();
    manager.wait_quorum().unwrap();
    // Its message never comes.
    let late = Tensor::from(vec![0u8; 3]);
    let late = group.recv_async(late, Some(0), 9).unwrap();
    manager.report_error("the program's own");
    let mut all = vec![vec![0.0]];
    group.allgather(&mut all, &[1.0], ()).unwrap();
    assert_eq!(all, [[0.0]]);
    assert!(!manager.should_commit(None).unwrap());
    group.allgather(&mut all, &[1.0], ()).unwrap();
    assert_eq!(all, [[1.0]]);
    // What belongs to a step that is over is no failure of the next, and raises.
    manager.start_quorum(StartQuorum::default()).unwrap();
    manager.wait_quorum().unwrap();
    manager.group().abort();
    assert!(late.wait(None).is_err());
    assert_eq!(group.error(), None);
}

#[test]
fn what_fails_is_the_managers_to_know() {
    let lighthouse = lighthouse(1);
    let rank = Rank::new(options(&lighthouse, "a"), 0, vec![1.0]);
    let (manager, group) = (&rank.manager, rank.manager.managed_group());
    // Before a step there is nothing that would be a part of it.
    let refused = group.allreduce(&mut [1.0], ()).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused:?}");
    manager.start_quorum(StartQuorum::default()).unwrap();
    manager.wait_quorum().unwrap();
    manager.group().abort();
    let mut tensor = [5.0];
    group.broadcast(&mut tensor, 0).unwrap();
    let error = group.error().unwrap();
    assert!(error.contains("abort()"), "{error}");
    group.allgather(&mut vec![vec![0.0]], &[1.0], ()).unwrap();
    group.allreduce(&mut tensor, ()).unwrap();
    assert!(
        matches!(manager.errored(), Some(ManagerError::Reported(_))),
        "{:?}",
        manager.errored()
    );
    assert!(!manager.should_commit(None).unwrap());
    assert_eq!(averaged(&rank, &[4.0]), [4.0]);
    // A wrong call raises, and the others may have made it: the step is lost.
    manager.start_quorum(StartQuorum::default()).unwrap();
    let refused = group.allreduce(&mut [3], ReduceOp::Avg).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused:?}");
    assert!(!manager.should_commit(None).unwrap());
    let parent = group.parent().unwrap();
    assert_eq!(parent.participants(), parent.size());
    // Who still has the handle afterwards is told.
    manager.shutdown().unwrap();
    let left = group.broadcast(&mut tensor, 0);
    assert!(left.is_err(), "{left:?}");
}
