//! Small collectives on contiguous memory, from beginning to end without taking any: the short way,
//! beside the one through requests, for what the backend can do at once. Knows no backend.

use std::time::Duration;

use super::ProcessGroup;
use crate::backend::{Attempt, Flat, Lasting, SmallCall, Waiting};
use crate::executor::{Outcome, kernels};
use crate::tensor::{keep, keep_const};
use crate::wire::fingerprint::digest;
use crate::{Blocks, Collective, DType, ReduceOp, Region, Result, Sizes, Work};

/// Most ranks of a group that takes the short way.
const MAX_RANKS: usize = 16;

/// A collective of one contiguous tensor, or of one that is given and one for the outcome.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// The collective.
    pub collective: Collective,
    /// The method as it was called, for messages.
    pub name: &'static str,
    /// The element type; any if there are no tensors.
    pub dtype: DType,
    /// How elements are reduced.
    pub reduce_op: ReduceOp,
    /// The root, 0 where there is none.
    pub root: u32,
    /// Limit of this call; `None` or zero is the group's.
    pub timeout: Option<Duration>,
    /// Whether the caller waits for it at once.
    pub waiting: Waiting,
}

/// Memory that an operation keeps when it lasts: what it reads, where that is not what it writes,
/// and what it writes.
#[derive(Debug)]
pub struct Kept {
    /// The whole input.
    pub input: Option<Region>,
    /// The whole output.
    pub output: Region,
}

impl ProcessGroup {
    /// Carries out a small collective at once, if the backend can: in `memory`, without taking any.
    /// `keep` is called if it lasts, and then gives the same memory. None if nothing was done:
    /// then [`ProcessGroup::issue`] is the way, which also says what is wrong with a call.
    ///
    /// The work of an operation that is done has no tensors; [`Work::result`] is empty.
    pub fn try_plain(
        &self,
        plain: &Plain,
        memory: &mut Flat<'_>,
        keep: &mut dyn FnMut() -> Kept,
    ) -> Option<Work> {
        let call = self.small_call(plain, memory)?;
        let parts = self.size();
        let is_average = plain.reduce_op == ReduceOp::Avg && plain.collective.facts().reduces;
        let mut lasting = || {
            let Kept { input, output } = keep();
            let finish = is_average.then(|| divide(plain.dtype, output.clone(), parts));
            Lasting {
                deadline: self.deadline(plain.timeout),
                input: blocks(input, plain.collective.facts().input, parts),
                output: blocks(Some(output), plain.collective.facts().output, parts),
                finish,
            }
        };
        match self.inner.cpu.try_small(&call, memory, &mut lasting) {
            Attempt::Declined => None,
            Attempt::Done(sequence) => {
                if is_average {
                    kernels::divide(plain.dtype, memory.output(), parts);
                }
                Some(Work::done(plain.name, sequence))
            }
            Attempt::Issued(issued) => {
                Some(Work::new(plain.name, vec![(issued, self.cpu())], Vec::new()))
            }
        }
    }

    /// As [`ProcessGroup::run`] of a call in place, if it can be carried out at once.
    pub(crate) fn run_in_place(
        &self,
        plain: Option<Plain>,
        tensor: Option<(DType, &mut [u8])>,
    ) -> Option<Result<()>> {
        let (dtype, memory) = tensor?;
        let (memory, region) = keep(memory);
        let mut keep = || Kept { input: None, output: region() };
        let plain = Plain { dtype, ..plain? };
        self.wait_plain(&plain, &mut Flat::InPlace(memory), &mut keep)
    }

    /// As [`ProcessGroup::run`] of a call from one tensor to another, if it can be carried out at
    /// once.
    pub(crate) fn run_apart(
        &self,
        plain: Option<Plain>,
        output: Option<(DType, &mut [u8])>,
        input: Option<(DType, &[u8])>,
    ) -> Option<Result<()>> {
        let ((dtype, output), (other, input)) = (output?, input?);
        let plain = Plain { dtype, ..plain.filter(|_| dtype == other)? };
        let (input_region, (output, region)) = (keep_const(input), keep(output));
        let mut keep = || Kept { input: Some(input_region()), output: region() };
        self.wait_plain(&plain, &mut Flat::Apart(input, output), &mut keep)
    }

    /// As [`ProcessGroup::run`] of a call without tensors, if it can be carried out at once.
    pub(crate) fn run_without(&self, plain: Option<Plain>) -> Option<Result<()>> {
        let mut keep = || Kept { input: None, output: Region::zeroed(0) };
        self.wait_plain(&plain?, &mut Flat::InPlace(&mut []), &mut keep)
    }

    fn wait_plain(
        &self,
        plain: &Plain,
        memory: &mut Flat<'_>,
        keep: &mut dyn FnMut() -> Kept,
    ) -> Option<Result<()>> {
        self.try_plain(plain, memory, keep).map(|work| work.wait(None))
    }

    /// What the backend has to know, if the call is one of the usual ones and all is right with it.
    fn small_call(&self, plain: &Plain, memory: &Flat<'_>) -> Option<SmallCall> {
        let Plain { collective, dtype, reduce_op, root, waiting, .. } = *plain;
        let facts = collective.facts();
        let size = self.size();
        let is_usual = !matches!(reduce_op, ReduceOp::PremulSum(_)) && reduce_op.supports(dtype);
        if (facts.reduces && !is_usual) || (facts.rooted && root >= size) {
            return None;
        }
        let (given, taken) = memory.lengths();
        let (given, taken) = (given / dtype.size_bytes(), taken / dtype.size_bytes());
        let mut words = [0; MAX_RANKS];
        let words = words.get_mut(..size as usize)?;
        let (elements, detail) = match facts.sizes {
            Sizes::Equal => (taken, 0),
            Sizes::PerRank => {
                let gathers = facts.output == Blocks::All;
                let (all, one) = if gathers { (taken, given) } else { (given, taken) };
                if all != one * size as usize {
                    return None;
                }
                words.fill(one as u64);
                (all, digest(words))
            }
            Sizes::PerRankAtRoot | Sizes::Pairwise => return None,
        };
        Some(SmallCall {
            collective,
            dtype,
            reduce_op,
            root: if facts.rooted { root } else { 0 },
            elements: elements as u64,
            shared_bytes: Some((elements * dtype.size_bytes()) as u64),
            detail,
            waiting,
        })
    }
}

/// The blocks of a buffer whose blocks are equal.
fn blocks(whole: Option<Region>, rule: Blocks, size: u32) -> Vec<Region> {
    let Some(whole) = whole else { return Vec::new() };
    match rule {
        Blocks::None => Vec::new(),
        Blocks::All | Blocks::AllAtRoot => {
            let bytes = whole.len() / size as usize;
            (0..size as usize)
                .map(|index| whole.slice(index * bytes..(index + 1) * bytes))
                .collect()
        }
        Blocks::One | Blocks::OneAtRoot => vec![whole],
    }
}

/// Makes an average of a sum.
fn divide(dtype: DType, output: Region, parts: u32) -> Outcome {
    Box::new(move || output.write(|memory| kernels::divide(dtype, memory, parts)))
}
