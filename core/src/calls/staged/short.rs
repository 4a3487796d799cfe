//! Calls of the usual shape: a collective on one flat array, in place, with no argument but the
//! reduction operator. Small ones run immediately, without memory that lasts, if the backend can do
//! that. What they mean is what the resolver finds; whatever is unusual goes there.

use super::tensors::{Memory, TensorDescription, Tensors};
use super::{CallerMemory, Cursor, StagedOperation, State};
use crate::backend::FAST_PATH_BYTES;
use crate::calls::object::Object;
use crate::calls::value::{Arguments, Value};
use crate::calls::{Constant, Entry, Parameter, Role, Type};
use crate::completion::WaitIntent;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::process_group::{FastPathResult, HeldBuffers, ProcessGroup};
use crate::request::SingleTensorRequest;
use crate::tensor::LentMemory;

/// Most parameters of a short call: the tensor and the operator.
const MAX_GIVEN: usize = 2;

/// A call of the usual shape, without its tensor.
#[derive(Clone, Copy)]
pub struct ShortCall {
    entry: &'static Entry,
    plain: SingleTensorRequest,
}

/// The result of a short call.
#[derive(Debug)]
pub enum ShortOutcome {
    /// It is done, as the operation of this sequence number, and its result is copied out.
    Done(u64),
    /// It continues.
    Issued(Box<StagedOperation>),
}

impl ShortCall {
    /// The call of `entry` with an array, and an operator if one is given. None if that means
    /// anything but one collective that reduces the array in place.
    pub fn new(entry: &'static Entry, reduce_op: Option<ReduceOp>) -> Option<ShortCall> {
        let method = entry.method;
        let collective = method.collective.filter(|_| !method.coalesced && !method.unbuilt)?;
        let facts = collective.facts();
        if facts.rooted || !facts.reduces {
            return None;
        }
        let given = 1 + usize::from(reduce_op.is_some());
        let overload = method.overloads.iter().find(|overload| is_short(overload.parameters))?;
        let (_, left_out) = overload.parameters.split_at_checked(given)?;
        let plain = SingleTensorRequest {
            collective,
            name: method.name,
            dtype: DType::U8,
            reduce_op: reduce_op.unwrap_or(ReduceOp::Sum),
            root: 0,
            timeout: None,
            waiting: WaitIntent::Soon,
        };
        left_out.iter().all(has_usual_default).then_some(ShortCall { entry, plain })
    }

    /// Runs it in `group` on `memory`, which lies at `address` and whose elements are of `dtype`.
    /// None if nothing was done: then [`StagedOperation::prepare`] is the way, which also says what
    /// is wrong with a call. `scratch` is memory to work in, kept from one call to the next.
    pub fn run<M: CallerMemory>(
        self,
        group: &ProcessGroup,
        dtype: DType,
        memory: &M,
        scratch: &mut Vec<u8>,
    ) -> Option<ShortOutcome> {
        let bytes = memory.bytes();
        if bytes == 0 || bytes > FAST_PATH_BYTES {
            return None;
        }
        scratch.resize(bytes, 0);
        memory.read(0, scratch);
        let plain = SingleTensorRequest { dtype, ..self.plain };
        Some(match group.try_plain(&plain, &mut LentMemory::InPlace(scratch))? {
            FastPathResult::Done(work) => {
                memory.write(0, scratch);
                ShortOutcome::Done(work.sequence())
            }
            begun => {
                // It has given its part; what comes of it is written to memory that lasts.
                let (tensors, output) = super::tensors::flat(dtype, bytes);
                output.write(|copy| copy.copy_from_slice(scratch));
                let work = begun.work(|| HeldBuffers { input: None, output });
                ShortOutcome::Issued(Box::new(StagedOperation {
                    name: plain.name,
                    group: Some(group.clone()),
                    tensors,
                    inputs: Vec::new(),
                    outputs: vec![0],
                    copied_in: Cursor::default(),
                    copied_out: Cursor::default(),
                    bytes_copied_in: bytes,
                    timeout: group.timeout(),
                    state: State::Issued(work),
                }))
            }
        })
    }

    /// The operation of the call on an array of so many `bytes`, whose elements are of `dtype`, in
    /// the group that `this` is, or in the default group. None where
    /// [`StagedOperation::prepare`] says what is wrong.
    pub fn prepare(
        self,
        this: Option<&Object>,
        dtype: DType,
        bytes: usize,
    ) -> Option<StagedOperation> {
        let described = TensorDescription {
            dtype,
            shape: None,
            strides: None,
            offset: 0,
            read_only: false,
            memory: Memory::Foreign { bytes, place: (0, 0) },
        };
        let tensors = Tensors::new(vec![described]).ok()?;
        let positional = vec![tensors.value(0).ok()?, Value::ReduceOp(self.plain.reduce_op)];
        let arguments = Arguments { positional, ..Arguments::default() };
        StagedOperation::prepare(self.entry, this, arguments, &[], tensors).ok()
    }
}

/// Whether an overload takes one tensor, in place, and then the operator.
fn is_short(parameters: &[Parameter]) -> bool {
    let (given, _) = parameters.split_at(parameters.len().min(MAX_GIVEN));
    let roles = given.iter().map(|parameter| parameter.role);
    let is_tensor = given.first().is_some_and(|parameter| matches!(parameter.ty, Type::Tensor));
    is_tensor && roles.eq([Role::InOut, Role::Op])
}

/// Whether leaving a parameter out means what a short call does.
fn has_usual_default(parameter: &Parameter) -> bool {
    parameter.optional
        && match parameter.default {
            None | Some(Constant::Null | Constant::Bool(false)) => true,
            Some(Constant::ReduceOp(reduce_op)) => reduce_op == ReduceOp::Sum,
            _ => false,
        }
}
