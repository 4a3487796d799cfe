//! Pairs of a value and an index: the greatest or the least value, and whose it is. One at a time:
//! they are few. Knows no instructions.

use half::{bf16, f16};

use super::Order;
use super::forms::Memory;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;

/// Runs one reduction of pairs.
pub(super) fn reduce(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
    let size = dtype.size_bytes();
    let pair = 2 * size;
    // Of pairs that are alike in all but their bits, the left one.
    let is_left = |left: &[u8], right: &[u8]| {
        let value = |pair: &[u8]| key(op, dtype, &pair[..size]);
        let index = |pair: &[u8]| key(ReduceOp::Minloc, dtype, &pair[size..]);
        match (value(left), value(right)) {
            (left_value, right_value) if left_value == right_value => index(left) <= index(right),
            (left, right) => (left > right) == (op == ReduceOp::Maxloc),
        }
    };
    match memory {
        Memory::Binary { into, from, order } => {
            for (into, from) in into.chunks_exact_mut(pair).zip(from.chunks_exact(pair)) {
                let stays = match order {
                    Order::IntoFirst => is_left(into, from),
                    Order::FromFirst => !is_left(from, into),
                };
                if !stays {
                    into.copy_from_slice(from);
                }
            }
        }
        Memory::Ternary { into, left, right, .. } => {
            let operands = left.chunks_exact(pair).zip(right.chunks_exact(pair));
            for (into, (left, right)) in into.chunks_exact_mut(pair).zip(operands) {
                into.copy_from_slice(if is_left(left, right) { left } else { right });
            }
        }
    }
}

/// A number that is greater for a greater element; that of NaN wins.
fn key(op: ReduceOp, dtype: DType, element: &[u8]) -> i128 {
    let float = match dtype {
        DType::F16 => f16::from_ne_bytes(bytes(element)).to_f64(),
        DType::Bf16 => bf16::from_ne_bytes(bytes(element)).to_f64(),
        DType::F32 => f32::from_ne_bytes(bytes(element)).into(),
        DType::F64 => f64::from_ne_bytes(bytes(element)),
        DType::U8 | DType::Bool => return element[0].into(),
        DType::I8 => return i8::from_ne_bytes(bytes(element)).into(),
        DType::U16 => return u16::from_ne_bytes(bytes(element)).into(),
        DType::I16 => return i16::from_ne_bytes(bytes(element)).into(),
        DType::U32 => return u32::from_ne_bytes(bytes(element)).into(),
        DType::I32 => return i32::from_ne_bytes(bytes(element)).into(),
        DType::U64 => return u64::from_ne_bytes(bytes(element)).into(),
        // Complex numbers have no order, and are refused before this point.
        DType::I64 | DType::Complex64 | DType::Complex128 => {
            return i64::from_ne_bytes(bytes(element)).into();
        }
    };
    if float.is_nan() {
        return if op == ReduceOp::Maxloc { i128::MAX } else { i128::MIN };
    }
    let magnitude = i128::from(float.to_bits() & !(1 << 63));
    if float.is_sign_negative() { -magnitude } else { magnitude }
}

fn bytes<const N: usize>(element: &[u8]) -> [u8; N] {
    element.first_chunk().copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::super::{Stores, reduce, reduce_into};
    use super::*;

    fn bytes_of(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    #[test]
    fn the_greatest_and_the_least_with_the_lowest_index() {
        let nan = f32::NAN;
        let left = bytes_of(&[1.0, 5.0, 3.0, 4.0, nan, 1.0, 2.0, 0.0, -0.0, 2.0, -7.0, 1.0]);
        let right = bytes_of(&[2.0, 0.0, 3.0, 2.0, 9.0, 0.0, nan, 7.0, 0.0, 1.0, -8.0, 0.0]);
        let most = bytes_of(&[2.0, 0.0, 3.0, 2.0, nan, 1.0, nan, 7.0, 0.0, 1.0, -7.0, 1.0]);
        let least = bytes_of(&[1.0, 5.0, 3.0, 2.0, nan, 1.0, nan, 7.0, 0.0, 1.0, -8.0, 0.0]);
        for (op, expected) in [(ReduceOp::Maxloc, most), (ReduceOp::Minloc, least)] {
            for (order, into, from) in
                [(Order::IntoFirst, &left, &right), (Order::FromFirst, &right, &left)]
            {
                let mut into = into.clone();
                reduce(op, DType::F32, &mut into, from, order);
                assert_eq!(into, expected, "{op:?} {order:?}");
            }
            let mut into = vec![0; left.len()];
            reduce_into(op, DType::F32, &mut into, &left, &right, Stores::Streaming);
            assert_eq!(into, expected, "{op:?}");
        }
    }

    #[test]
    fn integers_are_compared_with_their_signs() {
        let mut into = [-1_i8, 3].map(|it| it as u8);
        reduce(ReduceOp::Maxloc, DType::I8, &mut into, &[1, 9], Order::IntoFirst);
        assert_eq!(into, [1, 9]);
        let mut into = [255_u8, 3];
        reduce(ReduceOp::Maxloc, DType::U8, &mut into, &[1, 9], Order::IntoFirst);
        assert_eq!(into, [255, 3]);
    }
}
