//! Handles on a group that do more than the group: the one that keeps errors for itself, over ranks
//! that are killed, and the group without other ranks.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use polyrank::options::{AllgatherOptions, AllreduceOptions};
use polyrank::process_group::ConfigureOptions;
use polyrank::store::HashStore;
use polyrank::{DType, Error, GroupOptions, ProcessGroup, ReduceOp, Tensor};
use polyrank_tests::LIMIT;
use polyrank_tests::processes::{
    all_went_well, die, lines_of_survivors, processes, report, with_variable,
};

fn alone() -> ProcessGroup {
    let store = Arc::new(HashStore::new());
    ProcessGroup::new(store, 0, 1, "alone", GroupOptions::default()).unwrap()
}

/// Elements of each length that has a way of its own: none, on the board, in slots, in pieces.
const LENGTHS: [usize; 4] = [0, 1, 1001, 300_001];

/// Every kind of operation, of which none raises. What a dummy sends to itself does not come.
fn all_operations(group: &ProcessGroup, is_run: bool) {
    let is_sent = is_run && group.backend_name() != "fake";
    let (rank, size) = (group.rank() as usize, group.size() as usize);
    for length in LENGTHS {
        let mut sum = vec![1f64; length];
        group.allreduce(&mut sum, ()).unwrap();
        assert!(sum.iter().all(|&it| it == if is_run { size as f64 } else { 1.0 }));
        let (mut all, own) = (vec![vec![-1i32; length]; size], vec![rank as i32; length]);
        group.allgather(&mut all, &own, ()).unwrap();
        for (from, part) in all.iter().enumerate() {
            assert!(part.iter().all(|&it| it == if is_run { from as i32 } else { -1 }));
        }
        let mut copy = vec![rank as u8; length];
        group.broadcast(&mut copy, 0).unwrap();
        assert!(copy.iter().all(|&it| usize::from(it) == if is_run { 0 } else { rank }));
        let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
        let (mut came, went) = (vec![-1i64; length], vec![rank as i64; length]);
        group.sendrecv(&went, (to as u32, 0), &mut came, (from as u32, 0)).unwrap();
        assert!(came.iter().all(|&it| it == if is_sent { from as i64 } else { -1 }));
        let (went, came) = (Tensor::from(went), Tensor::from(vec![-1i64; length]));
        let sent = group.send_async(went, to as u32, 3).unwrap();
        group.recv_async(came.clone(), Some(from as u32), 3).unwrap().wait(None).unwrap();
        sent.wait(None).unwrap();
        let expected = if is_sent { from as i64 } else { -1 };
        came.region().read(|bytes| {
            assert!(bytes.as_chunks().0.iter().all(|&it| i64::from_ne_bytes(it) == expected));
        });
        let prepared =
            group.prepare_send(Tensor::zeros(DType::U8, &[length]).unwrap(), to as u32, 4);
        let prepared = prepared.unwrap();
        let receive = Tensor::zeros(DType::U8, &[length]).unwrap();
        let receive = group.prepare_recv(receive, from as u32, 4).unwrap();
        let (sent, received) = (prepared.start().unwrap(), receive.start().unwrap());
        sent.wait(None).unwrap();
        received.wait(None).unwrap();
    }
    group.barrier(()).unwrap();
}

/// In a group of so many, one is killed: the others go on, first as if nothing were, then without
/// it.
fn goes_on_without_the_dead(test: &str, size: u32) {
    let victim = size - 1;
    let ended = processes(test, size, |group| {
        let training = group.swallowing_errors();
        all_operations(&training, true);
        assert_eq!(training.error(), None);
        if group.rank() == victim {
            die();
        }
        let mut steps = 0;
        while training.error().is_none() {
            training.allreduce(&mut [1.0], ()).unwrap();
            steps += 1;
        }
        assert!(steps > 0);
        let error = training.error().unwrap();
        assert!(error.contains(&format!("rank {victim}")), "{error}");
        all_operations(&training, false);
        assert_eq!(training.error(), Some(error));
        // The group itself says so, as any other handle on it.
        assert!(matches!(group.allreduce(&mut [1.0], ()), Err(Error::RankFailed { rank, .. })
            if rank == victim));
        let other = group.swallowing_errors();
        assert_eq!(other.error(), None);
        group.shrink_group(&[victim], Some(LIMIT)).unwrap().wait(None).unwrap();
        assert_eq!((training.error(), training.size()), (None, size - 1));
        all_operations(&training, true);
        assert_eq!(training.error(), None);
        report(format!("rank {}", training.rank()));
    });
    for (place, (_, line)) in lines_of_survivors(&ended, victim).into_iter().enumerate() {
        assert_eq!(line, format!("rank {place}"));
    }
}

#[test]
fn one_of_two_is_killed() {
    goes_on_without_the_dead("one_of_two_is_killed", 2);
}

#[test]
fn one_of_three_is_killed_over_tcp() {
    with_variable("POLYRANK_TRANSPORT", "tcp", || {
        goes_on_without_the_dead("one_of_three_is_killed_over_tcp", 3);
    });
}

#[test]
fn one_of_eight_is_killed() {
    goes_on_without_the_dead("one_of_eight_is_killed", 8);
}

#[test]
fn an_error_of_a_work_is_kept_as_one_of_a_call() {
    let test = "an_error_of_a_work_is_kept_as_one_of_a_call";
    let ended = processes(test, 2, |group| {
        let training = group.swallowing_errors();
        let tensor = Tensor::from(vec![1f32; 5]);
        if group.rank() == 1 {
            let work = training.allreduce_async(tensor, ()).unwrap();
            group.abort();
            work.wait(None).unwrap();
            assert!(work.is_success() && work.result().len() == 1);
            let error = training.error().unwrap();
            assert!(error.contains("abort()"), "{error}");
        }
    });
    all_went_well(&ended);
}

#[test]
fn what_was_called_wrongly_raises_and_is_no_failure() {
    let training = alone().swallowing_errors();
    let wrong = training.allgather(&mut vec![vec![0f32; 2]; 3], &[1f32; 2], ());
    assert!(matches!(wrong, Err(Error::InvalidArgument { .. })), "{wrong:?}");
    let wrong = training.allreduce(&mut [1.5], ReduceOp::Bxor);
    assert!(matches!(wrong, Err(Error::UnsupportedDType { .. })), "{wrong:?}");
    let wrong = training.send(&[1.0], 7, 0);
    assert!(matches!(wrong, Err(Error::InvalidArgument { .. })), "{wrong:?}");
    assert_eq!(training.error(), None);
}

#[test]
fn what_the_program_reports_ends_operations_until_there_are_other_members() {
    let group = alone();
    let training = group.swallowing_errors();
    training.report_error("the sensor is gone");
    training.report_error("so is the other");
    assert_eq!(training.error().as_deref(), Some("the sensor is gone"));
    let mut all = vec![vec![0i16; 3]];
    training.allgather(&mut all, &[4i16; 3], AllgatherOptions::default()).unwrap();
    assert_eq!(all, [[0; 3]]);
    group.allgather(&mut all, &[4i16; 3], ()).unwrap();
    assert_eq!((all, group.error()), (vec![vec![4; 3]], None));
    // An operation gives its tensors back, run or not.
    let work = training.allreduce_async(vec![2u64; 3], AllreduceOptions::default()).unwrap();
    assert_eq!(work.into_result().unwrap().len(), 1);
    group.report_error("nobody keeps this");
    assert_eq!(group.error(), None);
}

#[test]
fn handles_know_what_they_wrap() {
    let group = alone();
    let training = group.swallowing_errors();
    let outer = training.wrapped();
    assert!(group.parent().is_none());
    let beneath = outer.parent().unwrap();
    training.report_error("gone");
    assert_eq!((outer.error(), beneath.error()), (None, training.error()));
    assert!(beneath.parent().unwrap().parent().is_none());
    // What is wrapped twice does what both do.
    let mut two = [2.0];
    outer.broadcast(&mut two, 0).unwrap();
    group.shutdown().unwrap();
    let refused = outer.allreduce(&mut two, ());
    assert!(matches!(refused, Err(Error::InvalidGroup { .. })), "{refused:?}");
}

#[test]
fn a_dummy_does_all_and_nothing() {
    let dummy = ProcessGroup::dummy(0, 1).unwrap();
    all_operations(&dummy, true);
    assert_eq!((dummy.rank(), dummy.size(), dummy.configure_count()), (0, 1, 0));
    dummy.configure(ConfigureOptions::new("nowhere:1/quorum", 0, 1)).unwrap();
    dummy.configure(ConfigureOptions::new("nowhere:1/quorum", 3, 5)).unwrap();
    assert_eq!((dummy.rank(), dummy.size(), dummy.configure_count()), (0, 1, 2));
    assert!(dummy.parent().is_none() && dummy.error().is_none());
    let wrong = ProcessGroup::dummy(2, 2);
    assert!(matches!(wrong, Err(Error::InvalidArgument { .. })), "{wrong:?}");
    // Two of them do not know each other.
    let other = ProcessGroup::dummy(1, 2).unwrap();
    other
        .allreduce(&mut [1.0], AllreduceOptions::default().timeout(Duration::from_secs(1)))
        .unwrap();
    dummy.shutdown().unwrap();
    let left = dummy.configure(ConfigureOptions::new("nowhere:1/quorum", 0, 1));
    assert!(matches!(left, Err(Error::InvalidGroup { .. })), "{left:?}");
}
