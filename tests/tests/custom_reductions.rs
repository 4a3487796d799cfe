//! Operators that are functions of the program: against folds in the order of the ranks, for every
//! element type, and what an error of a function does to whom.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyrank::{CustomReduction, DType, Error, ProcessGroup, ReduceOp, Region, Tensor};
use polyrank_tests::languages::{Language, REDUCTIONS, every_rank_says};
use polyrank_tests::ranks;

const SIZES: [u32; 5] = [1, 2, 3, 5, 8];
/// Elements of a tensor: none, one, odd, more than fits a board, more than one piece.
const COUNTS: [usize; 5] = [0, 1, 7, 3001, 300_007];

/// `2 a + b`: neither commutes nor is it associative.
fn twice_the_lower() -> CustomReduction {
    CustomReduction::new(|lower: &[i64], upper: &mut [i64]| {
        for (upper, lower) in upper.iter_mut().zip(lower) {
            *upper = lower.wrapping_mul(2).wrapping_add(*upper);
        }
    })
}

fn values(rank: u32, count: usize) -> Vec<i64> {
    (0..count as i64).map(|index| i64::from(rank + 1) * 1000 + index).collect()
}

fn folded(size: u32, count: usize) -> Vec<i64> {
    let all = (0..size).map(|rank| values(rank, count));
    let fold = |lower: Vec<i64>, upper: Vec<i64>| {
        lower.iter().zip(&upper).map(|(a, b)| a.wrapping_mul(2).wrapping_add(*b)).collect()
    };
    all.reduce(fold).unwrap()
}

#[test]
fn tensors_are_combined_in_the_order_of_the_ranks() {
    for size in SIZES {
        ranks(size, |group| {
            let (op, rank, last) = (twice_the_lower(), group.rank(), size - 1);
            for count in COUNTS {
                let mut tensor = values(rank, count);
                group.allreduce(&mut tensor, op.op()).unwrap();
                assert_eq!(tensor, folded(size, count), "allreduce of {count}, {size} ranks");

                let mut tensor = values(rank, count);
                group.reduce(&mut tensor, (last, op.op())).unwrap();
                let expected = if rank == last { folded(size, count) } else { values(rank, count) };
                assert_eq!(tensor, expected, "reduce of {count}, {size} ranks");

                let whole = values(rank, count * size as usize);
                let mut part = vec![0i64; count];
                group.reduce_scatter_single(&mut part, &whole, op.op()).unwrap();
                let all = folded(size, count * size as usize);
                let from = count * rank as usize;
                assert_eq!(part, all[from..from + count], "reduce_scatter of {count}, {size}");
            }
        });
    }
}

#[test]
fn operations_in_flight_and_of_several_tensors_keep_their_order() {
    ranks(3, |group| {
        let (op, rank) = (twice_the_lower(), group.rank());
        let works: Vec<_> = (0..20usize)
            .map(|count| group.allreduce_async(values(rank, count), op.op()).unwrap())
            .collect();
        let mut plain = [f32::from(rank as u8)];
        group.allreduce(&mut plain, ()).unwrap();
        assert_eq!(plain, [3.0]);
        for (count, work) in works.into_iter().enumerate() {
            assert_eq!(elements(&work.into_result().unwrap()[0]), folded(3, count));
        }
        let options = polyrank::options::AllreduceCoalescedOptions::default().reduce_op(op.op());
        let tensors = vec![Tensor::from(values(rank, 5)), Tensor::from(values(rank, 2))];
        let work = group.allreduce_coalesced_async(tensors, options).unwrap();
        let results = work.into_result().unwrap();
        assert_eq!(elements(&results[0]), folded(3, 5));
        assert_eq!(elements(&results[1]), folded(3, 2));
    });
}

fn elements(tensor: &Tensor) -> Vec<i64> {
    let words = |bytes: &[u8]| {
        bytes.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().unwrap())).collect()
    };
    tensor.to_contiguous().region().read(words)
}

#[test]
fn a_function_of_tensors_has_every_type_and_the_shape() {
    ranks(3, |group| {
        // The last rank's bytes, with those of the ranks before it below.
        let op = CustomReduction::of_tensors(|lower, upper| {
            assert_eq!(lower.shape(), [3, 2]);
            assert_eq!(lower.dtype(), upper.dtype());
            let result = upper.to_contiguous();
            result.region().write_from(lower.region(), |into, from| {
                into.iter_mut().zip(from).for_each(|(into, from)| *into += 2 * from);
            });
            Ok(result)
        });
        for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool) {
            let bytes = 6 * dtype.size_bytes();
            let given = |rank: u32| (0..bytes).map(|at| (at as u32 + rank) as u8 % 16).collect();
            let region = Region::from_vec(given(group.rank()));
            let tensor = Tensor::contiguous(region, dtype, vec![3, 2]);
            let work = group.allreduce_async(tensor, op.op()).unwrap();
            let came = work.into_result().unwrap()[0].region().read(<[u8]>::to_vec);
            let all: Vec<Vec<u8>> = (0..3).map(given).collect();
            let expected: Vec<u8> =
                (0..bytes).map(|at| 4 * all[0][at] + 2 * all[1][at] + all[2][at]).collect();
            assert_eq!(came, expected, "{dtype:?}");
        }
    });
}

#[test]
fn a_tensor_with_strides_is_combined_where_it_lies() {
    ranks(2, |group| {
        let op = twice_the_lower();
        let whole = Tensor::from(values(group.rank(), 9));
        let memory = whole.region().clone();
        // Every third element, backwards.
        let tensor = Tensor::strided(memory.clone(), DType::I64, vec![3], vec![-4], 8);
        group.allreduce_async(tensor, op.op()).unwrap().wait(None).unwrap();
        let mut expected = values(group.rank(), 9);
        let all = folded(2, 9);
        [0, 4, 8].into_iter().for_each(|at| expected[at] = all[at]);
        assert_eq!(elements(&whole), expected);
    });
}

#[test]
fn an_error_or_a_panic_is_that_of_the_operation_and_all_ranks_learn_why() {
    let refused = || Error::InvalidArgument { message: "too much".into() };
    for panics in [false, true] {
        for culprit in 0..3 {
            ranks(3, |group| {
                let op = CustomReduction::of_tensors(move |lower, _| match panics {
                    true => panic!("on purpose"),
                    false if lower.elements() > 2 => Err(refused()),
                    false => Ok(lower.clone()),
                });
                let fine = CustomReduction::of_tensors(|lower, _| Ok(lower.clone()));
                let own = if group.rank() == culprit { &op } else { &fine };
                let result = group.allreduce(&mut [1.0f32; 3], own.op());
                if group.rank() == culprit {
                    let error = result.unwrap_err();
                    match panics {
                        true => assert!(matches!(error, Error::ReductionFailed { .. }), "{error}"),
                        false => assert_eq!(error, refused()),
                    }
                } else if let Err(error) = result {
                    learned(&error, culprit, panics);
                }
                let later = group.allreduce(&mut [1.0f32; 3], ()).unwrap_err();
                if group.rank() != culprit {
                    learned(&later, culprit, panics);
                }
            });
        }
    }
}

fn learned(error: &Error, culprit: u32, panics: bool) {
    let Error::Aborted { rank, why, .. } = error else { panic!("{error}") };
    assert_eq!(*rank, culprit);
    assert!(why.contains(if panics { "panicked" } else { "too much" }), "{why}");
}

#[test]
fn a_custom_operator_against_another_is_a_mismatch_on_all_ranks() {
    for count in [1, 7, 300_007] {
        for odd in 0..2 {
            ranks(2, |group| {
                let op = twice_the_lower();
                let own = if group.rank() == odd { op.op() } else { ReduceOp::Sum };
                let error = group.allreduce(&mut vec![1i64; count], own).unwrap_err();
                assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error}");
                let text = error.to_string();
                assert!(text.contains("with CUSTOM") && text.contains("with SUM"), "{text}");
            });
        }
    }
}

#[test]
fn what_a_function_does_not_fit_is_refused_before_anything_moves() {
    ranks(2, |group| {
        let op = twice_the_lower();
        let error = group.allreduce(&mut [1.0f32], op.op()).unwrap_err();
        assert!(matches!(error, Error::UnsupportedDType { .. }), "{error}");
        let gone = twice_the_lower().op();
        let error = group.allreduce(&mut [1i64], gone).unwrap_err().to_string();
        assert!(error.contains("has no function"), "{error}");
        let mut tensor = values(group.rank(), 3);
        group.allreduce(&mut tensor, op.op()).unwrap();
        assert_eq!(tensor, folded(2, 3));
    });
}

#[test]
fn a_function_may_call_operations_and_is_dropped_when_nobody_has_it() {
    let dropped = Arc::new(AtomicUsize::new(0));
    struct DropCounter(Arc<AtomicUsize>);
    impl Drop for DropCounter {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    ranks(2, |group: ProcessGroup| {
        let (counter, inner) = (DropCounter(dropped.clone()), group.clone());
        let op = CustomReduction::new(move |lower: &[i64], upper: &mut [i64]| {
            let _ = &counter;
            let mut nested = [lower[0]];
            inner.allreduce(&mut nested, ReduceOp::Max).unwrap();
            upper[0] += nested[0];
        });
        let mut tensor = [i64::from(group.rank()) + 1];
        group.allreduce(&mut tensor, op.op()).unwrap();
        assert_eq!(tensor, [3]);
        // Dropped with the work that is in flight.
        let work = group.allreduce_async(vec![1i64], op.op()).unwrap();
        drop(op);
        work.wait(None).unwrap();
    });
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
}

#[test]
fn ranks_of_several_languages_fold_alike() {
    use Language::{Node, Python, Rust};
    for parts in [[(Python, 1), (Node, 1), (Rust, 1)], [(Rust, 2), (Python, 2), (Node, 1)]] {
        every_rank_says(REDUCTIONS, &parts, |_, _| "4 reductions".to_owned());
    }
}

#[test]
fn ranks_in_browsers_fold_alike() {
    let parts = [(Language::Browser, 2), (Language::Python, 1)];
    every_rank_says(REDUCTIONS, &parts, |_, _| "4 reductions".to_owned());
}

#[test]
fn the_greatest_and_whose_it_is_by_every_way_to_reduce() {
    for size in SIZES {
        ranks(size, |group| {
            let pairs = |rank: u32, count: usize| -> Vec<i32> {
                let value = |at: usize| ((at as u32 * 7 + rank * 3) % 5) as i32;
                (0..count).flat_map(|at| [value(at), 10 - rank as i32]).collect()
            };
            for count in COUNTS {
                let mut tensor = pairs(group.rank(), count);
                group.allreduce(&mut tensor, ReduceOp::Maxloc).unwrap();
                let all: Vec<Vec<i32>> = (0..size).map(|rank| pairs(rank, count)).collect();
                for (at, pair) in tensor.chunks_exact(2).enumerate() {
                    let of = |all: &Vec<i32>| (all[2 * at], -all[2 * at + 1]);
                    let expected = all.iter().map(of).max().unwrap();
                    assert_eq!((pair[0], -pair[1]), expected, "{at} of {count}, {size} ranks");
                }
            }
            let error = group.allreduce(&mut [1i32; 3], ReduceOp::Minloc).unwrap_err().to_string();
            assert!(error.contains("must be even, got a tensor of shape [3]"), "{error}");
        });
    }
}
