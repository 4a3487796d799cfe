//! Collectives whose elements travel compressed: what Rust's own calls give, that all ranks end
//! with the same bits, and that whatever is called meanwhile has its place.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use polyrank::options::{AllgatherOptions, AllreduceOptions, ReduceScatterOptions};
use polyrank::{CompressionLoss, Error, ReduceOp, Tensor};
use polyrank_tests::ranks;

const SIZES: [u32; 5] = [1, 2, 3, 5, 8];
/// Elements of a tensor: none, one, odd, about a block, more than one frame.
const COUNTS: [usize; 6] = [0, 1, 7, 257, 3001, 300_007];
/// So many that they are reduced in several pieces.
const MANY: usize = 1_700_003;
const FORMATS: [(&str, f32); 3] = [("bf16", 1.0 / 256.0), ("f16", 1.0 / 2048.0), ("int8", 0.0)];

fn values(rank: u32, count: usize) -> Vec<f32> {
    (0..count).map(|index| ((index % 977) as f32 - 400.0) * 0.37 + rank as f32).collect()
}

/// How far off a sum may be: of each rank's elements and of the result, a step.
fn tolerance(relative: f32, sums: &[f32], size: u32) -> f32 {
    let most = sums.iter().fold(0.0_f32, |most, sum| most.max(sum.abs()));
    let terms = 250.0 * size as f32 + most;
    if relative == 0.0 { terms / 254.0 } else { terms * relative }
}

#[test]
fn all_ranks_get_the_same_bits_near_the_sum() {
    for (size, (name, relative)) in SIZES.into_iter().flat_map(|s| FORMATS.map(|f| (s, f))) {
        for count in COUNTS {
            let found = ranks(size, |group| {
                let mut tensor = values(group.rank(), count);
                let options = AllreduceOptions::default().compress(name);
                group.allreduce(&mut tensor, &options).unwrap();
                tensor
            });
            let bits = |of: &[f32]| of.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
            assert!(found.iter().all(|it| bits(it) == bits(&found[0])), "{name}, {count}, {size}");
            let given: Vec<Vec<f32>> = (0..size).map(|rank| values(rank, count)).collect();
            let sum = |index: usize| given.iter().map(|one| one[index]).sum::<f32>();
            // All of many would take long.
            let places: Vec<usize> = (0..count).step_by(count / 100 + 1).collect();
            let sums: Vec<f32> = places.iter().map(|index| sum(*index)).collect();
            let off = tolerance(relative, &sums, size);
            for (index, sum) in places.into_iter().zip(&sums) {
                let got = found[0][index];
                assert!((got - sum).abs() <= off, "{name}, {count}, {size}: {got} for {sum}");
            }
        }
    }
}

#[test]
fn large_tensors_are_all_there() {
    for (size, format) in [(1, "f16"), (2, "bf16"), (3, "f16")] {
        ranks(size, |group| {
            // Neither they nor their sums need more bits than a bfloat16 number has.
            let number = |at: usize| (at % 17) as f64 - 8.0;
            let given: Vec<f64> =
                (0..MANY).map(|at| number(at) + f64::from(group.rank())).collect();
            let options = AllreduceOptions::default().compress(format);
            let work = group.allreduce_async(given, options).unwrap();
            let plain = group.allreduce_async(vec![1i32], ()).unwrap();
            plain.wait(None).unwrap();
            work.wait(None).unwrap();
            assert_eq!(work.compression_error().unwrap().max_abs, 0.0);
            let [sums] = work.into_result().unwrap().try_into().unwrap();
            let ranks: f64 = (0..size).map(f64::from).sum();
            let expected = |at: usize| number(at) * f64::from(size) + ranks;
            let sums = sums.into_vec::<f64>().unwrap();
            let wrong = sums.iter().enumerate().find(|(at, sum)| **sum != expected(*at));
            assert_eq!((wrong, sums.len()), (None, MANY), "{format}, {size}");
        });
    }
}

#[test]
fn tensors_of_different_lengths_are_refused_by_all() {
    ranks(2, |group| {
        let mut tensor = vec![1.0f32; if group.rank() == 0 { MANY } else { 3 }];
        let options = AllreduceOptions::default().compress("bf16");
        let error = group.allreduce(&mut tensor, options).unwrap_err();
        assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error}");
        assert!(error.to_string().contains(&MANY.to_string()), "{error}");
    });
}

#[test]
fn several_are_in_flight_and_say_what_was_lost() {
    ranks(3, |group| {
        let average = AllreduceOptions::default().reduce_op(ReduceOp::Avg).compress("bf16");
        let first = group.allreduce_async(vec![1.0f64 + 1e-9; 1000], &average).unwrap();
        let plain = group.allreduce_async(vec![1i32; 3], ()).unwrap();
        let gather = AllgatherOptions::default().compress("int8");
        let all = (0..3).map(|_| Tensor::from(vec![0f32; 2])).collect::<Vec<_>>();
        let gathered = group.allgather_async(all, vec![3.0f32, 4.0], gather).unwrap();
        let scatter = ReduceScatterOptions::default().compress("f16");
        let scattered =
            group.reduce_scatter_single_async(vec![0f32; 2], vec![0.5f32; 6], scatter).unwrap();
        for work in [&scattered, &gathered, &plain, &first] {
            work.wait(None).unwrap();
        }
        assert_eq!(plain.compression_error(), None);
        let lost: CompressionLoss = first.compression_error().unwrap();
        assert!((lost.max_abs - 1e-9).abs() < 1e-12, "{lost:?}");
        assert!(lost.root_mean_square() < lost.max_abs, "what it reduced lost nothing");
        assert_eq!(scattered.compression_error().unwrap().max_abs, 0.0);
        let [average] = first.into_result().unwrap().try_into().unwrap();
        assert_eq!(average.into_vec::<f64>().unwrap(), [1.0; 1000]);
        let [sum] = scattered.into_result().unwrap().try_into().unwrap();
        assert_eq!(sum.into_vec::<f32>().unwrap(), [1.5; 2]);
        for output in gathered.into_result().unwrap() {
            let output = output.into_vec::<f32>().unwrap();
            assert!((output[0] - 3.0).abs() <= 4.0 / 254.0 && output[1] == 4.0, "{output:?}");
        }
    });
}

#[test]
fn what_is_prepared_is_compressed_at_each_start() {
    ranks(2, |group| {
        let options = AllreduceOptions::default().compress("int8");
        let prepared = group.prepare_allreduce(vec![127.0f32, 1.0, 0.0], options).unwrap();
        for factor in [2.0, 4.0, 8.0] {
            prepared.run().unwrap();
            let numbers = prepared.tensor().region().read(|bytes| {
                bytes.as_chunks().0.iter().map(|it| f32::from_ne_bytes(*it)).collect::<Vec<f32>>()
            });
            assert_eq!(numbers, [127.0 * factor, factor, 0.0]);
        }
    });
}

#[test]
fn what_cannot_be_compressed_is_refused() {
    ranks(1, |group| {
        let options = |name: &str| AllreduceOptions::default().compress(name);
        let mut tensor = [1.0f32];
        for (error, said) in [
            (group.allreduce(&mut tensor, options("zip")), "one of 'bf16', 'f16', 'int8'"),
            (group.allreduce(&mut [1i32], options("int8")), "takes tensors of f32 or f64"),
            (
                group.allreduce(&mut tensor, options("int8").reduce_op(ReduceOp::Product)),
                "reduces by SUM or AVG, not by PRODUCT",
            ),
        ] {
            let error = error.unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
            assert!(error.to_string().contains(said), "{error}");
        }
    });
}
