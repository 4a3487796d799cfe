//! Calls from Rust: their tensors and arguments have types already, so nothing is resolved.
//!
//! The generated methods fill a [`TypedCall`]; it becomes the same [`Request`] as the same call in
//! any other language.

use std::time::Duration;

use super::arguments::{CallArguments, TensorArgument, invalid};
use super::method::{Method, Role};
use super::{Request, SingleTensorRequest};
use crate::completion::WaitIntent;
use crate::generated::collective::{Blocks, Facts};
use crate::generated::dtype::DType;
use crate::generated::error::Result;
use crate::generated::reduce_op::ReduceOp;
use crate::tensor::Tensor;

/// What a collective call was given so far.
pub struct TypedCall {
    method: &'static Method,
    reduce_op: ReduceOp,
    root: Option<u32>,
    root_tensor: u32,
    timeout: Option<Duration>,
    /// What a small collective of one tensor has nothing of: making and dropping it takes longer
    /// than all else that is done before such a call begins.
    rest: Option<Box<OtherArguments>>,
}

/// Tensors, splits, and what else few calls have.
#[derive(Default)]
struct OtherArguments {
    given: CallArguments,
    /// Whether a list of splits was given.
    has_splits: bool,
    /// What is wrong with an argument.
    wrong: Option<String>,
}

/// A value that a collective call can be given after its tensors. Which method takes which, the
/// traits say that are in `generated/arguments.rs`.
pub trait Argument {
    /// Gives it to the call.
    #[doc(hidden)]
    fn give(self, call: &mut TypedCall);
}

/// Whether what is given in this role may be one tensor with all blocks of the rank.
pub(crate) fn is_one_tensor(role: Role, facts: &Facts) -> bool {
    let is_flat = |blocks| blocks == Blocks::All;
    match role {
        Role::InOut => !is_flat(facts.input) && !is_flat(facts.output),
        Role::In | Role::FlatIn => is_flat(facts.input) == (role == Role::FlatIn),
        Role::Out | Role::FlatOut => is_flat(facts.output) == (role == Role::FlatOut),
        _ => false,
    }
}

impl TypedCall {
    /// A call of `method` with what follows its tensors.
    pub(crate) fn new(method: &'static Method, arguments: impl Argument) -> TypedCall {
        let (reduce_op, root, root_tensor, timeout) = Default::default();
        let mut call = TypedCall { method, reduce_op, root, root_tensor, timeout, rest: None };
        arguments.give(&mut call);
        call
    }

    /// The call as one of a single contiguous tensor in each of these roles, if it can be that: as
    /// its tensors are not given yet, the element type is any.
    pub(crate) fn plain(&self, roles: &[Role]) -> Option<SingleTensorRequest> {
        let Method { name, collective, coalesced, .. } = *self.method;
        let is_plain = !coalesced && self.rest.is_none() && self.root_tensor == 0;
        let collective = collective.filter(|_| is_plain)?;
        let facts = collective.facts();
        let fits = roles.iter().all(|role| is_one_tensor(*role, facts));
        fits.then(|| SingleTensorRequest {
            collective,
            name,
            dtype: DType::U8,
            reduce_op: self.reduce_op,
            root: self.root.unwrap_or(0),
            timeout: self.timeout,
            waiting: WaitIntent::Soon,
            epoch: None,
        })
    }

    /// Gives it the tensors of a parameter.
    pub(crate) fn tensors(mut self, role: Role, tensors: Vec<Tensor>) -> TypedCall {
        self.rest().given.add_tensors(role, TensorArgument::List(tensors));
        self
    }

    /// The method.
    pub(crate) fn name(&self) -> &'static str {
        self.method.name
    }

    /// The request of the call, in a group of `size` ranks, where this is `rank`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if a tensor cannot be cut, or the
    /// root is negative.
    pub(crate) fn request(self, rank: u32, size: u32) -> Result<Request> {
        let OtherArguments { given: mut arguments, wrong, .. } = *self.rest.unwrap_or_default();
        let Method { name, collective, coalesced, .. } = *self.method;
        let Some(collective) = collective else {
            return Err(invalid(name, "it is not a collective".to_owned()));
        };
        if let Some(wrong) = wrong {
            return Err(invalid(name, wrong));
        }
        if size == 0 {
            // The group has no members yet, and refuses it for that, whatever is given.
            return Ok(Request { name, ..Request::new(collective) });
        }
        let facts = collective.facts();
        let root = self.root.unwrap_or(0);
        if facts.rooted && rank != root {
            arguments.drop_empty(facts);
        }
        arguments.group_lists(facts, coalesced.then_some(size as usize));
        if coalesced {
            let grouped = arguments.group_by_input(collective, size as usize);
            grouped.map_err(|what| invalid(name, what))?;
        }
        let buffers = arguments.buffers(collective, size as usize);
        let (inputs, outputs) = buffers.map_err(|what| invalid(name, what))?;
        Ok(Request {
            collective,
            name,
            inputs,
            outputs,
            uncut_inputs: arguments.uncut_inputs,
            uncut_outputs: arguments.uncut_outputs,
            reduce_op: self.reduce_op,
            root,
            root_tensor: self.root_tensor,
            timeout: self.timeout,
            coalesced,
            compression: arguments.compression,
            takes_hints: !arguments.is_uncompressed,
            hinted: None,
            exchange: None,
            epoch: None,
        })
    }

    fn rest(&mut self) -> &mut OtherArguments {
        self.rest.get_or_insert_default()
    }

    pub(crate) fn reduce_op(&mut self, reduce_op: ReduceOp) {
        self.reduce_op = reduce_op;
    }

    pub(crate) fn root(&mut self, root: impl TryInto<u32> + Copy + std::fmt::Display) {
        match root.try_into() {
            Ok(root) => self.root = Some(root),
            Err(_) => self.rest().wrong = Some(format!("root must be a rank, not {root}")),
        }
    }

    pub(crate) fn root_tensor(&mut self, root_tensor: u32) {
        self.root_tensor = root_tensor;
    }

    pub(crate) fn timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    pub(crate) fn compress(&mut self, name: Option<String>) {
        let Some(name) = name else { return };
        let rest = self.rest();
        if let Err(what) = rest.given.compress(&name) {
            rest.wrong = Some(format!("compress {what}"));
        }
    }

    /// The first list is of both sides, of which only a flat one looks at it; a second one is of
    /// the input.
    fn splits(&mut self, rows: &[usize]) {
        let rest = self.rest();
        if !std::mem::replace(&mut rest.has_splits, true) {
            rest.given.output_splits = rows.to_vec();
        }
        rest.given.input_splits = rows.to_vec();
    }
}

impl Argument for () {
    fn give(self, _: &mut TypedCall) {}
}

impl Argument for ReduceOp {
    fn give(self, call: &mut TypedCall) {
        call.reduce_op(self);
    }
}

impl Argument for Duration {
    fn give(self, call: &mut TypedCall) {
        call.timeout(Some(self));
    }
}

macro_rules! roots {
    ($($integer:ty),*) => {$(
        impl Argument for $integer {
            fn give(self, call: &mut TypedCall) {
                call.root(self);
            }
        }
    )*};
}

roots!(u32, usize, i32);

impl<A: Argument, B: Argument> Argument for (A, B) {
    fn give(self, call: &mut TypedCall) {
        self.0.give(call);
        self.1.give(call);
    }
}

impl<A: Argument, B: Argument, C: Argument> Argument for (A, B, C) {
    fn give(self, call: &mut TypedCall) {
        self.0.give(call);
        (self.1, self.2).give(call);
    }
}

macro_rules! splits {
    ($([$($generics:tt)*] $splits:ty),*) => {$(
        /// Rows of the flat tensor for each rank; where there are two, those of the output first.
        impl<$($generics)*> Argument for $splits {
            fn give(self, call: &mut TypedCall) {
                call.splits(self);
            }
        }
    )*};
}

splits!([] &[usize], [const N: usize] &[usize; N], [] &Vec<usize>);

#[cfg(test)]
mod tests;
