//! Every collective × dtype × operator × root × size, on 1, 2, 3, 4, 5 and 8 ranks over TCP. The
//! expected bytes come from `polyrank_tests::values`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::{Collective, DType, Error, ProcessGroup, ReduceOp, Region, Request, Tensor};
use polyrank_tests::ranks;
use polyrank_tests::values::{REDUCE_OPS, encode, reduced, value};

const WORLDS: [u32; 6] = [1, 2, 3, 4, 5, 8];
const SMALL: [usize; 4] = [0, 1, 3, 1000];
const LARGE: usize = (1 << 20) + 1;

fn tensor(dtype: DType, rank: u32, block: u32, elements: usize) -> Tensor {
    let values: Vec<i64> = (0..elements).map(|index| value(rank, block, index)).collect();
    Tensor::contiguous(Region::from_vec(encode(dtype, &values)), dtype, vec![elements])
}

fn empty(dtype: DType, elements: usize) -> Tensor {
    let bytes = elements * dtype.size_bytes();
    Tensor::contiguous(Region::from_vec(vec![0xa5; bytes]), dtype, vec![elements])
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    tensor.region().read(<[u8]>::to_vec)
}

/// The reduction over all ranks of their block `block`.
fn expected(dtype: DType, reduce_op: ReduceOp, size: u32, block: u32, elements: usize) -> Vec<u8> {
    (0..elements)
        .flat_map(|index| {
            let values: Vec<i64> = (0..size).map(|rank| value(rank, block, index)).collect();
            reduced(dtype, reduce_op, &values)
        })
        .collect()
}

fn supported() -> impl Iterator<Item = (DType, ReduceOp)> {
    DType::ALL
        .into_iter()
        .flat_map(|dtype| REDUCE_OPS.map(|reduce_op| (dtype, reduce_op)))
        .filter(|(dtype, reduce_op)| reduce_op.supports(*dtype))
}

fn allreduce(group: &ProcessGroup, dtype: DType, reduce_op: ReduceOp, elements: usize) {
    let tensor = tensor(dtype, group.rank(), 0, elements);
    let mut request = Request::new(Collective::Allreduce);
    request.outputs = vec![vec![tensor.clone()]];
    request.reduce_op = reduce_op;
    group.run(request).unwrap();
    let expected = expected(dtype, reduce_op, group.size(), 0, elements);
    assert!(bytes(&tensor) == expected, "allreduce {dtype:?} {reduce_op:?} {elements}");
}

fn reduce(group: &ProcessGroup, dtype: DType, reduce_op: ReduceOp, root: u32, elements: usize) {
    let tensor = tensor(dtype, group.rank(), 0, elements);
    let before = bytes(&tensor);
    let mut request = Request::new(Collective::Reduce);
    request.inputs = vec![vec![tensor.clone()]];
    request.outputs = vec![vec![tensor.clone()]];
    request.reduce_op = reduce_op;
    request.root = root;
    group.run(request).unwrap();
    let expected = if group.rank() == root {
        expected(dtype, reduce_op, group.size(), 0, elements)
    } else {
        before
    };
    assert!(bytes(&tensor) == expected, "reduce {dtype:?} {reduce_op:?} {root} {elements}");
}

fn reduce_scatter(group: &ProcessGroup, dtype: DType, reduce_op: ReduceOp, elements: usize) {
    // Uneven: rank i's block is i elements longer.
    let (rank, size) = (group.rank(), group.size());
    let inputs: Vec<Tensor> =
        (0..size).map(|block| tensor(dtype, rank, block, elements + block as usize)).collect();
    let before: Vec<_> = inputs.iter().map(bytes).collect();
    let output = empty(dtype, elements + rank as usize);
    let mut request = Request::new(Collective::ReduceScatter);
    request.inputs = vec![inputs.clone()];
    request.outputs = vec![vec![output.clone()]];
    request.reduce_op = reduce_op;
    group.run(request).unwrap();
    let expected = expected(dtype, reduce_op, size, rank, elements + rank as usize);
    assert!(bytes(&output) == expected, "reduce_scatter {dtype:?} {reduce_op:?} {elements}");
    let after: Vec<_> = inputs.iter().map(bytes).collect();
    assert!(before == after, "reduce_scatter changed its input");
}

fn broadcast(group: &ProcessGroup, dtype: DType, root: u32, elements: usize) {
    let tensor = tensor(dtype, group.rank(), 0, elements);
    let mut request = Request::new(Collective::Broadcast);
    request.outputs = vec![vec![tensor.clone()]];
    request.root = root;
    group.run(request).unwrap();
    assert!(bytes(&tensor) == bytes(&self::tensor(dtype, root, 0, elements)), "broadcast {root}");
}

fn gathers(group: &ProcessGroup, dtype: DType, root: u32, elements: usize) {
    let (rank, size) = (group.rank(), group.size());
    let length = |rank: u32| elements + (rank as usize * 2) % 3;
    for collective in [Collective::Allgather, Collective::Gather] {
        let outputs: Vec<Tensor> = if collective == Collective::Allgather || rank == root {
            (0..size).map(|rank| empty(dtype, length(rank))).collect()
        } else {
            Vec::new()
        };
        let mut request = Request::new(collective);
        request.inputs = vec![vec![tensor(dtype, rank, 0, length(rank))]];
        request.outputs = vec![outputs.clone()];
        request.root = root;
        group.run(request).unwrap();
        for (from, output) in outputs.iter().enumerate() {
            let expected = tensor(dtype, from as u32, 0, length(from as u32));
            assert!(bytes(output) == bytes(&expected), "{collective:?} {from} {elements}");
        }
    }
}

fn scatter(group: &ProcessGroup, dtype: DType, root: u32, elements: usize) {
    let (rank, size) = (group.rank(), group.size());
    let length = |rank: u32| elements + rank as usize % 2;
    let inputs = if rank == root {
        (0..size).map(|block| tensor(dtype, root, block, length(block))).collect()
    } else {
        Vec::new()
    };
    let output = empty(dtype, length(rank));
    let mut request = Request::new(Collective::Scatter);
    request.inputs = vec![inputs];
    request.outputs = vec![vec![output.clone()]];
    request.root = root;
    group.run(request).unwrap();
    let expected = tensor(dtype, root, rank, length(rank));
    assert!(bytes(&output) == bytes(&expected), "scatter {root} {elements}");
}

fn alltoall(group: &ProcessGroup, dtype: DType, elements: usize) {
    // Each pair has its own size, some zero.
    let (rank, size) = (group.rank(), group.size());
    let length = |from: u32, to: u32| elements * ((from + 2 * to) % 3) as usize;
    let inputs = (0..size).map(|to| tensor(dtype, rank, to, length(rank, to))).collect();
    let outputs: Vec<Tensor> = (0..size).map(|from| empty(dtype, length(from, rank))).collect();
    let mut request = Request::new(Collective::Alltoall);
    request.inputs = vec![inputs];
    request.outputs = vec![outputs.clone()];
    group.run(request).unwrap();
    for (from, output) in outputs.iter().enumerate() {
        let from = from as u32;
        let expected = tensor(dtype, from, rank, length(from, rank));
        assert!(bytes(output) == bytes(&expected), "alltoall {from} {elements}");
    }
}

#[test]
fn every_dtype_operator_root_and_small_size() {
    for size in WORLDS {
        ranks(size, |group| {
            for elements in SMALL {
                for (dtype, reduce_op) in supported() {
                    allreduce(&group, dtype, reduce_op, elements);
                    reduce_scatter(&group, dtype, reduce_op, elements);
                    for root in 0..size {
                        reduce(&group, dtype, reduce_op, root, elements);
                    }
                }
                for dtype in DType::ALL {
                    alltoall(&group, dtype, elements);
                    for root in 0..size {
                        broadcast(&group, dtype, root, elements);
                        gathers(&group, dtype, root, elements);
                        scatter(&group, dtype, root, elements);
                    }
                }
                group.run(Request::new(Collective::Barrier)).unwrap();
            }
        });
    }
}

#[test]
fn large_tensors() {
    for size in WORLDS {
        ranks(size, |group| {
            let root = size - 1;
            allreduce(&group, DType::F32, ReduceOp::Sum, LARGE);
            allreduce(&group, DType::Bf16, ReduceOp::Avg, LARGE);
            reduce(&group, DType::F64, ReduceOp::Max, root, LARGE);
            reduce_scatter(&group, DType::I32, ReduceOp::Sum, LARGE / size as usize);
            broadcast(&group, DType::U8, root, LARGE);
            gathers(&group, DType::Complex64, root, LARGE / size as usize);
            scatter(&group, DType::I16, root, LARGE / size as usize);
            alltoall(&group, DType::F32, LARGE / size as usize);
        });
    }
}

#[test]
fn what_has_no_meaning_is_a_typed_error_on_every_rank_and_harms_nothing() {
    ranks(2, |group| {
        for dtype in DType::ALL {
            for reduce_op in REDUCE_OPS.into_iter().filter(|op| !op.supports(dtype)) {
                let mut request = Request::new(Collective::Allreduce);
                request.outputs = vec![vec![tensor(dtype, group.rank(), 0, 3)]];
                request.reduce_op = reduce_op;
                let error = group.run(request).unwrap_err();
                assert!(matches!(error, Error::UnsupportedDType { .. }), "{error}");
            }
        }
        allreduce(&group, DType::I64, ReduceOp::Sum, 3);
    });
}

#[test]
fn two_hundred_operations_in_flight_on_two_groups() {
    ranks(3, |group| {
        let all = [0, 1, 2];
        let other = group.split_group(&all, Default::default()).unwrap().unwrap();
        let mut works = Vec::new();
        for index in 0..200 {
            let elements = [0, 1, 3, 1000, 40_000][index % 5];
            let tensor = tensor(DType::I32, group.rank(), index as u32, elements);
            let mut request = Request::new(Collective::Allreduce);
            request.outputs = vec![vec![tensor.clone()]];
            let on = if index % 2 == 0 { &group } else { &other };
            works.push((on.issue(request).unwrap(), tensor, index as u32, elements));
        }
        // Waited for in another order than issued.
        for (work, tensor, index, elements) in works.into_iter().rev() {
            work.wait(None).unwrap();
            let expected = expected(DType::I32, ReduceOp::Sum, 3, index, elements);
            assert!(bytes(&tensor) == expected, "operation {index}");
        }
        other.shutdown();
    });
}
