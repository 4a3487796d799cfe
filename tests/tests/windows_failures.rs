//! What goes wrong with one-sided access, with real processes: mistakes are errors where they are
//! made, and only there; ranks that are killed are errors of those that write to them; nobody waits
//! for code of the target.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::{DType, Error, ProcessGroup, ReduceOp, Tensor};
use polyrank_tests::processes::{
    all_went_well, dies_between_operations, lines_of_survivors, processes, report, with_variable,
};
use polyrank_tests::windows::{MAPPED_ELEMENTS as ELEMENTS, WAYS};

fn zeros() -> Tensor {
    Tensor::zeros(DType::F32, &[ELEMENTS]).unwrap()
}

fn is_zero(tensor: &Tensor) -> bool {
    tensor.region().read(|bytes| bytes.iter().all(|byte| *byte == 0))
}

/// What a call was refused with.
fn refusal<T>(result: polyrank::Result<T>) -> String {
    match result {
        Err(error @ Error::InvalidArgument { .. }) => error.to_string(),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it is not refused"),
    }
}

fn mistakes(group: &ProcessGroup) {
    let peer = 1 - group.rank();
    let window = group.new_window().unwrap();
    let before = refusal(window.put(&[1_f32], peer, 0));
    assert!(before.contains("tensor_register first"), "{before}");
    refusal(window.tensor_deregister());
    refusal(window.tensor_register(Tensor::from(vec![0_f32; 4]).read_only()));
    let memory = zeros();
    window.tensor_register(memory.clone()).unwrap();
    refusal(window.tensor_register(vec![0_f32; 4]));
    let last = ELEMENTS as u64 - 1;
    let outside = refusal(window.put(&[1_f32, 2.0], peer, last));
    assert!(outside.contains("2 elements from element 40002 on"), "{outside}");
    assert!(outside.contains(&format!("40003 elements that rank {peer}")), "{outside}");
    refusal(window.put(&[1_f32], peer, u64::MAX));
    refusal(window.put(&vec![1_f32; ELEMENTS + 1], peer, 0));
    refusal(window.get(&mut [0_f32; 3], peer, last - 1));
    refusal(window.put_async(vec![1_f32, 2.0], peer, last));
    refusal(window.accumulate(&[1_f32, 2.0], peer, last, ReduceOp::Sum));
    refusal(window.fetch_and_add(&[1_f32, 2.0], &mut [0_f32; 2], peer, last));
    refusal(window.compare_and_swap(&[1_f32, 2.0], &[0_f32; 2], &mut [0_f32; 2], peer, last));
    let dtype = refusal(window.put(&[1_f64], peer, 0));
    assert!(dtype.contains("f64") && dtype.contains("f32"), "{dtype}");
    for rank in [2, u32::MAX] {
        refusal(window.put(&[1_f32], rank, 0));
        refusal(window.signal(rank));
        refusal(window.wait_signal(rank));
        refusal(window.flush(Some(rank)));
        refusal(window.get_attr(rank));
    }
    // Nothing at the end, or of nothing, is inside.
    window.put(&[0_f32; 0], peer, last + 1).unwrap();
    refusal(window.put(&[0_f32; 0], peer, last + 2));
    window.fence().unwrap();
    assert!(is_zero(&memory), "a mistake of the other rank has changed something");
    window.tensor_deregister().unwrap();
    let closed = refusal(window.put(&[1_f32], peer, 0));
    assert!(closed.contains("tensor_register first"), "{closed}");
    // Another one may be registered then, of another type and length on each rank.
    let elements = 10 + group.rank() as usize;
    window.tensor_register(vec![5_u8; elements]).unwrap();
    let mut got = vec![0_u8; 10 + peer as usize];
    window.get(&mut got, peer, 0).unwrap();
    assert!(got.iter().all(|byte| *byte == 5));
    window.tensor_deregister().unwrap();
    group.barrier(()).unwrap();
}

#[test]
fn mistakes_are_errors_where_they_are_made() {
    for (name, value) in WAYS {
        let test = "mistakes_are_errors_where_they_are_made";
        let ended = with_variable(name, value, || processes(test, 2, |group| mistakes(&group)));
        all_went_well(&ended);
    }
}

#[test]
fn what_is_registered_lives_until_it_is_not() {
    for (name, value) in WAYS {
        let test = "what_is_registered_lives_until_it_is_not";
        let ended = with_variable(name, value, || {
            processes(test, 2, |group| {
                let window = group.new_window().unwrap();
                // Nobody else has the tensor.
                window.tensor_register(zeros()).unwrap();
                let peer = 1 - group.rank();
                window.put(&vec![3_f32; ELEMENTS], peer, 0).unwrap();
                // What would have its memory, if that were free.
                let others: Vec<Tensor> = (0..8).map(|_| zeros()).collect();
                window.fence().unwrap();
                let mut got = vec![0_f32; ELEMENTS];
                window.get(&mut got, peer, 0).unwrap();
                assert!(got.iter().all(|value| *value == 3.0));
                assert!(others.iter().all(is_zero));
                window.tensor_deregister().unwrap();
            })
        });
        all_went_well(&ended);
    }
}

#[test]
fn a_target_serves_although_its_code_calls_nothing() {
    for (name, value) in WAYS {
        let test = "a_target_serves_although_its_code_calls_nothing";
        let ended = with_variable(name, value, || {
            processes(test, 3, |group| {
                let window = group.new_window().unwrap();
                let memory = Tensor::zeros(DType::I64, &[5]).unwrap();
                window.tensor_register(memory.clone()).unwrap();
                let store = group.get_group_store();
                if group.rank() == 0 {
                    // Without a call of the group, until the others say in the store that all is
                    // done.
                    store.wait(&["done/1", "done/2"], None).unwrap();
                    let bytes = memory.region().read(<[u8]>::to_vec);
                    let values: Vec<i64> =
                        bytes.as_chunks().0.iter().map(|it| i64::from_ne_bytes(*it)).collect();
                    assert_eq!(values, [0, 11, 12, 200, 0]);
                } else {
                    let rank = group.rank();
                    window.put(&[10 + i64::from(rank)], 0, u64::from(rank)).unwrap();
                    for _ in 0..100 {
                        window.accumulate(&[1_i64], 0, 3, ReduceOp::Sum).unwrap();
                    }
                    let mut got = [0_i64];
                    window.get(&mut got, 0, u64::from(rank)).unwrap();
                    assert_eq!(got, [10 + i64::from(rank)]);
                    store.set(&format!("done/{rank}"), b"").unwrap();
                }
                window.tensor_deregister().unwrap();
            })
        });
        all_went_well(&ended);
    }
}

#[test]
fn collectives_and_accesses_do_not_hold_one_another_up() {
    let test = "collectives_and_accesses_do_not_hold_one_another_up";
    for (name, value) in WAYS {
        let ended = with_variable(name, value, || {
            processes(test, 2, |group| {
                let window = group.new_window().unwrap();
                let memory = Tensor::zeros(DType::I64, &[5]).unwrap();
                window.tensor_register(memory).unwrap();
                if group.rank() == 0 {
                    // The frames of a collective that the other rank calls later are on their way
                    // before the access.
                    let work = group.allreduce_async(vec![1_f32; 300_000], ()).unwrap();
                    window.put(&[7_i64], 1, 0).unwrap();
                    window.signal(1).unwrap();
                    work.wait(None).unwrap();
                } else {
                    window.wait_signal(0).unwrap();
                    let mut sum = vec![2_f32; 300_000];
                    group.allreduce(&mut sum, ()).unwrap();
                    assert!(sum.iter().all(|value| *value == 3.0));
                }
                window.tensor_deregister().unwrap();
            })
        });
        all_went_well(&ended);
    }
}

/// What the survivors of rank 1 say, who call `call` until it fails.
fn after_a_death(
    test: &str,
    way: (&str, &str),
    call: fn(&polyrank::Window) -> polyrank::Result<()>,
) {
    let ended = with_variable(way.0, way.1, || {
        processes(test, 3, |group| {
            let window = group.new_window().unwrap();
            window.tensor_register(zeros()).unwrap();
            // All have come so far, and have got something from the victim.
            window.get(&mut [1_f32], 1, 0).unwrap();
            window.fence().unwrap();
            dies_between_operations(&group, 1);
            let error = loop {
                if let Err(error) = call(&window) {
                    break error;
                }
            };
            // And so does every later call.
            assert!(window.put(&[1_f32], 1, 0).is_err());
            assert!(window.put(&[1_f32], 0, 0).is_err());
            report(format!("{} {error}", error.kind()));
            std::process::exit(0);
        })
    });
    for (rank, line) in lines_of_survivors(&ended, 1) {
        assert!(line.contains("RankFailed") && line.contains("rank 1"), "rank {rank}: {line}");
    }
}

#[test]
fn a_death_is_an_error_of_those_that_put() {
    for way in WAYS {
        let test = "a_death_is_an_error_of_those_that_put";
        after_a_death(test, way, |window| window.put(&[1_f32; 2000], 1, 5));
    }
}

#[test]
fn a_death_is_an_error_of_those_that_update() {
    for way in WAYS {
        let test = "a_death_is_an_error_of_those_that_update";
        after_a_death(test, way, |window| window.accumulate(&[1_f32; 2000], 1, 5, ReduceOp::Sum));
    }
}

#[test]
fn a_death_is_an_error_of_those_that_wait_for_a_signal() {
    for way in WAYS {
        let test = "a_death_is_an_error_of_those_that_wait_for_a_signal";
        after_a_death(test, way, |window| window.wait_signal(1));
    }
}

#[test]
fn a_death_is_an_error_of_those_at_a_fence() {
    for way in WAYS {
        let test = "a_death_is_an_error_of_those_at_a_fence";
        after_a_death(test, way, polyrank::Window::fence);
    }
}

#[test]
fn a_signal_that_does_not_come_in_time_is_for_the_next_call() {
    for (name, value) in WAYS {
        let test = "a_signal_that_does_not_come_in_time_is_for_the_next_call";
        let ended = with_variable(name, value, || {
            processes(test, 2, |group| {
                let window = group.new_window().unwrap();
                if group.rank() == 0 {
                    let limit = std::time::Duration::from_millis(100);
                    let error = window.with_timeout(limit).wait_signal(1).unwrap_err();
                    let Error::CollectiveTimeout { rank: 1, waiting_rank: 0, .. } = error else {
                        panic!("another error: {error}");
                    };
                    assert!(error.to_string().contains("wait_signal"), "{error}");
                }
                group.barrier(()).unwrap();
                if group.rank() == 1 {
                    window.signal(0).unwrap();
                } else {
                    window.wait_signal(1).unwrap();
                }
                window.fence().unwrap();
            })
        });
        all_went_well(&ended);
    }
}

#[test]
fn a_fence_does_not_meet_a_deregistration() {
    for (name, value) in WAYS {
        let ended = with_variable(name, value, || {
            processes("a_fence_does_not_meet_a_deregistration", 2, |group| {
                let window = group.new_window().unwrap();
                window.tensor_register(zeros()).unwrap();
                let error = match group.rank() {
                    0 => window.tensor_deregister(),
                    _ => window.fence(),
                };
                let error = error.unwrap_err();
                report(format!("{} {error}", error.kind()));
                std::process::exit(0);
            })
        });
        for end in &ended {
            let line = end.printed.first().unwrap_or_else(|| panic!("{}", end.output));
            assert!(line.starts_with("Aborted"), "{line}");
            assert!(line.contains("fence") && line.contains("tensor_deregister"), "{line}");
        }
    }
}

#[test]
fn what_a_fence_waits_for_is_done_at_every_rank() {
    for (name, value) in WAYS {
        let ended = with_variable(name, value, || {
            processes("what_a_fence_waits_for_is_done_at_every_rank", 3, |group| {
                let window = group.new_window().unwrap();
                window.tensor_register(zeros()).unwrap();
                for round in 1..20 {
                    let value = round as f32;
                    if group.rank() == 1 {
                        drop(window.put_async(vec![value; ELEMENTS], 2, 0).unwrap());
                    }
                    window.fence().unwrap();
                    if group.rank() == 0 {
                        let mut last = [0_f32];
                        window.get(&mut last, 2, ELEMENTS as u64 - 1).unwrap();
                        assert_eq!(last, [value], "round {round}");
                    }
                    window.fence().unwrap();
                }
                window.tensor_deregister().unwrap();
            })
        });
        all_went_well(&ended);
    }
}
