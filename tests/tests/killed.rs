//! Ranks that are killed at any instruction of a stream of operations, with real processes: nobody
//! hangs, nobody gets a wrong result, everybody names the victim, and nothing is left of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use polyrank::{Collective, Error, ProcessGroup, Region, Request, Tensor};
use polyrank_tests::processes::{processes, report, with_variable};

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

/// Memory of the process's own, or memory that the peers read where it lies.
fn ones(elements: usize, shared: bool) -> Tensor {
    if !shared {
        return Tensor::from(vec![1f32; elements]);
    }
    let region = Region::for_elements(elements * 4).unwrap();
    region.write(|bytes| {
        bytes.chunks_exact_mut(4).for_each(|place| place.copy_from_slice(&1f32.to_ne_bytes()));
    });
    Tensor::contiguous(region, polyrank::DType::F32, vec![elements])
}

/// Allreduces until it fails; every result on the way is right.
fn until_it_fails(group: &ProcessGroup) -> Error {
    for round in 0.. {
        for (index, elements) in ELEMENTS.into_iter().enumerate() {
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
                doom(group.rank());
                let error = until_it_fails(&group);
                report(format!("{error}"));
            })
        });
        for (rank, ended) in (0..).zip(&ended) {
            if rank == victim {
                assert_eq!(ended.signal, Some(9), "{}", ended.output);
                continue;
            }
            let [line] = ended.printed.as_slice() else {
                panic!("rank {rank} of {size} printed {:?}\n{}", ended.printed, ended.output)
            };
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
