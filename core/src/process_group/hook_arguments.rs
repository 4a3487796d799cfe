//! What the hooks of a group learn of an operation, from what is called. Calls none of them.

use crate::completion::WaitIntent;
use crate::generated::callback_arguments::PreHookArgs;
use crate::generated::collective::Blocks;
use crate::generated::reduce_op::ReduceOp;
use crate::request::Request;
use crate::tensor::{Tensor, TensorRef};

/// Of a collective, on `rank`. A tensor that has the blocks of several ranks is one tensor, as it
/// was given.
pub(super) fn of_collective(request: &Request, rank: u32, waiting: WaitIntent) -> PreHookArgs<'_> {
    let facts = request.collective.facts();
    let is_root = rank == request.root;
    let mut input_tensors = tensors(&request.inputs, &request.uncut_inputs);
    let mut output_tensors = tensors(&request.outputs, &request.uncut_outputs);
    if facts.input == Blocks::None && facts.reduces {
        input_tensors = output_tensors.clone();
    } else if facts.input == Blocks::None && facts.rooted && is_root {
        // The others of the root's list are written, as are all those of other ranks.
        let own = request.root_tensor as usize;
        if own < output_tensors.len() {
            input_tensors = vec![output_tensors.remove(own)];
        }
    }
    if facts.output == Blocks::OneAtRoot && !is_root {
        output_tensors.clear();
    }
    PreHookArgs {
        name: request.exchange.map_or(facts.capitals, |it| it.method.capitals()),
        input_tensors,
        output_tensors,
        reduce_op: facts.reduces.then_some(request.reduce_op),
        ..without_tensors(if facts.rooted { request.root as i32 } else { -1 }, waiting)
    }
}

/// Of a message to `peer`.
pub(super) fn of_send(tensor: &Tensor, peer: u32, waiting: WaitIntent) -> PreHookArgs<'_> {
    let input_tensors = vec![TensorRef::of(tensor)];
    PreHookArgs { name: "SEND", input_tensors, ..without_tensors(peer as i32, waiting) }
}

/// Of a message from `peer`, or from any rank.
pub(super) fn of_receive(
    tensor: &Tensor,
    peer: Option<u32>,
    waiting: WaitIntent,
) -> PreHookArgs<'_> {
    let name = if peer.is_some() { "RECV" } else { "RECVANYSOURCE" };
    let output_tensors = vec![TensorRef::of(tensor)];
    let peer = peer.map_or(-1, |peer| peer as i32);
    PreHookArgs { name, output_tensors, ..without_tensors(peer, waiting) }
}

/// Of an operation of which hooks see no tensors.
pub(super) fn without_tensors(root: i32, waiting: WaitIntent) -> PreHookArgs<'static> {
    PreHookArgs {
        name: "",
        rank: 0,
        async_op: waiting != WaitIntent::Soon,
        input_tensors: Vec::new(),
        output_tensors: Vec::new(),
        root,
        reduce_op: None::<ReduceOp>,
        op_id: 0,
        comm_name: None,
    }
}

fn tensors<'a>(blocks: &'a [Vec<Tensor>], uncut: &'a [Tensor]) -> Vec<TensorRef<'a>> {
    match uncut {
        [] => blocks.iter().flatten().map(TensorRef::of).collect(),
        uncut => uncut.iter().map(TensorRef::of).collect(),
    }
}
