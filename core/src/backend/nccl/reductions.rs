//! Which of NCCL's types and operators stand for ours. Knows no communicator.

use half::{bf16, f16};

use super::functions::{Op, Type, ops, types};
use crate::backend::Call;
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;

/// How elements are reduced by NCCL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reduction {
    pub(super) nccl_type: Type,
    pub(super) operator: Operator,
    /// How many of NCCL's elements make one of ours.
    pub(super) parts: usize,
}

/// An operator that NCCL has, or one that is to be made: the sum of elements times a factor, which
/// is given as the bytes of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operator {
    Known(Op),
    PremulSum([u8; 8]),
}

/// The reduction of elements of `dtype` by `reduce_op`, which the element type has.
///
/// # Errors
/// [`Error::Unsupported`] for what NCCL does not have: 16-bit integers, bitwise and logical
/// operators, pairs, functions.
pub(super) fn reduction(name: &str, reduce_op: ReduceOp, dtype: DType) -> Result<Reduction> {
    let (nccl_type, parts) = match dtype {
        DType::Bool | DType::U8 => (types::U8, 1),
        DType::I8 => (types::I8, 1),
        DType::U32 => (types::U32, 1),
        DType::I32 => (types::I32, 1),
        DType::U64 => (types::U64, 1),
        DType::I64 => (types::I64, 1),
        DType::F16 => (types::F16, 1),
        DType::Bf16 => (types::BF16, 1),
        DType::F32 => (types::F32, 1),
        DType::F64 => (types::F64, 1),
        DType::Complex64 => (types::F32, 2),
        DType::Complex128 => (types::F64, 2),
        DType::U16 | DType::I16 => return Err(unsupported(name, reduce_op, dtype)),
    };
    let operator = match (reduce_op, dtype) {
        // A bool is a byte of 0 or 1.
        (ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor, DType::Bool) => Operator::Known(ops::MAX),
        (ReduceOp::Product | ReduceOp::Min | ReduceOp::Band, DType::Bool) => {
            Operator::Known(ops::MIN)
        }
        (ReduceOp::Sum, _) => Operator::Known(ops::SUM),
        (ReduceOp::Avg, _) => Operator::Known(ops::AVG),
        (ReduceOp::Product, _) => Operator::Known(ops::PROD),
        (ReduceOp::Min, _) => Operator::Known(ops::MIN),
        (ReduceOp::Max, _) => Operator::Known(ops::MAX),
        (ReduceOp::PremulSum(factor), _) => Operator::PremulSum(element(factor, nccl_type)),
        (
            ReduceOp::Band
            | ReduceOp::Bor
            | ReduceOp::Bxor
            | ReduceOp::Land
            | ReduceOp::Lor
            | ReduceOp::Lxor
            | ReduceOp::Maxloc
            | ReduceOp::Minloc
            | ReduceOp::Custom(_),
            _,
        ) => {
            return Err(unsupported(name, reduce_op, dtype));
        }
    };
    Ok(Reduction { nccl_type, operator, parts })
}

/// Whether NCCL has it.
pub(super) fn has(reduce_op: ReduceOp, dtype: DType) -> bool {
    reduction("", reduce_op, dtype).is_ok()
}

/// Refuses what NCCL does not have, before anything is issued.
///
/// # Errors
/// [`Error::Unsupported`] for prefix reductions, and as [`reduction`].
pub(super) fn check(call: &Call) -> Result<()> {
    if matches!(call.collective, Collective::Scan | Collective::Exscan) {
        let operation = call.name.to_owned();
        return Err(Error::Unsupported { who: "the nccl backend".into(), operation });
    }
    match call.collective.facts().reduces {
        true => reduction(call.name, call.reduce_op, call.dtype).map(drop),
        false => Ok(()),
    }
}

/// A factor as an element of a type that has fractions, from the first byte on.
fn element(factor: f64, nccl_type: Type) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut put = |element: &[u8]| bytes[..element.len()].copy_from_slice(element);
    match nccl_type {
        types::F16 => put(&f16::from_f64(factor).to_ne_bytes()),
        types::BF16 => put(&bf16::from_f64(factor).to_ne_bytes()),
        types::F32 => put(&(factor as f32).to_ne_bytes()),
        _ => put(&factor.to_ne_bytes()),
    }
    bytes
}

fn unsupported(name: &str, reduce_op: ReduceOp, dtype: DType) -> Error {
    Error::Unsupported {
        who: "the nccl backend".into(),
        operation: format!("{name} of {} tensors with {}", dtype.name(), reduce_op.name()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_nccl_lacks_is_a_typed_error_and_nothing_else_is() {
        for dtype in DType::ALL {
            let all = ReduceOp::WITHOUT_FACTOR.into_iter().chain([ReduceOp::PremulSum(0.5)]);
            for reduce_op in all.filter(|it| it.supports(dtype)) {
                let bitwise = reduce_op.code() >= ReduceOp::Band.code()
                    && !matches!(reduce_op, ReduceOp::PremulSum(_));
                let narrow = matches!(dtype, DType::U16 | DType::I16);
                let of_bool = matches!(reduce_op, ReduceOp::Band | ReduceOp::Bor);
                let logic = dtype == DType::Bool && of_bool;
                assert_eq!(has(reduce_op, dtype), !narrow && (!bitwise || logic), "{dtype:?}");
            }
        }
        let error = reduction("allreduce", ReduceOp::Sum, DType::I16).unwrap_err().to_string();
        assert_eq!(error, "the nccl backend does not support allreduce of i16 tensors with SUM");
    }

    #[test]
    fn a_factor_is_an_element_of_the_type_that_is_summed() {
        let half = reduction("reduce", ReduceOp::PremulSum(0.5), DType::F16).unwrap();
        assert_eq!(half.operator, Operator::PremulSum([0x00, 0x38, 0, 0, 0, 0, 0, 0]));
        let pair = reduction("reduce", ReduceOp::PremulSum(1.0), DType::Complex64).unwrap();
        assert_eq!((pair.nccl_type, pair.parts), (types::F32, 2));
        assert_eq!(pair.operator, Operator::PremulSum([0, 0, 0x80, 0x3f, 0, 0, 0, 0]));
    }
}
