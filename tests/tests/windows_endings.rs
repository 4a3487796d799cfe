//! What ends while others may still use it: registrations, windows, ranks, groups. And what must
//! not be done at once: reading a tensor while it is accessed, operands in one memory.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use polyrank::distributed::destroy_process_group;
use polyrank::process_group::ReconfigureOptions;
use polyrank::store::HashStore;
use polyrank::{DType, Error, GroupOptions, ProcessGroup, ReduceOp, Tensor, Window};
use polyrank_tests::processes::{all_went_well, processes, with_variable};
use polyrank_tests::windows::{MAPPED_ELEMENTS as ELEMENTS, WAYS};

fn zeros() -> Tensor {
    Tensor::zeros(DType::I32, &[ELEMENTS]).unwrap()
}

fn fill(tensor: &Tensor, value: i32) {
    tensor.region().write(|bytes| {
        bytes.as_chunks_mut().0.iter_mut().for_each(|place| *place = value.to_ne_bytes());
    });
}

fn values(tensor: &Tensor) -> Vec<i32> {
    tensor
        .region()
        .read(|bytes| bytes.as_chunks().0.iter().map(|value| i32::from_ne_bytes(*value)).collect())
}

fn holds(tensor: &Tensor, value: i32) -> bool {
    values(tensor).iter().all(|found| *found == value)
}

/// A window in which each rank has registered zeros.
fn window_of(group: &ProcessGroup) -> (Window, Tensor) {
    let (window, tensor) = (group.new_window().unwrap(), zeros());
    window.tensor_register(tensor.clone()).unwrap();
    (window, tensor)
}

/// Ranks that are threads of this process, each with a group of its own store.
fn threads(size: u32, rank_main: impl Fn(ProcessGroup) + Send + Sync) {
    let store = Arc::new(HashStore::new());
    std::thread::scope(|scope| {
        for rank in 0..size {
            let (store, rank_main) = (store.clone(), &rank_main);
            scope.spawn(move || {
                let options = GroupOptions::default().timeout(Duration::from_secs(60));
                rank_main(ProcessGroup::new(store, rank, size, "group", options).unwrap());
            });
        }
    });
}

/// How a rank lets its window go, by the name of the case.
fn let_go(case: &str, group: &ProcessGroup, window: Window) {
    match case {
        "deregistered" => window.tensor_deregister().unwrap(),
        "dropped" => drop(window),
        "left" => destroy_process_group(Some(group)).unwrap(),
        other => panic!("{other}"),
    }
}

fn views_of_others(group: &ProcessGroup, case: &str) {
    let (window, own) = window_of(group);
    let (rank, peer) = (group.rank(), 1 - group.rank());
    let view = window.map_remote_tensor(peer).unwrap();
    fill(&own, 5 + rank as i32);
    window.fence().unwrap();
    assert!(holds(&view, 5 + peer as i32));
    window.fence().unwrap();
    let store = group.get_group_store();
    // What is here now belongs to the peer; what it does afterwards does not show.
    let_go(case, group, window);
    fill(&own, 70 + rank as i32);
    assert!(holds(&view, 0), "{case}: it still shows what is the peer's");
    fill(&view, -1);
    if case != "left" {
        store.set(&format!("{case}/{rank}"), b"").unwrap();
        store.wait(&[&format!("{case}/{peer}")], None).unwrap();
    }
    assert!(holds(&own, 70 + rank as i32), "{case}: the peer still changes it");
    drop(own);
    let others: Vec<Tensor> = (0..8).map(|_| zeros()).collect();
    assert!(others.iter().all(|other| holds(other, 0)), "{case}");
    assert!(holds(&view, -1), "{case}");
}

#[test]
fn a_view_shows_and_changes_nothing_of_a_rank_that_it_has_no_right_to_any_more() {
    let test = "a_view_shows_and_changes_nothing_of_a_rank_that_it_has_no_right_to_any_more";
    let ended = processes(test, 2, |group| {
        for case in ["deregistered", "dropped"] {
            views_of_others(&group, case);
        }
        group.barrier(()).unwrap();
        views_of_others(&group, "left");
        std::process::exit(0);
    });
    all_went_well(&ended);
}

#[test]
fn a_rank_that_left_is_an_error_of_those_that_access_it() {
    let test = "a_rank_that_left_is_an_error_of_those_that_access_it";
    for (name, value) in WAYS {
        let ended = with_variable(name, value, || {
            processes(test, 3, |group| {
                let (window, _own) = window_of(&group);
                let store = group.get_group_store();
                window.get(&mut [1_i32], 1, 0).unwrap();
                window.fence().unwrap();
                if group.rank() == 1 {
                    destroy_process_group(Some(&group)).unwrap();
                    std::process::exit(0);
                }
                let error = loop {
                    if let Err(error) = window.put(&[7_i32], 1, 0) {
                        break error;
                    }
                };
                let why = error.to_string();
                assert!(matches!(error, Error::RankFailed { rank: 1, .. }), "{why}");
                assert!(why.contains("left"), "{why}");
                // Neither goes before the other has seen it; rank 0 has the store.
                store.set(&format!("seen/{}", group.rank()), b"").unwrap();
                store.wait(&["seen/0", "seen/2"], None).unwrap();
                match group.rank() {
                    0 => store.wait(&["gone/2"], None).unwrap(),
                    _ => store.set("gone/2", b"").unwrap(),
                }
                std::process::exit(0);
            })
        });
        all_went_well(&ended);
    }
}

#[test]
fn a_rank_that_closed_the_window_is_an_error_of_those_that_access_it() {
    let test = "a_rank_that_closed_the_window_is_an_error_of_those_that_access_it";
    for (name, value) in WAYS {
        let ended = with_variable(name, value, || {
            processes(test, 3, |group| {
                let (window, _own) = window_of(&group);
                window.get(&mut [1_i32], 1, 0).unwrap();
                window.fence().unwrap();
                if group.rank() == 1 {
                    drop(window);
                } else {
                    let error = loop {
                        if let Err(error) = window.put(&[7_i32], 1, 0) {
                            break error.to_string();
                        }
                    };
                    assert!(error.starts_with("put: rank 1 has"), "{error}");
                    let error = window.fence().unwrap_err().to_string();
                    assert!(error.contains("rank 1 has closed this window"), "{error}");
                    // The others go on.
                    window.put(&[7_i32], 2 - group.rank(), 0).unwrap();
                    window.signal(2 - group.rank()).unwrap();
                    window.wait_signal(2 - group.rank()).unwrap();
                }
                // And so does the group.
                let mut sum = [1_i32];
                group.allreduce(&mut sum, ()).unwrap();
                assert_eq!(sum, [3]);
            })
        });
        all_went_well(&ended);
    }
}

/// Descriptors that are open, and KiB of memory: mapped, and touched of files of memory.
fn held() -> (usize, usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), kib("VmSize:"), kib("RssShmem:"))
}

#[test]
fn a_thousand_windows_that_are_dropped_leave_nothing() {
    let test = "a_thousand_windows_that_are_dropped_leave_nothing";
    let ended = processes(test, 2, |group| {
        let peer = 1 - group.rank();
        let use_one = |round: usize| {
            let window = group.new_window().unwrap();
            let memory = Tensor::zeros(DType::U8, &[200_000]).unwrap();
            fill_bytes(&memory, 1);
            window.tensor_register(memory.clone()).unwrap();
            window.put(&[2_u8; 100], peer, round as u64).unwrap();
            window.fence().unwrap();
            let last = memory.region().read(|bytes| bytes[round + 99]);
            assert_eq!(last, 2);
        };
        (0..10).for_each(use_one);
        let (descriptors, mapped, touched) = held();
        (0..1000).for_each(use_one);
        group.barrier(()).unwrap();
        let after = held();
        assert!(after.0 <= descriptors + 2, "{descriptors} descriptors, then {}", after.0);
        assert!(after.1 < mapped + (600 << 10), "{mapped} KiB mapped, then {}", after.1);
        assert!(after.2 < touched + (20 << 10), "{touched} KiB touched, then {}", after.2);
    });
    all_went_well(&ended);
}

fn fill_bytes(tensor: &Tensor, value: u8) {
    tensor.region().write(|bytes| bytes.fill(value));
}

#[test]
fn a_window_of_former_members_is_refused_and_disturbs_nobody() {
    let meeting = Barrier::new(2);
    let handles = std::sync::Mutex::new(vec![String::new(); 2]);
    threads(2, |group| {
        let (rank, peer) = (group.rank() as usize, 1 - group.rank());
        let (window, _own) = window_of(&group);
        let spare = group.new_window().unwrap();
        window.put(&[3_i32], peer, 0).unwrap();
        group.barrier(()).unwrap();
        handles.lock().unwrap()[rank] = group.get_reconfigure_handle().unwrap();
        meeting.wait();
        let all = handles.lock().unwrap().clone();
        group.reconfigure(ReconfigureOptions::new(1, all)).unwrap().wait(None).unwrap();
        let refused = [
            window.put(&[3_i32], peer, 0).unwrap_err(),
            window.get(&mut [3_i32], peer, 0).unwrap_err(),
            window.fence().unwrap_err(),
            window.signal(peer).unwrap_err(),
            window.tensor_deregister().unwrap_err(),
            spare.tensor_register(zeros()).unwrap_err(),
            spare.put(&[3_i32], peer, 0).unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error, Error::Reconfigured { .. }), "{error}");
        }
        // Nothing of it is under way among the new members.
        let mut sum = [rank as i32 + 1];
        group.allreduce(&mut sum, ()).unwrap();
        assert_eq!(sum, [3]);
        let (window, own) = window_of(&group);
        window.put(&[9_i32], 1 - group.rank(), 4).unwrap();
        window.fence().unwrap();
        assert_eq!(values(&own)[4], 9);
    });
}

#[test]
fn hooks_see_no_operation_of_a_window_and_nothing_waits_for_them() {
    threads(2, |group| {
        let (window, seen) = (group.new_window().unwrap(), Arc::new(AtomicUsize::new(0)));
        let (other, count) = (window.clone(), seen.clone());
        group
            .register_pre_hook(0, move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                // A hook may use the window: nothing is locked while it runs.
                let _ = other.get_attr(0);
                Ok(())
            })
            .unwrap();
        window.tensor_register(zeros()).unwrap();
        window.fence().unwrap();
        window.tensor_deregister().unwrap();
        drop(group.new_window().unwrap());
        assert_eq!(seen.load(Ordering::Relaxed), 0, "the program has called none of them");
        group.barrier(()).unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), 1);
        group.unregister_pre_hook(0);
    });
}

/// Has a thread look at the rank's tensor, all of whose elements are always equal, while others
/// change all of them.
fn looked_at<R>(tensor: &Tensor, change: impl FnOnce() -> R) -> R {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                tensor.region().read(|bytes| {
                    let (first, all) = (bytes[..4].to_vec(), bytes.as_chunks::<4>().0);
                    assert!(all.iter().all(|it| it[..] == first), "it changes while it is read");
                });
                // Whoever waits to write has a turn.
                std::thread::yield_now();
            }
        });
        let done = change();
        is_over.store(true, Ordering::Relaxed);
        looking.join().unwrap();
        done
    })
}

#[test]
fn who_reads_its_own_tensor_sees_no_half_of_an_access() {
    /// Few enough to be looked at often.
    const SMALL: usize = 3000;
    let test = "who_reads_its_own_tensor_sees_no_half_of_an_access";
    // By frames: the owner's process makes all of them.
    for (name, value) in [("POLYRANK_COPY", "slots"), ("POLYRANK_TRANSPORT", "tcp")] {
        let ended = with_variable(name, value, || {
            processes(test, 2, |group| {
                let window = group.new_window().unwrap();
                let own = Tensor::zeros(DType::I32, &[SMALL]).unwrap();
                window.tensor_register(own.clone()).unwrap();
                looked_at(&own, || {
                    if group.rank() == 0 {
                        for round in 1..50_i32 {
                            window.put(&vec![round; SMALL], 0, 0).unwrap();
                            let ones = vec![1_i32; SMALL];
                            window.accumulate(&ones, 0, 0, ReduceOp::Sum).unwrap();
                            window.accumulate(&ones, 1, 0, ReduceOp::Sum).unwrap();
                        }
                    }
                    window.fence().unwrap();
                });
                window.tensor_deregister().unwrap();
            })
        });
        all_went_well(&ended);
    }
}

#[test]
fn operands_in_one_memory_mean_what_they_were_before() {
    let test = "operands_in_one_memory_mean_what_they_were_before";
    for (name, value) in WAYS {
        let ended = with_variable(name, value, || {
            processes(test, 2, |group| {
                let (window, own) = window_of(&group);
                let (rank, peer) = (group.rank(), 1 - group.rank());
                let part = |tensor: &Tensor, from: usize, count: usize| {
                    let region = tensor.region().slice(from * 4..(from + count) * 4);
                    Tensor::contiguous(region, DType::I32, vec![count])
                };
                let count = |from: i32| (from..from + 1000).collect::<Vec<i32>>();
                window.put(&count(0), rank, 0).unwrap();
                // Its own tensor, moved by some elements.
                window.put(&part(&own, 0, 1000), rank, 3).unwrap();
                assert_eq!(values(&own)[3..1003], count(0));
                window.put_async(part(&own, 3, 1000), rank, 1).unwrap().wait(None).unwrap();
                assert_eq!(values(&own)[1..1001], count(0));
                window.get(&mut part(&own, 11, 1000), rank, 1).unwrap();
                assert_eq!(values(&own)[11..1011], count(0));
                // What is added is what was there.
                window.accumulate(&part(&own, 11, 1000), rank, 10, ReduceOp::Sum).unwrap();
                let before = |index: i32| if index == 0 { 9 } else { index - 1 };
                let expected: Vec<i32> = (0..1000).map(|index| before(index) + index).collect();
                assert_eq!(values(&own)[10..1010], expected);
                window.fence().unwrap();
                if let Ok(view) = window.map_remote_tensor(peer) {
                    let found = values(&view)[10..1010].to_vec();
                    if rank == 0 {
                        window.put(&part(&view, 10, 1000), peer, 12).unwrap();
                        assert_eq!(values(&view)[12..1012], found);
                    }
                }
                window.fence().unwrap();
                refused_operands(&window, &own, part);
                window.tensor_deregister().unwrap();
            })
        });
        all_went_well(&ended);
    }
}

/// What is refused, as its own result would change what it is given, or what it changes.
fn refused_operands(window: &Window, own: &Tensor, part: impl Fn(&Tensor, usize, usize) -> Tensor) {
    let (rank, before) = (window.group().rank(), values(own));
    let one = Tensor::from(vec![1_i32, 2, 3]);
    let (given, result) = (part(&one, 0, 2), part(&one, 1, 2));
    let zeros = Tensor::from(vec![0_i32; 2]);
    let refused = [
        window.fetch_and_add(&given, &mut result.clone(), rank, 0),
        window.compare_and_swap(&given, &zeros, &mut result.clone(), rank, 0),
        window.compare_and_swap(&zeros, &given, &mut result.clone(), 1 - rank, 0),
        window.fetch_and_add(&zeros, &mut part(own, 1, 2), rank, 0),
    ];
    for result in refused {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
    assert_eq!(values(own), before);
    // Beside it, all is well.
    window.fetch_and_add(&zeros, &mut part(own, 2, 2), rank, 0).unwrap();
    assert_eq!(values(own)[2..4], before[..2]);
}

#[test]
fn errors_name_the_call() {
    threads(1, |group| {
        let (window, _own) = window_of(&group);
        let read_only = || Tensor::from(vec![0_i32; 2]).read_only();
        let get = window.get(&mut read_only(), 0, 0).unwrap_err().to_string();
        assert!(get.starts_with("get: ") && get.contains("read-only"), "{get}");
        let fetch = window.fetch_and_add(&[1_i32; 2], &mut read_only(), 0, 0);
        let fetch = fetch.unwrap_err().to_string();
        assert!(fetch.starts_with("fetch_and_add: "), "{fetch}");
    });
}

#[test]
fn a_call_has_a_limit_of_its_own() {
    let test = "a_call_has_a_limit_of_its_own";
    let ended = processes(test, 2, |group| {
        let window = group.new_window().unwrap();
        if group.rank() == 0 {
            let error = window.with_timeout(Duration::from_millis(50)).wait_signal(1).unwrap_err();
            assert!(matches!(error, Error::CollectiveTimeout { .. }), "{error}");
            assert!(error.to_string().contains("wait_signal"), "{error}");
            // The other rank waits for as long as the group lets it.
            window.signal(1).unwrap();
        } else {
            window.wait_signal(0).unwrap();
        }
        window.fence().unwrap();
    });
    all_went_well(&ended);
}
