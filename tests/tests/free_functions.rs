//! The free functions over the default group, each rank a process; the current group of a thread.

#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)]

use polyrank::distributed::{self as dist, NewGroupOptions};
use polyrank::{Error, ReduceOp};
use polyrank_tests::processes::processes;
use polyrank_tests::ranks;

#[test]
fn functions_are_the_default_groups_methods() {
    let ended = processes("functions_are_the_default_groups_methods", 3, |group| {
        let rank = group.rank();
        let size = dist::get_world_size().unwrap();
        assert_eq!((dist::get_rank().unwrap(), size), (rank, 3));
        let mut tensor = [f64::from(rank) + 1.0; 2];
        dist::all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
        assert_eq!(tensor, [6.0; 2]);
        dist::exscan(&mut tensor, ReduceOp::Max).unwrap();
        dist::scan(&mut tensor, ()).unwrap();
        assert_eq!(tensor, [6.0 * f64::from(rank + 1); 2]);
        dist::broadcast(&mut tensor, 0).unwrap();
        dist::broadcast(&mut tensor, 2).unwrap();
        dist::reduce(&mut tensor, (1, ReduceOp::Max)).unwrap();
        let mut all = vec![vec![0u32]; 3];
        dist::all_gather(&mut all, &[rank], ()).unwrap();
        assert_eq!(all, [[0], [1], [2]]);
        let mut flat = [0u32; 3];
        dist::all_gather_into_tensor(&mut flat, &[rank], ()).unwrap();
        assert_eq!(flat, [0, 1, 2]);
        let mut part = [0u32];
        dist::reduce_scatter_tensor(&mut part, &flat, ReduceOp::Sum).unwrap();
        assert_eq!(part, [3 * rank]);
        // c10d has the input first here.
        let mut gathered = if rank == 1 { vec![vec![0u32]; 3] } else { Vec::new() };
        dist::gather(&[rank], &mut gathered, 1).unwrap();
        assert!(rank != 1 || gathered == [[0], [1], [2]]);
        let lists = if rank == 2 { vec![vec![7u32], vec![8], vec![9]] } else { Vec::new() };
        dist::scatter(&mut part, &lists, 2).unwrap();
        assert_eq!(part, [7 + rank]);
        let mut swapped = [0u32; 3];
        dist::all_to_all_single(&mut swapped, &[rank; 3], ()).unwrap();
        assert_eq!(swapped, [0, 1, 2]);
        let work = dist::all_reduce_async(vec![1i32], ()).unwrap();
        let reduced = work.into_result().unwrap().remove(0).into_vec::<i32>().unwrap();
        assert_eq!(reduced, [3]);
        let (after, before) = ((rank + 1) % 3, (rank + 2) % 3);
        dist::sendrecv(&[rank], (after, 4), &mut part, (before, 4)).unwrap();
        assert_eq!(part, [before]);
        dist::ppermute(&mut part, &[rank], &[(0, 2), (2, 0)]).unwrap();
        assert_eq!(part, [if rank == 1 { 0 } else { 2 - rank }]);
        dist::send(&[rank], after, 5).unwrap();
        let found = dist::probe(Some(before), 5).unwrap();
        assert_eq!(dist::iprobe(None, 5).unwrap(), Some(found));
        dist::recv(&mut part, Some(found.source), 5).unwrap();
        messages(rank);
        sparse(rank);
        dist::barrier(()).unwrap();
        dist::monitored_barrier(None, true).unwrap();
        let mut pair = NewGroupOptions::default();
        pair.ranks = Some(vec![0, 1]);
        let pair = dist::new_group(pair).unwrap();
        assert_eq!(pair.is_some(), rank < 2);
        let current = |group: &polyrank::ProcessGroup| group.group_name().to_owned();
        if let Some(pair) = pair {
            dist::with_process_group(&pair, || {
                let name = current(&dist::current_process_group().unwrap());
                assert_eq!(name, pair.group_name());
            });
        }
        assert_eq!(current(&dist::current_process_group().unwrap()), group.group_name());
    });
    for rank in ended {
        assert_eq!(rank.code, Some(0), "{}", rank.output);
    }
}

fn sparse(rank: u32) {
    let sum =
        dist::all_reduce_sparse(vec![7_i64, i64::from(rank)], vec![1_f32, 2.0], Default::default());
    let (places, values) = sum.unwrap();
    assert_eq!(places.into_vec::<i64>().unwrap(), [0, 1, 2, 7]);
    assert_eq!(values.into_vec::<f32>().unwrap(), [2.0, 2.0, 2.0, 3.0]);
}

fn messages(rank: u32) {
    let mut got = [0u64];
    match rank {
        0 => dist::send(&[5u64], 1, 3).unwrap(),
        1 => assert_eq!(dist::recv(&mut got, None, 3).unwrap(), 0),
        _ => {}
    }
    let right = dist::isend(vec![u64::from(rank)], (rank + 1) % 3, 4).unwrap();
    dist::recv(&mut got, Some((rank + 2) % 3), 4).unwrap();
    right.wait(None).unwrap();
    assert_eq!(got, [u64::from((rank + 2) % 3)]);
}

#[test]
fn the_current_group_is_the_threads_own() {
    assert!(matches!(dist::current_process_group(), Err(Error::NotInitialized)));
    assert!(matches!(dist::all_reduce(&mut [1u8], ()), Err(Error::NotInitialized)));
    ranks(2, |group| {
        dist::with_process_group(&group, || {
            let current = dist::current_process_group().unwrap();
            assert_eq!(current.rank(), group.rank());
            let elsewhere = std::thread::scope(|scope| {
                scope.spawn(|| dist::current_process_group().is_err()).join().unwrap()
            });
            assert!(elsewhere);
            group.shutdown().unwrap();
            let refused = dist::current_process_group();
            assert!(matches!(refused, Err(Error::InvalidGroup { .. })), "{refused:?}");
            let refused = dist::abort_process_group(Some(&group));
            assert!(matches!(refused, Err(Error::InvalidGroup { .. })), "{refused:?}");
        });
        // A panic leaves nothing behind.
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            dist::with_process_group(&group, || panic!("on purpose"));
        }));
        assert!(panicked.is_err() && dist::current_process_group().is_err());
    });
}
