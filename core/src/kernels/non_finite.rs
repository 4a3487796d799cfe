//! The search for floating-point elements that are not finite numbers. Knows no operators.

use crate::generated::dtype::DType;

/// An element that is not a finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonFinite {
    /// Its position among the elements.
    pub element: usize,
    /// `NaN`, `inf` or `-inf`; of a complex number, what its first such part is.
    pub value: &'static str,
}

/// Bytes that are searched before it is asked where: the search itself has no branches.
const BLOCK_BYTES: usize = 4096;

/// The first element of `memory` that is NaN, or, unless `allow_infinity`, infinite. None where the
/// elements are not floating-point numbers.
pub fn first_non_finite(dtype: DType, memory: &[u8], allow_infinity: bool) -> Option<NonFinite> {
    // IEEE 754, 3.4: all bits of the exponent are set; the rest is 0 for infinity only.
    let (number, sign) = match dtype {
        DType::F16 => search(memory, u16::from_ne_bytes, 0x7fff, 0x7c00, allow_infinity),
        DType::Bf16 => search(memory, u16::from_ne_bytes, 0x7fff, 0x7f80, allow_infinity),
        DType::F32 | DType::Complex64 => {
            search(memory, u32::from_ne_bytes, 0x7fff_ffff, 0x7f80_0000, allow_infinity)
        }
        DType::F64 | DType::Complex128 => {
            let (magnitude, infinity) = (u64::MAX >> 1, 0x7ff << 52);
            search(memory, u64::from_ne_bytes, magnitude, infinity, allow_infinity)
        }
        _ => None,
    }?;
    let is_complex = matches!(dtype, DType::Complex64 | DType::Complex128);
    Some(NonFinite { element: if is_complex { number / 2 } else { number }, value: sign })
}

/// The position of the first number that is not finite, and what it is. `magnitude` has all bits
/// but the sign; numbers whose magnitude is `infinity` or more are not finite.
fn search<const BYTES: usize, Bits>(
    memory: &[u8],
    bits: impl Fn([u8; BYTES]) -> Bits + Copy,
    magnitude: Bits,
    infinity: Bits,
    allow_infinity: bool,
) -> Option<(usize, &'static str)>
where
    Bits: Copy + Ord + std::ops::BitAnd<Output = Bits>,
{
    let is_wrong = |number: &[u8; BYTES]| {
        let size = bits(*number) & magnitude;
        if allow_infinity { size > infinity } else { size >= infinity }
    };
    let mut before = 0;
    for block in memory.chunks(BLOCK_BYTES) {
        let (numbers, _) = block.as_chunks::<BYTES>();
        if numbers.iter().fold(false, |any, number| any | is_wrong(number)) {
            let at = numbers.iter().position(is_wrong)?;
            let number = bits(numbers[at]);
            let value = match (number & magnitude).cmp(&infinity) {
                std::cmp::Ordering::Greater => "NaN",
                _ if number == infinity => "inf",
                _ => "-inf",
            };
            return Some((before + at, value));
        }
        before += numbers.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    fn found(dtype: DType, bytes: &[u8], allow_infinity: bool) -> Option<(usize, &'static str)> {
        first_non_finite(dtype, bytes, allow_infinity).map(|it| (it.element, it.value))
    }

    #[test]
    fn each_type_is_searched_for_what_is_not_finite() {
        let finite = [0.0, -1.5, f32::MAX.into(), 1e-30, 65504.0];
        for (value, name) in
            [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")]
        {
            for at in [0, 1, 2500, 4999] {
                let mut numbers: Vec<f64> = finite.iter().copied().cycle().take(5000).collect();
                numbers[at] = value;
                let expected = |allow: bool| (!allow || name == "NaN").then_some((at, name));
                let half = |x: &f64| if x.abs() > 65504.0 && x.is_finite() { 1.0 } else { *x };
                let forms: [(DType, Vec<u8>); 4] = [
                    (DType::F64, numbers.iter().flat_map(|x| x.to_ne_bytes()).collect()),
                    (DType::F32, numbers.iter().flat_map(|x| (*x as f32).to_ne_bytes()).collect()),
                    (
                        DType::F16,
                        numbers.iter().flat_map(|x| f16::from_f64(half(x)).to_ne_bytes()).collect(),
                    ),
                    (
                        DType::Bf16,
                        numbers
                            .iter()
                            .flat_map(|x| bf16::from_f64(half(x)).to_ne_bytes())
                            .collect(),
                    ),
                ];
                for (dtype, bytes) in forms {
                    for allow in [false, true] {
                        assert_eq!(found(dtype, &bytes, allow), expected(allow), "{dtype:?} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn parts_of_complex_numbers_count_for_their_number() {
        let parts = [1.0f32, 2.0, 3.0, f32::NAN, f32::INFINITY, 0.0];
        let bytes: Vec<u8> = parts.iter().flat_map(|x| x.to_ne_bytes()).collect();
        assert_eq!(found(DType::Complex64, &bytes, false), Some((1, "NaN")));
    }

    #[test]
    fn integers_and_nothing_are_left_alone() {
        let all_ones = [0xffu8; 64];
        for dtype in [DType::Bool, DType::U8, DType::I16, DType::U32, DType::I64] {
            assert_eq!(found(dtype, &all_ones, false), None);
        }
        assert_eq!(found(DType::F32, &[], false), None);
    }
}
