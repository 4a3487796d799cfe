//! Calls from Rust: their tensors and arguments have types already, so that nothing is resolved.
//!
//! The generated methods fill a [`Call`]; what it becomes is the same [`Request`] that the same
//! call becomes in any other language.

use std::time::Duration;

use super::request::{Buffers, Given, invalid};
use super::types::{Method, Role};
use crate::completion::Waiting;
use crate::process_group::Plain;
use crate::request::Request;
use crate::{Blocks, DType, ReduceOp, Result, Tensor};

/// What a collective call was given so far.
pub struct Call {
    method: &'static Method,
    given: Given,
    /// What is wrong with an argument.
    wrong: Option<String>,
}

/// A value that a collective call can be given after its tensors. Which method takes which, the
/// traits say that stand in `generated/arguments.rs`.
pub trait Argument {
    /// Gives it to the call.
    #[doc(hidden)]
    fn give(self, call: &mut Call);
}

impl Call {
    /// A call of `method` with what follows its tensors.
    pub(crate) fn new(method: &'static Method, arguments: impl Argument) -> Call {
        let mut call = Call { method, given: Given::default(), wrong: None };
        arguments.give(&mut call);
        call
    }

    /// The call as one of a single contiguous tensor in each of these roles, if it can be that: as
    /// its tensors are not given yet, the element type is any.
    pub(crate) fn plain(&self, roles: &[Role]) -> Option<Plain> {
        let Method { name, collective, coalesced, .. } = *self.method;
        let collective = collective.filter(|_| !coalesced && self.wrong.is_none())?;
        let facts = collective.facts();
        let is_flat = |blocks| blocks == Blocks::All;
        let fits = roles.iter().all(|role| match role {
            Role::InOut => !is_flat(facts.input) && !is_flat(facts.output),
            Role::In | Role::FlatIn => is_flat(facts.input) == (*role == Role::FlatIn),
            Role::Out | Role::FlatOut => is_flat(facts.output) == (*role == Role::FlatOut),
            _ => false,
        });
        let Given { reduce_op, timeout, root_tensor, .. } = self.given;
        let is_even = self.given.input_splits.is_empty() && self.given.output_splits.is_empty();
        (fits && is_even && root_tensor == 0).then(|| Plain {
            collective,
            name,
            dtype: DType::U8,
            reduce_op,
            root: self.given.root.unwrap_or(0),
            timeout,
            waiting: Waiting::Soon,
        })
    }

    /// Gives it the tensors of a parameter.
    pub(crate) fn tensors(mut self, role: Role, tensors: Vec<Tensor>) -> Call {
        self.given.add_tensors(role, Buffers::List(tensors));
        self
    }

    /// The request of the call, in a group of `size` ranks, where this is `rank`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if a tensor cannot be cut, or the
    /// root is negative.
    pub(crate) fn request(mut self, rank: u32, size: u32) -> Result<Request> {
        let Method { name, collective, coalesced, .. } = *self.method;
        let Some(collective) = collective else {
            return Err(invalid(name, "it is no collective".to_owned()));
        };
        if let Some(wrong) = self.wrong {
            return Err(invalid(name, wrong));
        }
        let facts = collective.facts();
        let root = self.given.root.unwrap_or(0);
        if facts.rooted && rank != root {
            self.given.drop_empty(facts);
        }
        self.given.group_lists(facts);
        let buffers = self.given.buffers(collective, size as usize);
        let (inputs, outputs) = buffers.map_err(|what| invalid(name, what))?;
        Ok(Request {
            collective,
            name,
            inputs,
            outputs,
            reduce_op: self.given.reduce_op,
            root,
            root_tensor: self.given.root_tensor,
            timeout: self.given.timeout,
            coalesced,
        })
    }

    pub(crate) fn reduce_op(&mut self, reduce_op: ReduceOp) {
        self.given.reduce_op = reduce_op;
    }

    pub(crate) fn root(&mut self, root: impl TryInto<u32> + Copy + std::fmt::Display) {
        match root.try_into() {
            Ok(root) => self.given.root = Some(root),
            Err(_) => self.wrong = Some(format!("root must be a rank, not {root}")),
        }
    }

    pub(crate) fn root_tensor(&mut self, root_tensor: u32) {
        self.given.root_tensor = root_tensor;
    }

    pub(crate) fn timeout(&mut self, timeout: Option<Duration>) {
        self.given.timeout = timeout;
    }

    fn splits(&mut self, output: &[usize], input: &[usize]) {
        self.given.output_splits = output.to_vec();
        self.given.input_splits = input.to_vec();
    }
}

impl Given {
    /// Only the root has such buffers: elsewhere a tensor without elements stands for none.
    fn drop_empty(&mut self, facts: &crate::Facts) {
        let at_root = |blocks| matches!(blocks, Blocks::OneAtRoot | Blocks::AllAtRoot);
        for (blocks, buffers) in [(facts.input, &mut self.input), (facts.output, &mut self.output)]
        {
            if let Buffers::List(tensors) = buffers
                && at_root(blocks)
                && !self.in_place
                && tensors.iter().all(|tensor| tensor.elements() == 0)
            {
                tensors.clear();
            }
        }
    }

    /// A Rust list is flat. Where one side has a block for each rank and the other has several
    /// tensors, the list is as many lists, one after the other.
    fn group_lists(&mut self, facts: &crate::Facts) {
        let many = |blocks| matches!(blocks, Blocks::All | Blocks::AllAtRoot);
        if many(facts.output) && !many(facts.input) && !self.output_is_flat {
            let lists = self.input.count();
            self.output.cut_into(lists);
        } else if many(facts.input) && !many(facts.output) && !self.input_is_flat {
            let lists = self.output.count();
            self.input.cut_into(lists);
        }
    }
}

impl Buffers {
    fn count(&self) -> usize {
        if let Buffers::List(tensors) = self { tensors.len() } else { 1 }
    }

    fn cut_into(&mut self, lists: usize) {
        if let Buffers::List(tensors) = self
            && lists > 1
            && !tensors.is_empty()
            && tensors.len().is_multiple_of(lists)
        {
            let each = tensors.len() / lists;
            *self = Buffers::Lists(tensors.chunks(each).map(<[Tensor]>::to_vec).collect());
        }
    }
}

impl Argument for () {
    fn give(self, _: &mut Call) {}
}

impl Argument for ReduceOp {
    fn give(self, call: &mut Call) {
        call.reduce_op(self);
    }
}

impl Argument for Duration {
    fn give(self, call: &mut Call) {
        call.timeout(Some(self));
    }
}

macro_rules! roots {
    ($($integer:ty),*) => {$(
        impl Argument for $integer {
            fn give(self, call: &mut Call) {
                call.root(self);
            }
        }
    )*};
}

roots!(u32, usize, i32);

impl<A: Argument, B: Argument> Argument for (A, B) {
    fn give(self, call: &mut Call) {
        self.0.give(call);
        self.1.give(call);
    }
}

impl<A: Argument, B: Argument, C: Argument> Argument for (A, B, C) {
    fn give(self, call: &mut Call) {
        self.0.give(call);
        (self.1, self.2).give(call);
    }
}

macro_rules! splits {
    ($([$($generics:tt)*] $splits:ty),*) => {$(
        /// Rows of the output, then of the input, for each rank.
        impl<$($generics)*> Argument for ($splits, $splits) {
            fn give(self, call: &mut Call) {
                call.splits(self.0, self.1);
            }
        }

        impl<$($generics)* C: Argument> Argument for ($splits, $splits, C) {
            fn give(self, call: &mut Call) {
                call.splits(self.0, self.1);
                self.2.give(call);
            }
        }
    )*};
}

splits!([] &[usize], [const N: usize,] &[usize; N], [] &Vec<usize>);

#[cfg(test)]
mod tests;
