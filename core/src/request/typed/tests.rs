//! Every form of Rust's arguments, against requests written by hand.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use super::*;
use crate::generated::error::Error;
use crate::generated::options::*;
use crate::request::tables;
use crate::tensor::Tensor;

const TWO: Duration = Duration::from_secs(2);

/// What the arguments of a reduction say: operator, root, timeout.
fn said(method: &'static Method, arguments: impl Argument) -> (ReduceOp, u32, Option<Duration>) {
    let call = TypedCall::new(method, arguments).tensors(Role::InOut, vec![tensor(4)]);
    let request = call.request(0, 4).unwrap();
    assert_eq!(rows(&request.outputs), [[4]], "{}", request.name);
    (request.reduce_op, request.root, request.timeout)
}

#[test]
fn arguments_of_an_allreduce() {
    let method = &tables::PROCESS_GROUP_ALLREDUCE;
    assert_eq!(said(method, ()), (ReduceOp::Sum, 0, None));
    assert_eq!(said(method, ReduceOp::Max), (ReduceOp::Max, 0, None));
    assert_eq!(said(method, TWO), (ReduceOp::Sum, 0, Some(TWO)));
    assert_eq!(said(method, (ReduceOp::Avg, TWO)), (ReduceOp::Avg, 0, Some(TWO)));
    let options = AllreduceOptions::default().reduce_op(ReduceOp::PremulSum(0.5)).timeout(TWO);
    let expected = (ReduceOp::PremulSum(0.5), 0, Some(TWO));
    assert_eq!(said(method, &options), expected);
    assert_eq!(said(method, options), expected);
}

#[test]
fn arguments_of_a_rooted_reduction() {
    let method = &tables::PROCESS_GROUP_REDUCE;
    assert_eq!(said(method, 3u32), (ReduceOp::Sum, 3, None));
    assert_eq!(said(method, 3usize), (ReduceOp::Sum, 3, None));
    assert_eq!(said(method, 3), (ReduceOp::Sum, 3, None));
    assert_eq!(said(method, (1, ReduceOp::Min)), (ReduceOp::Min, 1, None));
    assert_eq!(said(method, (1u32, TWO)), (ReduceOp::Sum, 1, Some(TWO)));
    assert_eq!(said(method, (1, ReduceOp::Min, TWO)), (ReduceOp::Min, 1, Some(TWO)));
    let options = ReduceOptions::default().root_rank(2).reduce_op(ReduceOp::Band);
    assert_eq!(said(method, options), (ReduceOp::Band, 2, None));
}

#[test]
fn a_negative_root_is_refused() {
    let call = TypedCall::new(&tables::PROCESS_GROUP_BROADCAST, -1);
    match call.tensors(Role::InOut, vec![tensor(1)]).request(0, 2).unwrap_err() {
        Error::InvalidArgument { message } => {
            assert_eq!(message, "broadcast(): root must be a rank, not -1");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_list_for_each_rank_comes_as_one_flat_list() {
    let call = TypedCall::new(&tables::PROCESS_GROUP_ALLGATHER_COALESCED, ());
    // Rank 0 gives rows of 1 and 3, rank 1 of 2 and 4, rank 2 of 5 and 6.
    let outputs = [1, 3, 2, 4, 5, 6].map(tensor).to_vec();
    let call = call.tensors(Role::Out, outputs).tensors(Role::In, vec![tensor(1), tensor(3)]);
    let request = call.request(0, 3).unwrap();
    assert!(request.coalesced);
    assert_eq!(rows(&request.inputs), [[1], [3]]);
    assert_eq!(rows(&request.outputs), [[1, 2, 5], [3, 4, 6]]);
}

#[test]
fn outputs_of_a_coalesced_allgather_that_are_not_one_list_for_each_rank_are_refused() {
    let gather = |outputs: usize, ranks: u32| {
        let call = TypedCall::new(&tables::PROCESS_GROUP_ALLGATHER_COALESCED, ());
        let call = call.tensors(Role::Out, (0..outputs).map(|_| tensor(1)).collect());
        let call = call.tensors(Role::In, vec![tensor(1), tensor(1)]);
        call.request(0, ranks).map(|request| rows(&request.outputs)).map_err(|e| e.to_string())
    };
    assert_eq!(gather(2, 1), Ok(vec![vec![1], vec![1]]));
    let error = gather(5, 2).unwrap_err();
    assert!(error.contains("expected 2 lists of output tensors, one for each rank"), "{error}");
    let error = gather(3, 3).unwrap_err();
    assert!(error.contains("rank 0 must have 2 output tensors, one for each input"), "{error}");
}

#[test]
fn flat_tensors_are_cut() {
    let method = &tables::PROCESS_GROUP_ALL_TO_ALL_SINGLE;
    let request = |arguments: &dyn Fn() -> TypedCall| {
        let call = arguments().tensors(Role::FlatOut, vec![tensor(6)]);
        let request = call.tensors(Role::FlatIn, vec![tensor(6)]).request(0, 3).unwrap();
        (rows(&request.outputs), rows(&request.inputs), request.timeout)
    };
    let equal = vec![vec![2, 2, 2]];
    assert_eq!(request(&|| TypedCall::new(method, ())), (equal.clone(), equal.clone(), None));
    assert_eq!(request(&|| TypedCall::new(method, TWO)), (equal.clone(), equal, Some(TWO)));
    let (outputs, inputs) = (vec![vec![1, 2, 3]], vec![vec![0, 6, 0]]);
    let expected = (outputs.clone(), inputs.clone(), None);
    assert_eq!(request(&|| TypedCall::new(method, (&[1, 2, 3], &[0, 6, 0]))), expected);
    assert_eq!(request(&|| TypedCall::new(method, (&outputs[0], &inputs[0]))), expected);
    let options = AllToAllOptions::default().timeout(TWO);
    let slices = || (&outputs[0][..], &inputs[0][..], &options);
    let found = request(&|| TypedCall::new(method, slices()));
    assert_eq!(found, (outputs.clone(), inputs.clone(), Some(TWO)));
}

#[test]
fn only_the_root_has_outputs_of_a_gather() {
    let gathered = |rank: u32, outputs: Vec<Tensor>| {
        let call = TypedCall::new(&tables::PROCESS_GROUP_GATHER_SINGLE, GatherOptions::default());
        let call = call.tensors(Role::FlatOut, outputs).tensors(Role::In, vec![tensor(2)]);
        rows(&call.request(rank, 3).unwrap().outputs)
    };
    assert_eq!(gathered(0, vec![tensor(6)]), [[2, 2, 2]]);
    assert_eq!(gathered(1, vec![tensor(0)]), [[0usize; 0]]);
    assert_eq!(gathered(2, vec![]), [[0usize; 0]]);
}

fn tensor(elements: usize) -> Tensor {
    Tensor::from(vec![0f32; elements])
}

fn rows(lists: &[Vec<Tensor>]) -> Vec<Vec<usize>> {
    lists.iter().map(|list| list.iter().map(|tensor| tensor.shape()[0]).collect()).collect()
}
