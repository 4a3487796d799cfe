//! What is prepared once and started often, as short calls: all that is right with them is known.

use super::operation::Operation;
use super::short::{Kind, ShortCall};
use super::{StagedOperation, State};
use crate::completion::WaitIntent;
use crate::generated::collective::Collective;
use crate::generated::reduce_op::ReduceOp;
use crate::process_group::PlainCall;
use crate::request::SingleTensorRequest;
use crate::tensor::{Region, Tensor};

impl StagedOperation {
    /// The calls that are this one, which is prepared, on the same arrays again and again, if those
    /// are short: each of its tensors must be all of a flat array.
    pub fn short_call(&self) -> Option<ShortCall> {
        let (State::Prepared(operation), Some(group)) = (&self.state, &self.group) else {
            return None;
        };
        let all = &self.tensors.all;
        let at = |region: &Region| all.iter().position(|it| it.tensor.region().is(region));
        let message = |tensor: &Tensor, peer: u32| SingleTensorRequest {
            collective: Collective::Barrier,
            name: self.name,
            dtype: tensor.dtype(),
            reduce_op: ReduceOp::Sum,
            root: peer,
            timeout: None,
            waiting: WaitIntent::Soon,
            epoch: Some(group.epoch()),
        };
        let (plain, kind, places) = match operation {
            Operation::Collective(checked) => {
                let PlainCall { request, input, output } = PlainCall::of(checked)?;
                let output = at(&output);
                let input = input.map_or(output, |input| at(&input));
                if output.is_none() && !all.is_empty() {
                    return None;
                }
                let request = SingleTensorRequest { waiting: WaitIntent::Soon, ..request };
                (request, Kind::Collective, (input, output))
            }
            Operation::Send { tensor, peer, tag: 0 } => {
                (message(tensor, *peer), Kind::Send, (at(tensor.region()), None))
            }
            Operation::Recv { tensor, peer: Some(peer), tag: 0 } => {
                (message(tensor, *peer), Kind::Receive, (None, at(tensor.region())))
            }
            _ => return None,
        };
        Some(ShortCall::of(plain, kind, all.len(), places))
    }
}
