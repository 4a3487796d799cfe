//! How operations and groups over NCCL end: dropped while something is in flight, aborted while
//! ranks still meet, refused on one rank, failed half-way. A double plays NCCL and the driver;
//! nothing here runs on a device.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use polyrank::process_group::{GroupOptions, SplitOptions};
use polyrank::store::{HashStore, Store};
use polyrank::{Collective, Device, Error, ProcessGroup, Request, Tensor, Work};
use polyrank_tests::LIMIT;
use polyrank_tests::nccl::{
    NcclSetup, calls, contract, count, forget_calls, in_double, in_double_with_log, nccl_ranks,
    numbers, on_device, request,
};
use polyrank_tests::processes::with_variable;

/// Runs `main` on so many ranks, each a thread that has its group alone and drops it, and a store
/// for what the ranks tell one another.
fn ranks_with_groups_of_their_own(
    size: u32,
    bound: bool,
    main: impl Fn(ProcessGroup, Arc<dyn Store>) + Sync,
) {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    std::thread::scope(|scope| {
        for rank in 0..size {
            let (store, main) = (store.clone(), &main);
            scope.spawn(move || {
                let mut options =
                    GroupOptions::default().backend("nccl".parse().unwrap()).timeout(LIMIT);
                if bound {
                    options = options.device(Device::Cuda(rank));
                }
                let group = ProcessGroup::new(store.clone(), rank, size, "test", options).unwrap();
                main(group, store);
            });
        }
    });
}

/// Waits until something that happens on another thread has happened.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

fn issue(group: &ProcessGroup, collective: Collective, tensor: &Tensor) -> Work {
    group.issue(request(collective, tensor)).unwrap()
}

/// Runs an operation of all ranks, and waits for the device.
fn together(group: &ProcessGroup) {
    let tensor = on_device(group.rank(), &[1.0; 4]);
    issue(group, Collective::Allreduce, &tensor).wait(Some(LIMIT)).unwrap();
    assert_eq!(numbers(&tensor), [group.size() as f32; 4]);
}

#[test]
fn what_was_ordered_comes_to_its_end_when_the_group_is_dropped() {
    let test = "what_was_ordered_comes_to_its_end_when_the_group_is_dropped";
    in_double_with_log(test, || {
        ranks_with_groups_of_their_own(2, true, |group, store| {
            let rank = group.rank();
            // Connections are made by the first operation of a kind, which waits for all.
            issue(&group, Collective::Broadcast, &on_device(rank, &[0.0])).wait(None).unwrap();
            group.run(Request::new(Collective::Barrier)).unwrap();
            let tensor = on_device(rank, &[rank as f32 + 1.0; 1000]);
            if rank == 1 {
                store.wait(&["dropped"], None).unwrap();
            }
            let work = issue(&group, Collective::Broadcast, &tensor);
            // It has memory of its own.
            let barrier = group.issue(Request::new(Collective::Barrier)).unwrap();
            if rank == 1 {
                barrier.wait(Some(LIMIT)).unwrap();
            }
            work.wait(None).unwrap();
            drop((work, barrier, group));
            if rank == 0 {
                store.set("dropped", b"").unwrap();
            }
            assert_eq!(numbers(&tensor), [1.0; 1000]);
        });
        until(|| count("ncclCommDestroy") == 2);
        assert_eq!(count("ncclCommAbort"), 0);
        assert_eq!(count("cuMemFreeAsync on no stream"), 0);
    });
}

#[test]
fn waiting_orders_the_stream_of_the_thread_that_waits() {
    in_double("waiting_orders_the_stream_of_the_thread_that_waits", || {
        nccl_ranks(2, &NcclSetup { bound: true, ..NcclSetup::default() }, |group| {
            contract::waiting_orders_the_stream_of_the_thread_that_waits(&group);
        });
    });
}

#[test]
fn what_was_enqueued_in_part_keeps_its_memory_until_the_device_lets_go() {
    let test = "what_was_enqueued_in_part_keeps_its_memory_until_the_device_lets_go";
    // The launches before it are those of the first operation of both ranks.
    with_variable("NCCL_DOUBLE_FAILS", "3", || {
        in_double_with_log(test, || {
            ranks_with_groups_of_their_own(2, true, |group, store| {
                together(&group);
                if group.rank() == 1 {
                    store.set("begun", b"").unwrap();
                    return store.wait(&["over"], None).unwrap();
                }
                // What the first operation used is freed by now.
                store.wait(&["begun"], None).unwrap();
                forget_calls();
                let tensor = on_device(0, &[1.0; 1000]);
                let error = group.issue(request(Collective::Broadcast, &tensor)).unwrap_err();
                drop(tensor);
                assert!(matches!(error, Error::RankFailed { rank: 0 | 1, .. }), "{error}");
                assert!(error.to_string().contains("failed with code 2"), "{error}");
                assert!(group.is_broken());
                until(|| count("cuMemFree ") == 1);
                let calls = calls();
                let place = |name: &str| calls.iter().position(|call| call.starts_with(name));
                assert!(place("ncclCommAbort") < place("cuMemFree "), "{calls:?}");
                assert!(place("ncclCommAbort").is_some(), "{calls:?}");
                store.set("over", b"").unwrap();
            });
        });
    });
}

#[test]
fn who_leaves_waits_until_an_abort_is_over() {
    let test = "who_leaves_waits_until_an_abort_is_over";
    with_variable("NCCL_DOUBLE_ABORTS_SLOWLY", "1", || {
        in_double_with_log(test, || {
            nccl_ranks(2, &NcclSetup::default(), |group| {
                contract::ranks_that_call_different_things_learn_of_it(&group);
                group.shutdown().expect("that they disagree is known");
            });
            assert_eq!(count("aborted"), 2, "{:?}", calls());
        });
    });
}

#[test]
fn who_waits_for_the_first_call_of_others_hears_of_an_abort() {
    in_double("who_waits_for_the_first_call_of_others_hears_of_an_abort", || {
        ranks_with_groups_of_their_own(3, false, |group, store| match group.rank() {
            0 => {
                store.wait(&["on its way"], None).unwrap();
                group.abort();
                store.wait(&["heard"], None).unwrap();
            }
            1 => {
                store.set("on its way", b"").unwrap();
                let tensor = on_device(1, &[1.0]);
                let error = group.issue(request(Collective::Allreduce, &tensor)).unwrap_err();
                assert!(matches!(error, Error::Aborted { .. }), "{error}");
                assert!(
                    error.to_string().contains("aborted by rank 0: it called abort()"),
                    "{error}"
                );
                store.set("heard", b"").unwrap();
            }
            // Never comes.
            _ => store.wait(&["heard"], None).unwrap(),
        });
    });
}

#[test]
fn who_waits_in_a_split_hears_of_an_abort() {
    in_double("who_waits_in_a_split_hears_of_an_abort", || {
        ranks_with_groups_of_their_own(3, true, |group, store| match group.rank() {
            0 => {
                store.wait(&["on its way"], None).unwrap();
                group.abort();
                store.wait(&["heard"], None).unwrap();
            }
            1 => {
                store.set("on its way", b"").unwrap();
                let error = group.split_group(&[0, 1], SplitOptions::default()).unwrap_err();
                assert!(matches!(error, Error::Aborted { .. }), "{error}");
                assert!(
                    error.to_string().contains("aborted by rank 0: it called abort()"),
                    "{error}"
                );
                store.set("heard", b"").unwrap();
            }
            _ => store.wait(&["heard"], None).unwrap(),
        });
    });
}

#[test]
fn a_failure_while_ranks_meet_is_that_of_the_rank_that_failed() {
    let test = "a_failure_while_ranks_meet_is_that_of_the_rank_that_failed";
    with_variable("NCCL_DOUBLE_MEETING_FAILS", "1", || {
        in_double(test, || {
            ranks_with_groups_of_their_own(3, false, |group, store| {
                let tensor = on_device(group.rank(), &[1.0]);
                let error = group.issue(request(Collective::Allreduce, &tensor)).unwrap_err();
                // The library tells the others only that another rank failed, before that one can.
                match group.rank() {
                    1 => assert!(matches!(error, Error::Network { .. }), "{error}"),
                    _ => assert!(matches!(error, Error::RankFailed { rank: 1, .. }), "{error}"),
                }
                assert!(error.to_string().contains("NCCL failed with code 2"), "{error}");
                // A rank that is told of the failure needs the group of the rank that tells it.
                store.set(&format!("heard/{}", group.rank()), b"").unwrap();
                store.wait(&["heard/0", "heard/1", "heard/2"], None).unwrap();
            });
        });
    });
}

#[test]
fn a_split_to_which_not_all_come_is_an_error_that_says_so() {
    in_double("a_split_to_which_not_all_come_is_an_error_that_says_so", || {
        ranks_with_groups_of_their_own(2, true, |group, store| {
            if group.rank() == 1 {
                return store.wait(&["gave up"], None).unwrap();
            }
            let options = SplitOptions::default().timeout(Duration::from_millis(300));
            let error = group.split_group(&[0], options).unwrap_err();
            assert!(matches!(error, Error::RendezvousTimeout { .. }), "{error}");
            assert!(error.to_string().contains("members or not"), "{error}");
            assert!(group.is_broken(), "the library may still be at it");
            store.set("gave up", b"").unwrap();
        });
    });
}

#[test]
fn a_call_that_is_wrong_on_one_rank_uses_up_no_number() {
    in_double("a_call_that_is_wrong_on_one_rank_uses_up_no_number", || {
        nccl_ranks(2, &NcclSetup::default(), |group| {
            together(&group);
            if group.rank() == 0 {
                let elsewhere = on_device(3, &[1.0]);
                let error = group.run(request(Collective::Allreduce, &elsewhere)).unwrap_err();
                assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
                let error = group.send(&elsewhere, 1, 0).unwrap_err();
                assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            }
            let tensor = on_device(group.rank(), &[1.0]);
            let work = issue(&group, Collective::Allreduce, &tensor);
            work.wait(Some(LIMIT)).unwrap();
            assert_eq!(work.sequence(), 2, "the second of both ranks");
        });
    });
}

#[test]
fn what_ranks_compare_is_cleared_up_by_the_last_reader() {
    let test = "what_ranks_compare_is_cleared_up_by_the_last_reader";
    with_variable("POLYRANK_DEBUG", "DETAIL", || {
        in_double(test, || {
            nccl_ranks(3, &NcclSetup::default(), |group| {
                let tensor = on_device(group.rank(), &[1.0; 4]);
                let works: Vec<Work> =
                    (0..20).map(|_| issue(&group, Collective::Broadcast, &tensor)).collect();
                works.iter().for_each(|work| work.wait(Some(LIMIT)).unwrap());
                let store = group.get_group_store();
                let keys = (1..=20).flat_map(|number| {
                    ["0", "1", "2", "read"].map(|last| format!("nccl/check/{number}/{last}"))
                });
                keys.for_each(|key| until(|| !store.check(&[&key]).unwrap()));
            });
        });
    });
}

#[test]
fn a_part_of_a_slice_does_not_come_back_as_the_slice() {
    in_double("a_part_of_a_slice_does_not_come_back_as_the_slice", || {
        let context = cudarc::driver::CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let tensor = Tensor::from(stream.clone_htod(&[1.0_f32, 2.0, 3.0]).unwrap());
        let tensor = tensor.into_cuda_slice::<i32>().expect_err("elements of another type");
        let mut parts = tensor.split(&[1, 2]).unwrap();
        let tensor = tensor.into_cuda_slice::<f32>().expect_err("its parts are there");
        drop(tensor);
        drop(parts.remove(0));
        let part = parts.remove(0).into_cuda_slice::<f32>().expect_err("it is a part");
        assert_eq!(numbers(&part), [2.0, 3.0]);
    });
}
