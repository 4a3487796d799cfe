//! What a scheduled backend finds out about a call before it runs it: what this rank shows on a
//! board, whether its blocks are equal, which operator kernels apply. Knows no executor's state.

use super::Call;
use crate::executor::OwnPart;
use crate::generated::collective::{Blocks, Collective, Sizes};
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::Compression;
use crate::request::CustomOp;
use crate::tensor::Region;
use crate::transport::board::board_bytes;

/// What this rank shows of an operation over the board: its data if that fits there, and is divided
/// evenly, since all ranks see how much a rank shows, not how it is divided.
pub(super) fn own_part(call: &Call, size: u32) -> OwnPart {
    let capacity = board_bytes(size);
    if call.collective != Collective::Alltoall {
        return match call.shared_bytes.is_none_or(|bytes| bytes <= capacity as u64) {
            true => OwnPart::Data,
            false => OwnPart::Lent,
        };
    }
    let mut blocks = call.input.iter().chain(&call.output).map(Region::len);
    let block = blocks.next().unwrap_or(0);
    match block * call.input.len() <= capacity && blocks.all(|other| other == block) {
        true => OwnPart::Data,
        false => OwnPart::Lent,
    }
}

/// Whether all ranks know that all blocks have one size: where each rank has all blocks, of which
/// all ranks know the sizes.
pub(super) fn equal_blocks(call: &Call) -> bool {
    let facts = call.collective.facts();
    let blocks = match (facts.sizes, facts.input, facts.output) {
        (Sizes::PerRank, Blocks::All, _) => &call.input,
        (Sizes::PerRank, _, Blocks::All) => &call.output,
        _ => return false,
    };
    blocks.windows(2).all(|pair| pair[0].len() == pair[1].len())
}

/// The collective whose schedule a call runs. Where the operator, of which this is the number, is a
/// function of the program, all tensors come to where the result is needed, and the group combines
/// them there. Where elements travel compressed, each rank gets what it reduces, and the results
/// are spread.
pub(super) fn executed_collective(collective: Collective, reduce_op: u8) -> Collective {
    const CUSTOM: u8 = ReduceOp::Custom(CustomOp::NONE).code();
    if Compression::of_operator(reduce_op).is_some() {
        let spreads = Compression::spreads(reduce_op) || collective == Collective::Allgather;
        return if spreads { Collective::Allgather } else { Collective::Alltoall };
    }
    match (collective, reduce_op) {
        (Collective::Allreduce | Collective::Scan | Collective::Exscan, CUSTOM) => {
            Collective::Allgather
        }
        (Collective::Reduce, CUSTOM) => Collective::Gather,
        (Collective::ReduceScatter, CUSTOM) => Collective::Alltoall,
        (other, _) => other,
    }
}

/// The operator that kernels apply: averages and scaled sums are sums there.
pub(super) fn executed(reduce_op: ReduceOp) -> ReduceOp {
    match reduce_op {
        ReduceOp::Avg | ReduceOp::PremulSum(_) => ReduceOp::Sum,
        other => other,
    }
}
