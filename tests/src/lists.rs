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
    for collective in [Collective::Allgather, Collective::ReduceScatter] {
        for call in blocks(collective) {
            wrong.extend(call.run_blocks(group)?);
        }
    }
    Ok(wrong)
}

/// Calls with a place for each tensor of each rank in every list.
fn blocks(collective: Collective) -> impl Iterator<Item = ListCall> {
    (1..=3).flat_map(move |tensors| {
        [0, 1, 5].into_iter().flat_map(move |elements| {
            [1, 2].map(|stride| ListCall {
                collective,
                tensors,
                elements,
                stride,
                root: 0,
                root_tensor: 0,
            })
        })
    })
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
    /// What differs after a call of [`blocks`].
    fn run_blocks(&self, group: &ProcessGroup) -> Result<Vec<String>> {
        let (rank, world) = (group.rank(), group.size());
        let gathers = self.collective == Collective::Allgather;
        let empty = vec![SENTINEL; self.elements];
        let part = |from: u32, index: u32, place: u32| -> Vec<i32> {
            self.before(from, index).iter().map(|value| value + 10 * place as i32).collect()
        };
        let places = 0..self.tensors * world;
        let list = |index: u32| -> Vec<Tensor> {
            let of = |place| if gathers { empty.clone() } else { part(rank, index, place) };
            places.clone().map(|place| self.tensor_of(&of(place))).collect()
        };
        let lists: Vec<Vec<Tensor>> = (0..self.tensors).map(list).collect();
        let one = |tensor: u32| match gathers {
            true => vec![self.make(rank, tensor)],
            false => vec![self.tensor_of(&empty)],
        };
        let flat: Vec<Vec<Tensor>> = (0..self.tensors).map(one).collect();
        let mut request = Request::new(self.collective);
        (request.inputs, request.outputs) = if gathers { (flat, lists) } else { (lists, flat) };
        group.run(request.clone())?;
        let expected = |index: usize| match gathers {
            true => {
                let place = index as u32 % (self.tensors * world);
                self.before(place / self.tensors, place % self.tensors)
            }
            false => {
                let everything =
                    (0..world).flat_map(|rank| (0..self.tensors).map(move |it| (rank, it)));
                everything.fold(vec![0; self.elements], |sum, (from, list)| {
                    let values = part(from, list, self.tensors * rank + index as u32);
                    sum.iter().zip(values).map(|(a, b)| a + b).collect()
                })
            }
        };
        let outputs = request.outputs.concat();
        let odd = outputs.iter().enumerate().filter(|(index, output)| {
            output.region().read(<[u8]>::to_vec) != bytes(&self.memory(&expected(*index)))
        });
        Ok(odd.map(|(index, _)| format!("{self:?}, output {index}")).collect())
    }

    fn make(&self, rank: u32, tensor: u32) -> Tensor {
        self.tensor_of(&self.before(rank, tensor))
    }

    fn tensor_of(&self, values: &[i32]) -> Tensor {
        let region = Region::from_vec(bytes(&self.memory(values)));
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
