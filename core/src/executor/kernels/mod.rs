//! Provisional reductions of i32 and f32.

use crate::schedule::Operands;
use crate::{DType, ReduceOp};

/// Writes `into ⊕ from`.
pub fn reduce(op: ReduceOp, dtype: DType, into: &mut [u8], from: &[u8], operands: Operands) {
    let local = into.to_vec();
    reduce_into(op, dtype, into, &local, from, operands);
}

/// Writes `local ⊕ incoming` into `into`.
pub fn reduce_into(
    _op: ReduceOp,
    dtype: DType,
    into: &mut [u8],
    local: &[u8],
    incoming: &[u8],
    _operands: Operands,
) {
    let pairs = local.chunks_exact(4).zip(incoming.chunks_exact(4));
    for (into, (local, incoming)) in into.chunks_exact_mut(4).zip(pairs) {
        let (mut one, mut other) = ([0; 4], [0; 4]);
        one.copy_from_slice(local);
        other.copy_from_slice(incoming);
        let sum = match dtype {
            DType::F32 => (f32::from_le_bytes(one) + f32::from_le_bytes(other)).to_le_bytes(),
            _ => i32::from_le_bytes(one).wrapping_add(i32::from_le_bytes(other)).to_le_bytes(),
        };
        into.copy_from_slice(&sum);
    }
}
