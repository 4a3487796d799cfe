//! Tensors that are made the same on all ranks: who has what in the end, in all sizes of groups,
//! and what is said where that cannot be.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyrank::process_group::StateSyncOptions;
use polyrank::{DType, Error, PreHookArgs, ReduceOp, Region, Tensor};
use polyrank_tests::{LIMIT, ranks};

const SIZES: [u32; 5] = [1, 2, 3, 5, 8];
/// Elements of the tensors of a state: none, one, odd, and so many that several ranks give parts.
const COUNTS: [usize; 4] = [0, 1, 1001, 300_007];

/// Which state a rank of so many has.
type NumberOf = fn(u32, u32) -> u32;

/// A state by a number: two of the same number are alike.
fn state(number: u32) -> Vec<Vec<f32>> {
    let tensor = |count| (0..count).map(|at| (at % 251) as f32 * 0.5 + number as f32).collect();
    COUNTS.into_iter().map(tensor).collect()
}

fn run<T>(call: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(call)
}

/// What ranks have afterwards. Each says of the right tensors which it had not.
fn synced(size: u32, given: impl Fn(u32) -> Vec<Vec<f32>> + Sync) -> Vec<Vec<Vec<f32>>> {
    ranks(size, |group| {
        let before = given(group.rank());
        let mut tensors = before.clone();
        let replaced = group.sync_state(&mut tensors, StateSyncOptions::default()).unwrap();
        let bits = |all: &[f32]| all.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        let differs = |index: &usize| bits(&before[*index]) != bits(&tensors[*index]);
        let expected: Vec<usize> = (0..tensors.len()).filter(differs).collect();
        assert_eq!(replaced, expected);
        tensors
    })
}

#[test]
fn most_ranks_are_right_and_otherwise_the_lowest() {
    for size in SIZES {
        // All alike; each another; the last ones alike; all but one.
        let cases: [(&str, NumberOf, u32); 4] = [
            ("alike", |_, _| 7, 7),
            ("different", |rank, _| rank, 0),
            ("last", |rank, size| if rank < size / 2 { rank } else { 100 }, 100),
            ("all but rank 0", |rank, _| rank.min(1), if size > 2 { 1 } else { 0 }),
        ];
        for (name, number, right) in cases {
            // Where the last ones are two of four, or one of two, each state is as frequent.
            let right = if name == "last" && size - size / 2 == 1 && size > 1 { 0 } else { right };
            let found = synced(size, |rank| state(number(rank, size)));
            assert!(found.iter().all(|it| *it == state(right)), "{name}, {size} ranks");
        }
    }
}

#[test]
fn one_tensor_of_a_rank_is_repaired_and_a_state_is_not_put_together_of_two() {
    for size in SIZES.into_iter().filter(|size| *size > 2) {
        let found = synced(size, |rank| {
            let mut own = state(5);
            let last = own.len() - 1;
            match rank {
                0 => own[2][1000] += 1.0,
                1 => own[last][0] = f32::NAN,
                _ => {}
            }
            own
        });
        // With three ranks each is alone, and the first one holds, with its other tensors.
        let mut right = state(5);
        if size == 3 {
            right[2][1000] += 1.0;
        }
        assert!(found.iter().all(|it| *it == right), "{size} ranks");
    }
}

#[test]
fn every_dtype_and_what_lies_apart() {
    for dtype in DType::ALL {
        ranks(3, |group| {
            let bytes = 35 * dtype.size_bytes();
            let region = |number: u8| Region::from_vec(vec![number; bytes]);
            let number = if group.rank() == 2 { 1 } else { 0 };
            let whole = Tensor::contiguous(region(number), dtype, vec![5, 7]);
            // Every second element of a row.
            let apart = Tensor::strided(region(number), dtype, vec![5, 4], vec![7, 2], 0);
            let tensors = [whole.clone(), apart.clone()];
            let replaced = run(group.sync_state_async(&tensors, Default::default())).unwrap();
            assert_eq!(replaced, if group.rank() == 2 { vec![0, 1] } else { vec![] });
            whole.region().read(|all| assert!(all.iter().all(|it| *it == 0), "{dtype:?}"));
            let width = dtype.size_bytes();
            apart.region().read(|all| {
                for (at, byte) in all.iter().enumerate() {
                    let column = at / width % 7;
                    let expected = if column % 2 == 0 { 0 } else { number };
                    assert_eq!(*byte, expected, "{dtype:?}: byte {at}");
                }
            });
        });
    }
}

#[test]
fn the_highest_revision_holds_however_few_have_it() {
    for size in SIZES {
        ranks(size, |group| {
            // The newcomers are alike, and more than those who have trained.
            let has_trained = group.rank() == size - 1;
            let (value, revision) = if has_trained { (3.0_f64, 12) } else { (0.0, -1) };
            let mut tensors = [vec![value; 5], vec![0.0]];
            let options = StateSyncOptions::default().revision(revision);
            let replaced = group.sync_state(&mut tensors, options).unwrap();
            assert_eq!(tensors, [vec![3.0; 5], vec![0.0]]);
            assert_eq!(replaced, if has_trained { vec![] } else { vec![0] });
        });
    }
}

#[test]
fn it_stands_in_the_order_of_collectives() {
    ranks(5, |group| {
        let mut reductions = Vec::new();
        for number in 0..20_u32 {
            let mut own = vec![if group.rank() == number % 5 { 9.0_f64 } else { 1.0 }; 5000];
            reductions.push(group.allreduce_async(vec![1_i64], ReduceOp::Sum).unwrap());
            group.sync_state(&mut own, StateSyncOptions::default()).unwrap();
            assert!(own.iter().all(|it| *it == 1.0));
        }
        for work in reductions {
            work.wait(None).unwrap();
            assert_eq!(work.result().remove(0).into_vec::<i64>().unwrap(), [5]);
        }
    });
}

#[test]
fn who_takes_no_part_leaves_nobody_waiting() {
    ranks(3, |group| {
        let memory = Tensor::contiguous(Region::zeroed(4), DType::F32, vec![1]);
        let own = if group.rank() == 1 { memory.read_only() } else { memory };
        let error = run(group.sync_state_async(&[own], Default::default())).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{text}");
        match group.rank() {
            1 => assert!(text.contains("the memory of tensor 0 is read-only"), "{text}"),
            _ => assert!(text.contains("rank 1 refused what it was given"), "{text}"),
        }
        group.barrier(()).unwrap();
    });
}

#[test]
fn other_tensors_are_said_with_their_rank_and_break_nothing() {
    ranks(3, |group| {
        let mut tensors = vec![vec![0_f32; 4]; if group.rank() == 1 { 2 } else { 1 }];
        let error = group.sync_state(&mut tensors, Default::default()).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
        let expected = match group.rank() {
            1 => "rank 0 gives 1 tensors, but rank 1 2".to_owned(),
            rank => format!("rank 1 gives 2 tensors, but rank {rank} 1"),
        };
        assert!(error.to_string().contains(&expected), "{error}");
        let error = match group.rank() {
            0 => group.sync_state(&mut vec![0_f32; 4], Default::default()).unwrap_err(),
            _ => group.sync_state(&mut vec![0_i32; 4], Default::default()).unwrap_err(),
        };
        assert!(error.to_string().contains("of other dtypes or sizes"), "{error}");
        group.barrier(()).unwrap();
    });
}

#[test]
fn what_shares_memory_is_refused_but_for_one_that_is_given_twice() {
    ranks(2, |group| {
        let memory = Region::from_vec(vec![group.rank() as u8; 12]);
        let whole = Tensor::contiguous(memory.clone(), DType::U8, vec![12]);
        let replaced = run(group.sync_state_async(&[whole.clone(), whole], Default::default()));
        assert_eq!(replaced.unwrap(), if group.rank() == 1 { vec![0, 1] } else { vec![] });
        let rows = Tensor::strided(memory.slice(0..9), DType::U8, vec![3, 4], vec![4, 0], 0);
        let error = run(group.sync_state_async(&[rows], Default::default())).unwrap_err();
        assert!(error.to_string().contains("share memory with one another"), "{error}");
        let halves = [0..8, 4..12].map(|it| {
            let region = memory.slice(it);
            Tensor::contiguous(region, DType::U8, vec![8])
        });
        let error = run(group.sync_state_async(&halves, Default::default())).unwrap_err();
        assert!(error.to_string().contains("tensors 0 and 1 share memory"), "{error}");
    });
}

#[test]
fn several_take_over_several_tensors() {
    ranks(8, |group| {
        // Three newcomers, of which two are alike.
        let newcomer = group.rank() % 3 == 1;
        let mut tensors = if newcomer { state(group.rank() / 6) } else { state(9) };
        let options = StateSyncOptions::default().revision(i64::from(!newcomer));
        let replaced = group.sync_state(&mut tensors, options).unwrap();
        assert_eq!(tensors, state(9));
        assert_eq!(replaced, if newcomer { vec![1, 2, 3] } else { vec![] });
    });
}

#[test]
fn a_rank_that_does_not_come_is_an_error_in_time() {
    ranks(3, |group| {
        if group.rank() == 2 {
            // It is there, and in no call.
            group.get_group_store().wait(&["two are done"], Some(LIMIT)).unwrap();
            return;
        }
        let options = StateSyncOptions::default().timeout(Duration::from_millis(300));
        let error = group.sync_state(&mut vec![1.0_f32], options).unwrap_err();
        assert!(matches!(error, Error::CollectiveTimeout { .. }), "{error}");
        assert!(error.to_string().contains("sync_state"), "{error}");
        if group.get_group_store().add("done", 1).unwrap() == 2 {
            group.get_group_store().set("two are done", b"").unwrap();
        }
    });
}

#[test]
fn hooks_see_one_operation_with_its_tensors() {
    ranks(2, |group| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let hook = move |called: &PreHookArgs<'_>| {
            let counts = (called.input_tensors.len(), called.output_tensors.len());
            noted.lock().unwrap().push((called.name, counts));
            Ok(())
        };
        group.register_pre_hook(0, hook).unwrap();
        let mut tensors = [vec![group.rank()], vec![1]];
        group.sync_state(&mut tensors, StateSyncOptions::default()).unwrap();
        assert_eq!(*seen.lock().unwrap(), [("SYNC_STATE", (2, 2))]);
    });
}
