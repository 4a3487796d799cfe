//! Hooks from Rust: what they learn, in which order, and what an error in one does to whom.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};

use polyrank::process_group::GroupOptions;
use polyrank::{DType, Error, PreHookArgs, ProcessGroup, ReduceOp, nan_check};
use polyrank::{nan_check_allowing_infinity, store::HashStore};
use polyrank_tests::{LIMIT, ranks};

const SIZES: [u32; 5] = [1, 2, 3, 5, 8];

/// What a pre-hook saw: name, shapes read, shapes written, root, operator.
type Seen = (&'static str, Vec<Vec<usize>>, Vec<Vec<usize>>, i32, Option<ReduceOp>);

fn seen(operation: &PreHookArgs<'_>) -> Seen {
    let shapes = |tensors: &[polyrank::TensorRef<'_>]| {
        tensors.iter().map(|tensor| tensor.shape().to_vec()).collect()
    };
    let PreHookArgs { name, input_tensors, output_tensors, root, reduce_op, .. } = operation;
    (name, shapes(input_tensors), shapes(output_tensors), *root, *reduce_op)
}

/// The log of a group's pre-hook.
fn logged(group: &ProcessGroup) -> Arc<Mutex<Vec<Seen>>> {
    let log: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let kept = log.clone();
    let rank = group.rank();
    group
        .register_pre_hook(0, move |operation| {
            assert_eq!(operation.rank, rank);
            let mut log = kept.lock().unwrap();
            assert_eq!(operation.op_id, log.len() as u64);
            log.push(seen(operation));
            Ok(())
        })
        .unwrap();
    log
}

#[test]
fn a_hook_sees_what_each_collective_reads_and_writes() {
    for size in SIZES {
        ranks(size, |group| {
            let (n, rank, log) = (size as usize, group.rank(), logged(&group));
            let root = size - 1;
            let is_root = rank == root;
            let mut one = vec![1.0f32; 3];
            let mut all = vec![0.0f32; 3 * n];
            group.allreduce(&mut one, ReduceOp::Max).unwrap();
            group.reduce(&mut one, root).unwrap();
            group.broadcast(&mut one, root).unwrap();
            group.all_gather_single(&mut all, &one, ()).unwrap();
            group.reduce_scatter_single(&mut one, &all, ()).unwrap();
            let (mut out, input) = (all.clone(), all.clone());
            group.all_to_all_single(&mut out, &input, ()).unwrap();
            group.barrier(()).unwrap();
            let here = |is: bool, shape: usize| if is { vec![vec![shape]] } else { Vec::new() };
            let (sum, last) = (Some(ReduceOp::Sum), root as i32);
            let (some, whole) = (here(true, 3), here(true, 3 * n));
            let expected: Vec<Seen> = vec![
                ("ALLREDUCE", some.clone(), some.clone(), -1, Some(ReduceOp::Max)),
                ("REDUCE", some.clone(), here(is_root, 3), last, sum),
                ("BROADCAST", here(is_root, 3), here(!is_root, 3), last, None),
                ("ALLGATHER", some.clone(), whole.clone(), -1, None),
                ("REDUCE_SCATTER", whole.clone(), some, -1, sum),
                ("ALLTOALL", whole.clone(), whole, -1, None),
                ("BARRIER", Vec::new(), Vec::new(), -1, None),
            ];
            assert_eq!(*log.lock().unwrap(), expected, "rank {rank} of {size}");
        });
    }
}

#[test]
fn a_hook_sees_messages_and_operations_on_objects_once_each() {
    ranks(2, |group| {
        let log = logged(&group);
        let mut tensor = [7u8; 5];
        match group.rank() {
            0 => group.send(&tensor, 1, 0).unwrap(),
            _ => drop(group.recv_anysource(&mut tensor, 0).unwrap()),
        }
        match group.rank() {
            0 => group.recv(&mut tensor, 1, 3).unwrap(),
            _ => group.send(&tensor, 0, 3).unwrap(),
        }
        assert_eq!(group.all_gather_object(&group.rank()).unwrap(), [0, 1]);
        let (five, none) = (vec![vec![5]], Vec::<Vec<usize>>::new());
        let objects = ("ALL_GATHER_OBJECT", none.clone(), none.clone(), -1, None);
        let expected = match group.rank() {
            0 => vec![
                ("SEND", five.clone(), none.clone(), 1, None),
                ("RECV", none, five, 1, None),
                objects,
            ],
            _ => vec![
                ("RECVANYSOURCE", none.clone(), five.clone(), -1, None),
                ("SEND", five, none, 0, None),
                objects,
            ],
        };
        assert_eq!(*log.lock().unwrap(), expected);
    });
}

#[test]
fn hooks_run_in_the_order_of_their_numbers_and_know_the_same_operation() {
    ranks(3, |group| {
        let log: Arc<Mutex<Vec<(&str, u64)>>> = Arc::default();
        let note = |what: &'static str| {
            let log = log.clone();
            move |number: u64| log.lock().unwrap().push((what, number))
        };
        for (id, what) in [(5, "pre 5"), (-1, "pre -1"), (2, "replaced")] {
            let note = note(what);
            group
                .register_pre_hook(id, move |it| {
                    note(it.op_id);
                    Ok(())
                })
                .unwrap();
        }
        let second = note("pre 2");
        group
            .register_pre_hook(2, move |it| {
                second(it.op_id);
                Ok(())
            })
            .unwrap();
        let posted = note("post");
        // On the thread that notices the end, which need not be this one.
        let (ended, ends) = mpsc::channel();
        group
            .register_post_hook(0, move |it| {
                assert!(it.work.result().is_empty(), "its tensors may be borrowed");
                posted(it.op_id);
            })
            .unwrap();
        group
            .register_completion_hook(0, move |it| {
                assert!(it.error.is_none());
                ended.send(it.op_id).unwrap();
            })
            .unwrap();
        let mut tensor = vec![1i64; 1000];
        group.allreduce(&mut tensor, ()).unwrap();
        group.unregister_pre_hook(2);
        group.unregister_pre_hook(99);
        group.allreduce(&mut tensor, ()).unwrap();
        assert_eq!(tensor[999], 9);
        let order = log.lock().unwrap().clone();
        let of = |number: u64, what: &'static [&'static str]| {
            what.iter().map(move |it| (*it, number)).collect::<Vec<_>>()
        };
        let first = of(0, &["pre -1", "pre 2", "pre 5", "post"]);
        let then = of(1, &["pre -1", "pre 5", "post"]);
        assert_eq!(order, [first, then].concat());
        let mut ends = [ends.recv().unwrap(), ends.recv().unwrap()];
        ends.sort_unstable();
        assert_eq!(ends, [0, 1]);
    });
}

#[test]
fn an_error_in_a_hook_stops_the_operation_and_all_ranks_learn_why() {
    for size in [2, 3, 5] {
        ranks(size, |group| {
            if group.rank() == 1 {
                group
                    .register_pre_hook(7, |it| match it.op_id {
                        0 => Ok(()),
                        _ => Err(Error::HookFailed { message: "enough is enough".into() }),
                    })
                    .unwrap();
            }
            let mut tensor = [1.0f64; 2];
            group.allreduce(&mut tensor, ()).unwrap();
            let error = group.allreduce(&mut tensor, ()).unwrap_err();
            if group.rank() == 1 {
                assert_eq!(error, Error::HookFailed { message: "enough is enough".into() });
                assert_eq!(tensor, [f64::from(size); 2], "the operation was not issued");
            } else {
                let Error::Aborted { rank: 1, why, .. } = &error else { panic!("{error}") };
                assert_eq!(why, "its pre-hook 7 stopped ALLREDUCE #1: enough is enough");
            }
        });
    }
}

#[test]
fn a_panic_in_a_hook_reaches_the_caller_and_the_others_learn_of_it() {
    ranks(2, |group| {
        if group.rank() == 0 {
            group.register_pre_hook(0, |_| panic!("it is broken")).unwrap();
            let called =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| group.barrier(())));
            assert!(called.is_err());
        } else {
            let error = group.barrier(()).unwrap_err().to_string();
            assert!(error.contains("its pre-hook 0 stopped BARRIER #0: it is broken"), "{error}");
        }
    });
}

#[test]
fn nan_and_infinity_are_found_before_they_spread() {
    ranks(3, |group| {
        group.register_pre_hook(0, nan_check()).unwrap();
        let mut fine = vec![f32::MAX, -0.0, 1e-40];
        group.broadcast(&mut fine, 1).unwrap();
        let mut ints = vec![-1i32; 9];
        group.allreduce(&mut ints, ()).unwrap();
        let mut all = vec![0.0f32; 9];
        // What is only written may hold anything.
        all.fill(f32::NAN);
        group.all_gather_single(&mut all, &fine, ()).unwrap();
        let mut matrix = vec![1.0f64; 12];
        if group.rank() == 2 {
            matrix[7] = f64::NEG_INFINITY;
        }
        let error = group.allreduce(&mut matrix, ()).unwrap_err();
        if group.rank() == 2 {
            let expected = Error::NonFiniteInput {
                operation: "ALLREDUCE".into(),
                rank: 2,
                tensor: 0,
                element: "(7,)".into(),
                dtype: DType::F64.name().into(),
                value: "-inf".into(),
            };
            assert_eq!(error, expected);
        } else {
            let text = error.to_string();
            assert!(text.contains("ALLREDUCE of rank 2: element (7,) of input 0"), "{text}");
            assert_eq!(matrix, [1.0; 12], "nothing has spread");
        }
    });
    ranks(2, |group| {
        group.register_pre_hook(0, nan_check()).unwrap();
        let own = if group.rank() == 1 { f32::NAN } else { 0.0 };
        let values = vec![0.0, own];
        let error = group.allreduce_sparse(vec![4i64, 9], values, Default::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("ALLREDUCE_SPARSE of rank 1: element (1,) of input 1"), "{text}");
    });
    ranks(2, |group| {
        group.register_pre_hook(0, nan_check_allowing_infinity()).unwrap();
        let mut one = [f32::INFINITY];
        group.allreduce(&mut one, ()).unwrap();
        assert_eq!(one, [f32::INFINITY]);
        assert!(group.allreduce(&mut [f32::NAN], ()).is_err());
    });
}

#[test]
fn what_a_hook_runs_has_no_hooks() {
    ranks(3, |group| {
        let count = Arc::new(AtomicUsize::new(0));
        let (counted, inner) = (count.clone(), group.clone());
        group
            .register_pre_hook(0, move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                inner.barrier(())
            })
            .unwrap();
        group.allreduce(&mut [1u8], ()).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn abort_hooks_run_once_before_any_operation_says_that_the_group_failed() {
    let store = Arc::new(HashStore::new());
    let (told, met) = (AtomicUsize::new(0), Barrier::new(3));
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let (store, told, met) = (store.clone(), &told, &met);
            scope.spawn(move || {
                let options = GroupOptions::default().timeout(LIMIT);
                let group = ProcessGroup::new(store, rank, 3, "aborted", options).unwrap();
                let calls = Arc::new(AtomicUsize::new(0));
                let counted = calls.clone();
                group
                    .register_abort_hook(0, move || {
                        counted.fetch_add(1, Ordering::SeqCst);
                    })
                    .unwrap();
                group.barrier(()).unwrap();
                let work = (rank != 1).then(|| group.allreduce_async(vec![1.0f32], ()).unwrap());
                met.wait();
                if rank == 1 {
                    group.abort();
                }
                if let Some(work) = work {
                    work.wait(None).unwrap_err();
                    assert_eq!(calls.load(Ordering::SeqCst), 1, "before the operation says so");
                    told.fetch_add(1, Ordering::SeqCst);
                    group.barrier(()).unwrap_err();
                }
                met.wait();
                assert_eq!(calls.load(Ordering::SeqCst), usize::from(rank != 1));
                let _ = group.shutdown();
            });
        }
    });
    assert_eq!(told.load(Ordering::SeqCst), 2);
}

#[test]
fn an_abort_hook_that_comes_after_the_failure_is_called_at_once() {
    let store = Arc::new(HashStore::new());
    let met = Barrier::new(2);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (store, met) = (store.clone(), &met);
            scope.spawn(move || {
                let options = GroupOptions::default().timeout(LIMIT);
                let group = ProcessGroup::new(store, rank, 2, "failed", options).unwrap();
                let calls = [const { AtomicUsize::new(0) }; 2].map(Arc::new);
                let register = |place: usize| {
                    let counted = calls[place].clone();
                    group
                        .register_abort_hook(place as i64, move || {
                            counted.fetch_add(1, Ordering::SeqCst);
                        })
                        .unwrap();
                };
                let waits = group.recv_async(vec![0u8], Some(1 - rank), 0).unwrap();
                met.wait();
                if rank == 1 {
                    group.abort();
                }
                waits.wait(None).unwrap_err();
                // Nobody was to be told when it failed; then one was, and one is.
                register(0);
                register(1);
                group.barrier(()).unwrap_err();
                for counted in &calls {
                    assert_eq!(counted.load(Ordering::SeqCst), usize::from(rank == 0));
                }
            });
        }
    });
}

#[test]
fn completion_hooks_are_told_of_failures() {
    ranks(2, |group| {
        let (told, errors) = mpsc::channel();
        group.register_completion_hook(0, move |it| told.send(it.error.clone()).unwrap()).unwrap();
        let called = match group.rank() {
            0 => group.allreduce(&mut [1.0f32; 3], ()),
            _ => group.allreduce(&mut [1.0f32; 4], ()),
        };
        let error = called.unwrap_err();
        assert_eq!(errors.recv().unwrap(), Some(error));
    });
}

#[test]
fn hooks_are_dropped_when_their_group_is_left() {
    let held = Arc::new(());
    ranks(2, |group| {
        let (kept, whole) = (held.clone(), group.clone());
        group
            .register_pre_hook(0, move |_| {
                let _ = (&kept, &whole);
                Ok(())
            })
            .unwrap();
        group.barrier(()).unwrap();
    });
    assert_eq!(Arc::strong_count(&held), 1);
}
