//! Ranks that disagree on their last operation and leave, with real processes: all are told, at the
//! latest when they leave, over shared memory and over TCP.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polyrank::distributed::{
    InitOptions, NewGroupOptions, abort_process_group, destroy_process_group, init_process_group,
    new_group,
};
use polyrank::{Collective, Error, ProcessGroup, Request, SplitOptions, Tensor};
use polyrank_tests::LIMIT;
use polyrank_tests::folder::Folder;
use polyrank_tests::processes::{
    ProcessEnd, bare_processes, dies_between_operations, outputs, processes, report, with_variable,
};

/// How long a thread waits in the store for which nobody waits: less than a rank would wait for it.
const OTHER_WAIT: Duration = Duration::from_secs(8);
const TRANSPORTS: [&str; 2] = ["shm", "tcp"];
/// Ends the name of a case whose operation is in flight when its ranks leave.
const IN_FLIGHT: &str = " in flight";
/// So many groups that a rank is not done within a test's limit if it waits for each of them as
/// long as a rank waits for others when it leaves: 3 s.
const MANY: usize = 25;

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
        assert_told(&started(test, transport, case, size, main), both);
    }
}

/// Runs `test` over one transport, with `case` in its environment.
fn started(
    test: &str,
    transport: &str,
    case: &str,
    size: u32,
    main: fn(&ProcessGroup),
) -> Vec<ProcessEnd> {
    with_variable("POLYRANK_TRANSPORT", transport, || {
        with_variable("POLYRANK_TEST_CASE", case, || processes(test, size, |group| main(&group)))
    })
}

/// Runs `test` over both transports with 2, 3 and 5 ranks, each time with a new folder in its
/// environment.
fn in_folders(test: &str, main: fn(&ProcessGroup), check: impl Fn(&[ProcessEnd])) {
    for transport in TRANSPORTS {
        for size in [2, 3, 5] {
            let folder = Folder::new();
            let case = folder.path().display().to_string();
            check(&started(test, transport, &case, size, main));
        }
    }
}

fn assert_all_report(ended: &[ProcessEnd], line: &str) {
    for (rank, ended) in ended.iter().enumerate() {
        assert_eq!(ended.printed, [line], "rank {rank}: {}", ended.output);
        assert_eq!(ended.code, Some(0), "rank {rank}: {}", ended.output);
    }
}

fn case() -> String {
    std::env::var("POLYRANK_TEST_CASE").unwrap()
}

fn differs_in_roots(group: &ProcessGroup) {
    let (root, case) = (group.rank() % 2, case());
    let request = match case.trim_end_matches(IN_FLIGHT) {
        "broadcast" => request(Collective::Broadcast, root, 4),
        "large broadcast" => request(Collective::Broadcast, root, 100_000),
        "reduce" => reduce(1 - root, 4),
        "gather" => blocks(group, Collective::Gather, root, 4),
        _ => blocks(group, Collective::Scatter, root, 4),
    };
    if case.ends_with(IN_FLIGHT) {
        let _work = group.issue(request);
        return leaves();
    }
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
    for case in ["reduce in flight", "gather in flight"] {
        for size in [2, 3, 5] {
            over_both(test, case, size, differs_in_roots, ["root 0", "root 1"]);
        }
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
            dies_between_operations(&group, 2);
            match group.rank() {
                // It stays for as long as the others need to leave.
                0 => until_written("left"),
                _ => {
                    group.shutdown().unwrap();
                    write("left");
                }
            }
            report("left");
        })
    });
    assert_eq!(ended[0].printed, ["left"], "{}", outputs(&ended));
    assert_eq!(ended[1].printed, ["left"], "{}", outputs(&ended));
    assert_eq!(ended[2].signal, Some(9), "{}", outputs(&ended));
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
    until_there(&std::path::Path::new(&case()).join(name));
}

fn until_there(path: &std::path::Path) {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < LIMIT, "{} is not written", path.display());
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

/// Rank 0 leaves its groups, in each of which an operation with a root was the last, while the
/// others keep theirs; these leave them in another order then.
fn leaves_groups_before_the_others(group: &ProcessGroup) {
    let made = |_| new_group(NewGroupOptions::default()).unwrap().expect("all are members");
    let mut groups: Vec<ProcessGroup> = (0..MANY).map(made).collect();
    for group in &groups {
        group.run(request(Collective::Broadcast, 0, 4)).unwrap();
    }
    match group.rank() {
        0 => groups.iter().for_each(|group| destroy_process_group(Some(group)).unwrap()),
        _ => {
            until_written("left");
            groups.reverse();
            groups.iter().take(2).for_each(|group| destroy_process_group(Some(group)).unwrap());
        }
    }
    write("left");
    report("left");
}

#[test]
fn a_group_is_left_although_the_others_keep_theirs() {
    let test = "a_group_is_left_although_the_others_keep_theirs";
    in_folders(test, leaves_groups_before_the_others, |ended| assert_all_report(ended, "left"));
}

/// As [`leaves_groups_before_the_others`], with groups that no free function knows.
fn leaves_split_groups_before_the_others(group: &ProcessGroup) {
    let ranks: Vec<u32> = (0..group.size()).collect();
    let split = |_| group.split_group(&ranks, SplitOptions::default()).unwrap().unwrap();
    let groups: Vec<ProcessGroup> = (0..MANY).map(split).collect();
    for group in &groups {
        group.run(request(Collective::Broadcast, 0, 4)).unwrap();
    }
    match group.rank() {
        0 => groups.iter().for_each(|group| group.shutdown().unwrap()),
        _ => until_written("left"),
    }
    write("left");
    report("left");
}

#[test]
fn a_split_group_is_left_although_the_others_keep_theirs() {
    let test = "a_split_group_is_left_although_the_others_keep_theirs";
    in_folders(test, leaves_split_groups_before_the_others, |ended| {
        assert_all_report(ended, "left");
    });
}

/// Each rank leaves a group that was split off one that was split off, as
/// [`disagrees_in_a_group_that_is_left_early`].
fn disagrees_in_a_split_group(group: &ProcessGroup) {
    let split = |from: &ProcessGroup| from.split_group(&[0, 1], SplitOptions::default()).unwrap();
    let child = split(group).expect("all are members");
    let made = split(&child).expect("all are members");
    made.run(request(Collective::Broadcast, group.rank() % 2, 4)).unwrap_or_default();
    let first = made.shutdown().and(child.shutdown()).err();
    let last = destroy_process_group(None).err();
    let error = first.or(last).map(|error| error.to_string()).unwrap_or_default();
    report(if error.contains("root 0") && error.contains("root 1") { "told" } else { "untold" });
    std::process::exit(0);
}

#[test]
fn what_ranks_ran_differently_in_a_split_group_is_told_when_they_leave_the_last_one() {
    let test = "what_ranks_ran_differently_in_a_split_group_is_told_when_they_leave_the_last_one";
    for transport in TRANSPORTS {
        let ended = started(test, transport, "", 2, disagrees_in_a_split_group);
        assert_all_report(&ended, "told");
    }
}

/// Each rank leaves a group, on whose last operation they disagree, before the others may have come
/// to it.
fn disagrees_in_a_group_that_is_left_early(group: &ProcessGroup) {
    let made = new_group(NewGroupOptions::default()).unwrap().expect("all are members");
    made.run(request(Collective::Broadcast, group.rank() % 2, 4)).unwrap_or_default();
    let first = destroy_process_group(Some(&made)).err();
    let last = destroy_process_group(None).err();
    let error = first.or(last).map(|error| error.to_string()).unwrap_or_default();
    report(if error.contains("root 0") && error.contains("root 1") { "told" } else { "untold" });
    std::process::exit(0);
}

#[test]
fn what_ranks_ran_differently_in_a_group_is_told_when_they_leave_the_last_one() {
    let test = "what_ranks_ran_differently_in_a_group_is_told_when_they_leave_the_last_one";
    // Of two ranks, each is the root of its own broadcast, and receives nothing from the other's.
    for transport in TRANSPORTS {
        let ended = started(test, transport, "", 2, disagrees_in_a_group_that_is_left_early);
        assert_all_report(&ended, "told");
    }
}

/// Rank 0 calls what the others never call.
fn calls_alone(group: &ProcessGroup) {
    if group.rank() == 0 {
        group.run(called_alone(group)).unwrap();
        (1..group.size()).for_each(|peer| group.send(&[1u8][..], peer, 0).unwrap());
    } else {
        // They come when rank 0, which leaves, has said what it ran; or another of them has, and
        // they learn what is wrong here.
        let came = group.recv(&mut [0u8][..], 0, 0);
        if let Err(error) = came {
            report(format!("{}: {error}", error.kind()));
            std::process::exit(0);
        }
        group.get_group_store().wait(&["tcp/leave/first"], Some(LIMIT)).unwrap();
    }
    leaves();
}

/// An operation that ends on rank 0 without the others.
fn called_alone(group: &ProcessGroup) -> Request {
    match case().as_str() {
        "broadcast" => request(Collective::Broadcast, 0, 4),
        "reduce" => reduce(1, 4),
        "gather" => blocks(group, Collective::Gather, 1, 4),
        _ => blocks(group, Collective::Scatter, 0, 4),
    }
}

/// Leaves all groups; what that said.
fn leaves() {
    match destroy_process_group(None) {
        Err(error) => report(format!("{}: {error}", error.kind())),
        Ok(()) => report("nothing was said"),
    }
    std::process::exit(0);
}

#[test]
fn an_operation_that_the_others_never_call_is_told_to_all_that_leave() {
    let test = "an_operation_that_the_others_never_call_is_told_to_all_that_leave";
    for transport in TRANSPORTS {
        for size in [2, 3, 5] {
            for kind in ["broadcast", "reduce", "gather", "scatter"] {
                assert_told(&started(test, transport, kind, size, calls_alone), [kind, "nothing"]);
            }
        }
    }
}

/// All ranks run one operation; all but rank 0, which leaves when it has its result, have another
/// one in flight.
fn has_more_in_flight(group: &ProcessGroup) {
    let tensors = [ones(4), ones(4)];
    let issue = |tensor: &Tensor| {
        let mut request = Request::new(Collective::Allreduce);
        request.outputs = vec![vec![tensor.clone()]];
        group.issue(request).unwrap()
    };
    let first = issue(&tensors[0]);
    let second = (group.rank() > 0).then(|| issue(&tensors[1]));
    let first = first.wait(None).err();
    let second = second.and_then(|second| second.wait(None).err());
    let kind = |error: Option<Error>| error.map_or("well", |error| error.kind());
    report(format!("first {}, second {}", kind(first), kind(second)));
    let _ = destroy_process_group(None);
    std::process::exit(0);
}

#[test]
fn an_operation_that_needs_no_rank_that_left_ends_well() {
    let test = "an_operation_that_needs_no_rank_that_left_ends_well";
    in_folders(test, has_more_in_flight, |ended| {
        assert_eq!(ended[0].printed, ["first well, second well"], "{}", ended[0].output);
        for ended in &ended[1..] {
            let [line] = ended.printed.as_slice() else { panic!("{}", ended.output) };
            assert_eq!(line, "first well, second RankFailed", "{}", ended.output);
        }
    });
}

/// The ranks disagree on an operation for whose outcome nobody asks.
fn asks_for_no_outcome(group: &ProcessGroup) {
    let elements = 4 + group.rank() as usize % 2;
    let mut request = Request::new(Collective::Allreduce);
    request.outputs = vec![vec![ones(elements)]];
    let _work = group.issue(request);
    leaves();
}

#[test]
fn a_failure_that_nobody_asked_for_is_told_to_all_that_leave() {
    let test = "a_failure_that_nobody_asked_for_is_told_to_all_that_leave";
    for size in [2, 3, 5] {
        over_both(test, "", size, asks_for_no_outcome, ["of 4 f32", "of 5 f32"]);
    }
}

/// Rank 1 comes to the broadcast, with itself as the root, when rank 0 waits for it no longer but
/// as the host of the store.
fn comes_when_the_host_has_left(group: &ProcessGroup) {
    // All are connected.
    group.run(request(Collective::Allreduce, 0, 4)).unwrap();
    if group.rank() == 0 {
        let left = group.clone();
        group.run(request(Collective::Broadcast, 0, 4)).unwrap();
        std::thread::spawn(move || {
            while !left.is_broken() {
                std::thread::yield_now();
            }
            write("left");
        });
        leaves();
    }
    until_written("left");
    runs_and_leaves(group, request(Collective::Broadcast, 1, 4));
}

#[test]
fn the_host_of_the_store_hears_what_ranks_find_that_come_late() {
    let test = "the_host_of_the_store_hears_what_ranks_find_that_come_late";
    for transport in TRANSPORTS {
        let folder = Folder::new();
        let case = folder.path().display().to_string();
        let ended = started(test, transport, &case, 2, comes_when_the_host_has_left);
        assert_told(&ended, ["root 0", "root 1"]);
    }
}

/// Rank 2 comes to the operation on which the others disagree when they are gone, and the store
/// with them.
fn comes_when_all_are_gone(group: &ProcessGroup) {
    // All are connected.
    group.run(request(Collective::Allreduce, 0, 4)).unwrap();
    if group.rank() == 2 {
        (0..2).for_each(|rank| until_written(&format!("rank {rank} is gone")));
        return runs_and_leaves(group, request(Collective::Allreduce, 0, 4));
    }
    let error = group.run(request(Collective::Allreduce, 0, 4 + group.rank() as usize));
    report(error.map_or_else(|error| format!("{}: {error}", error.kind()), |()| "well".into()));
    let _ = destroy_process_group(None);
    write(&format!("rank {} is gone", group.rank()));
    std::process::exit(0);
}

#[test]
fn a_rank_that_comes_when_all_others_are_gone_hears_why_the_group_broke() {
    let test = "a_rank_that_comes_when_all_others_are_gone_hears_why_the_group_broke";
    for transport in TRANSPORTS {
        let folder = Folder::new();
        let case = folder.path().display().to_string();
        let ended = started(test, transport, &case, 3, comes_when_all_are_gone);
        assert_told(&ended, ["of 4 f32", "of 5 f32"]);
    }
}
