//! Handles on a group that do more than the group: the one that keeps errors for itself, over ranks
//! that are killed, and the group without other ranks.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polyrank::options::{AllgatherOptions, AllreduceOptions};
use polyrank::process_group::ConfigureOptions;
use polyrank::store::{HashStore, TcpStore, TcpStoreOptions};
use polyrank::{DType, Error, GroupOptions, ProcessGroup, ReduceOp, Tensor, nan_check};
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

/// A group without members, which is made and configured in a store of this process.
fn configured(server: &TcpStore, quorum: &str, timeout: Duration) -> ConfigureOptions {
    let address = format!("127.0.0.1:{}/{quorum}", server.port());
    ConfigureOptions::new(address, 0, 1).timeout(timeout)
}

#[test]
fn nothing_is_run_while_there_are_no_members() {
    let server = TcpStore::new(TcpStoreOptions::new("127.0.0.1", 0).is_master(true)).unwrap();
    let options = GroupOptions::default();
    let group = ProcessGroup::without_members(None, "training", options).unwrap();
    let training = group.swallowing_errors();
    let skips = || {
        let mut all = vec![vec![-1f32; 2]; 2];
        training.allgather(&mut all, &[1f32; 2], ()).unwrap();
        training.allreduce(&mut [1.5], ()).unwrap();
        training.send(&[1u8], 3, 0).unwrap();
        training.broadcast(&mut [1u8], 5).unwrap();
        training.barrier(()).unwrap();
        assert_eq!(all, [[-1.0; 2], [-1.0; 2]]);
        assert!(training.error().is_some_and(|error| error.contains("no members")));
    };
    skips();
    training.configure(configured(&server, "one", LIMIT)).unwrap();
    assert_eq!(training.error(), None);
    all_operations(&training, true);
    let prepared = training.prepare_send(Tensor::from(vec![1u8]), 0, 7).unwrap();
    // The second member never comes.
    let mut alone = configured(&server, "two", Duration::from_millis(50));
    alone.world_size = 2;
    assert!(training.configure(alone).is_err());
    skips();
    training.configure(configured(&server, "three", LIMIT)).unwrap();
    all_operations(&training, true);
    assert_eq!(training.error(), None);
    // What was prepared for others is wrong now.
    assert!(matches!(prepared.start(), Err(Error::Reconfigured { .. })));
}

#[test]
fn operations_of_other_threads_end_well_while_members_are_replaced() {
    let server = TcpStore::new(TcpStoreOptions::new("127.0.0.1", 0).is_master(true)).unwrap();
    let group = ProcessGroup::without_members(None, "replaced", GroupOptions::default()).unwrap();
    let training = group.swallowing_errors();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        training.allreduce(&mut [1.0; 3], ()).unwrap();
                        training.allgather(&mut vec![vec![0.0; 3]], &[1.0; 3], ()).unwrap();
                    }
                })
            })
            .collect();
        for round in 0..30 {
            let options = configured(&server, &format!("round-{round}"), LIMIT);
            training.configure(options).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|it| it.join().unwrap());
    });
    // The last members are not said to have failed what the ones before them did.
    training.configure(configured(&server, "last", LIMIT)).unwrap();
    all_operations(&training, true);
    assert_eq!(training.error(), None);
}

#[test]
fn prepared_operations_and_topologies_are_skipped_too() {
    let group = alone();
    let training = group.swallowing_errors();
    let sum = Tensor::from(vec![2.5f32; 3]);
    let prepared = training.prepare_allreduce(sum.clone(), ()).unwrap();
    let grid = training.create_cart(&[1], &[true]).unwrap();
    prepared.run().unwrap();
    group.abort();
    prepared.run().unwrap();
    prepared.start().unwrap().wait(None).unwrap();
    let (mut came, went) = (vec![vec![7f64; 4]; 2], vec![vec![1f64; 4]; 2]);
    grid.neighbor_alltoall(&mut came, &went).unwrap();
    assert_eq!((came, sum.into_vec::<f32>().unwrap()), (vec![vec![7.0; 4]; 2], vec![2.5; 3]));
    assert!(training.error().unwrap().contains("abort()"));
}

#[test]
fn an_error_of_a_hook_is_raised_each_time() {
    let training = alone().swallowing_errors();
    training.register_pre_hook(3, nan_check()).unwrap();
    let wrong = training.allreduce(&mut [f32::NAN], ());
    assert!(matches!(wrong, Err(Error::NonFiniteInput { .. })), "{wrong:?}");
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
    // What is wrapped twice, or more often, does what all do.
    let mut outer = outer;
    for _ in 0..20_000 {
        outer = outer.wrapped();
    }
    assert!(format!("{outer:?}").starts_with("ProcessGroupWrapper(alone, rank 0 of 1"));
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
    let outer = dummy.wrapped().swallowing_errors();
    outer.configure(ConfigureOptions::new("nowhere:1/quorum", 3, 5)).unwrap();
    assert_eq!((dummy.rank(), dummy.size(), dummy.configure_count()), (0, 1, 3));
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
