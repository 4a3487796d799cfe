//! Calls in which one rank passes several tensors, in Rust: `cases/README.md` says what they are.
//! Knows nothing of how a collective is run.

use polyrank::{Collective, DType, ProcessGroup, Region, Request, Result, Tensor};

const SENTINEL: i32 = -7;

/// One call, the same on all ranks.
#[derive(Clone, Copy, Debug)]
struct ListCall {
    collective: Collective,
    tensors: u32,
    elements: usize,
    /// Elements from one to the next.
    stride: usize,
    root: u32,
    root_tensor: u32,
}

/// What differs from what these calls must leave, a line for each tensor that does.
///
/// # Errors
/// A call fails.
pub fn lists(group: &ProcessGroup) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for call in calls(group.size()) {
        let tensors: Vec<Tensor> =
            (0..call.tensors).map(|tensor| call.make(group.rank(), tensor)).collect();
        let lists: Vec<Vec<Tensor>> = tensors.iter().map(|tensor| vec![tensor.clone()]).collect();
        let mut request = Request::new(call.collective);
        if call.collective == Collective::Reduce {
            request.inputs.clone_from(&lists);
        }
        request.outputs = lists;
        request.root = call.root;
        request.root_tensor = call.root_tensor;
        group.run(request)?;
        for (tensor, of) in (0..call.tensors).zip(&tensors) {
            let expected = call.memory(&call.outcome(group.rank(), tensor, group.size()));
            let got = of.region().read(<[u8]>::to_vec);
            if got != bytes(&expected) {
                wrong.push(format!("{call:?}, tensor {tensor}: expected {expected:?}"));
            }
        }
    }
    Ok(wrong)
}

fn calls(world: u32) -> Vec<ListCall> {
    let roots = if world == 1 { vec![0] } else { vec![0, world - 1] };
    let mut calls = Vec::new();
    for (tensors, elements, stride) in (1..=3).flat_map(|tensors| {
        [0, 1, 5].into_iter().flat_map(move |elements| [1, 2].map(|it| (tensors, elements, it)))
    }) {
        let collective = Collective::Allreduce;
        let all = ListCall { collective, tensors, elements, stride, root: 0, root_tensor: 0 };
        calls.push(all);
        for (&root, root_tensor) in roots.iter().flat_map(|it| (0..tensors).map(move |at| (it, at)))
        {
            for collective in [Collective::Broadcast, Collective::Reduce] {
                calls.push(ListCall { collective, root, root_tensor, ..all });
            }
        }
    }
    calls
}

impl ListCall {
    fn make(&self, rank: u32, tensor: u32) -> Tensor {
        let region = Region::from_vec(bytes(&self.memory(&self.before(rank, tensor))));
        let (shape, stride) = (vec![self.elements], self.stride as isize);
        match self.stride {
            1 => Tensor::contiguous(region, DType::I32, shape),
            _ => Tensor::strided(region, DType::I32, shape, vec![stride], 0),
        }
    }

    /// The elements, with gaps between them if they are strided: a region ends with the last one.
    fn memory(&self, values: &[i32]) -> Vec<i32> {
        let gap = vec![SENTINEL; self.stride - 1];
        values.iter().map(|&value| vec![value]).collect::<Vec<_>>().join(gap.as_slice())
    }

    /// What a tensor holds before the call.
    fn before(&self, rank: u32, tensor: u32) -> Vec<i32> {
        (0..self.elements).map(|at| (1000 * rank + 100 * tensor) as i32 + at as i32).collect()
    }

    /// What it holds afterwards.
    fn outcome(&self, rank: u32, tensor: u32, world: u32) -> Vec<i32> {
        let gets_sum = match self.collective {
            Collective::Broadcast => return self.before(self.root, self.root_tensor),
            Collective::Reduce => (rank, tensor) == (self.root, self.root_tensor),
            _ => true,
        };
        if !gets_sum {
            return self.before(rank, tensor);
        }
        let everything = (0..world).flat_map(|rank| (0..self.tensors).map(move |it| (rank, it)));
        let mut sum = vec![0; self.elements];
        for (rank, tensor) in everything {
            for (into, value) in sum.iter_mut().zip(self.before(rank, tensor)) {
                *into += value;
            }
        }
        sum
    }
}

fn bytes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}
