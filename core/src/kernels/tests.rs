//! Kernels against scalar code and known values.

#![allow(clippy::unwrap_used)]

use half::{bf16, f16};

use super::*;
use Order::{FromFirst, IntoFirst};

fn bytes<const N: usize>(elements: &[[u8; N]]) -> Vec<u8> {
    elements.concat()
}

fn f32s(elements: &[f32]) -> Vec<u8> {
    bytes(&elements.iter().map(|element| element.to_ne_bytes()).collect::<Vec<_>>())
}

fn reduced(op: ReduceOp, dtype: DType, into: &[u8], from: &[u8], order: Order) -> Vec<u8> {
    let mut result = into.to_vec();
    reduce(op, dtype, &mut result, from, order);
    let mut separate = vec![0xa5; into.len()];
    let (left, right) = if order == IntoFirst { (into, from) } else { (from, into) };
    reduce_into(op, dtype, &mut separate, left, right);
    assert_eq!(result, separate, "{op:?} {dtype:?}: reduce and reduce_into differ");
    result
}

#[test]
fn every_length_and_alignment() {
    for length in [0, 1, 3, 7, 8, 31, 64, 255, 256, 257, 1000] {
        let left: Vec<i32> = (0..length).map(|i| i * 3 - 50).collect();
        let right: Vec<i32> = (0..length).map(|i| 1000 - i * 7).collect();
        let expected: Vec<u8> =
            left.iter().zip(&right).flat_map(|(a, b)| (a + b).to_ne_bytes()).collect();
        for offset in 0..5 {
            let mut memory = vec![0; offset];
            memory.extend(left.iter().flat_map(|x| x.to_ne_bytes()));
            let mut from = vec![0; 4 - offset];
            from.extend(right.iter().flat_map(|x| x.to_ne_bytes()));
            reduce(
                ReduceOp::Sum,
                DType::I32,
                &mut memory[offset..],
                &from[4 - offset..],
                IntoFirst,
            );
            assert_eq!(memory[offset..], expected, "length {length}, offset {offset}");
        }
    }
}

#[test]
fn integers_wrap() {
    let sum = reduced(ReduceOp::Sum, DType::U8, &[250, 5], &[10, 5], IntoFirst);
    assert_eq!(sum, [4, 10]);
    let product = reduced(ReduceOp::Product, DType::I8, &[100], &[3], IntoFirst);
    assert_eq!(product, [(300_i32 as i8) as u8]);
    let min = reduced(ReduceOp::Min, DType::I8, &[0xff], &[1], IntoFirst);
    assert_eq!(min, [0xff], "-1 is less than 1");
    let max = reduced(ReduceOp::Max, DType::U8, &[0xff], &[1], IntoFirst);
    assert_eq!(max, [0xff], "255 is greater than 1");
}

#[test]
fn any_byte_but_zero_is_true() {
    let (left, right) = ([0, 0, 1, 2, 255], [0, 3, 0, 4, 1]);
    for (op, expected) in [
        (ReduceOp::Sum, [0, 1, 1, 1, 1]),
        (ReduceOp::Product, [0, 0, 0, 1, 1]),
        (ReduceOp::Min, [0, 0, 0, 1, 1]),
        (ReduceOp::Max, [0, 1, 1, 1, 1]),
        (ReduceOp::Band, [0, 0, 0, 1, 1]),
        (ReduceOp::Bor, [0, 1, 1, 1, 1]),
        (ReduceOp::Bxor, [0, 1, 1, 0, 0]),
    ] {
        assert_eq!(reduced(op, DType::Bool, &left, &right, IntoFirst), expected, "{op:?}");
    }
}

#[test]
fn nan_propagates_through_least_and_greatest() {
    let nan = f32::NAN;
    for op in [ReduceOp::Min, ReduceOp::Max] {
        for (a, b) in [(nan, 1.0), (1.0, nan), (nan, nan), (nan, f32::INFINITY)] {
            let result = reduced(op, DType::F32, &f32s(&[a; 9]), &f32s(&[b; 9]), IntoFirst);
            for element in result.as_chunks::<4>().0 {
                assert!(f32::from_ne_bytes(*element).is_nan(), "{op:?}({a}, {b})");
            }
        }
        let half = f16::NAN.to_ne_bytes();
        let one = f16::ONE.to_ne_bytes();
        let result = reduced(op, DType::F16, &half, &one, FromFirst);
        assert!(f16::from_ne_bytes([result[0], result[1]]).is_nan());
    }
}

#[test]
fn all_nans_become_one() {
    let payload = f32s(&[f32::from_bits(0xffc1_2345); 9]);
    let canonical = f32s(&[f32::NAN; 9]);
    for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max] {
        for other in [f32s(&[1.0; 9]), f32s(&[f32::from_bits(0x7fc5_4321); 9])] {
            assert_eq!(reduced(op, DType::F32, &payload, &other, IntoFirst), canonical, "{op:?}");
            assert_eq!(reduced(op, DType::F32, &other, &payload, IntoFirst), canonical, "{op:?}");
        }
    }
}

#[test]
fn the_order_of_operands_decides_between_signed_zeros() {
    let (plus, minus) = (f32s(&[0.0]), f32s(&[-0.0]));
    let first = reduced(ReduceOp::Min, DType::F32, &plus, &minus, IntoFirst);
    let second = reduced(ReduceOp::Min, DType::F32, &minus, &plus, FromFirst);
    assert_eq!(first, second, "the same expression gives the same bits wherever it is computed");
}

#[test]
fn half_precision_rounds_once_to_nearest_even() {
    // 2048 + 1 is a tie in binary16, whose neighbours are 2048 and 2050.
    let sum = reduced(
        ReduceOp::Sum,
        DType::F16,
        &f16::from_f32(2048.0).to_ne_bytes(),
        &f16::from_f32(1.0).to_ne_bytes(),
        IntoFirst,
    );
    assert_eq!(sum, f16::from_f32(2048.0).to_ne_bytes());
    // 256 + 1 is a tie in bfloat16, whose neighbours are 256 and 258.
    let sum = reduced(
        ReduceOp::Sum,
        DType::Bf16,
        &bf16::from_f32(256.0).to_ne_bytes(),
        &bf16::from_f32(1.0).to_ne_bytes(),
        IntoFirst,
    );
    assert_eq!(sum, bf16::from_f32(256.0).to_ne_bytes());
}

#[test]
fn complex_sums_are_sums_of_the_parts() {
    let sum = reduced(
        ReduceOp::Sum,
        DType::Complex64,
        &f32s(&[1.0, 2.0, 3.0, 4.0]),
        &f32s(&[10.0, 20.0, 30.0, 40.0]),
        IntoFirst,
    );
    assert_eq!(sum, f32s(&[11.0, 22.0, 33.0, 44.0]));
}

#[test]
fn division_truncates_integers_toward_zero() {
    let mut memory = bytes(&[(-7_i32).to_ne_bytes(), 7_i32.to_ne_bytes(), 2_i32.to_ne_bytes()]);
    divide(DType::I32, &mut memory, 3);
    let expected = [(-2_i32).to_ne_bytes(), 2_i32.to_ne_bytes(), 0_i32.to_ne_bytes()];
    assert_eq!(memory, bytes(&expected));
    let mut minimum = i8::MIN.to_ne_bytes();
    divide(DType::I8, &mut minimum, 300);
    assert_eq!(minimum, [0], "more ranks than an element can count");
}

#[test]
fn scaling_is_in_the_elements_own_precision() {
    let mut memory = f32s(&[3.0, -4.0]);
    scale(DType::F32, &mut memory, 0.1);
    assert_eq!(memory, f32s(&[3.0 * 0.1_f32, -4.0 * 0.1_f32]));
    let mut integers = vec![3, 4];
    scale(DType::U8, &mut integers, 2.0);
    assert_eq!(integers, [3, 4], "integers are not scaled");
}

/// xorshift64, so that a failure repeats.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn exact(op: ReduceOp, a: f64, b: f64) -> f64 {
    match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Product => a * b,
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        ReduceOp::Min => a.min(b),
        _ => a.max(b),
    }
}

#[test]
fn halves_of_every_length_are_rounded_from_the_exact_result() {
    let mut state = 42;
    for count in [0, 1, 7, 8, 9, 15, 16, 17, 255, 1025] {
        let pairs: Vec<[[u8; 2]; 2]> = (0..count)
            .map(|_| random(&mut state).to_ne_bytes())
            .map(|x| [[x[2], x[3]], [x[4], x[5]]])
            .collect();
        let left: Vec<u8> = pairs.iter().flat_map(|pair| pair[0]).collect();
        let right: Vec<u8> = pairs.iter().flat_map(|pair| pair[1]).collect();
        for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max] {
            let found = reduced(op, DType::F16, &left, &right, IntoFirst);
            for ([a, b], found) in pairs.iter().zip(found.as_chunks().0) {
                let (a, b) = (f16::from_ne_bytes(*a), f16::from_ne_bytes(*b));
                // Sums and products of two binary16 numbers are exact in binary64.
                let expected = f16::from_f64(exact(op, a.to_f64(), b.to_f64()));
                let found = f16::from_ne_bytes(*found);
                assert!(found == expected || found.is_nan() && expected.is_nan(), "{op:?} {a} {b}");
            }
            let found = reduced(op, DType::Bf16, &left, &right, IntoFirst);
            for ([a, b], found) in pairs.iter().zip(found.as_chunks().0) {
                let (a, b) = (bf16::from_ne_bytes(*a), bf16::from_ne_bytes(*b));
                let expected = bf16::from_f32(exact(op, a.to_f64(), b.to_f64()) as f32);
                let found = bf16::from_ne_bytes(*found);
                assert!(found == expected || found.is_nan() && expected.is_nan(), "{op:?} {a} {b}");
            }
        }
    }
}

type Encode = fn(f32) -> [u8; 2];

#[test]
fn halves_of_every_length_are_scaled_and_divided() {
    for count in [0, 1, 7, 8, 9, 100] {
        let values: Vec<f32> = (0..count).map(|at| (at % 16) as f32 * 3.0).collect();
        let encoders: [(DType, Encode); 2] = [
            (DType::F16, |x| f16::from_f32(x).to_ne_bytes()),
            (DType::Bf16, |x| bf16::from_f32(x).to_ne_bytes()),
        ];
        for (dtype, encode) in encoders {
            let bytes = |by: f32| values.iter().flat_map(|x| encode(x * by)).collect::<Vec<u8>>();
            let mut memory = bytes(1.0);
            scale(dtype, &mut memory, 0.5);
            assert_eq!(memory, bytes(0.5), "{dtype:?}");
            let mut memory = bytes(3.0);
            divide(dtype, &mut memory, 3);
            assert_eq!(memory, bytes(1.0), "{dtype:?}");
        }
    }
}

#[test]
fn integers_wrap_and_compare_as_their_type() {
    use DType::*;
    let integers = [(U8, false), (I8, true), (U16, false), (I16, true), (U32, false), (I32, true)];
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for (dtype, signed) in integers.into_iter().chain([(U64, false), (I64, true)]) {
        let bytes = dtype.size_bytes();
        let mut take = || (0..99 * bytes).map(|_| (random(&mut state) >> 24) as u8).collect();
        let (left, right): (Vec<u8>, Vec<u8>) = (take(), take());
        let ops = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max];
        for op in ops.into_iter().chain([ReduceOp::Band, ReduceOp::Bor, ReduceOp::Bxor]) {
            let result = reduced(op, dtype, &left, &right, IntoFirst);
            for at in (0..99).map(|at| at * bytes..(at + 1) * bytes) {
                let (a, b) = (wide(&left[at.clone()], signed), wide(&right[at.clone()], signed));
                let expected = match op {
                    ReduceOp::Sum => a + b,
                    ReduceOp::Product => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::Band => a & b,
                    ReduceOp::Bor => a | b,
                    _ => a ^ b,
                };
                assert_eq!(result[at], expected.to_le_bytes()[..bytes], "{dtype:?} {op:?} {a} {b}");
            }
        }
    }
}

/// The integer in little-endian `bytes`.
fn wide(bytes: &[u8], signed: bool) -> i128 {
    let negative = signed && bytes[bytes.len() - 1] & 0x80 != 0;
    let mut all = [if negative { 0xff } else { 0 }; 16];
    all[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(all)
}
