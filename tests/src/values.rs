//! Small integers as elements of every type, and what reductions of them are: the oracle.
//! Knows nothing of polyrank's kernels.

use half::{bf16, f16};
use polyrank::{DType, ReduceOp};

/// Element `index` of block `block` of `rank`: small, so that every type holds every reduction.
pub fn value(rank: u32, block: u32, index: usize) -> i64 {
    (i64::from(rank) * 3 + i64::from(block) * 5 + index as i64 * 7 + 1) % 4
}

/// The bytes of `values` as elements of `dtype`; a complex number has its negative as imaginary
/// part.
pub fn encode(dtype: DType, values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|&value| element(dtype, value as f64, value)).collect()
}

fn element(dtype: DType, real: f64, integer: i64) -> Vec<u8> {
    match dtype {
        DType::Bool => vec![u8::from(integer != 0)],
        DType::U8 => vec![integer as u8],
        DType::I8 => vec![integer as i8 as u8],
        DType::U16 => (integer as u16).to_ne_bytes().to_vec(),
        DType::I16 => (integer as i16).to_ne_bytes().to_vec(),
        DType::U32 => (integer as u32).to_ne_bytes().to_vec(),
        DType::I32 => (integer as i32).to_ne_bytes().to_vec(),
        DType::U64 => (integer as u64).to_ne_bytes().to_vec(),
        DType::I64 => integer.to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f64(real).to_ne_bytes().to_vec(),
        DType::Bf16 => bf16::from_f64(real).to_ne_bytes().to_vec(),
        DType::F32 => (real as f32).to_ne_bytes().to_vec(),
        DType::F64 => real.to_ne_bytes().to_vec(),
        DType::Complex64 => [(real as f32).to_ne_bytes(), (-real as f32).to_ne_bytes()].concat(),
        DType::Complex128 => [real.to_ne_bytes(), (-real).to_ne_bytes()].concat(),
    }
}

/// The bytes of one element: the reduction of `values`, one for each rank.
pub fn reduced(dtype: DType, reduce_op: ReduceOp, values: &[i64]) -> Vec<u8> {
    if dtype == DType::Bool {
        return vec![u8::from(reduced_bool(reduce_op, values))];
    }
    let integer = match reduce_op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_) => values.iter().sum(),
        ReduceOp::Product => values.iter().product(),
        ReduceOp::Min => values.iter().copied().min().unwrap_or(0),
        ReduceOp::Max => values.iter().copied().max().unwrap_or(0),
        ReduceOp::Band => values.iter().copied().fold(-1, |a, b| a & b),
        ReduceOp::Bor => values.iter().copied().fold(0, |a, b| a | b),
        ReduceOp::Bxor => values.iter().copied().fold(0, |a, b| a ^ b),
    };
    match reduce_op {
        ReduceOp::PremulSum(factor) => element(dtype, integer as f64 * factor, integer),
        ReduceOp::Avg => {
            let ranks = values.len() as i64;
            element(dtype, divided(dtype, integer, ranks), integer / ranks)
        }
        _ => element(dtype, integer as f64, integer),
    }
}

/// A quotient as the type itself would have it: one rounding, in the type's own precision.
fn divided(dtype: DType, sum: i64, ranks: i64) -> f64 {
    match dtype {
        DType::F32 | DType::Complex64 => f64::from(sum as f32 / ranks as f32),
        _ => sum as f64 / ranks as f64,
    }
}

fn reduced_bool(reduce_op: ReduceOp, values: &[i64]) -> bool {
    let mut set = values.iter().map(|&value| value != 0);
    match reduce_op {
        ReduceOp::Product | ReduceOp::Min | ReduceOp::Band => set.all(|value| value),
        ReduceOp::Bxor => set.filter(|&value| value).count() % 2 == 1,
        _ => set.any(|value| value),
    }
}

/// Every operator, with a factor that is exact in every type.
pub const REDUCE_OPS: [ReduceOp; 9] = [
    ReduceOp::Sum,
    ReduceOp::Avg,
    ReduceOp::Product,
    ReduceOp::Min,
    ReduceOp::Max,
    ReduceOp::Band,
    ReduceOp::Bor,
    ReduceOp::Bxor,
    ReduceOp::PremulSum(0.5),
];
