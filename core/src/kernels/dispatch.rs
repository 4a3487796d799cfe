//! Which loop runs for an operator and an element type. Knows no instructions.

use super::forms::{
    Addition, Bf16, F16, HalfType, Memory, Multiplication, combine, combine_halves,
    combine_ordered, map, map_halves,
};
use super::halves::{ComparedBf16, ComparedF16};
use super::number::{Bits, Float, Lanes, Logic, Number, OrderedElement, Truth};
use super::pairs;
use super::processor::as_ieee;
use super::quotient::Quotient;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;

/// Runs one reduction.
pub(super) fn reduce(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
    if op.takes_pairs() {
        return pairs::reduce(op, dtype, memory);
    }
    match dtype {
        DType::Bool => truth(op, memory),
        DType::U8 => integer::<u8, u8, _>(op, memory),
        DType::I8 => integer::<i8, u8, _>(op, memory),
        DType::U16 => integer::<u16, u16, _>(op, memory),
        DType::I16 => integer::<i16, u16, _>(op, memory),
        DType::U32 => integer::<u32, u32, _>(op, memory),
        DType::I32 => integer::<i32, u32, _>(op, memory),
        DType::U64 => integer::<u64, u64, _>(op, memory),
        DType::I64 => integer::<i64, u64, _>(op, memory),
        DType::F16 => as_ieee(|| half::<F16, ComparedF16>(op, memory)),
        DType::Bf16 => as_ieee(|| half::<Bf16, ComparedBf16>(op, memory)),
        // Only sums have a meaning for complex numbers, and those are sums of their parts.
        DType::F32 | DType::Complex64 => as_ieee(|| float::<f32, _>(op, memory)),
        DType::F64 | DType::Complex128 => as_ieee(|| float::<f64, _>(op, memory)),
    }
}

/// Multiplies floating-point elements.
pub(super) fn scale(dtype: DType, memory: &mut [u8], factor: f64) {
    let narrow = factor as f32;
    as_ieee(|| match dtype {
        DType::F16 => map_halves::<F16>(memory, move |x| x * narrow),
        DType::Bf16 => map_halves::<Bf16>(memory, move |x| x * narrow),
        DType::F32 | DType::Complex64 => map(memory, move |x: f32| (x * narrow).canonical()),
        DType::F64 | DType::Complex128 => map(memory, move |x: f64| (x * factor).canonical()),
        DType::Bool
        | DType::U8
        | DType::I8
        | DType::U16
        | DType::I16
        | DType::U32
        | DType::I32
        | DType::U64
        | DType::I64 => {}
    });
}

/// Divides elements by a number of parts, which is not 0.
pub(super) fn divide(dtype: DType, memory: &mut [u8], parts: u32) {
    let narrow = parts as f32;
    let wide = f64::from(parts);
    as_ieee(|| match dtype {
        DType::Bool => {}
        DType::U8 => quotients::<u8, _>(memory, parts),
        DType::I8 => quotients::<i8, _>(memory, parts),
        DType::U16 => quotients::<u16, _>(memory, parts),
        DType::I16 => quotients::<i16, _>(memory, parts),
        DType::U32 => quotients::<u32, _>(memory, parts),
        DType::I32 => quotients::<i32, _>(memory, parts),
        DType::U64 => quotients::<u64, _>(memory, parts),
        DType::I64 => quotients::<i64, _>(memory, parts),
        DType::F16 => map_halves::<F16>(memory, move |x| x / narrow),
        DType::Bf16 => map_halves::<Bf16>(memory, move |x| x / narrow),
        DType::F32 | DType::Complex64 => map(memory, move |x: f32| (x / narrow).canonical()),
        DType::F64 | DType::Complex128 => map(memory, move |x: f64| (x / wide).canonical()),
    });
}

/// Integers that are compared as `T`. Sums and products of two's complements are those of the
/// unsigned `U`, and bits those of bytes, so that one loop serves several types.
fn integer<T, U, const N: usize>(op: ReduceOp, memory: Memory<'_>)
where
    T: OrderedElement + Lanes<Bytes = [u8; N]>,
    U: Number + Logic + Lanes<Bytes = [u8; N]>,
{
    match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_) => sum::<U, N>(memory),
        ReduceOp::Product => product::<U, N>(memory),
        ReduceOp::Min => combine(memory, T::least),
        ReduceOp::Max => combine(memory, T::greatest),
        ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => bits(op, memory),
        ReduceOp::Land | ReduceOp::Lor | ReduceOp::Lxor => logic::<U, N>(op, memory),
        // Its function combines, and pairs went another way.
        ReduceOp::Custom(_) | ReduceOp::Maxloc | ReduceOp::Minloc => {}
    }
}

#[inline(never)]
fn sum<U: Number + Lanes<Bytes = [u8; N]>, const N: usize>(memory: Memory<'_>) {
    combine(memory, U::add);
}

#[inline(never)]
fn product<U: Number + Lanes<Bytes = [u8; N]>, const N: usize>(memory: Memory<'_>) {
    combine(memory, U::multiply);
}

#[inline(never)]
fn bits(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Band => combine(memory, u8::and),
        ReduceOp::Bor => combine(memory, u8::or),
        _ => combine(memory, u8::xor),
    }
}

#[inline(never)]
fn logic<U: Logic + Lanes<Bytes = [u8; N]>, const N: usize>(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Land => combine(memory, U::both),
        ReduceOp::Lor => combine(memory, U::any),
        _ => combine(memory, U::one),
    }
}

fn float<T: Number + OrderedElement + Lanes<Bytes = [u8; N]>, const N: usize>(
    op: ReduceOp,
    memory: Memory<'_>,
) {
    match op {
        ReduceOp::Product => combine(memory, T::multiply),
        ReduceOp::Min => combine_ordered(memory, T::least),
        ReduceOp::Max => combine_ordered(memory, T::greatest),
        // Bitwise operators have no meaning for floats and are refused before this point.
        _ => combine(memory, T::add),
    }
}

/// Elements that are computed with as `H`, and compared as `C`.
fn half<H: HalfType, C: OrderedElement + Lanes<Bytes = [u8; 2]>>(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Product => combine_halves::<H, Multiplication>(memory),
        ReduceOp::Min => combine_ordered(memory, C::least),
        ReduceOp::Max => combine_ordered(memory, C::greatest),
        _ => combine_halves::<H, Addition>(memory),
    }
}

fn truth(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Product | ReduceOp::Min | ReduceOp::Band | ReduceOp::Land => {
            combine(memory, Truth::and);
        }
        ReduceOp::Bxor | ReduceOp::Lxor => combine(memory, Truth::xor),
        _ => combine(memory, Truth::or),
    }
}

fn quotients<T: Quotient + Lanes<Bytes = [u8; N]>, const N: usize>(memory: &mut [u8], parts: u32) {
    let divisor = T::divisor(parts);
    map(
        memory,
        #[inline(always)]
        move |element: T| element.divided(divisor),
    );
}
