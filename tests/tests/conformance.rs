//! The conformance cases in Rust: the full product of collective × dtype × operator × root × size ×
//! layout, on 1, 2, 3, 4, 5 and 8 ranks over TCP. What must come out is NumPy's answer, from
//! `cases/cases.json`; the other languages run pairwise combinations of the same cases.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::{Collective, DType, Error, ProcessGroup, ReduceOp, Region, Request, Tensor};
use polyrank_tests::cases::{self, Case, case, file, numbers, product, reduce_ops};
use polyrank_tests::ranks;

fn worlds() -> Vec<u32> {
    numbers(&file()["worlds"]).into_iter().map(|world| world as u32).collect()
}

fn check(group: &ProcessGroup, case: &Case) {
    let world = group.size();
    match cases::run(group, case) {
        Ok(Ok(())) => {}
        Ok(Err(difference)) => panic!("{case}, world {world}: {difference}"),
        Err(error) => panic!("{case}, world {world}: {error}"),
    }
}

#[test]
fn every_dtype_operator_root_and_small_size() {
    let sizes = numbers(&file()["elements"]);
    for world in worlds() {
        ranks(world, |group| {
            for &elements in &sizes {
                product(world, elements as usize, |case| check(&group, &case));
                group.run(Request::new(Collective::Barrier)).unwrap();
            }
        });
    }
}

#[test]
fn the_pairwise_cases_of_the_other_languages() {
    for world in numbers(&serde_json::json!([1, 2, 3, 4, 5, 8])) {
        ranks(world as u32, |group| {
            for (name, case) in cases::pairwise(world as u32) {
                let outcome = cases::run(&group, &case).unwrap_or_else(|error| panic!("{error}"));
                assert!(outcome.is_ok(), "{name}, world {world}: {outcome:?}");
            }
        });
    }
}

#[test]
fn large_tensors() {
    for world in worlds() {
        ranks(world, |group| {
            for case in cases::large(world) {
                check(&group, &case);
            }
        });
    }
}

fn ones(dtype: DType, elements: usize) -> Tensor {
    let bytes = vec![1; elements * dtype.size_bytes()];
    Tensor::contiguous(Region::from_vec(bytes), dtype, vec![elements])
}

#[test]
fn what_has_no_meaning_is_a_typed_error_on_every_rank_and_harms_nothing() {
    ranks(2, |group| {
        for dtype in DType::ALL {
            for reduce_op in reduce_ops().into_iter().filter(|op| !op.supports(dtype)) {
                let mut request = Request::new(Collective::Allreduce);
                request.outputs = vec![vec![ones(dtype, 3)]];
                request.reduce_op = reduce_op;
                let error = group.run(request).unwrap_err();
                assert!(matches!(error, Error::UnsupportedDType { .. }), "{error}");
            }
        }
        check(&group, &case(Collective::Allreduce, DType::I64, ReduceOp::Sum, 3));
    });
}

#[test]
fn two_hundred_operations_in_flight_on_two_groups() {
    ranks(3, |group| {
        let all = [0, 1, 2];
        let other = group.split_group(&all, Default::default()).unwrap().unwrap();
        let mut works = Vec::new();
        for index in 0..200 {
            let elements = [0, 1, 3, 1000, 40_000][index as usize % 5];
            // Rank r holds index + r everywhere, so that the sum names the operation.
            let mine = (index + group.rank() as i32).to_ne_bytes().repeat(elements);
            let region = Region::from_vec(mine);
            let tensor = Tensor::contiguous(region, DType::I32, vec![elements]);
            let mut request = Request::new(Collective::Allreduce);
            request.outputs = vec![vec![tensor.clone()]];
            let on = if index % 2 == 0 { &group } else { &other };
            works.push((on.issue(request).unwrap(), tensor, index, elements));
        }
        // Waited for in another order than issued.
        for (work, tensor, index, elements) in works.into_iter().rev() {
            work.wait(None).unwrap();
            let expected = (3 * index + 3).to_ne_bytes().repeat(elements);
            let got = tensor.region().read(<[u8]>::to_vec);
            assert!(got == expected, "operation {index}");
        }
        other.shutdown();
    });
}
