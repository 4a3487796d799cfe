//! Calls on tensors that have their own memory give the same as on slices, at every length,
//! wherever they are told apart. Ranks are threads.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::{DType, ProcessGroup, ReduceOp, Region, Tensor};
use polyrank_tests::ranks;

/// On both sides of what fits the board, in parts and as a whole.
const ELEMENTS: [usize; 6] = [0, 1, 5, 1024, 2049, 20_003];

fn values(rank: u32, elements: usize) -> Vec<i32> {
    (0..elements).map(|index| rank as i32 * 1000 + index as i32 % 777).collect()
}

fn content(tensor: &Tensor) -> Vec<i32> {
    tensor
        .region()
        .read(|bytes| bytes.as_chunks().0.iter().map(|bytes| i32::from_ne_bytes(*bytes)).collect())
}

/// A tensor in memory that the ranks of a host can read, with these elements.
fn pooled(values: &[i32]) -> Tensor {
    let region = Region::for_elements(4 * values.len()).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    region.write(|memory| memory.copy_from_slice(&bytes));
    Tensor::contiguous(region, DType::I32, vec![values.len()])
}

/// Runs a call from one tensor to another on slices and on tensors of their own.
macro_rules! assert_alike {
    ($group:expr, $call:ident, $arguments:expr, $given:expr, $taken:expr) => {{
        let (given, taken) = (values($group.rank(), $given), vec![-1; $taken]);
        let mut expected = taken.clone();
        $group.$call(&mut expected, &given, $arguments).unwrap();
        for make in [|it: &[i32]| Tensor::from(it.to_vec()), pooled] {
            let (input, mut output) = (make(&given), make(&taken));
            $group.$call(&mut output, &input, $arguments).unwrap();
            assert_eq!(content(&output), expected, "{} elements", $given);
            assert_eq!(content(&input), given);
        }
    }};
}

fn compare(group: &ProcessGroup, elements: usize) {
    let size = group.size() as usize;
    assert_alike!(group, all_gather_single, (), elements, elements * size);
    assert_alike!(group, all_to_all_single, (), elements * size, elements * size);
    assert_alike!(group, reduce_scatter_single, (), elements * size, elements);
    assert_alike!(group, reduce_scatter_single, ReduceOp::Max, elements * size, elements);
    let given = values(group.rank(), elements);
    let (mut expected, mut tensor) = (given.clone(), pooled(&given));
    group.allreduce(&mut expected, ReduceOp::Max).unwrap();
    group.allreduce(&mut tensor, ReduceOp::Max).unwrap();
    assert_eq!(content(&tensor), expected);
    let root = group.size() - 1;
    let mut tensor = pooled(&given);
    group.broadcast(&mut tensor, root).unwrap();
    assert_eq!(content(&tensor), values(root, elements));
}

#[test]
fn collectives_on_tensors_of_their_own_give_the_same() {
    for size in [1, 2, 3] {
        ranks(size, |group| ELEMENTS.iter().for_each(|elements| compare(&group, *elements)));
    }
}

#[test]
fn messages_of_tensors_of_their_own_arrive() {
    ranks(2, |group| {
        let peer = 1 - group.rank();
        for elements in ELEMENTS {
            let sent = pooled(&values(group.rank(), elements));
            let mut received = pooled(&vec![-1; elements]);
            if group.rank() == 0 {
                group.send(&sent, peer, 3).unwrap();
                group.recv(&mut received, peer, 3).unwrap();
            } else {
                assert_eq!(group.recv_anysource(&mut received, 3).unwrap(), peer);
                group.send(&sent, peer, 3).unwrap();
            }
            assert_eq!(content(&received), values(peer, elements));
        }
    });
}

#[test]
fn tensors_that_share_memory_and_those_of_two_types_are_left_to_the_checks() {
    ranks(2, |group| {
        let whole = pooled(&values(group.rank(), 30));
        let (input, output) = (whole.region().slice(40..80), whole.region().slice(0..80));
        let input = Tensor::contiguous(input, DType::I32, vec![10]);
        let mut output = Tensor::contiguous(output, DType::I32, vec![20]);
        let shares = group.all_gather_single(&mut output, &input, ());
        let mut other = Tensor::zeros(DType::F32, &[20]).unwrap();
        let error = group.all_gather_single(&mut other, &input, ()).unwrap_err();
        assert!(error.to_string().contains("f32") && error.to_string().contains("i32"), "{error}");
        // In place, the second half of rank 1's output is its input; rank 0's overlaps.
        assert!(shares.is_ok() || group.rank() == 0, "{shares:?}");
    });
}
