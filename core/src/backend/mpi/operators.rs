//! Operators that MPI does not have, or has for something else, made of our kernels: the functions,
//! and room for the library's handles of them. Knows no library.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use super::functions::UserFunction;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::{self, Order};

/// Operators that were made of kernels, by their place in [`KERNEL_OPERATORS`].
pub(super) struct Operators<H>(pub(super) [OnceLock<H>; KERNEL_OPERATORS.len()]);

impl<H> Default for Operators<H> {
    fn default() -> Operators<H> {
        Operators(std::array::from_fn(|_| OnceLock::new()))
    }
}

/// An operator that is made of a kernel.
pub(super) struct KernelOperator {
    pub(super) reduce_op: ReduceOp,
    pub(super) dtype: DType,
    pub(super) function: UserFunction,
}

macro_rules! kernel_operators {
    ($($reduce_op:ident $dtype:ident,)*) => {
        [$(KernelOperator {
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

/// All that are.
pub(super) const KERNEL_OPERATORS: [KernelOperator; 16] = kernel_operators! {
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
            let made =
                KERNEL_OPERATORS.iter().find(|it| it.reduce_op == reduce_op && it.dtype == dtype);
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
