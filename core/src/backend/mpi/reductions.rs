//! Which MPI type and operator stand for ours. Where MPI has none, or one that does something else
//! (half precision; the least and the greatest where a NaN is among them; sums of small integers,
//! at whose ends Open MPI's vector instructions stay instead of wrapping around), the operator is
//! made of our kernels. Knows no communicator.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use super::abi::{Constants, Handle};
use super::functions::UserFunction;
use super::world::World;
use crate::kernels::{self, Order};
use crate::{DType, ReduceOp, Result};

/// How elements are reduced by MPI.
#[derive(Clone, Copy)]
pub(super) struct Reduction<H> {
    pub(super) mpi_type: H,
    pub(super) op: H,
    /// How many of MPI's elements make one of ours.
    pub(super) parts: usize,
}

/// Operators that were made of kernels, by their place in [`Made`].
pub(super) struct Operators<H>([OnceLock<H>; MADE.len()]);

impl<H> Default for Operators<H> {
    fn default() -> Operators<H> {
        Operators(std::array::from_fn(|_| OnceLock::new()))
    }
}

/// The reduction of elements of `dtype` by `reduce_op`, which the element type has.
///
/// # Errors
/// [`crate::Error::Network`] if the library cannot make an operator.
pub(super) fn reduction<H: Handle>(
    world: &World<H>,
    reduce_op: ReduceOp,
    dtype: DType,
) -> Result<Reduction<H>> {
    let Constants { types, ops, .. } = &world.constants;
    let (mpi_type, parts) = mpi_type(world, dtype);
    // Averages and scaled sums are sums: what is left is done before and after.
    let reduce_op = match reduce_op {
        ReduceOp::Avg | ReduceOp::PremulSum(_) => ReduceOp::Sum,
        other => other,
    };
    let made = MADE.iter().position(|made| made.dtype == dtype && made.reduce_op == reduce_op);
    let op = match (reduce_op, dtype) {
        _ if made.is_some() => make(world, made.unwrap_or_default())?,
        // A bool is a byte of 0 or 1.
        (ReduceOp::Sum | ReduceOp::Max, DType::Bool) => ops.bor,
        (ReduceOp::Product | ReduceOp::Min, DType::Bool) => ops.band,
        (ReduceOp::Product, _) => ops.prod,
        (ReduceOp::Min, _) => ops.min,
        (ReduceOp::Max, _) => ops.max,
        (ReduceOp::Band, _) => ops.band,
        (ReduceOp::Bor, _) => ops.bor,
        (ReduceOp::Bxor, _) => ops.bxor,
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
pub(super) fn mpi_type<H: Handle>(world: &World<H>, dtype: DType) -> (H, usize) {
    let types = &world.constants.types;
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

fn make<H: Handle>(world: &World<H>, place: usize) -> Result<H> {
    let known = &world.operators.0[place];
    if let Some(op) = known.get() {
        return Ok(*op);
    }
    const COMMUTES: c_int = 1;
    let mut op = H::from_bits(0);
    // SAFETY: the function is of the type that MPI asks for, and lives as long as the program.
    let code = unsafe { (world.functions.op_create)(MADE[place].function, COMMUTES, &raw mut op) };
    world.check(code, "MPI_Op_create")?;
    // Of two threads that make it at once, one operator is kept for nothing.
    Ok(*known.get_or_init(|| op))
}

/// An operator that is made of a kernel.
struct Made {
    reduce_op: ReduceOp,
    dtype: DType,
    function: UserFunction,
}

macro_rules! made {
    ($($reduce_op:ident $dtype:ident,)*) => {
        [$(Made {
            reduce_op: ReduceOp::$reduce_op,
            dtype: DType::$dtype,
            function: {
                extern "C" fn function(
                    from: *mut c_void,
                    into: *mut c_void,
                    elements: *mut c_int,
                    _mpi_type: *mut c_void,
                ) {
                    // SAFETY: passed on as MPI gave them.
                    unsafe {
                        reduce(ReduceOp::$reduce_op, DType::$dtype, from, into, elements);
                    }
                }
                function
            },
        },)*]
    };
}

const MADE: [Made; 16] = made! {
    Sum F16, Product F16, Min F16, Max F16,
    Sum Bf16, Product Bf16, Min Bf16, Max Bf16,
    Min F32, Max F32, Min F64, Max F64,
    Sum U8, Sum I8, Sum U16, Sum I16,
};

/// `from ⊕ into` into `into`.
///
/// # Safety
/// As MPI calls a reduction: `elements` points to the number of elements that are at `from` and at
/// `into`, which do not overlap.
unsafe fn reduce(
    reduce_op: ReduceOp,
    dtype: DType,
    from: *mut c_void,
    into: *mut c_void,
    elements: *mut c_int,
) {
    // SAFETY: by the contract of this function.
    let elements = usize::try_from(unsafe { *elements }).unwrap_or(0);
    if elements == 0 {
        return;
    }
    let bytes = elements * dtype.size_bytes();
    // SAFETY: by the contract of this function: so many bytes are there, initialised, and nobody
    // else has them during the call.
    let (from, into) = unsafe {
        (
            std::slice::from_raw_parts(from.cast::<u8>(), bytes),
            std::slice::from_raw_parts_mut(into.cast::<u8>(), bytes),
        )
    };
    kernels::reduce(reduce_op, dtype, into, from, Order::FromFirst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_of_our_own_reduces_as_the_kernel_does() {
        let find = |reduce_op, dtype| {
            let made = MADE.iter().find(|it| it.reduce_op == reduce_op && it.dtype == dtype);
            made.map(|made| made.function)
        };
        let (mut from, mut into) = ([f32::NAN, 2.0, 5.0], [1.0_f32, 3.0, 4.0]);
        let mut elements: c_int = 3;
        let least = find(ReduceOp::Min, DType::F32);
        let Some(least) = least else { panic!("the least of f32 is our own") };
        least(
            from.as_mut_ptr().cast(),
            into.as_mut_ptr().cast(),
            &raw mut elements,
            std::ptr::null_mut(),
        );
        assert!(into[0].is_nan());
        assert_eq!(into[1..], [2.0, 4.0]);
        assert!(find(ReduceOp::Sum, DType::F32).is_none(), "MPI has that one");
    }
}
