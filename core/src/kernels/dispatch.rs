//! Which loop runs for an operator and an element type. Knows no instructions.

use super::f16_conversion::{self, Portable};
use super::halves::{Bf16s, ComparedBf16, ComparedF16, Convert, F16s, Half};
use super::loops::{binary, ternary, ternary_streaming, unary};
use super::number::{Bits, Float, Lanes, Number, Ordered, Truth};
use super::processor::{self, Vectors, as_ieee};
use super::quotient::Quotient;
use super::{Order, Stores};
use crate::{DType, ReduceOp};

/// The operands of one reduction.
pub(super) enum Memory<'a> {
    Binary { into: &'a mut [u8], from: &'a [u8], order: Order },
    Ternary { into: &'a mut [u8], left: &'a [u8], right: &'a [u8], stores: Stores },
}

/// Carries out one reduction.
pub(super) fn reduce(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
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
        DType::F16 => as_ieee(|| by_conversion(F16 { op, memory })),
        DType::Bf16 => as_ieee(|| float::<Bf16s, ComparedBf16, _, _>(op, memory)),
        // Only sums have a meaning for complex numbers, and those are sums of their parts.
        DType::F32 | DType::Complex64 => as_ieee(|| float::<f32, f32, _, _>(op, memory)),
        DType::F64 | DType::Complex128 => as_ieee(|| float::<f64, f64, _, _>(op, memory)),
    }
}

/// Multiplies floating-point elements.
pub(super) fn scale(dtype: DType, memory: &mut [u8], factor: f64) {
    let narrow = factor as f32;
    as_ieee(|| match dtype {
        DType::F16 => by_conversion(Map { memory, f: move |x: f32| x * narrow }),
        DType::Bf16 => map::<Bf16s, _>(memory, move |x| x * narrow),
        DType::F32 | DType::Complex64 => unary(memory, move |x: f32| (x * narrow).canonical()),
        DType::F64 | DType::Complex128 => unary(memory, move |x: f64| (x * factor).canonical()),
        _ => {}
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
        DType::F16 => by_conversion(Map { memory, f: move |x: f32| x / narrow }),
        DType::Bf16 => map::<Bf16s, _>(memory, move |x| x / narrow),
        DType::F32 | DType::Complex64 => unary(memory, move |x: f32| (x / narrow).canonical()),
        DType::F64 | DType::Complex128 => unary(memory, move |x: f64| (x / wide).canonical()),
    });
}

/// Where the order of operands makes no difference.
fn commutes<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    memory: Memory<'_>,
    f: impl Fn(T, T) -> T + Copy,
) {
    match memory {
        Memory::Binary { into, from, .. } => binary(into, from, f),
        Memory::Ternary { into, left, right, stores: Stores::Cached } => {
            ternary(into, left, right, f);
        }
        Memory::Ternary { into, left, right, stores: Stores::Streaming } => {
            ternary_streaming(into, left, right, f);
        }
    }
}

/// Where it decides between signed zeros.
fn ordered<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    memory: Memory<'_>,
    f: impl Fn(T, T) -> T + Copy,
) {
    match memory {
        Memory::Binary { into, from, order: Order::FromFirst } => {
            binary(
                into,
                from,
                #[inline(always)]
                move |into, from| f(from, into),
            );
        }
        other => commutes(other, f),
    }
}

fn integer<T: Number + Ordered + Bits + Lanes<Bytes = [u8; N]>, const N: usize>(
    op: ReduceOp,
    memory: Memory<'_>,
) {
    match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_) => commutes(memory, T::add),
        ReduceOp::Product => commutes(memory, T::multiply),
        ReduceOp::Min => commutes(memory, T::least),
        ReduceOp::Max => commutes(memory, T::greatest),
        ReduceOp::Band => commutes(memory, T::and),
        ReduceOp::Bor => commutes(memory, T::or),
        ReduceOp::Bxor => commutes(memory, T::xor),
    }
}

/// Elements that are computed with as `A`, and compared as `C`.
fn float<A, C, const N: usize, const M: usize>(op: ReduceOp, memory: Memory<'_>)
where
    A: Number + Lanes<Bytes = [u8; N]>,
    C: Ordered + Lanes<Bytes = [u8; M]>,
{
    match op {
        ReduceOp::Product => commutes(memory, A::multiply),
        ReduceOp::Min => ordered(memory, C::least),
        ReduceOp::Max => ordered(memory, C::greatest),
        // Bitwise operators have no meaning for floats and are refused before this point.
        _ => commutes(memory, A::add),
    }
}

fn truth(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Product | ReduceOp::Min | ReduceOp::Band => commutes(memory, Truth::and),
        ReduceOp::Bxor => commutes(memory, Truth::xor),
        _ => commutes(memory, Truth::or),
    }
}

fn quotients<T: Quotient + Lanes<Bytes = [u8; N]>, const N: usize>(memory: &mut [u8], parts: u32) {
    let divisor = T::divisor(parts);
    unary(
        memory,
        #[inline(always)]
        move |element: T| element.divided(divisor),
    );
}

fn map<T: Half + Lanes<Bytes = [u8; N]>, const N: usize>(
    memory: &mut [u8],
    f: impl Fn(f32) -> f32 + Copy,
) {
    unary(
        memory,
        #[inline(always)]
        move |elements: T| elements.map(f),
    );
}

/// What is done with binary16 numbers, once it is known how they are converted.
trait WithConversion {
    fn run<C: Convert>(self);
}

fn by_conversion(what: impl WithConversion) {
    match processor::vectors() {
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx512 => what.run::<f16_conversion::Avx512>(),
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2 => what.run::<f16_conversion::Avx2>(),
        Vectors::Baseline => what.run::<Portable>(),
    }
}

struct F16<'a> {
    op: ReduceOp,
    memory: Memory<'a>,
}

impl WithConversion for F16<'_> {
    fn run<C: Convert>(self) {
        float::<F16s<C>, ComparedF16, _, _>(self.op, self.memory);
    }
}

struct Map<'a, F> {
    memory: &'a mut [u8],
    f: F,
}

impl<F: Fn(f32) -> f32 + Copy> WithConversion for Map<'_, F> {
    fn run<C: Convert>(self) {
        map::<F16s<C>, _>(self.memory, self.f);
    }
}
