//! Tensors that are made the same on all ranks: who has what in the end, in all sizes of groups, and
//! what is said where that cannot be.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use polyrank::process_group::GroupOptions;
use polyrank::{DType, Error, ReduceOp, Region, Tensor};
use polyrank_tests::{LIMIT, ranks, ranks_with};

const SIZES: [u32; 5] = [1, 2, 3, 5, 8];
/// Elements of the tensors of a state: none, one, odd, and so many that several ranks give parts.
const COUNTS: [usize; 4] = [0, 1, 1001, 300_007];

/// A state by a number: two of the same number are alike.
fn state(number: u32) -> Vec<Vec<f32>> {
    let tensor = |count| (0..count).map(|at| (at % 251) as f32 * 0.5 + number as f32).collect();
    COUNTS.into_iter().map(tensor).collect()
}

fn synced(size: u32, given: impl Fn(u32) -> Vec<Vec<f32>> + Sync) -> Vec<Vec<Vec<f32>>> {
    ranks(size, |group| {
        let mut tensors = given(group.rank());
        group.sync_state(&mut tensors).unwrap();
        tensors
    })
}

#[test]
fn most_ranks_are_right_and_otherwise_the_lowest() {
    for size in SIZES {
        // All alike; each another; the last ones alike; all but one.
        let cases: [(&str, fn(u32, u32) -> u32, u32); 4] = [
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
            let work = group.sync_state_async(vec![whole.clone(), apart.clone()]).unwrap();
            work.wait(None).unwrap();
            assert_eq!(work.result().len(), 2);
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
fn it_has_no_place_in_the_order_of_collectives_and_several_go_on_at_once() {
    ranks(5, |group| {
        let rank = group.rank();
        let mut works = Vec::new();
        let mut reductions = Vec::new();
        for number in 0..20_u32 {
            let own = vec![if rank == number % 5 { 9.0_f64 } else { 1.0 }; 5000];
            let sync = || group.sync_state_async(own).unwrap();
            let reduce = || group.allreduce_async(vec![1_i64], ReduceOp::Sum).unwrap();
            // Ranks have them in other orders.
            if rank % 2 == 0 {
                works.push(sync());
                reductions.push(reduce());
            } else {
                reductions.push(reduce());
                works.push(sync());
            }
        }
        for work in works.into_iter().rev() {
            work.wait(None).unwrap();
            let found = work.result().remove(0).into_vec::<f64>().unwrap();
            assert!(found.iter().all(|it| *it == 1.0));
        }
        for work in reductions {
            work.wait(None).unwrap();
            assert_eq!(work.result().remove(0).into_vec::<i64>().unwrap(), [5]);
        }
    });
}

#[test]
fn other_tensors_are_said_with_their_rank() {
    let errors = ranks(3, |group| {
        let mut tensors = vec![vec![0_f32; 4]; if group.rank() == 1 { 2 } else { 1 }];
        group.sync_state(&mut tensors).unwrap_err().to_string()
    });
    assert!(errors[0].contains("1 tensors") && errors[0].contains("2 tensors"), "{}", errors[0]);
    assert!(errors[0].contains("rank 1"), "{}", errors[0]);
    assert!(errors[1].contains("rank 0"), "{}", errors[1]);
    let errors = ranks(2, |group| {
        let error = match group.rank() {
            0 => group.sync_state(&mut vec![0_f32; 4]).unwrap_err(),
            _ => group.sync_state(&mut vec![0_i32; 4]).unwrap_err(),
        };
        assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error:?}");
        // It has broken nothing.
        group.barrier(()).unwrap();
        error.to_string()
    });
    assert!(errors[0].contains("of other dtypes or sizes"), "{}", errors[0]);
    ranks(1, |group| {
        let tensor = Tensor::contiguous(Region::zeroed(4), DType::F32, vec![1]).read_only();
        let error = group.sync_state_async(vec![tensor]).unwrap_err().to_string();
        assert!(error.contains("sync_state: the memory of tensor 0 is read-only"), "{error}");
    });
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let options = |_| GroupOptions::default().timeout(Duration::from_millis(300));
    let outcomes = ranks_with(3, options, |group| {
        if group.rank() == 2 {
            // It is there, and in no call.
            group.get_group_store().wait(&["two are done"], Some(LIMIT)).unwrap();
            return String::new();
        }
        let error = group.sync_state(&mut vec![1.0_f32]).unwrap_err().to_string();
        if group.get_group_store().add("done", 1).unwrap() == 2 {
            group.get_group_store().set("two are done", b"").unwrap();
        }
        error
    });
    assert!(outcomes[..2].iter().all(|it| it.contains("sync_state")), "{outcomes:?}");
}
