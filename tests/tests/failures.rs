//! What happens when ranks die, disagree or are late, with real processes. Nothing hangs, and every
//! error names the rank and the collective.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use polyrank::distributed::{InitOptions, init_process_group};
use polyrank::{
    Collective, DType, Error, PreHookArgs, ProcessGroup, ReduceOp, Region, Request, Tensor,
    WorkResult,
};
use polyrank_tests::LIMIT;
use polyrank_tests::processes::{
    ProcessEnd, bare_processes, dies_between_operations, processes, report, with_variable,
};

/// How soon every rank must know of a death: from what happened, long before any deadline.
const SOON: Duration = Duration::from_secs(20);

fn ones(elements: usize) -> Tensor {
    Tensor::from(vec![1f32; elements])
}

fn allreduce(elements: usize) -> Request {
    let mut request = Request::new(Collective::Allreduce);
    request.outputs = vec![vec![ones(elements)]];
    request
}

fn broadcast(root: u32, elements: usize) -> Request {
    let mut request = Request::new(Collective::Broadcast);
    request.outputs = vec![vec![ones(elements)]];
    request.root = root;
    request
}

/// Everybody allreduces once, then `victim` is killed while the others are in `request`.
fn killed(group: &ProcessGroup, victim: u32, request: Request) {
    group.run(allreduce(1000)).unwrap();
    dies_between_operations(group, victim);
    let start = Instant::now();
    let error = group.run(request).unwrap_err();
    let late = start.elapsed() > SOON;
    report(format!("late={late} {}: {error}", error.kind()));
    let again = group.run(allreduce(1)).unwrap_err();
    report(format!("again {}: {again}", again.kind()));
}

fn assert_all_know(ended: &[ProcessEnd], victim: u32, collective: &str) {
    for (rank, ended) in ended.iter().enumerate() {
        if rank as u32 == victim {
            assert_eq!(ended.signal, Some(9), "{}", ended.output);
            continue;
        }
        let [first, again] = ended.printed.as_slice() else {
            panic!("rank {rank} printed {:?}\n{}", ended.printed, ended.output)
        };
        assert!(first.starts_with("late=false RankFailed"), "rank {rank}: {first}");
        assert!(first.contains(&format!("rank {victim} of group")), "rank {rank}: {first}");
        assert!(first.contains(collective), "rank {rank}: {first}");
        assert!(again.starts_with("again RankFailed"), "rank {rank}: {again}");
        assert_eq!(ended.code, Some(0), "rank {rank}: {}", ended.output);
    }
}

#[test]
fn a_killed_rank_is_named_on_all_others() {
    for size in [2, 3, 5] {
        let ended = processes("a_killed_rank_is_named_on_all_others", size, |group| {
            killed(&group, group.size() - 1, allreduce(100_000));
        });
        assert_all_know(&ended, size - 1, "allreduce");
    }
}

#[test]
fn the_death_of_rank_0_with_the_store_is_a_case_like_any_other() {
    let ended =
        processes("the_death_of_rank_0_with_the_store_is_a_case_like_any_other", 4, |group| {
            killed(&group, 0, allreduce(100_000))
        });
    assert_all_know(&ended, 0, "allreduce");
}

#[test]
fn ranks_that_exchange_no_data_with_the_dead_one_hear_of_it() {
    // In a gather to rank 0 only rank 0 waits for the victim. The others wait in a barrier.
    let test = "ranks_that_exchange_no_data_with_the_dead_one_hear_of_it";
    let ended = processes(test, 8, |group| killed(&group, 5, broadcast(5, 1 << 20)));
    assert_all_know(&ended, 5, "broadcast");
}

/// Everybody allreduces once, which ends well, then runs `ours`. A rank that has finished that
/// raises on its next call.
fn raises(group: &ProcessGroup, ours: Request) {
    group.run(allreduce(10)).expect("what was right ends well, whatever comes after it");
    let mut calls = [ours, allreduce(1)].into_iter();
    let error = calls.find_map(|request| group.run(request).err()).unwrap();
    report(format!("{}: {error}", error.kind()));
}

fn assert_mismatch(ended: &[ProcessEnd], both: [&str; 2]) {
    for (rank, ended) in ended.iter().enumerate() {
        let [line] = ended.printed.as_slice() else {
            panic!("rank {rank} printed {:?}\n{}", ended.printed, ended.output)
        };
        assert!(line.starts_with("CollectiveMismatch"), "rank {rank}: {line}");
        for side in both {
            assert!(line.contains(side), "rank {rank} does not name '{side}': {line}");
        }
    }
}

#[test]
fn different_collectives_are_found_on_all_ranks() {
    for size in [2, 3, 5, 8] {
        let ended = processes("different_collectives_are_found_on_all_ranks", size, |group| {
            let odd = group.rank() == group.size() - 1;
            raises(&group, if odd { broadcast(0, 10) } else { allreduce(10) });
        });
        assert_mismatch(&ended, ["allreduce", "broadcast"]);
    }
}

#[test]
fn different_sizes_dtypes_operators_and_roots_are_found_on_all_ranks() {
    let test = "different_sizes_dtypes_operators_and_roots_are_found_on_all_ranks";
    for (case, both) in [
        ("size", ["of 10 f32", "of 200000 f32"]),
        ("dtype", ["f32", "i32"]),
        ("operator", ["SUM", "MAX"]),
        ("root", ["root 0", "root 1"]),
    ] {
        let size = 4;
        let ended = with_variable("POLYRANK_TEST_CASE", case, || {
            processes(test, size, |group| {
                let odd = group.rank() == 2;
                let mut request = allreduce(10);
                match (std::env::var("POLYRANK_TEST_CASE").unwrap().as_str(), odd) {
                    ("size", true) => request = allreduce(200_000),
                    ("dtype", true) => {
                        let region = Region::zeroed(40);
                        let tensor = Tensor::contiguous(region, DType::I32, vec![10]);
                        request.outputs = vec![vec![tensor]];
                    }
                    ("operator", true) => request.reduce_op = ReduceOp::Max,
                    ("root", odd) => request = broadcast(u32::from(odd), 10),
                    _ => {}
                }
                raises(&group, request);
            })
        });
        assert_mismatch(&ended, both);
    }
}

#[test]
fn ranks_that_all_wait_for_one_another_find_out_through_the_store() {
    // Each takes the other for the root, so that nobody sends anything.
    let test = "ranks_that_all_wait_for_one_another_find_out_through_the_store";
    let ended = processes(test, 2, |group| raises(&group, broadcast(1 - group.rank(), 10)));
    assert_mismatch(&ended, ["root 0", "root 1"]);
}

#[test]
fn a_stalled_operation_for_which_nobody_waits_is_looked_into_as_well() {
    let test = "a_stalled_operation_for_which_nobody_waits_is_looked_into_as_well";
    let ended = processes(test, 2, |group| {
        let (told, hears) = std::sync::mpsc::channel();
        let work = group.issue(broadcast(1 - group.rank(), 10)).unwrap();
        work.on_done(move |result| told.send(result.clone()).unwrap());
        let error = hears.recv().unwrap().unwrap_err();
        report(format!("{}: {error}", error.kind()));
    });
    assert_mismatch(&ended, ["root 0", "root 1"]);
}

/// The ranks that an error is waiting for: one that was held up may be
/// among them.
fn late(line: &str) -> Vec<&str> {
    let (_, list) = line.split_once("waiting for rank").unwrap_or_default();
    let end = list.find(|sign: char| !sign.is_ascii_digit() && !"s, ".contains(sign));
    list[..end.unwrap_or(list.len())].split([' ', ',']).collect()
}

#[test]
fn an_operation_past_its_deadline_names_who_is_late() {
    let test = "an_operation_past_its_deadline_names_who_is_late";
    let ended = processes(test, 3, |group| {
        group.run(allreduce(10)).unwrap();
        let mut request = allreduce(100_000);
        if group.rank() == 1 {
            // Comes when the others have given up.
            let store = group.get_group_store();
            store.wait(&["gave up"], None).unwrap();
            store.set("heard", b"").unwrap();
        } else {
            request.timeout = Some(Duration::from_millis(700));
        }
        let error = group.run(request).unwrap_err();
        report(format!("{}: {error}", error.kind()));
        if group.rank() == 0 {
            // The store ends with this rank, so it stays until rank 1 knows.
            let store = group.get_group_store();
            store.set("gave up", b"").unwrap();
            store.wait(&["heard"], None).unwrap();
        }
    });
    for (rank, ended) in ended.iter().enumerate() {
        let [line] = ended.printed.as_slice() else { panic!("rank {rank}: {}", ended.output) };
        assert!(line.starts_with("CollectiveTimeout"), "rank {rank}: {line}");
        assert!(line.contains("allreduce"), "rank {rank}: {line}");
        assert!(late(line).contains(&"1"), "rank {rank}: {line}");
    }
}

#[test]
fn a_collective_that_was_left_in_flight_and_did_not_end_is_told() {
    let test = "a_collective_that_was_left_in_flight_and_did_not_end_is_told";
    for transport in ["shm", "tcp"] {
        let ended = with_variable("POLYRANK_TRANSPORT", transport, || {
            processes(test, 2, |group| {
                group.barrier(()).unwrap();
                let error = if group.rank() == 0 {
                    let _work = group.issue(allreduce(10)).unwrap();
                    group.shutdown_within(Duration::from_millis(300)).unwrap_err()
                } else {
                    // It does not come to the collective, and stays until rank 0 is gone.
                    group.recv(&mut [0u8; 1], 0, 7).unwrap_err()
                };
                let Error::CollectiveTimeout { collective, missing_ranks, .. } = &error else {
                    panic!("{error}");
                };
                report(format!("{collective} misses {missing_ranks:?}"));
                std::process::exit(0);
            })
        });
        for ended in &ended {
            assert_eq!(ended.printed, ["allreduce misses [1]"], "{transport}: {}", ended.output);
        }
    }
}

#[test]
fn an_expired_wait_harms_nothing() {
    let ended = processes("an_expired_wait_harms_nothing", 2, |group| {
        if group.rank() == 1 {
            // The message arrives only after rank 0's first wait expired: it says so.
            group.recv(&mut [0u8; 1], 0, 7).unwrap();
        }
        let work = group.issue(allreduce(10)).unwrap();
        if group.rank() == 0 {
            let error = work.wait(Some(Duration::from_millis(200))).unwrap_err();
            assert!(matches!(error, Error::WaitTimeout { .. }), "{error}");
            group.send(&[1u8], 1, 7).unwrap();
        }
        work.wait(None).unwrap();
        report("done");
    });
    for ended in &ended {
        assert_eq!(ended.printed, ["done"], "{}", ended.output);
    }
}

/// Where a rank reads that it has its variable already.
const SET: &str = "POLYRANK_TEST_SET";

/// Starts this process anew with the variable, if it has this rank.
fn at_rank(rank: &str, name: &str, value: &str) {
    if std::env::var("RANK").unwrap() != rank || std::env::var_os(SET).is_some() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    panic!("{}", command.args(std::env::args_os().skip(1)).env(name, value).env(SET, "1").exec());
}

#[test]
fn what_is_wrong_with_one_rank_alone_is_told_by_all() {
    for (wrong, name, value) in [
        (0, "POLYRANK_IFNAME", "nowhere0"),
        (0, "POLYRANK_LINK_COSTS", "/nowhere/link_costs"),
        (0, "POLYRANK_ALGORITHM", "allreduce=rign"),
        (1, "POLYRANK_RECONNECT_GRACE_MS", "soon"),
        (2, "POLYRANK_DEBUG", "detial"),
    ] {
        // A rank runs what stands here in the first round; what differs, it is told.
        let words = format!("{wrong} {name} {value}");
        let ended = with_variable("POLYRANK_TEST_WRONG", &words, || {
            bare_processes("what_is_wrong_with_one_rank_alone_is_told_by_all", 3, || {
                let words = std::env::var("POLYRANK_TEST_WRONG").unwrap();
                let words: Vec<_> = words.split(' ').collect();
                at_rank(words[0], words[1], words[2]);
                let options = InitOptions::default().timeout(LIMIT);
                report(init_process_group(options).unwrap_err());
            })
        });
        for (rank, ended) in ended.iter().enumerate() {
            let [line] = ended.printed.as_slice() else { panic!("{rank}: {}", ended.output) };
            let told = format!("rank {wrong} does not join group 'default_pg': ");
            let is_told = rank == wrong || line.contains(&told);
            assert!(is_told && line.contains(name), "{name}, rank {rank}: {line}");
        }
    }
}

/// The first operation of rank 0 passes its deadline. The other ranks, which were in none yet, are
/// told so, with their abort hooks, and so are their first operations.
fn first_is_late(test: &str) {
    let ended = processes(test, 3, |group| {
        let store = group.get_group_store();
        let done = |rank: u32| format!("done/{rank}");
        if group.rank() > 0 {
            let (tell, told) = std::sync::mpsc::channel();
            group.register_abort_hook(0, move || tell.send(()).unwrap()).unwrap();
            told.recv_timeout(SOON).unwrap();
            assert_eq!(group.get_error(), WorkResult::Timeout);
        }
        let mut late = allreduce(3);
        late.timeout = Some(Duration::from_millis(300));
        let error = group.run(late).unwrap_err();
        assert!(matches!(error, Error::CollectiveTimeout { waiting_rank: 0, .. }), "{error:?}");
        store.set(&done(group.rank()), b"").unwrap();
        let all: Vec<String> = (0..group.size()).map(done).collect();
        // Rank 0 lives on meanwhile.
        store.wait(&all.iter().map(String::as_str).collect::<Vec<_>>(), Some(LIMIT)).unwrap();
        report("told");
    });
    for ended in ended {
        assert_eq!((ended.code, ended.printed.len()), (Some(0), 1), "{}", ended.output);
    }
}

#[test]
fn ranks_that_were_in_no_operation_yet_are_told_of_the_first_that_is_late() {
    let test = "ranks_that_were_in_no_operation_yet_are_told_of_the_first_that_is_late";
    first_is_late(test);
}

#[test]
fn ranks_that_were_in_no_operation_yet_are_told_over_tcp() {
    let test = "ranks_that_were_in_no_operation_yet_are_told_over_tcp";
    with_variable("POLYRANK_TRANSPORT", "tcp", || first_is_late(test));
}

/// Three allreduces in flight, then one that the last rank does not run. Rank 0 comes to all of
/// them when the others have been told.
fn first_three_end_well(group: &ProcessGroup) {
    group.run(allreduce(1000)).unwrap();
    let (rank, size, store) = (group.rank(), group.size(), group.get_group_store());
    let is_odd = rank == size - 1;
    if is_odd {
        let refuse = |operation: &PreHookArgs<'_>| match operation.op_id {
            3 => Err(Error::InvalidArgument { message: "not this one".to_owned() }),
            _ => Ok(()),
        };
        group.register_pre_hook(0, refuse).unwrap();
    }
    if rank == 0 {
        store.wait(&["refused"], None).unwrap();
    }
    let tensors = [10, 5000, 200_000].map(ones);
    let earlier = tensors.clone().map(|tensor| {
        let mut request = Request::new(Collective::Allreduce);
        request.outputs = vec![vec![tensor]];
        group.issue(request).unwrap()
    });
    let last = group.issue(allreduce(10));
    if is_odd {
        store.set("refused", b"").unwrap();
    }
    for work in earlier {
        work.wait(None).expect("what was right ends well, whatever comes after it");
    }
    let is_sum = |bytes: &[u8]| bytes.chunks_exact(4).all(|it| it == (size as f32).to_ne_bytes());
    assert!(tensors.iter().all(|tensor| tensor.region().read(is_sum)));
    let error = last.and_then(|work| work.wait(None)).unwrap_err();
    report(format!("{}: {error}", error.kind()));
    // Rank 0 hosts the store.
    store.barrier("reported", size, None).unwrap();
}

#[test]
fn what_comes_before_an_operation_that_a_rank_does_not_run_ends_well() {
    let test = "what_comes_before_an_operation_that_a_rank_does_not_run_ends_well";
    for transport in ["auto", "tcp"] {
        for size in [2, 3, 5] {
            let ended = with_variable("POLYRANK_TRANSPORT", transport, || {
                processes(test, size, |group| first_three_end_well(&group))
            });
            for (rank, ended) in (0..).zip(&ended) {
                let [line] = ended.printed.as_slice() else {
                    panic!("{transport}, rank {rank} of {size}: {}", ended.output)
                };
                let is_right = match rank == size - 1 {
                    true => line.starts_with("InvalidArgument"),
                    false => {
                        line.starts_with("Aborted")
                            && line.contains("its pre-hook 0 stopped ALLREDUCE #3: ")
                            && line.contains(&format!("rank {}", size - 1))
                    }
                };
                assert!(is_right, "{transport}, rank {rank} of {size}: {line}");
            }
        }
    }
}
