//! Kernels of integers, which wrap, and of bool. Knows no floating-point numbers.

use super::memory::{Combine, Memory};
use super::operators::{Band, Bor, Bxor, Element, Elements, Max, Min, Operator, Product, Sum};
use crate::{DType, ReduceOp};

macro_rules! divide {
    ($type:ty, $wide:ty, $memory:ident, $ranks:ident) => {
        for element in $memory.as_chunks_mut().0 {
            let quotient = <$wide>::from(<$type>::from_ne_bytes(*element)) / <$wide>::from($ranks);
            // A quotient by at least 1 is not larger than the element, so that it fits.
            *element = (quotient as $type).to_ne_bytes();
        }
    };
}

/// Reduces elements of an integer dtype or bool.
#[inline(always)]
pub(super) fn reduce(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
    match dtype {
        DType::Bool => reduce_bool(op, memory),
        DType::U8 => reduce_type::<u8, 1>(op, memory),
        DType::I8 => reduce_type::<i8, 1>(op, memory),
        DType::U16 => reduce_type::<u16, 2>(op, memory),
        DType::I16 => reduce_type::<i16, 2>(op, memory),
        DType::U32 => reduce_type::<u32, 4>(op, memory),
        DType::I32 => reduce_type::<i32, 4>(op, memory),
        DType::U64 => reduce_type::<u64, 8>(op, memory),
        DType::I64 => reduce_type::<i64, 8>(op, memory),
        _ => super::unsupported(op.name(), dtype),
    }
}

/// Divides elements of an integer dtype by at least 1, toward zero.
pub(super) fn divide(dtype: DType, memory: &mut [u8], ranks: u32) {
    match dtype {
        DType::U8 => divide!(u8, u32, memory, ranks),
        DType::I8 => divide!(i8, i64, memory, ranks),
        DType::U16 => divide!(u16, u32, memory, ranks),
        DType::I16 => divide!(i16, i64, memory, ranks),
        DType::U32 => divide!(u32, u32, memory, ranks),
        DType::I32 => divide!(i32, i64, memory, ranks),
        DType::U64 => divide!(u64, u64, memory, ranks),
        DType::I64 => divide!(i64, i64, memory, ranks),
        _ => super::unsupported("AVG", dtype),
    }
}

/// Any byte but 0 is true; the result is 0 or 1.
#[inline(always)]
fn reduce_bool(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Product | ReduceOp::Min | ReduceOp::Band => memory.combine::<1, And>(),
        ReduceOp::Bxor => memory.combine::<1, Xor>(),
        _ => memory.combine::<1, Or>(),
    }
}

struct And;
struct Or;
struct Xor;

impl Combine<1> for And {
    #[inline(always)]
    fn combine([a]: [u8; 1], [b]: [u8; 1]) -> [u8; 1] {
        [u8::from(a != 0) & u8::from(b != 0)]
    }
}

impl Combine<1> for Or {
    #[inline(always)]
    fn combine([a]: [u8; 1], [b]: [u8; 1]) -> [u8; 1] {
        [u8::from((a | b) != 0)]
    }
}

impl Combine<1> for Xor {
    #[inline(always)]
    fn combine([a]: [u8; 1], [b]: [u8; 1]) -> [u8; 1] {
        [u8::from(a != 0) ^ u8::from(b != 0)]
    }
}

#[inline(always)]
fn reduce_type<T: Element<N>, const N: usize>(op: ReduceOp, memory: Memory<'_>)
where
    Sum: Operator<T>,
    Product: Operator<T>,
    Min: Operator<T>,
    Max: Operator<T>,
    Band: Operator<T>,
    Bor: Operator<T>,
    Bxor: Operator<T>,
{
    match op {
        ReduceOp::Product => memory.combine::<N, Elements<T, Product>>(),
        ReduceOp::Min => memory.combine::<N, Elements<T, Min>>(),
        ReduceOp::Max => memory.combine::<N, Elements<T, Max>>(),
        ReduceOp::Band => memory.combine::<N, Elements<T, Band>>(),
        ReduceOp::Bor => memory.combine::<N, Elements<T, Bor>>(),
        ReduceOp::Bxor => memory.combine::<N, Elements<T, Bxor>>(),
        _ => memory.combine::<N, Elements<T, Sum>>(),
    }
}
