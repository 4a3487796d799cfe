//! The conformance cases over real MPI libraries: the whole product in Rust, the pairwise cases in
//! Rust, Python and Node; large tensors, many operations at once, messages, groups.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::ProcessGroup;
use polyrank::backend::mpi::{is_initialised, rank_and_size};
use polyrank::calls::{Arguments, Invocation, Value, entry};
use polyrank::distributed::{default_group, destroy_process_group};
use polyrank_tests::cases::{self, Memory, check};
use polyrank_tests::heap;
use polyrank_tests::languages::{CASES, Language};
use polyrank_tests::mpi::{Job, Mpi, bare_ranks, program, ranks, report};
use polyrank_tests::runs_long_tests;

/// Every rank must have said that it is done, and the launcher that all went well.
fn assert_done(job: &Job, size: u32) {
    assert_eq!(job.code, Some(0), "{}", job.output);
    for rank in 0..size {
        assert_eq!(job.of(rank), ["done"], "rank {rank}: {}", job.output);
    }
}

/// Runs `rank_main` on worlds of these sizes with all implementations.
fn on_all(test: &str, sizes: &[u32], rank_main: impl Fn(&ProcessGroup)) {
    for mpi in Mpi::ALL {
        for &size in sizes {
            let job = ranks(mpi, test, size, &[], |group| {
                rank_main(&group);
                report(group.rank(), "done");
            });
            if let Some(job) = job {
                assert_done(&job, size);
            }
        }
    }
}

#[test]
fn every_dtype_operator_root_and_small_size() {
    on_all("every_dtype_operator_root_and_small_size", &[1, 2, 3], |group| {
        cases::every_small(group, [0, 1, 7], check);
    });
}

#[test]
fn the_pairwise_cases_in_every_language() {
    let worlds: &[u32] = if runs_long_tests() { &[1, 2, 3, 4] } else { &[3] };
    for mpi in Mpi::ALL {
        for language in [Language::Rust, Language::Python, Language::Node] {
            for &world in worlds {
                let Some(job) = program(mpi, language, CASES, world) else { continue };
                assert_eq!(job.code, Some(0), "{mpi:?} {language:?}: {}", job.output);
                let passed = cases::pairwise(world).len();
                for rank in 0..world {
                    let line =
                        format!("{language:?} rank {rank} of {world}: {passed} passed, 0 failed");
                    assert!(job.output.contains(&line), "{mpi:?}: {line}\n{}", job.output);
                }
            }
        }
    }
}

#[test]
fn large_tensors() {
    on_all("large_tensors", &[2, 3], |group| {
        cases::large(group.size()).for_each(|case| check(group, &case));
    });
}

#[test]
fn two_hundred_operations_in_flight_on_two_groups() {
    on_all("two_hundred_operations_in_flight_on_two_groups", &[3], |group| {
        cases::two_hundred_in_flight(group, Memory::Users);
    });
}

#[test]
fn an_operation_that_nobody_waits_for_ends_all_the_same() {
    on_all("an_operation_that_nobody_waits_for_ends_all_the_same", &[2], |group| {
        let (told, hears) = std::sync::mpsc::channel();
        let work = group.allreduce_async(vec![1.0_f32; 300_000], ()).unwrap();
        work.on_done(move |result| told.send(result.clone()).unwrap());
        hears.recv().unwrap().unwrap();
        let sum = work.into_result().unwrap();
        assert!(sum[0].region().read(|bytes| {
            bytes.as_chunks::<4>().0.iter().all(|four| f32::from_ne_bytes(*four) == 2.0)
        }));
    });
}

#[test]
fn messages_meet_by_peer_and_tag_in_order() {
    on_all("messages_meet_by_peer_and_tag_in_order", &[3], |group| {
        let (rank, size) = (group.rank(), group.size());
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        let value = |rank: u32, index: u32| rank * 1000 + index;
        // Two tags, sent in one order and received in the other; several of each in order.
        for (tag, elements) in [(7, 1), (8, 1), (7, 100_000), (8, 100_000)] {
            let data = vec![value(rank, tag); elements];
            drop(group.send_async(data, next, tag).unwrap());
        }
        for (tag, elements) in [(8, 1), (8, 100_000), (7, 1), (7, 100_000)] {
            let mut data = vec![0_u32; elements];
            group.recv(&mut data, before, tag).unwrap();
            assert!(data.iter().all(|&it| it == value(before, tag)), "tag {tag}, {elements}");
        }
        // From anybody: each of the others once.
        for peer in (0..size).filter(|&peer| peer != rank) {
            group.send(&[rank], peer, 9).unwrap();
        }
        let mut senders: Vec<u32> = (1..size)
            .map(|_| {
                let mut data = [u32::MAX];
                let from = group.recv_anysource(&mut data, 9).unwrap();
                assert_eq!(data, [from]);
                from
            })
            .collect();
        senders.sort_unstable();
        assert_eq!(senders, (0..size).filter(|&peer| peer != rank).collect::<Vec<_>>());
        let error = group.send(&[1_u8], next, u32::MAX).unwrap_err().to_string();
        assert!(error.contains("a tag must be from 0 to "), "{error}");
    });
}

#[test]
fn groups_of_some_ranks_and_many_one_after_the_other() {
    on_all("groups_of_some_ranks_and_many_one_after_the_other", &[4], |group| {
        let halves = [[0, 2], [3, 1]];
        let mine = halves.iter().find(|half| half.contains(&group.rank())).unwrap();
        let half = group.split_group(mine, Default::default()).unwrap().unwrap();
        assert_eq!(half.ranks(), mine);
        let mut sum = [group.rank()];
        half.allreduce(&mut sum, ()).unwrap();
        assert_eq!(sum[0], mine.iter().sum::<u32>());
        let mut data = [group.rank() * 10];
        half.broadcast(&mut data, 1).unwrap();
        assert_eq!(data, [mine[1] * 10]);
        half.shutdown().expect("the ranks agree");
        for _ in 0..40 {
            let all = group.split_group(&[3, 2, 1, 0], Default::default()).unwrap().unwrap();
            let mut ranks = [all.rank()];
            all.allreduce(&mut ranks, ()).unwrap();
            assert_eq!(ranks, [6]);
            all.shutdown().expect("the ranks agree");
        }
    });
}

/// As Node does it: what is called on one thread is run on another, where the library must
/// not be initialised.
#[test]
fn a_call_that_runs_elsewhere_initialises_where_it_was_called() {
    let test = "a_call_that_runs_elsewhere_initialises_where_it_was_called";
    for mpi in Mpi::ALL {
        let job = bare_ranks(mpi, test, 2, &[], || {
            let named = vec![("backend".to_owned(), Value::Str("mpi".to_owned()))];
            let arguments = Arguments { keywords: named, ..Arguments::default() };
            let init = entry("DISTRIBUTED_INIT_PROCESS_GROUP").unwrap();
            let call = Invocation::new(init, None, arguments, Vec::new()).unwrap();
            assert!(!is_initialised());
            call.prepare();
            assert!(is_initialised());
            std::thread::spawn(move || call.run().map(drop)).join().unwrap().unwrap();
            let mut sum = [1_u8];
            default_group().unwrap().allreduce(&mut sum, ()).unwrap();
            report(rank_and_size().unwrap().0, sum[0]);
            destroy_process_group(None).unwrap();
        });
        let Some(job) = job else { continue };
        assert_eq!(job.code, Some(0), "{}", job.output);
        assert_eq!((job.of(0), job.of(1)), (vec!["2"], vec!["2"]), "{mpi:?}: {}", job.output);
    }
}

/// As in the Node processes whose code lies directly behind the heap: what a library does there
/// when it is loaded must not cost the heap its last page.
#[test]
fn a_heap_that_cannot_grow_keeps_its_end() {
    let test = "a_heap_that_cannot_grow_keeps_its_end";
    for mpi in Mpi::ALL {
        let job = bare_ranks(mpi, test, 2, &[], || {
            let end = heap::end();
            heap::wall_up();
            let (rank, _) = rank_and_size().unwrap();
            report(rank, heap::end() as i64 - end as i64);
        });
        let Some(job) = job else { continue };
        assert_eq!((job.of(0), job.of(1)), (vec!["0"], vec!["0"]), "{mpi:?}: {}", job.output);
    }
}
