//! Requests: methods as the IDL describes them, and collective calls with their overload resolved,
//! before anything is checked. Every module above may import this one; it imports no groups and no
//! backends.

mod arguments;
mod custom_reduction;
mod method;
mod single_tensor;
mod typed;

use std::time::Duration;

/// The table of each method, and of each options record: `PROCESS_GROUP_ALLREDUCE`.
pub use crate::generated::calls as tables;
use crate::generated::collective::Collective;
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::Compression;
use crate::tensor::Tensor;
use crate::wire::exchange::Exchange;
pub(crate) use arguments::{CallArguments, TensorArgument, invalid};
pub use custom_reduction::{Combine, CustomOp, CustomReduction, ReductionTask};
pub use method::{Constant, Method, Overload, Parameter, RecordType, Role, Type};
pub use single_tensor::SingleTensorRequest;
// Outside this crate nobody can name these two, so that nobody can add to what methods take.
pub(crate) use typed::{Argument, TypedCall, is_one_tensor};

/// One collective call. Every overload in every language becomes one of these.
#[derive(Clone, Debug)]
pub struct Request {
    /// The collective.
    pub collective: Collective,
    /// The method as it was called, for messages: `all_gather_single`.
    pub name: &'static str,
    /// For each tensor list of the call (usually one), the blocks of the input buffer.
    pub inputs: Vec<Vec<Tensor>>,
    /// For each tensor list of the call, the blocks of the output buffer.
    pub outputs: Vec<Vec<Tensor>>,
    /// Input tensors as they were given, if the blocks were cut from them; none if not.
    pub uncut_inputs: Vec<Tensor>,
    /// Output tensors as they were given, if the blocks were cut from them; none if not.
    pub uncut_outputs: Vec<Tensor>,
    /// How elements are reduced, where they are.
    pub reduce_op: ReduceOp,
    /// The root, as a rank of the group.
    pub root: u32,
    /// Which tensor list is the root's own.
    pub root_tensor: u32,
    /// Limit of this call; `None` is the group's, zero is none.
    pub timeout: Option<Duration>,
    /// Whether the lists are independent operations that go together.
    pub coalesced: bool,
    /// In which form elements travel, if not as they are.
    pub compression: Option<Compression>,
    /// Whether the hints of the group count where this says nothing.
    pub takes_hints: bool,
    /// In which form the group's hints have elements travel of those operations that can be.
    pub hinted: Option<Compression>,
    /// The method that it is to the ranks that compare it, if it is not the collective itself.
    pub exchange: Option<Exchange>,
    /// The members that it was made for, if it is for no others.
    pub epoch: Option<u64>,
}

impl Request {
    /// A request without tensors; the caller adds what the collective needs.
    pub fn new(collective: Collective) -> Request {
        Request {
            collective,
            name: collective.facts().name,
            inputs: Vec::new(),
            outputs: Vec::new(),
            uncut_inputs: Vec::new(),
            uncut_outputs: Vec::new(),
            reduce_op: ReduceOp::Sum,
            root: 0,
            root_tensor: 0,
            timeout: None,
            coalesced: false,
            compression: None,
            takes_hints: true,
            hinted: None,
            exchange: None,
            epoch: None,
        }
    }

    /// In which form elements travel that can: as the call says, else as the group's hints do.
    pub(crate) fn form(&self) -> Option<Compression> {
        self.compression.or(self.hinted)
    }

    /// All tensors.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().chain(&self.outputs).flatten()
    }
}
