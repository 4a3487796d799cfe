//! The conformance cases in Rust: the full product of collective × dtype × operator × root × size ×
//! layout, on 1, 2, 3, 4, 5 and 8 ranks over TCP. What must come out is NumPy's answer, from
//! `cases/cases.json`; the other languages run pairwise combinations of the same cases.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::{Collective, DType, Error, ReduceOp, Region, Request, Tensor};
use polyrank_tests::cases::{self, Case, Memory, case, check, file, numbers, reduce_ops};
use polyrank_tests::{lists, ranks};

fn worlds() -> Vec<u32> {
    numbers(&file()["worlds"]).into_iter().map(|world| world as u32).collect()
}

#[test]
fn every_dtype_operator_root_and_small_size() {
    for world in worlds() {
        ranks(world, |group| {
            let sizes = numbers(&file()["elements"]).into_iter().map(|elements| elements as usize);
            cases::every_small(&group, sizes, check);
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
fn several_tensors_of_one_rank() {
    for world in [1, 2, 3, 5, 8] {
        for wrong in ranks(world, |group| lists::lists(&group).unwrap()) {
            assert!(wrong.is_empty(), "world {world}: {wrong:#?}");
        }
    }
}

#[test]
fn ranks_with_other_numbers_of_tensors_disagree() {
    let collectives = [
        (Collective::Allgather, false),
        (Collective::ReduceScatter, false),
        (Collective::Allreduce, false),
        (Collective::Allreduce, true),
        (Collective::Allgather, true),
    ];
    for (world, (collective, coalesced)) in
        [2, 3].into_iter().flat_map(|world| collectives.map(|it| (world, it)))
    {
        for error in ranks(world, move |group| {
            let mine = if group.rank() == 0 { 2 } else { 1 };
            let one = |_| Tensor::zeros(DType::F32, &[4]).unwrap();
            let many = |each: u32| (0..each).map(one).collect::<Vec<_>>();
            let fresh = |lists: u32, each: u32| (0..lists).map(|_| many(each)).collect::<Vec<_>>();
            let per_list = if coalesced { world } else { mine * world };
            let mut request = Request::new(collective);
            request.coalesced = coalesced;
            request.reduce_op = ReduceOp::Avg;
            (request.inputs, request.outputs) = match collective {
                Collective::Allgather => (fresh(mine, 1), fresh(mine, per_list)),
                Collective::ReduceScatter => (fresh(mine, per_list), fresh(mine, 1)),
                _ => (Vec::new(), fresh(mine, 1)),
            };
            group.run(request).unwrap_err()
        }) {
            let Error::CollectiveMismatch { ours, theirs, .. } = &error else {
                panic!("{collective:?} of {world}, coalesced {coalesced}: {error}");
            };
            let text = format!("{ours} beside {theirs}");
            assert_eq!(text.matches("in 2 tensors of each rank").count(), 1, "{text}");
        }
    }
}

#[test]
fn large_tensors() {
    for world in worlds() {
        ranks(world, |group| {
            cases::large(world).for_each(|case| check(&group, &case));
        });
    }
}

/// Other ranks read such tensors where they lie, in segments: a short last one goes another way
/// than those before it. What goes wrong there depends on who is faster, hence the rounds.
#[test]
fn large_tensors_that_polyrank_allocated_with_short_last_segments() {
    for world in [2, 3, 5] {
        ranks(world, |group| {
            let tails = [0, 1, 8, 4096, 4097];
            for (round, tail) in (0..8).flat_map(|round| tails.map(|tail| (round, tail))) {
                for collective in
                    Collective::ALL.into_iter().filter(|&it| it != Collective::Barrier)
                {
                    let even = case(collective, DType::U8, ReduceOp::Sum, (512 << 10) + tail);
                    let case = Case { root: round % world, ..even };
                    let outcome = cases::run_on(&group, &case, Memory::Polyranks);
                    assert!(matches!(outcome, Ok(Ok(()))), "{case}, {world} ranks: {outcome:?}");
                }
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
    ranks(3, |group| cases::two_hundred_in_flight(&group, Memory::Users));
}
