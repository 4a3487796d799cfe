//! Kernels of integers, which wrap, and of bool. Knows no floating-point numbers.

use super::Memory;
use crate::{DType, ReduceOp};

/// Reduces elements of an integer dtype or bool.
pub(super) fn reduce(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
    match dtype {
        DType::Bool => reduce_bool(op, memory),
        DType::U8 => reduce_u8(op, memory),
        DType::I8 => reduce_i8(op, memory),
        DType::U16 => reduce_u16(op, memory),
        DType::I16 => reduce_i16(op, memory),
        DType::U32 => reduce_u32(op, memory),
        DType::I32 => reduce_i32(op, memory),
        DType::U64 => reduce_u64(op, memory),
        DType::I64 => reduce_i64(op, memory),
        _ => super::unsupported(op.name(), dtype),
    }
}

/// Divides elements of an integer dtype by at least 1, toward zero.
pub(super) fn divide(dtype: DType, memory: &mut [u8], ranks: u32) {
    match dtype {
        DType::U8 => divide_u8(memory, ranks),
        DType::I8 => divide_i8(memory, ranks),
        DType::U16 => divide_u16(memory, ranks),
        DType::I16 => divide_i16(memory, ranks),
        DType::U32 => divide_u32(memory, ranks),
        DType::I32 => divide_i32(memory, ranks),
        DType::U64 => divide_u64(memory, ranks),
        DType::I64 => divide_i64(memory, ranks),
        _ => super::unsupported("AVG", dtype),
    }
}

/// Any byte but 0 is true; the result is 0 or 1.
fn reduce_bool(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Product | ReduceOp::Min | ReduceOp::Band => {
            memory.combine::<1>(|[a], [b]| [u8::from(a != 0) & u8::from(b != 0)]);
        }
        ReduceOp::Bxor => memory.combine::<1>(|[a], [b]| [u8::from(a != 0) ^ u8::from(b != 0)]),
        _ => memory.combine::<1>(|[a], [b]| [u8::from((a | b) != 0)]),
    }
}

macro_rules! integer {
    ($reduce:ident, $divide:ident, $type:ty, $bytes:literal, $wide:ty) => {
        fn $reduce(op: ReduceOp, memory: Memory<'_>) {
            #[inline(always)]
            fn with(memory: Memory<'_>, f: impl Fn($type, $type) -> $type) {
                memory.combine::<$bytes>(|left, right| {
                    f(<$type>::from_ne_bytes(left), <$type>::from_ne_bytes(right)).to_ne_bytes()
                });
            }
            match op {
                ReduceOp::Product => with(memory, |a, b| a.wrapping_mul(b)),
                ReduceOp::Min => with(memory, |a, b| a.min(b)),
                ReduceOp::Max => with(memory, |a, b| a.max(b)),
                ReduceOp::Band => with(memory, |a, b| a & b),
                ReduceOp::Bor => with(memory, |a, b| a | b),
                ReduceOp::Bxor => with(memory, |a, b| a ^ b),
                _ => with(memory, |a, b| a.wrapping_add(b)),
            }
        }

        fn $divide(memory: &mut [u8], ranks: u32) {
            let ranks = <$wide>::from(ranks);
            for element in memory.as_chunks_mut::<$bytes>().0 {
                let quotient = <$wide>::from(<$type>::from_ne_bytes(*element)) / ranks;
                // A quotient by at least 1 is not larger than the element, so that it fits.
                *element = (quotient as $type).to_ne_bytes();
            }
        }
    };
}

integer!(reduce_u8, divide_u8, u8, 1, u32);
integer!(reduce_i8, divide_i8, i8, 1, i64);
integer!(reduce_u16, divide_u16, u16, 2, u32);
integer!(reduce_i16, divide_i16, i16, 2, i64);
integer!(reduce_u32, divide_u32, u32, 4, u32);
integer!(reduce_i32, divide_i32, i32, 4, i64);
integer!(reduce_u64, divide_u64, u64, 8, u64);
integer!(reduce_i64, divide_i64, i64, 8, i64);
