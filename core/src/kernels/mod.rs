//! Reductions of memory: every operator for every element type. Knows nothing of operations.
//!
//! Memory is bytes in the host's order, at any alignment, of a whole number of elements; both
//! operands are equally long. Bytes beyond the last whole element, or beyond the shorter operand,
//! are left as they are.

mod apply;
#[cfg(target_arch = "x86_64")]
mod f16c;
mod half_floats;
mod number;

use self::apply::{binary, ternary, unary};
use self::half_floats::{Bf16, Convert, F16s, LANES_BYTES, Portable};
use self::number::{Number, Truth};
use crate::{DType, ReduceOp};

/// Which operand of a reduction in place comes first. All ranks must agree: the order decides
/// between signed zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `into ⊕ from`.
    IntoFirst,
    /// `from ⊕ into`.
    FromFirst,
}

/// Reduces `from` into `into`. Averages and scaled sums are sums here; see [`divide`] and
/// [`scale`].
pub fn reduce(op: ReduceOp, dtype: DType, into: &mut [u8], from: &[u8], order: Order) {
    dispatch(op, dtype, Memory::Binary { into, from, order });
}

/// `left ⊕ right` into `into`, whose old bytes do not matter.
pub fn reduce_into(op: ReduceOp, dtype: DType, into: &mut [u8], left: &[u8], right: &[u8]) {
    dispatch(op, dtype, Memory::Ternary { into, left, right });
}

/// Multiplies every element by `factor`, in the element's own precision (half-precision types
/// through `f32`). Only for floating-point and complex types; others are left as they are.
pub fn scale(dtype: DType, memory: &mut [u8], factor: f64) {
    let narrow = factor as f32;
    match dtype {
        DType::F16 => f16_map(memory, |x| x * narrow),
        DType::Bf16 => unary(memory, |x: Bf16| Bf16(x.0 * narrow)),
        DType::F32 | DType::Complex64 => unary(memory, |x: f32| x * narrow),
        DType::F64 | DType::Complex128 => unary(memory, |x: f64| x * factor),
        _ => {}
    }
}

/// Divides every element by `parts`; integers truncate toward zero.
pub fn divide(dtype: DType, memory: &mut [u8], parts: u32) {
    let narrow = parts as f32;
    let wide = f64::from(parts);
    match dtype {
        DType::Bool => {}
        DType::U8 => unary(memory, |x: u8| (u32::from(x) / parts) as u8),
        DType::I8 => unary(memory, |x: i8| (i64::from(x) / i64::from(parts)) as i8),
        DType::U16 => unary(memory, |x: u16| (u32::from(x) / parts) as u16),
        DType::I16 => unary(memory, |x: i16| (i64::from(x) / i64::from(parts)) as i16),
        DType::U32 => unary(memory, |x: u32| x / parts),
        DType::I32 => unary(memory, |x: i32| (i64::from(x) / i64::from(parts)) as i32),
        DType::U64 => unary(memory, |x: u64| x / u64::from(parts)),
        DType::I64 => unary(memory, |x: i64| x / i64::from(parts)),
        DType::F16 => f16_map(memory, |x| x / narrow),
        DType::Bf16 => unary(memory, |x: Bf16| Bf16(x.0 / narrow)),
        DType::F32 | DType::Complex64 => unary(memory, |x: f32| x / narrow),
        DType::F64 | DType::Complex128 => unary(memory, |x: f64| x / wide),
    }
}

/// The operands of one reduction.
enum Memory<'a> {
    Binary { into: &'a mut [u8], from: &'a [u8], order: Order },
    Ternary { into: &'a mut [u8], left: &'a [u8], right: &'a [u8] },
}

fn dispatch(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
    match dtype {
        DType::Bool => truth(op, memory),
        DType::U8 => integer::<u8, _>(op, memory),
        DType::I8 => integer::<i8, _>(op, memory),
        DType::U16 => integer::<u16, _>(op, memory),
        DType::I16 => integer::<i16, _>(op, memory),
        DType::U32 => integer::<u32, _>(op, memory),
        DType::I32 => integer::<i32, _>(op, memory),
        DType::U64 => integer::<u64, _>(op, memory),
        DType::I64 => integer::<i64, _>(op, memory),
        DType::F16 => f16(op, memory),
        DType::Bf16 => float::<Bf16, _>(op, memory),
        // Only sums have a meaning for complex numbers, and those are sums of their parts.
        DType::F32 | DType::Complex64 => float::<f32, _>(op, memory),
        DType::F64 | DType::Complex128 => float::<f64, _>(op, memory),
    }
}

fn run<T: Number<Bytes = [u8; N]>, const N: usize>(
    memory: Memory<'_>,
    f: impl Fn(T, T) -> T + Copy,
) {
    match memory {
        Memory::Binary { into, from, order: Order::IntoFirst } => binary(into, from, f),
        Memory::Binary { into, from, order: Order::FromFirst } => {
            binary(into, from, move |local, incoming| f(incoming, local));
        }
        Memory::Ternary { into, left, right } => ternary(into, left, right, f),
    }
}

fn integer<T: number::Integer + Number<Bytes = [u8; N]>, const N: usize>(
    op: ReduceOp,
    memory: Memory<'_>,
) {
    match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_) => run(memory, T::add),
        ReduceOp::Product => run(memory, T::multiply),
        ReduceOp::Min => run(memory, T::least),
        ReduceOp::Max => run(memory, T::greatest),
        ReduceOp::Band => run(memory, T::and),
        ReduceOp::Bor => run(memory, T::or),
        ReduceOp::Bxor => run(memory, T::xor),
    }
}

fn float<T: Number<Bytes = [u8; N]>, const N: usize>(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Product => run(memory, T::multiply),
        ReduceOp::Min => run(memory, T::least),
        ReduceOp::Max => run(memory, T::greatest),
        // Bitwise operators have no meaning for floats and are refused before this point.
        _ => run(memory, T::add),
    }
}

fn truth(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Product | ReduceOp::Min | ReduceOp::Band => run(memory, Truth::and),
        ReduceOp::Bxor => run(memory, Truth::xor),
        _ => run(memory, Truth::or),
    }
}

fn f16(op: ReduceOp, memory: Memory<'_>) {
    #[cfg(target_arch = "x86_64")]
    if f16c::available() {
        return f16_by::<f16c::F16c>(op, memory);
    }
    f16_by::<Portable>(op, memory);
}

/// Numbers are converted several at a time; the last ones are filled up with zeros.
fn f16_by<C: Convert>(op: ReduceOp, memory: Memory<'_>) {
    match memory {
        Memory::Binary { into, from, order } => {
            let whole = into.len().min(from.len()) / LANES_BYTES * LANES_BYTES;
            let (into, into_rest) = into.split_at_mut(whole);
            let (from, from_rest) = from.split_at(whole);
            float::<F16s<C>, _>(op, Memory::Binary { into, from, order });
            let (mut last, bytes) = padded(into_rest, from_rest.len());
            let from = &padded(from_rest, bytes).0;
            float::<F16s<C>, _>(op, Memory::Binary { into: &mut last, from, order });
            into_rest[..bytes].copy_from_slice(&last[..bytes]);
        }
        Memory::Ternary { into, left, right } => {
            let shortest = into.len().min(left.len()).min(right.len());
            let whole = shortest / LANES_BYTES * LANES_BYTES;
            let (into, into_rest) = into.split_at_mut(whole);
            let (left, left_rest) = left.split_at(whole);
            let (right, right_rest) = right.split_at(whole);
            float::<F16s<C>, _>(op, Memory::Ternary { into, left, right });
            let (left, bytes) = padded(left_rest, shortest - whole);
            let (right, mut last) = (padded(right_rest, bytes).0, [0; LANES_BYTES]);
            let into = &mut last;
            float::<F16s<C>, _>(op, Memory::Ternary { into, left: &left, right: &right });
            into_rest[..bytes].copy_from_slice(&last[..bytes]);
        }
    }
}

fn f16_map(memory: &mut [u8], f: impl Fn(f32) -> f32 + Copy) {
    #[cfg(target_arch = "x86_64")]
    if f16c::available() {
        return f16_map_by::<f16c::F16c>(memory, f);
    }
    f16_map_by::<Portable>(memory, f);
}

fn f16_map_by<C: Convert>(memory: &mut [u8], f: impl Fn(f32) -> f32 + Copy) {
    let all = |numbers: F16s<C>| F16s::<C>::new(numbers.0.map(f));
    let (memory, rest) = memory.split_at_mut(memory.len() / LANES_BYTES * LANES_BYTES);
    unary(memory, all);
    let (mut last, bytes) = padded(rest, rest.len());
    unary(&mut last, all);
    rest[..bytes].copy_from_slice(&last[..bytes]);
}

/// The whole numbers among the first `bytes` bytes, fewer than are converted at a time, followed by
/// zeros; and their bytes.
fn padded(rest: &[u8], bytes: usize) -> ([u8; LANES_BYTES], usize) {
    let bytes = rest.len().min(bytes).min(LANES_BYTES - 1) / 2 * 2;
    let mut filled = [0; LANES_BYTES];
    filled[..bytes].copy_from_slice(&rest[..bytes]);
    (filled, bytes)
}

#[cfg(test)]
mod tests;
