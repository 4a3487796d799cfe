//! Elements of which a library may round the last bits. Knows no case.

use half::{bf16, f16};
use polyrank::DType;

/// How often a result may be rounded: by each of a few ranks, at numbers a little above one.
const ROUNDINGS: f64 = 16.0;

/// Whether results of this type may be rounded.
pub fn rounds(dtype: DType) -> bool {
    use DType::{Bf16, Complex64, Complex128, F16, F32, F64};
    matches!(dtype, F16 | Bf16 | F32 | F64 | Complex64 | Complex128)
}

/// Whether the elements are equal but for rounding, as small numbers are: by no more than
/// sixteen times the distance of one from the next number. Other types round nothing.
pub fn are_close(dtype: DType, ours: &[u8], theirs: &[u8]) -> bool {
    let width = dtype.size_bytes();
    let epsilon = match dtype {
        DType::F16 => f64::from(f16::EPSILON),
        DType::Bf16 => f64::from(bf16::EPSILON),
        DType::F32 | DType::Complex64 => f64::from(f32::EPSILON),
        DType::F64 | DType::Complex128 => f64::EPSILON,
        _ => return ours == theirs,
    };
    ours.len() == theirs.len()
        && ours.chunks(width).zip(theirs.chunks(width)).all(|(one, other)| {
            let (one, other) = (parts(dtype, one), parts(dtype, other));
            one.iter().zip(other).all(|(one, other)| (one - other).abs() <= ROUNDINGS * epsilon)
        })
}

/// The real and the imaginary part of an element.
fn parts(dtype: DType, element: &[u8]) -> [f64; 2] {
    let two = |bytes: &[u8]| bytes.first_chunk().copied().unwrap_or_default();
    let four = |bytes: &[u8]| bytes.first_chunk().copied().unwrap_or_default();
    let eight = |bytes: &[u8]| bytes.first_chunk().copied().unwrap_or_default();
    let single = |bytes: &[u8]| f64::from(f32::from_le_bytes(four(bytes)));
    match dtype {
        DType::F16 => [f16::from_le_bytes(two(element)).into(), 0.0],
        DType::Bf16 => [bf16::from_le_bytes(two(element)).into(), 0.0],
        DType::F32 => [single(element), 0.0],
        DType::Complex64 => [single(element), single(&element[4..])],
        DType::F64 => [f64::from_le_bytes(eight(element)), 0.0],
        _ => [f64::from_le_bytes(eight(element)), f64::from_le_bytes(eight(&element[8..]))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bits_may_differ_and_no_others() {
        let [one, next] = [1.0_f32, 1.0 + f32::EPSILON].map(f32::to_le_bytes);
        assert!(are_close(DType::F32, &one, &next));
        assert!(!are_close(DType::F32, &one, &1.001_f32.to_le_bytes()));
        assert!(!are_close(DType::U8, &[1], &[2]));
        let bits = |number: f32| bf16::from_f32(number).to_le_bytes();
        assert!(are_close(DType::Bf16, &bits(1.0), &bits(1.0078)));
        assert!(!are_close(DType::Bf16, &bits(1.0), &bits(2.0)));
    }
}
