//! Ranks that disagree on their last operation and leave, with real processes: all are told, at the
//! latest when they leave, over shared memory and over TCP.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polyrank::distributed::{
    InitOptions, abort_process_group, destroy_process_group, init_process_group,
};
use polyrank::{Collective, Error, ProcessGroup, Request, Tensor};
use polyrank_tests::LIMIT;
use polyrank_tests::folder::Folder;
use polyrank_tests::processes::{ProcessEnd, bare_processes, processes, report, with_variable};

/// How long a thread waits in the store for which nobody waits: less than a rank would wait for it.
const OTHER_WAIT: Duration = Duration::from_secs(8);
const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

fn ones(elements: usize) -> Tensor {
    Tensor::from(vec![1f32; elements])
}

fn request(collective: Collective, root: u32, elements: usize) -> Request {
    let mut request = Request::new(collective);
    request.outputs = vec![vec![ones(elements)]];
    request.root = root;
    request
}

fn reduce(root: u32, elements: usize) -> Request {
    let mut request = request(Collective::Reduce, root, elements);
    request.inputs = request.outputs.clone();
    request
}

/// A scatter or gather between blocks of so many elements.
fn blocks(group: &ProcessGroup, collective: Collective, root: u32, elements: usize) -> Request {
    let mut request = Request::new(collective);
    request.root = root;
    let one = vec![vec![ones(elements)]];
    let all = vec![(0..group.size()).map(|_| ones(elements)).collect()];
    let is_root = group.rank() == root;
    let all = if is_root { all } else { Vec::new() };
    (request.inputs, request.outputs) = match collective {
        Collective::Scatter => (all, one),
        _ => (one, all),
    };
    request
}

/// Runs `ours`, and leaves in any case; what the first of the two said.
fn runs_and_leaves(group: &ProcessGroup, ours: Request) {
    let called = group.run(ours).err();
    let left = destroy_process_group(None).err();
    match called.or(left) {
        Some(error) => report(format!("{}: {error}", error.kind())),
        None => report("nothing was said"),
    }
    std::process::exit(0);
}

fn assert_told(ended: &[ProcessEnd], both: [&str; 2]) {
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

/// Runs `test` over both transports, with `case` in its environment.
fn over_both(test: &str, case: &str, size: u32, main: fn(&ProcessGroup), both: [&str; 2]) {
    for transport in TRANSPORTS {
        let ended = with_variable("POLYRANK_TRANSPORT", transport, || {
            with_variable("POLYRANK_TEST_CASE", case, || {
                processes(test, size, |group| main(&group))
            })
        });
        assert_told(&ended, both);
    }
}

fn case() -> String {
    std::env::var("POLYRANK_TEST_CASE").unwrap()
}

fn differs_in_roots(group: &ProcessGroup) {
    let root = group.rank() % 2;
    let request = match case().as_str() {
        "broadcast" => request(Collective::Broadcast, root, 4),
        "large broadcast" => request(Collective::Broadcast, root, 100_000),
        "reduce" => reduce(1 - root, 4),
        "gather" => blocks(group, Collective::Gather, root, 4),
        _ => blocks(group, Collective::Scatter, root, 4),
    };
    runs_and_leaves(group, request);
}

#[test]
fn roots_on_which_ranks_disagree_are_told_to_all_that_leave() {
    let test = "roots_on_which_ranks_disagree_are_told_to_all_that_leave";
    for size in [2, 3, 5] {
        over_both(test, "broadcast", size, differs_in_roots, ["root 0", "root 1"]);
    }
    for case in ["large broadcast", "reduce", "gather", "scatter"] {
        over_both(test, case, 2, differs_in_roots, ["root 0", "root 1"]);
    }
}

fn differs_in_sizes(group: &ProcessGroup) {
    let collective = match case().as_str() {
        "gather" => Collective::Gather,
        _ => Collective::Scatter,
    };
    let elements = if group.rank() == 0 { 4 } else { 5 };
    runs_and_leaves(group, blocks(group, collective, 0, elements));
}

#[test]
fn sizes_on_which_ranks_disagree_are_told_to_all_that_leave() {
    let test = "sizes_on_which_ranks_disagree_are_told_to_all_that_leave";
    for case in ["gather", "scatter"] {
        over_both(test, case, 3, differs_in_sizes, ["16 bytes", "20 bytes"]);
    }
}

fn differs_in_collectives(group: &ProcessGroup) {
    let collective = if group.rank() == 0 { Collective::Broadcast } else { Collective::Allreduce };
    runs_and_leaves(group, request(collective, 0, 4));
}

#[test]
fn a_root_that_runs_something_else_is_told_when_it_leaves() {
    let test = "a_root_that_runs_something_else_is_told_when_it_leaves";
    over_both(test, "", 3, differs_in_collectives, ["broadcast", "allreduce"]);
}

#[test]
fn ranks_that_agree_leave_without_an_error() {
    let test = "ranks_that_agree_leave_without_an_error";
    for transport in TRANSPORTS {
        let ended = with_variable("POLYRANK_TRANSPORT", transport, || {
            processes(test, 3, |group| {
                group.run(request(Collective::Broadcast, 1, 4)).unwrap();
                group.run(blocks(&group, Collective::Scatter, 2, 4)).unwrap();
                group.run(blocks(&group, Collective::Gather, 0, 4)).unwrap();
                report("done");
            })
        });
        for ended in &ended {
            assert_eq!((ended.printed.as_slice(), ended.code), (&["done".to_owned()][..], Some(0)));
        }
    }
}

#[test]
fn a_rank_leaves_although_another_was_killed_or_stays() {
    let test = "a_rank_leaves_although_another_was_killed_or_stays";
    let folder = Folder::new();
    let ended = with_variable("POLYRANK_TEST_CASE", &folder.path().display().to_string(), || {
        processes(test, 3, |group| {
            group.run(request(Collective::Broadcast, 0, 4)).unwrap();
            match group.rank() {
                // It stays for as long as the others need to leave.
                0 => until_written("left"),
                1 => {
                    group.shutdown().unwrap();
                    write("left");
                }
                _ => polyrank_tests::processes::die(),
            }
            report("left");
        })
    });
    assert_eq!(ended[0].printed, ["left"], "{}", ended[0].output);
    assert_eq!(ended[1].printed, ["left"], "{}", ended[1].output);
    assert_eq!(ended[2].signal, Some(9), "{}", ended[2].output);
}

#[test]
fn a_rank_leaves_while_another_of_its_threads_waits_in_the_store() {
    let test = "a_rank_leaves_while_another_of_its_threads_waits_in_the_store";
    for size in [1, 2, 3] {
        let ended = bare_processes(test, size, || {
            let group = init_process_group(InitOptions::default().timeout(LIMIT)).unwrap();
            let store = group.get_group_store();
            let waiter = group.get_group_store();
            let has_given_up = Arc::new(AtomicBool::new(false));
            let gives_up = has_given_up.clone();
            std::thread::spawn(move || {
                let waited = waiter.wait(&["never"], Some(OTHER_WAIT));
                let is_over = matches!(waited, Err(Error::StoreTimeout { .. }));
                gives_up.store(is_over, Ordering::SeqCst);
            });
            // The other thread has the store when a request of this one has to wait for it.
            let is_free = || store.wait(&[], Some(Duration::from_millis(500))).is_ok();
            while is_free() {
                std::thread::yield_now();
            }
            destroy_process_group(None).unwrap();
            report(if has_given_up.load(Ordering::SeqCst) { "after it" } else { "before it" });
            std::process::exit(0);
        });
        for ended in &ended {
            assert_eq!(ended.printed, ["before it"], "{size} ranks: {}", ended.output);
        }
    }
}

#[test]
fn who_waits_in_the_store_holds_up_no_barrier_and_is_freed_when_the_group_ends() {
    let test = "who_waits_in_the_store_holds_up_no_barrier_and_is_freed_when_the_group_ends";
    for (case, size) in [("destroy", 1), ("destroy", 3), ("abort", 3)] {
        let ended = with_variable("POLYRANK_TEST_CASE", case, || {
            bare_processes(test, size, || {
                let group = init_process_group(InitOptions::default().timeout(LIMIT)).unwrap();
                let store = group.get_group_store();
                let waiter = store.clone();
                let waits = std::thread::spawn(move || waiter.get("never"));
                // The other thread has the store when a request of this one waits for it.
                let is_free = || store.wait(&[], Some(Duration::from_millis(500))).is_ok();
                while is_free() {
                    std::thread::yield_now();
                }
                group.monitored_barrier(None, false).unwrap();
                let is_waiting = !waits.is_finished();
                match self::case().as_str() {
                    "abort" => abort_process_group(None).unwrap(),
                    _ => destroy_process_group(None).unwrap(),
                }
                assert!(is_waiting, "the barrier waited for the other thread");
                for result in [waits.join().unwrap(), store.get("any")] {
                    report(result.map_or_else(|error| error.to_string(), |_| "a value".into()));
                }
                std::process::exit(0);
            })
        });
        for ended in &ended {
            let told = |line: &String| line.contains("the group was destroyed");
            let [waited, later] = ended.printed.as_slice() else { panic!("{}", ended.output) };
            assert!(told(waited) && told(later), "{case}, {size} ranks: {:?}", ended.printed);
        }
    }
}

/// Waits until the file `name`, in the folder of the test, is there.
fn until_written(name: &str) {
    let path = std::path::Path::new(&case()).join(name);
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < LIMIT, "{name} is not written");
        std::thread::yield_now();
    }
}

fn write(name: &str) {
    std::fs::write(std::path::Path::new(&case()).join(name), b"").unwrap();
}

#[test]
fn the_host_of_a_broken_group_stays_for_ranks_that_are_behind() {
    let test = "the_host_of_a_broken_group_stays_for_ranks_that_are_behind";
    let folder = Folder::new();
    let ended = with_variable("POLYRANK_TEST_CASE", &folder.path().display().to_string(), || {
        bare_processes(test, 2, || {
            let group = init_process_group(InitOptions::default().timeout(LIMIT)).unwrap();
            group.abort();
            if group.rank() == 0 {
                write("host leaves");
                destroy_process_group(None).unwrap();
                let path = std::path::Path::new(&case()).join("other leaves");
                report(if path.exists() { "stayed" } else { "left before the other" });
            } else {
                until_written("host leaves");
                let store = group.get_group_store();
                // As many requests as a rank that looks for the reason may make.
                let found = (0..100).try_for_each(|_| store.add("looked", 1).map(drop));
                report(found.map_or_else(|error| error.to_string(), |()| "heard".to_owned()));
                write("other leaves");
                destroy_process_group(None).unwrap();
            }
            std::process::exit(0);
        })
    });
    assert_eq!(ended[0].printed, ["stayed"], "{}", ended[0].output);
    assert_eq!(ended[1].printed, ["heard"], "{}", ended[1].output);
}
