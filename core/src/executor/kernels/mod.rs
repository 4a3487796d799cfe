//! Reduction kernels: elements of two memories become one. Knows bytes, dtypes and operators; no
//! schedules, transports or ranks.
//!
//! Memory may start anywhere: elements are read and written as bytes, which compilers turn into
//! unaligned vector loads. Every operator is commutative to the bit, also between machines:
//! - a NaN result is the canonical quiet NaN, as hardware differs in which payload and sign it
//!   keeps, and compilers may swap operands;
//! - of two zeros, MIN gives the negative one if there is one, and MAX the positive one (IEEE
//!   754-2019 `minimum` and `maximum`).

mod half;
mod integer;
mod memory;
mod operators;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use ::half::{bf16, f16};

use crate::schedule::Operands;
use crate::{DType, ReduceOp};
use half::{Bfloats, Half, Halves};
use memory::{Memory, map};
use operators::{Each, Elements, Max, Min, Over, Product, Sum, Times};

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
        DType::F32 | DType::Complex64 => map(memory, &Each(Times(factor as f32))),
        DType::F64 | DType::Complex128 => map(memory, &Each(Times(factor))),
        DType::F16 => change_f16(memory, Times(f16::from_f64(factor).to_f32())),
        DType::Bf16 => map(memory, &Bfloats(Times(bf16::from_f64(factor).to_f32()))),
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
        DType::F32 | DType::Complex64 => map(memory, &Each(Over(ranks as f32))),
        DType::F64 | DType::Complex128 => map(memory, &Each(Over(f64::from(ranks)))),
        DType::F16 => change_f16(memory, Over(ranks as f32)),
        DType::Bf16 => map(memory, &Bfloats(Over(ranks as f32))),
        DType::Bool => unsupported("AVG", dtype),
        _ => integer::divide(dtype, memory, ranks),
    }
}

fn apply(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
    if !op.supports(dtype) {
        unsupported(op.name(), dtype);
    }
    #[cfg(target_arch = "x86_64")]
    if x86::available() {
        return x86::apply(op, dtype, memory);
    }
    apply_with::<f16>(op, dtype, memory);
}

fn change_f16(memory: &mut [u8], change: impl operators::Change<f32>) {
    #[cfg(target_arch = "x86_64")]
    if x86::available() {
        return x86::change_f16(memory, change);
    }
    map(memory, &Halves::<f16, _>::new(change));
}

/// Inlined with all that it calls, so that it is compiled anew for each set of instructions that a
/// caller enables; hence types instead of closures, which compilers may leave out of line. `F` is how
/// f16 is converted.
#[inline(always)]
fn apply_with<F: Half>(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
    match dtype {
        DType::F32 | DType::Complex64 => reduce_floats::<f32, 4>(op, memory),
        DType::F64 | DType::Complex128 => reduce_floats::<f64, 8>(op, memory),
        DType::F16 => reduce_halves::<F>(op, memory),
        DType::Bf16 => reduce_bfloats(op, memory),
        _ => integer::reduce(op, dtype, memory),
    }
}

/// Bitwise operators do not exist.
#[inline(always)]
fn reduce_floats<T, const N: usize>(op: ReduceOp, memory: Memory<'_>)
where
    T: operators::Element<N>,
    Sum: operators::Operator<T>,
    Product: operators::Operator<T>,
    Min: operators::Operator<T>,
    Max: operators::Operator<T>,
{
    match op {
        ReduceOp::Product => memory.combine::<N, Elements<T, Product>>(),
        ReduceOp::Min => memory.combine::<N, Elements<T, Min>>(),
        ReduceOp::Max => memory.combine::<N, Elements<T, Max>>(),
        _ => memory.combine::<N, Elements<T, Sum>>(),
    }
}

/// As [`reduce_floats`].
#[inline(always)]
fn reduce_halves<H: Half>(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Product => memory.combine_padded::<{ half::BYTES }, Halves<H, Product>>(),
        ReduceOp::Min => memory.combine_padded::<{ half::BYTES }, Halves<H, Min>>(),
        ReduceOp::Max => memory.combine_padded::<{ half::BYTES }, Halves<H, Max>>(),
        _ => memory.combine_padded::<{ half::BYTES }, Halves<H, Sum>>(),
    }
}

/// As [`reduce_floats`].
#[inline(always)]
fn reduce_bfloats(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Product => memory.combine::<2, Bfloats<Product>>(),
        ReduceOp::Min => memory.combine::<2, Bfloats<Min>>(),
        ReduceOp::Max => memory.combine::<2, Bfloats<Max>>(),
        _ => memory.combine::<2, Bfloats<Sum>>(),
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
