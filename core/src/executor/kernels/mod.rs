//! Reduction kernels: elements of two memories become one. Knows bytes, dtypes and operators; no
//! schedules, transports or ranks.
//!
//! Memory may start anywhere: elements are read and written as bytes, which compilers turn into
//! unaligned vector loads. Every operator is commutative to the bit, also between machines:
//! - a NaN result is the canonical quiet NaN, as hardware differs in which payload and sign it
//!   keeps, and compilers may swap operands;
//! - of two zeros, MIN gives the negative one if there is one, and MAX the positive one (IEEE
//!   754-2019 `minimum` and `maximum`).

mod float;
mod half;
mod integer;

#[cfg(test)]
mod tests;

use crate::schedule::Operands;
use crate::{DType, ReduceOp};

/// Writes `into ⊕ from` into `into`.
///
/// The operands' order is part of the call for operators to come; those there are give the same bits
/// in both orders. `Avg` and `PremulSum` are summed: their scaling is done before or after all ranks'
/// elements are together, see [`scale`] and [`divide`].
///
/// # Panics
/// If the operator does not support the dtype ([`ReduceOp::supports`]), or the lengths differ or cut
/// an element. The caller has checked what came from users and peers.
pub fn reduce(op: ReduceOp, dtype: DType, into: &mut [u8], from: &[u8], _operands: Operands) {
    assert_lengths(dtype, &[into.len(), from.len()]);
    apply(op, dtype, Memory::InPlace { into, from });
}

/// Writes `local ⊕ incoming` into `into`, which need not hold anything before.
///
/// # Panics
/// As [`reduce`].
pub fn reduce_into(
    op: ReduceOp,
    dtype: DType,
    into: &mut [u8],
    local: &[u8],
    incoming: &[u8],
    _operands: Operands,
) {
    assert_lengths(dtype, &[into.len(), local.len(), incoming.len()]);
    apply(op, dtype, Memory::Apart { into, left: local, right: incoming });
}

/// Multiplies every element by `factor`, rounded to the element type first (`PREMUL_SUM`); both
/// parts of a complex one. f16 and bf16 are multiplied as f32, and rounded to even.
///
/// # Panics
/// If the elements are no floating-point numbers, or the length cuts an element.
pub fn scale(dtype: DType, memory: &mut [u8], factor: f64) {
    assert_lengths(dtype, &[memory.len()]);
    match dtype {
        DType::F32 | DType::Complex64 => float::map_f32(memory, |x| x * factor as f32),
        DType::F64 | DType::Complex128 => float::map_f64(memory, |x| x * factor),
        DType::F16 => {
            let factor = ::half::f16::from_f64(factor).to_f32();
            half::map::<::half::f16>(memory, |x| x * factor);
        }
        DType::Bf16 => {
            let factor = ::half::bf16::from_f64(factor).to_f32();
            half::map::<::half::bf16>(memory, |x| x * factor);
        }
        _ => unsupported("PREMUL_SUM", dtype),
    }
}

/// Divides every element by the number of ranks (`AVG`); integers truncate toward zero. A group has at
/// least one rank: 0 counts as 1.
///
/// # Panics
/// If the elements are bools, or the length cuts an element.
pub fn divide(dtype: DType, memory: &mut [u8], ranks: u32) {
    assert_lengths(dtype, &[memory.len()]);
    let ranks = ranks.max(1);
    match dtype {
        DType::F32 | DType::Complex64 => float::map_f32(memory, |x| x / ranks as f32),
        DType::F64 | DType::Complex128 => float::map_f64(memory, |x| x / f64::from(ranks)),
        DType::F16 => half::map::<::half::f16>(memory, |x| x / ranks as f32),
        DType::Bf16 => half::map::<::half::bf16>(memory, |x| x / ranks as f32),
        DType::Bool => unsupported("AVG", dtype),
        _ => integer::divide(dtype, memory, ranks),
    }
}

/// The operands of a reduction.
enum Memory<'a> {
    /// The left one is overwritten.
    InPlace { into: &'a mut [u8], from: &'a [u8] },
    /// The result goes elsewhere.
    Apart { into: &'a mut [u8], left: &'a [u8], right: &'a [u8] },
}

impl Memory<'_> {
    /// Combines elements of `N` bytes. Inlined, so that the loop is made for the operator.
    #[inline(always)]
    fn combine<const N: usize>(self, with: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
        match self {
            Memory::InPlace { into, from } => {
                let pairs = into.as_chunks_mut().0.iter_mut().zip(from.as_chunks().0);
                pairs.for_each(|(into, from)| *into = with(*into, *from));
            }
            Memory::Apart { into, left, right } => {
                let pairs = left.as_chunks().0.iter().zip(right.as_chunks().0);
                let all = into.as_chunks_mut().0.iter_mut().zip(pairs);
                all.for_each(|(into, (left, right))| *into = with(*left, *right));
            }
        }
    }
}

fn apply(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
    if !op.supports(dtype) {
        unsupported(op.name(), dtype);
    }
    match dtype {
        DType::F32 | DType::Complex64 => float::reduce_f32(op, memory),
        DType::F64 | DType::Complex128 => float::reduce_f64(op, memory),
        DType::F16 => half::reduce::<::half::f16>(op, memory),
        DType::Bf16 => half::reduce::<::half::bf16>(op, memory),
        _ => integer::reduce(op, dtype, memory),
    }
}

fn assert_lengths(dtype: DType, lengths: &[usize]) {
    assert!(
        lengths.iter().all(|&length| length == lengths[0]),
        "operands of different lengths: {lengths:?} bytes"
    );
    let whole = lengths[0].is_multiple_of(dtype.size_bytes());
    assert!(whole, "{} bytes are no whole number of {}", lengths[0], dtype.name());
}

#[cold]
fn unsupported(op: &str, dtype: DType) -> ! {
    panic!("{op} has no meaning for {}; the call should have been refused", dtype.name())
}
