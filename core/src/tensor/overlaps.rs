//! Whether views of memory, as several outputs are, lie apart from one another. Knows no operation,
//! and not whose memory it is. Pure.

use crate::sorted::sort;

/// Elements in a piece of memory.
pub(crate) trait View {
    /// Which piece of memory it lies in; the addresses of another one have nothing to do with it.
    fn piece(&self) -> usize;
    /// Addresses of the first byte of it, and of the one after the last.
    fn span(&self) -> (usize, usize);
    /// Whether two indices lead to the same element.
    fn overlaps_itself(&self) -> bool;
    /// Whether it is the same memory in the same order.
    fn is_same_view(&self, other: &Self) -> bool;
    /// How its elements repeat.
    fn runs(&self) -> Runs;
    /// Calls `f` with address and length of each part of it, in bytes.
    fn visit_bytes(&self, f: impl FnMut(usize, usize));
}

/// Runs of bytes without gaps, all of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Where one of them begins.
    pub(crate) address: usize,
    /// Length of each.
    pub(crate) bytes: usize,
    /// All begin at a multiple of this from one another; 0: there is one.
    pub(crate) step: usize,
}

/// Whether a list may have the very same view more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatPolicy {
    Allowed,
    Refused,
}

/// Which views share memory, by their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// Elements of one.
    Within(usize),
    /// Two of them, the first one first.
    Between(usize, usize),
}

impl Overlap {
    /// In words, for outputs of an operation.
    pub(crate) fn of_outputs(self, name: &str) -> String {
        match self {
            Overlap::Within(index) => {
                format!("{name}: elements of output tensor {index} share memory with one another")
            }
            Overlap::Between(one, other) => {
                format!("{name}: output tensors {one} and {other} share memory")
            }
        }
    }
}

/// Some views that share memory, if any do. Those without elements share nothing.
pub(crate) fn overlap<V: View>(views: &[V], twice: RepeatPolicy) -> Option<Overlap> {
    if let Some(index) = views.iter().position(View::overlaps_itself) {
        return Some(Overlap::Within(index));
    }
    let place = |(index, view): (usize, &V)| {
        let (start, end) = view.span();
        (view.piece(), start, end, index)
    };
    let places = views.iter().enumerate().map(place);
    let mut order: Vec<_> = places.filter(|(_, start, end, _)| start < end).collect();
    sort(&mut order);
    if twice == RepeatPolicy::Allowed {
        order.dedup_by(|one, other| views[one.3].is_same_view(&views[other.3]));
    }
    // Only those whose spans form a chain can share anything.
    let (mut chain, mut chain_end): (Vec<usize>, _) = (Vec::new(), (0, 0));
    for (piece, start, end, index) in order {
        if (piece, start) >= chain_end {
            if let Some(found) = within_chain(views, &std::mem::take(&mut chain)) {
                return Some(found);
            }
            chain_end = (piece, end);
        }
        chain.push(index);
        chain_end = chain_end.max((piece, end));
    }
    within_chain(views, &chain)
}

/// Some views of `chain`, sorted by address, that share memory.
fn within_chain<V: View>(views: &[V], chain: &[usize]) -> Option<Overlap> {
    let [first, _, ..] = chain else { return None };
    if interleave(views, chain) {
        return None;
    }
    let start = views[*first].span().0;
    let end = chain.iter().map(|&index| views[index].span().1).max().unwrap_or(start);
    let mut taken = vec![false; end - start];
    for (place, &index) in chain.iter().enumerate() {
        let mut shared = false;
        views[index].visit_bytes(|at, bytes| {
            let memory = &mut taken[at - start..at - start + bytes];
            shared |= memory[0] || memory[bytes - 1] || memory.contains(&true);
            memory.fill(true);
        });
        let with = |&&other: &&usize| share(&views[other], &views[index]);
        if shared && let Some(&other) = chain[..place].iter().find(with) {
            return Some(Overlap::Between(other.min(index), other.max(index)));
        }
    }
    None
}

/// Whether two views of one piece have a byte in common.
fn share<V: View>(one: &V, other: &V) -> bool {
    let (start, end) = one.span();
    let mut taken = vec![false; end - start];
    one.visit_bytes(|at, bytes| taken[at - start..at - start + bytes].fill(true));
    let mut shared = false;
    other.visit_bytes(|at, bytes| {
        let (from, until) = (at.max(start), (at + bytes).min(end));
        shared |= from < until && taken[from - start..until - start].contains(&true);
    });
    shared
}

/// Whether views are seen immediately to lie between one another, as columns of a matrix do: each
/// stays within its own part of a step that all of them repeat with.
fn interleave<V: View>(views: &[V], chain: &[usize]) -> bool {
    let runs: Vec<Runs> = chain.iter().map(|&index| views[index].runs()).collect();
    let step = runs.iter().fold(0, |step, runs| greatest_common_divisor(step, runs.step));
    if step == 0 || runs.iter().any(|runs| runs.bytes > step) {
        return false;
    }
    let mut parts: Vec<_> = runs.iter().map(|runs| (runs.address % step, runs.bytes)).collect();
    parts.sort_unstable();
    let apart = parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
    let around = match (parts.first(), parts.last()) {
        (Some(first), Some(last)) => last.0 + last.1 <= first.0 + step,
        _ => true,
    };
    apart && around
}

/// Runs of a view with these strides, in elements; none: it is contiguous in C order. `address` is
/// where index (0, …, 0) lies.
pub(crate) fn runs_of(
    shape: &[usize],
    strides: Option<&[isize]>,
    element_bytes: usize,
    address: usize,
) -> Runs {
    let Some(strides) = strides else {
        let elements: usize = shape.iter().product();
        return Runs { address, bytes: elements * element_bytes, step: 0 };
    };
    let (mut run, mut step) = (1_usize, 0);
    for (&length, &stride) in shape.iter().zip(strides).rev().filter(|(length, _)| **length > 1) {
        if step == 0 && usize::try_from(stride) == Ok(run) {
            run = run.saturating_mul(length);
        } else {
            step = greatest_common_divisor(step, stride.unsigned_abs());
        }
    }
    Runs {
        address,
        bytes: run.saturating_mul(element_bytes),
        step: step.saturating_mul(element_bytes),
    }
}

fn greatest_common_divisor(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::dtype::DType;
    use crate::tensor::{Region, Tensor};

    /// A generator of numbers that look random: the same for the same seed.
    fn next(state: &mut u64) -> usize {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) as usize
    }

    fn some_view(memory: &Region, state: &mut u64) -> Tensor {
        let shape: Vec<usize> = (0..1 + next(state) % 2).map(|_| 1 + next(state) % 4).collect();
        let strides: Vec<isize> = shape.iter().map(|_| (next(state) % 9) as isize - 3).collect();
        let reach = |sign: isize| -> usize {
            let steps = shape.iter().zip(&strides).filter(|(_, stride)| **stride * sign > 0);
            steps.map(|(length, stride)| (length - 1) * stride.unsigned_abs()).sum()
        };
        let (below, above) = (reach(-1), reach(1));
        let elements = below + above + 1;
        let first = next(state) % (memory.len() / 2 - elements);
        let region = memory.slice(first * 2..(first + elements) * 2);
        Tensor::strided(region, DType::I16, shape, strides, below)
    }

    /// Every byte of a view, one by one.
    fn bytes_of(view: &Tensor) -> Vec<usize> {
        let mut all = Vec::new();
        view.visit_bytes(|at, bytes| all.extend(at..at + bytes));
        all
    }

    #[test]
    fn it_finds_what_a_look_at_every_byte_finds() {
        let memory = Region::zeroed(80);
        let (mut apart, mut shared) = (0, 0);
        for seed in 0..3000 {
            let mut state = seed;
            let views: Vec<Tensor> =
                (0..2 + seed % 3).map(|_| some_view(&memory, &mut state)).collect();
            let all: Vec<Vec<usize>> = views.iter().map(bytes_of).collect();
            let share = |one: usize, two: usize| all[one].iter().any(|at| all[two].contains(at));
            let twice = |bytes: &Vec<usize>| {
                (1..bytes.len()).any(|place| bytes[..place].contains(&bytes[place]))
            };
            let found = overlap(&views, RepeatPolicy::Refused);
            match found {
                Some(Overlap::Within(index)) => assert!(twice(&all[index]), "seed {seed}"),
                Some(Overlap::Between(one, two)) => {
                    assert!(one < two && share(one, two), "seed {seed}: {found:?}");
                    shared += 1;
                }
                None => {
                    assert!(!all.iter().any(twice), "seed {seed}");
                    let mut pairs =
                        (1..all.len()).flat_map(|two| (0..two).map(move |one| (one, two)));
                    assert!(!pairs.any(|(one, two)| share(one, two)), "seed {seed}");
                    apart += 1;
                }
            }
        }
        assert!(apart > 50 && shared > 50, "{apart} apart, {shared} not");
    }

    #[test]
    fn columns_of_a_matrix_are_apart_at_once() {
        // 16 rows of 8 columns; views of one, two and three columns.
        let memory = Region::zeroed(16 * 8 * 2);
        let columns = |first: usize, count: usize| {
            let region = memory.slice(first * 2..(15 * 8 + first + count) * 2);
            Tensor::strided(region, DType::I16, vec![16, count], vec![8, 1], 0)
        };
        let views = [columns(0, 1), columns(6, 2), columns(1, 3), columns(4, 2)];
        assert!(interleave(&views, &[0, 2, 3, 1]));
        assert_eq!(overlap(&views, RepeatPolicy::Refused), None);
        let views = [columns(0, 3), columns(5, 3), columns(2, 1)];
        assert!(!interleave(&views, &[0, 2, 1]));
        assert_eq!(overlap(&views, RepeatPolicy::Refused), Some(Overlap::Between(0, 2)));
        let same = [columns(0, 3), columns(0, 3)];
        assert_eq!(overlap(&same, RepeatPolicy::Refused), Some(Overlap::Between(0, 1)));
        assert_eq!(overlap(&same, RepeatPolicy::Allowed), None);
    }
}
