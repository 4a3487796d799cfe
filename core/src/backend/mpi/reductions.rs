//! Which MPI type and operator stand for ours. Where MPI has none, or one that does something else
//! (half precision; the least and the greatest where a NaN is among them; sums of small integers,
//! at whose ends Open MPI's vector instructions stay instead of wrapping around), the operator is
//! one of our own. Knows no communicator.

#![allow(unsafe_code)]

use std::ffi::c_int;

use super::abi::{Constants, Handle};
use super::job::Job;
use super::operators::KERNEL_OPERATORS;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;

/// How elements are reduced by MPI.
#[derive(Clone, Copy)]
pub(super) struct Reduction<H> {
    pub(super) mpi_type: H,
    pub(super) op: H,
    /// How many of MPI's elements make one of ours.
    pub(super) parts: usize,
}

/// The reduction of elements of `dtype` by `reduce_op`, which the element type has.
///
/// # Errors
/// [`crate::Error::Network`] if the library cannot make an operator.
pub(super) fn reduction<H: Handle>(
    job: &Job<H>,
    reduce_op: ReduceOp,
    dtype: DType,
) -> Result<Reduction<H>> {
    let Constants { types, ops, .. } = &job.constants;
    if reduce_op.takes_pairs() {
        return Err(Error::Unsupported {
            who: "the mpi backend".into(),
            operation: format!("reductions with {}", reduce_op.name()),
        });
    }
    let (mpi_type, parts) = mpi_type(job, dtype);
    // Averages and scaled sums are sums: what is left is done before and after.
    let reduce_op = match reduce_op {
        ReduceOp::Avg | ReduceOp::PremulSum(_) => ReduceOp::Sum,
        other => other,
    };
    let made =
        KERNEL_OPERATORS.iter().position(|made| made.dtype == dtype && made.reduce_op == reduce_op);
    let op = match (reduce_op, dtype) {
        _ if made.is_some() => make(job, made.unwrap_or_default())?,
        // A bool is a byte of 0 or 1.
        (ReduceOp::Sum | ReduceOp::Max | ReduceOp::Lor, DType::Bool) => ops.bor,
        (ReduceOp::Product | ReduceOp::Min | ReduceOp::Land, DType::Bool) => ops.band,
        (ReduceOp::Lxor, DType::Bool) => ops.bxor,
        (ReduceOp::Product, _) => ops.prod,
        (ReduceOp::Min, _) => ops.min,
        (ReduceOp::Max, _) => ops.max,
        (ReduceOp::Band, _) => ops.band,
        (ReduceOp::Bor, _) => ops.bor,
        (ReduceOp::Bxor, _) => ops.bxor,
        (ReduceOp::Land, _) => ops.land,
        (ReduceOp::Lor, _) => ops.lor,
        (ReduceOp::Lxor, _) => ops.lxor,
        _ => ops.sum,
    };
    // Sums and products wrap around, which C says of unsigned integers only.
    let mpi_type = match (reduce_op, dtype) {
        (ReduceOp::Min | ReduceOp::Max, _) => mpi_type,
        (_, DType::I8) => types.u8,
        (_, DType::I16) => types.u16,
        (_, DType::I32) => types.u32,
        (_, DType::I64) => types.u64,
        _ => mpi_type,
    };
    Ok(Reduction { mpi_type, op, parts })
}

/// MPI's type for elements of `dtype`, and how many of its elements make one of ours.
pub(super) fn mpi_type<H: Handle>(job: &Job<H>, dtype: DType) -> (H, usize) {
    let types = &job.constants.types;
    match dtype {
        DType::Bool | DType::U8 => (types.u8, 1),
        DType::I8 => (types.i8, 1),
        DType::U16 | DType::F16 | DType::Bf16 => (types.u16, 1),
        DType::I16 => (types.i16, 1),
        DType::U32 => (types.u32, 1),
        DType::I32 => (types.i32, 1),
        DType::U64 => (types.u64, 1),
        DType::I64 => (types.i64, 1),
        DType::F32 => (types.f32, 1),
        DType::F64 => (types.f64, 1),
        DType::Complex64 => (types.f32, 2),
        DType::Complex128 => (types.f64, 2),
    }
}

fn make<H: Handle>(job: &Job<H>, place: usize) -> Result<H> {
    let known = &job.operators.0[place];
    if let Some(op) = known.get() {
        return Ok(*op);
    }
    const COMMUTES: c_int = 1;
    let mut op = H::from_bits(0);
    // SAFETY: the function is of the type that MPI asks for, and lives as long as the program.
    let code = unsafe {
        (job.functions.op_create)(KERNEL_OPERATORS[place].function, COMMUTES, &raw mut op)
    };
    job.check(code, "MPI_Op_create")?;
    // Of two threads that make it at once, one operator is kept for nothing.
    Ok(*known.get_or_init(|| op))
}
