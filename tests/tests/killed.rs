//! Ranks that are killed at any instruction of a stream of operations, with real processes: nobody
//! hangs, nobody gets a wrong result, everybody names the victim, and nothing is left of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use polyrank::backend::{LentMemory, WaitIntent};
use polyrank::process_group::FastPathResult;
use polyrank::request::SingleTensorRequest;
use polyrank::{Collective, DType, Error, ProcessGroup, ReduceOp, Region, Request, Tensor};
use polyrank_tests::processes::{die, lines_of_survivors, processes, report, with_variable};

/// Elements of the operations: in a ring's entry, staged, in many segments.
const ELEMENTS: [usize; 4] = [1, 900, 20_000, 700_000];

/// Where a rank reads who is to die, and when, in ms.
const DOOM: &str = "POLYRANK_TEST_DOOM";

/// Has this process killed after a while, by another, if it is the victim.
fn doom(rank: u32) {
    let doom = std::env::var(DOOM).unwrap();
    let (victim, moment_ms) = doom.split_once(' ').unwrap();
    if victim != "all" && victim != rank.to_string() {
        return;
    }
    let (id, moment_ms) = (std::process::id(), moment_ms.parse::<u64>().unwrap());
    let (seconds, ms) = (moment_ms / 1000, moment_ms % 1000);
    let script = format!("(sleep {seconds}.{ms:03}; kill -9 {id}) > /dev/null 2>&1 &");
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

/// Waits until all ranks have the group, so that none dies while another one joins.
fn all_have_joined(group: &ProcessGroup) {
    let store = group.get_group_store();
    let keys: Vec<String> = (0..group.size()).map(|rank| format!("joined/{rank}")).collect();
    store.set(&keys[group.rank() as usize], b"").unwrap();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    // The host of the store has learned of all others before it dies; they have not.
    let _ = store.wait(&keys, None);
}

/// Memory of the process's own, or memory that the peers read where it lies.
fn ones(elements: usize, shared: bool) -> Tensor {
    if !shared {
        return Tensor::from(vec![1f32; elements]);
    }
    let region = Region::for_elements(elements * 4).unwrap();
    region.write(|bytes| {
        bytes.chunks_exact_mut(4).for_each(|place| place.copy_from_slice(&1f32.to_ne_bytes()));
    });
    Tensor::contiguous(region, DType::F32, vec![elements])
}

/// Gathers what has that many elements; whether the result is right.
fn gather(group: &ProcessGroup, elements: usize, shared: bool) -> Result<bool, Error> {
    let mut request = Request::new(Collective::Allgather);
    request.inputs = vec![vec![ones(elements, shared)]];
    let outputs: Vec<Tensor> =
        (0..group.size()).map(|_| Tensor::from(vec![0f32; elements])).collect();
    request.outputs = vec![outputs.clone()];
    group.run(request)?;
    let is_one = |bytes: &[u8]| bytes.chunks_exact(4).all(|it| it == 1f32.to_ne_bytes());
    Ok(outputs.iter().all(|output| output.region().read(is_one)))
}

/// Allreduces and gathers until it fails; every result on the way is right.
fn until_it_fails(group: &ProcessGroup) -> Error {
    for round in 0.. {
        for (index, elements) in ELEMENTS.into_iter().enumerate() {
            match gather(group, elements, (round + index) % 3 == 0) {
                Ok(right) => assert!(right, "round {round}, {elements} elements gathered"),
                Err(error) => return error,
            }
            let tensor = ones(elements, (round + index) % 2 == 0);
            let mut request = Request::new(Collective::Allreduce);
            request.outputs = vec![vec![tensor.clone()]];
            if let Err(error) = group.run(request) {
                return error;
            }
            let size = group.size() as f32;
            let right = tensor
                .region()
                .read(|bytes| bytes.chunks_exact(4).all(|sum| sum == size.to_ne_bytes()));
            assert!(right, "round {round}, {elements} elements");
        }
    }
    unreachable!("the rounds do not end by themselves")
}

#[test]
fn at_any_moment() {
    // Moments of one run differ from those of the next, as processes do.
    for (index, size) in [2, 3, 4, 2, 3, 4, 2, 3].into_iter().enumerate() {
        let (victim, moment_ms) = (index as u32 % size, 40 + 17 * index as u64);
        // A rank runs what stands here in the first round; what differs, it is told.
        let ended = with_variable(DOOM, &format!("{victim} {moment_ms}"), || {
            processes("at_any_moment", size, |group| {
                all_have_joined(&group);
                doom(group.rank());
                let error = until_it_fails(&group);
                report(format!("{error}"));
            })
        });
        for (rank, line) in lines_of_survivors(&ended, victim) {
            assert!(line.contains(&format!("rank {victim}")), "rank {rank} of {size}: {line}");
        }
    }
}

/// What lies in the folder of shared memory and says that it is ours.
fn left_over() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/dev/shm") else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.contains("polyrank")).collect()
}

#[test]
fn all_at_once() {
    let ended = with_variable(DOOM, "all 100", || {
        processes("all_at_once", 4, |group| {
            all_have_joined(&group);
            doom(group.rank());
            // The first to die is named by those that outlive it.
            until_it_fails(&group);
            loop {
                std::thread::park();
            }
        })
    });
    assert!(ended.iter().all(|ended| ended.signal == Some(9)), "{ended:?}");
    assert_eq!(left_over(), Vec::<String>::new());
}

/// Exchanges small blocks until it fails; every result on the way is right.
fn exchange_until_it_fails(group: &ProcessGroup) -> Error {
    let (rank, size) = (group.rank(), group.size());
    loop {
        let given: Vec<u32> = (0..size).map(|to| 100 * rank + to).collect();
        let mut taken = vec![u32::MAX; size as usize];
        if let Err(error) = group.all_to_all_single(&mut taken, &given, ()) {
            return error;
        }
        assert_eq!(taken, (0..size).map(|from| 100 * from + rank).collect::<Vec<_>>());
    }
}

/// A rank does `last` and is killed; then the others begin to exchange. They may have all that they
/// need of it for once.
fn killed_after(test: &str, last: fn(&ProcessGroup)) {
    for (victim, size) in [(1, 2), (2, 3), (1, 4)] {
        let ended = with_variable(DOOM, &victim.to_string(), || {
            processes(test, size, |group| {
                let store = group.get_group_store();
                all_have_joined(&group);
                if std::env::var(DOOM).unwrap() == group.rank().to_string() {
                    last(&group);
                }
                store.wait(&["shown"], None).unwrap();
                let error = exchange_until_it_fails(&group);
                report(format!("{}: {error}", error.kind()));
                // Rank 0 hosts the store, in which the others may still wait to begin.
                let _ = store.barrier("reported", size - 1, None);
            })
        });
        for (rank, line) in lines_of_survivors(&ended, victim) {
            let names = format!("rank {victim} of group");
            assert!(line.starts_with("RankFailed") && line.contains(&names), "{rank}: {line}");
        }
    }
    assert_eq!(left_over(), Vec::<String>::new());
}

#[test]
fn between_the_two_steps_of_a_small_operation() {
    killed_after("between_the_two_steps_of_a_small_operation", |group| {
        let plain = SingleTensorRequest {
            collective: Collective::Alltoall,
            name: "all_to_all_single",
            dtype: DType::U32,
            reduce_op: ReduceOp::Sum,
            root: 0,
            timeout: None,
            waiting: WaitIntent::Soon,
            epoch: None,
        };
        let given: Vec<u8> =
            (0..group.size()).flat_map(|to| (100 * group.rank() + to).to_ne_bytes()).collect();
        let mut taken = vec![0; given.len()];
        // Nobody else comes before this rank says that it has given its part. Over sockets alone
        // there is no first step: the rank dies before it contributes anything.
        let tried = group.try_plain(&plain, &mut LentMemory::Apart(&given, &mut taken));
        let sockets_alone = std::env::var("POLYRANK_TRANSPORT").is_ok_and(|it| it == "tcp");
        match tried {
            Some(FastPathResult::Pending(_)) => {
                assert!(!sockets_alone, "the board is shared memory")
            }
            None => assert!(sockets_alone, "it goes over the board"),
            Some(FastPathResult::Done(_)) => panic!("it was done without the others"),
        }
        group.get_group_store().set("shown", b"").unwrap();
        die();
    });
}

/// Shows an alltoall to the others in which this rank has so many elements for itself, and dies.
fn show_and_die(group: &ProcessGroup, own: usize) {
    let (rank, size) = (group.rank(), group.size());
    let elements = |other| if other == rank { own } else { 1 };
    let block = |other| Tensor::from(vec![100 * rank + other; elements(other)]);
    let mut request = Request::new(Collective::Alltoall);
    request.inputs = vec![(0..size).map(block).collect()];
    request.outputs = vec![(0..size).map(block).collect()];
    let work = group.issue(request).unwrap();
    assert!(!work.is_completed(), "nobody else has come");
    group.get_group_store().set("shown", b"").unwrap();
    die();
}

#[test]
fn before_the_first_operation() {
    for transport in ["auto", "tcp"] {
        for (victim, size) in [(1, 2), (2, 3), (0, 4)] {
            let run = || {
                processes("before_the_first_operation", size, |group| {
                    all_have_joined(&group);
                    if std::env::var(DOOM).unwrap() == group.rank().to_string() {
                        die();
                    }
                    // Nobody is connected to it yet, so the end of its process is all there is.
                    report(format!("{}", until_it_fails(&group)));
                })
            };
            let ended = with_variable("POLYRANK_TRANSPORT", transport, || {
                with_variable(DOOM, &victim.to_string(), run)
            });
            for (rank, line) in lines_of_survivors(&ended, victim) {
                let names = format!("rank {victim} of group");
                let is_right = line.contains(&names) && line.contains("its process ended");
                assert!(is_right, "{transport}, rank {rank} of {size}: {line}");
            }
        }
    }
}

#[test]
fn after_a_rank_said_that_it_runs_the_schedule() {
    // Its own part does not fit the board, which the others cannot know.
    killed_after("after_a_rank_said_that_it_runs_the_schedule", |group| show_and_die(group, 5000));
}

#[test]
fn after_a_rank_showed_where_its_data_lies() {
    killed_after("after_a_rank_showed_where_its_data_lies", |group| show_and_die(group, 50_000));
}
