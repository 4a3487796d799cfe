//! What happens over real MPI libraries when ranks are late, disagree, leave or die.
//! Nothing hangs, every error has a reason.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use polyrank::backend::{LentMemory, WaitIntent};
use polyrank::distributed::destroy_process_group;
use polyrank::process_group::FastPathResult;
use polyrank::request::SingleTensorRequest;
use polyrank::{Collective, DType, Error, ProcessGroup, ReduceOp, Request, Tensor};
use polyrank_tests::mpi::{HUNG, Job, Mpi, only, ranks, report, tell};

fn allreduce(elements: usize) -> Request {
    let mut request = Request::new(Collective::Allreduce);
    request.outputs = vec![vec![Tensor::from(vec![1_f32; elements])]];
    request
}

fn broadcast(root: u32, elements: usize) -> Request {
    let mut request = Request::new(Collective::Broadcast);
    request.outputs = vec![vec![Tensor::from(vec![1_f32; elements])]];
    request.root = root;
    request
}

#[test]
fn an_operation_past_its_deadline_names_who_is_late() {
    for mpi in Mpi::ALL {
        let test = "an_operation_past_its_deadline_names_who_is_late";
        let job = ranks(mpi, test, 2, &[], |group| {
            group.run(allreduce(10)).unwrap();
            let store = group.get_group_store();
            if group.rank() == 1 {
                // Never comes: rank 0 gives up.
                store.wait(&["gave up"], None).unwrap();
                // MPI may complete the one that rank 0 gave up; then the next call raises.
                let mut calls = [allreduce(1000), allreduce(1)].into_iter();
                let error = calls.find_map(|request| group.run(request).err()).unwrap();
                tell(1, &error);
                store.set("heard", b"").unwrap();
            } else {
                let mut request = allreduce(1000);
                request.timeout = Some(Duration::from_millis(900));
                let error = group.run(request).unwrap_err();
                tell(0, &error);
                let again = group.run(allreduce(1)).unwrap_err();
                assert_eq!(again.kind(), "CollectiveTimeout", "{again}");
                store.set("gave up", b"").unwrap();
                store.wait(&["heard"], None).unwrap();
            }
        });
        let Some(job) = job else { continue };
        assert_ne!(job.code, Some(HUNG), "{mpi:?}: {}", job.output);
        for rank in 0..2 {
            let line = only(&job, rank);
            assert!(line.starts_with("CollectiveTimeout: allreduce"), "{mpi:?}: {line}");
            assert!(line.contains("waiting for rank 1"), "{mpi:?}: {line}");
        }
    }
}

#[test]
fn small_memory_that_is_only_lent_is_given_back_at_the_deadline() {
    for mpi in Mpi::ALL {
        let test = "small_memory_that_is_only_lent_is_given_back_at_the_deadline";
        let job = ranks(mpi, test, 2, &[], |group| {
            let store = group.get_group_store();
            if group.rank() == 1 {
                store.wait(&["gave up"], None).unwrap();
                store.set("heard", b"").unwrap();
                return;
            }
            group.set_timeout(Duration::from_millis(500)).unwrap();
            let mut data = [1.0_f32, 2.0];
            let error = group.allreduce(&mut data, ()).unwrap_err();
            assert_eq!(data, [1.0, 2.0]);
            tell(0, &error);
            store.set("gave up", b"").unwrap();
            store.wait(&["heard"], None).unwrap();
        });
        let Some(job) = job else { continue };
        assert_ne!(job.code, Some(HUNG), "{mpi:?}: {}", job.output);
        assert!(only(&job, 0).starts_with("CollectiveTimeout"), "{mpi:?}: {}", job.output);
    }
}

#[test]
fn large_memory_that_mpi_does_not_let_go_of_ends_the_job_with_a_reason() {
    for mpi in Mpi::ALL {
        let test = "large_memory_that_mpi_does_not_let_go_of_ends_the_job_with_a_reason";
        let job = ranks(mpi, test, 2, &[], |group| {
            if group.rank() == 1 {
                group.get_group_store().wait(&["never"], None).unwrap();
            }
            group.set_timeout(Duration::from_millis(500)).unwrap();
            let mut data = vec![1.0_f32; 1 << 20];
            let result = group.allreduce(&mut data, ());
            report(0, format!("came back: {result:?}"));
        });
        let Some(job) = job else { continue };
        assert!(![Some(0), Some(HUNG)].contains(&job.code), "{mpi:?}: {}", job.output);
        assert!(job.reports.is_empty(), "{mpi:?}: {}", job.output);
        for words in ["rank 0 of the MPI job ends it", "only lent", "allreduce (operation 1"] {
            assert!(job.output.contains(words), "{mpi:?}: {words}\n{}", job.output);
        }
    }
}

#[test]
fn an_expired_wait_harms_nothing() {
    for mpi in Mpi::ALL {
        let job = ranks(mpi, "an_expired_wait_harms_nothing", 2, &[], |group| {
            if group.rank() == 1 {
                // The message arrives only after rank 0's first wait expired: it says so.
                group.recv(&mut [0_u8; 1], 0, 7).unwrap();
            }
            let work = group.issue(allreduce(10)).unwrap();
            if group.rank() == 0 {
                let error = work.wait(Some(Duration::from_millis(200))).unwrap_err();
                assert!(matches!(error, Error::WaitTimeout { .. }), "{error}");
                group.send(&[1_u8], 1, 7).unwrap();
            }
            work.wait(None).unwrap();
            report(group.rank(), "done");
        });
        let Some(job) = job else { continue };
        assert_eq!(job.code, Some(0), "{}", job.output);
        assert_eq!((only(&job, 0), only(&job, 1)), ("done", "done"));
    }
}

#[test]
fn an_abort_ends_what_the_others_wait_for() {
    for mpi in Mpi::ALL {
        let test = "an_abort_ends_what_the_others_wait_for";
        let job = ranks(mpi, test, 3, &[], |group| {
            let store = group.get_group_store();
            if group.rank() == 2 {
                store.wait(&["waits/0", "waits/1"], None).unwrap();
                group.abort();
                let error = group.run(allreduce(1)).unwrap_err();
                tell(2, &error);
            } else {
                let work = group.issue(allreduce(100_000)).unwrap();
                store.set(&format!("waits/{}", group.rank()), b"").unwrap();
                let error = work.wait(None).unwrap_err();
                tell(group.rank(), &error);
            }
            // The store ends with rank 0.
            store.barrier("heard", 3, None).unwrap();
        });
        let Some(job) = job else { continue };
        assert_ne!(job.code, Some(HUNG), "{}", job.output);
        for rank in 0..3 {
            let line = only(&job, rank);
            assert!(line.starts_with("Aborted"), "{mpi:?} rank {rank}: {line}");
            assert!(
                line.contains("aborted by rank 2: it called abort()"),
                "{mpi:?} rank {rank}: {line}"
            );
        }
    }
}

/// The first failure of some calls, among which ranks disagree.
fn raises(group: &ProcessGroup, ours: Request) {
    let mut calls = [allreduce(10), ours, allreduce(1)].into_iter();
    let error = calls.find_map(|request| group.run(request).err()).unwrap();
    tell(group.rank(), &error);
    // The store ends with rank 0.
    group.get_group_store().barrier("heard", group.size(), None).unwrap();
}

fn assert_mismatch(job: &Job, size: u32, both: [&str; 2]) {
    assert_ne!(job.code, Some(HUNG), "{}", job.output);
    for rank in 0..size {
        let line = only(job, rank);
        assert!(line.starts_with("CollectiveMismatch"), "rank {rank}: {line}");
        for side in both {
            assert!(line.contains(side), "rank {rank} does not name '{side}': {line}");
        }
    }
}

#[test]
fn an_error_of_mpi_breaks_the_group_also_where_the_collective_is_dropped() {
    for mpi in Mpi::ALL {
        let test = "an_error_of_mpi_breaks_the_group_also_where_the_collective_is_dropped";
        let job = ranks(mpi, test, 2, &[], |group| {
            let store = group.get_group_store();
            if group.rank() == 0 {
                // Small, so that MPI does not wait for the receiver.
                group.run(broadcast(0, 16)).unwrap();
                store.set("sent", b"").unwrap();
                store.wait(&["over"], None).unwrap();
                // The ranks may say as well that they disagreed.
                return drop(destroy_process_group(None));
            }
            store.wait(&["sent"], None).unwrap();
            // MPI refuses a message that is longer than the memory for it.
            let tried = group.try_plain(&small_broadcast(), &mut LentMemory::InPlace(&mut [0; 4]));
            assert!(matches!(tried, Some(FastPathResult::Pending(_))));
            drop(tried);
            tell(group.rank(), &group.run(allreduce(1)).unwrap_err());
            store.set("over", b"").unwrap();
            drop(destroy_process_group(None));
        });
        if let Some(job) = job {
            let line = only(&job, 1);
            assert!(line.contains("MPI_Test"), "{mpi:?}: {line}");
        }
    }
}

/// A broadcast of rank 0 that may take the fast path.
fn small_broadcast() -> SingleTensorRequest {
    SingleTensorRequest {
        collective: Collective::Broadcast,
        name: "broadcast",
        dtype: DType::F32,
        reduce_op: ReduceOp::Sum,
        root: 0,
        timeout: None,
        waiting: WaitIntent::Soon,
        epoch: None,
    }
}

#[test]
fn ranks_that_all_wait_for_one_another_find_out_through_the_store() {
    for mpi in Mpi::ALL {
        let test = "ranks_that_all_wait_for_one_another_find_out_through_the_store";
        // Each takes the other for the root; large, so that nothing is sent before it is asked for.
        let job = ranks(mpi, test, 2, &[], |group| {
            let mut barrier = Request::new(Collective::Barrier);
            barrier.timeout = Some(Duration::from_secs(30));
            let odd = group.rank() == 1;
            raises(&group, if odd { broadcast(0, 1 << 20) } else { barrier });
        });
        if let Some(job) = job {
            assert_mismatch(&job, 2, ["barrier", "broadcast"]);
        }
    }
}

#[test]
fn what_ranks_ran_differently_last_is_told_when_they_leave() {
    for mpi in Mpi::ALL {
        let test = "what_ranks_ran_differently_last_is_told_when_they_leave";
        // Each is the root, and receives nothing from the other. Small, so that MPI waits for
        // nobody.
        let job = ranks(mpi, test, 2, &[], |group| {
            group.run(allreduce(10)).unwrap();
            group.run(broadcast(group.rank(), 4)).unwrap();
            tell(group.rank(), &destroy_process_group(None).unwrap_err());
        });
        if let Some(job) = job {
            assert_mismatch(&job, 2, ["root 0", "root 1"]);
        }
    }
}

#[test]
fn at_debug_level_detail_a_mismatch_is_found_before_mpi_sees_it() {
    for mpi in Mpi::ALL {
        let test = "at_debug_level_detail_a_mismatch_is_found_before_mpi_sees_it";
        let job = ranks(mpi, test, 3, &[("TORCH_DISTRIBUTED_DEBUG", "DETAIL")], |group| {
            let elements = if group.rank() == 2 { 20 } else { 10 };
            raises(&group, allreduce(elements));
        });
        if let Some(job) = job {
            assert_mismatch(&job, 3, ["of 10 f32", "of 20 f32"]);
        }
    }
}

#[test]
fn at_debug_level_detail_issuing_waits_for_nobody() {
    for mpi in Mpi::ALL {
        let test = "at_debug_level_detail_issuing_waits_for_nobody";
        let job = ranks(mpi, test, 2, &[("POLYRANK_DEBUG", "DETAIL")], |group| {
            let other = group.split_group(&[0, 1], Default::default()).unwrap().unwrap();
            let rank = group.rank();
            if rank == 1 {
                // Rank 0 says so after it has issued its operation.
                group.recv(&mut [0_u8; 1], 0, 7).unwrap();
            }
            let sum = |on: &ProcessGroup| on.allreduce_async(vec![rank + 1; 1000], ()).unwrap();
            // Each begins with another group.
            let order = if rank == 0 { [&group, &other] } else { [&other, &group] };
            let mut works = Vec::from(order.map(sum));
            if rank == 0 {
                group.send(&[1_u8], 1, 7).unwrap();
            }
            works.extend((0..20).map(|_| sum(&group)));
            for work in works.into_iter().rev() {
                let sums = work.into_result().unwrap();
                sums[0].region().read(|bytes| assert_eq!(bytes[..4], 3_u32.to_ne_bytes()));
            }
            // The error names the rank that did not come, and MPI was not called.
            if rank == 0 {
                let mut request = allreduce(1000);
                request.timeout = Some(Duration::from_millis(900));
                tell(0, &other.run(request).unwrap_err());
            }
            group.run(Request::new(Collective::Barrier)).unwrap();
        });
        let Some(job) = job else { continue };
        assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        let line = only(&job, 0);
        assert!(line.starts_with("CollectiveTimeout: allreduce"), "{mpi:?}: {line}");
        assert!(line.contains("waiting for rank 1"), "{mpi:?}: {line}");
    }
}

#[test]
fn a_message_of_another_size_is_an_error_that_names_both() {
    for mpi in Mpi::ALL {
        let test = "a_message_of_another_size_is_an_error_that_names_both";
        let job = ranks(mpi, test, 2, &[], |group| {
            if group.rank() == 0 {
                group.send(&[1_u8; 12], 1, 5).unwrap();
                // The store ends with rank 0.
                group.get_group_store().wait(&["heard"], None).unwrap();
            } else {
                let error = group.recv(&mut [0_u8; 8], 0, 5).unwrap_err();
                tell(1, &error);
                group.get_group_store().set("heard", b"").unwrap();
            }
        });
        let Some(job) = job else { continue };
        assert_ne!(job.code, Some(HUNG), "{}", job.output);
        let line = only(&job, 1);
        assert!(line.starts_with("MessageSize"), "{mpi:?}: {line}");
        assert!(line.contains("12") && line.contains('8'), "{mpi:?}: {line}");
    }
}

#[test]
fn a_receive_past_its_deadline_says_from_whom() {
    for mpi in Mpi::ALL {
        let test = "a_receive_past_its_deadline_says_from_whom";
        let job = ranks(mpi, test, 2, &[], |group| {
            if group.rank() == 0 {
                group.set_timeout(Duration::from_millis(400)).unwrap();
                let mut data = vec![0_u8; 1 << 20];
                let error = group.recv(&mut data, 1, 3).unwrap_err();
                tell(0, &error);
                group.get_group_store().set("gave up", b"").unwrap();
                group.get_group_store().wait(&["heard"], None).unwrap();
            } else {
                group.get_group_store().wait(&["gave up"], None).unwrap();
                group.get_group_store().set("heard", b"").unwrap();
            }
        });
        let Some(job) = job else { continue };
        // MPI had nothing of it, so that the job ends cleanly.
        assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        let line = only(&job, 0);
        assert!(line.starts_with("CollectiveTimeout: recv"), "{mpi:?}: {line}");
        assert!(line.contains("waiting for rank 1"), "{mpi:?}: {line}");
    }
}

#[test]
fn a_rank_that_left_is_named_by_those_that_go_on() {
    for mpi in Mpi::ALL {
        let test = "a_rank_that_left_is_named_by_those_that_go_on";
        let job = ranks(mpi, test, 2, &[], |group| {
            let other = group.split_group(&[0, 1], Default::default()).unwrap().unwrap();
            other.run(allreduce(10)).unwrap();
            if group.rank() == 1 {
                other.shutdown().expect("the ranks agree");
            } else {
                let error = other.run(allreduce(100_000)).unwrap_err();
                tell(0, &error);
            }
            group.run(Request::new(Collective::Barrier)).unwrap();
        });
        let Some(job) = job else { continue };
        assert_ne!(job.code, Some(HUNG), "{}", job.output);
        let line = only(&job, 0);
        assert!(line.starts_with("RankFailed: rank 1 of group"), "{mpi:?}: {line}");
        assert!(line.contains("it left the group"), "{mpi:?}: {line}");
    }
}

#[test]
fn a_rank_that_ends_without_leaving_is_named_by_the_others() {
    for mpi in Mpi::ALL {
        let test = "a_rank_that_ends_without_leaving_is_named_by_the_others";
        let job = ranks(mpi, test, 2, &[], |group| {
            group.run(allreduce(10)).unwrap();
            if group.rank() == 1 {
                // As a program does that raised an exception.
                std::process::exit(3);
            }
            let error = group.run(allreduce(100_000)).unwrap_err();
            tell(0, &error);
            std::process::exit(4);
        });
        let Some(job) = job else { continue };
        assert!(![Some(0), Some(HUNG)].contains(&job.code), "{mpi:?}: {}", job.output);
        let line = only(&job, 0);
        assert!(line.starts_with("RankFailed: rank 1 of group"), "{mpi:?}: {line}");
    }
}

#[test]
fn a_rank_that_ends_with_operations_under_way_ends_the_job_with_a_reason() {
    for mpi in Mpi::ALL {
        let test = "a_rank_that_ends_with_operations_under_way_ends_the_job_with_a_reason";
        let job = ranks(mpi, test, 2, &[], |group| {
            if group.rank() == 1 {
                group.get_group_store().wait(&["never"], None).unwrap();
            }
            let work = group.issue(allreduce(100_000)).unwrap();
            assert!(!work.is_completed());
            // As a program does that waits in a thread which does not keep it alive.
            std::process::exit(0);
        });
        let Some(job) = job else { continue };
        assert!(![Some(0), Some(HUNG)].contains(&job.code), "{mpi:?}: {}", job.output);
        let reason = "rank 0 of the MPI job ends it: it ended while operations";
        assert!(job.output.contains(reason), "{mpi:?}: {}", job.output);
    }
}

#[test]
fn the_job_of_a_killed_rank_ends_with_the_launchers_reason() {
    for mpi in Mpi::ALL {
        for victim in [0, 2] {
            let test = "the_job_of_a_killed_rank_ends_with_the_launchers_reason";
            let variables = [("POLYRANK_TEST_VICTIM", if victim == 0 { "0" } else { "2" })];
            let job = ranks(mpi, test, 3, &variables, |group| {
                group.run(allreduce(1000)).unwrap();
                let victim = std::env::var("POLYRANK_TEST_VICTIM").unwrap();
                if victim == group.rank().to_string() {
                    let id = std::process::id().to_string();
                    let _ = std::process::Command::new("kill").args(["-9", &id]).status();
                    unreachable!("kill -9 ends the process");
                }
                let error = group.run(allreduce(100_000)).unwrap_err();
                tell(group.rank(), &error);
            });
            let Some(job) = job else { continue };
            assert!(![Some(0), Some(HUNG)].contains(&job.code), "{mpi:?}: {}", job.output);
            let signal = ["signal 9", "KILLED BY SIGNAL: 9", "Killed"];
            // PRRTE's words are lost where it is slow; its code says the signal all the same.
            let by_code = mpi == Mpi::OpenMpi5 && job.code == Some(128 + 9);
            let says = by_code || signal.iter().any(|words| job.output.contains(words));
            assert!(says, "{mpi:?}: {:?} {}", job.code, job.output);
        }
    }
}
