//! Compares every kernel to arithmetic on single values, written out by hand here: exact integers
//! in i128, halves in f64, and known answers for NaN, zeros, ties and wrap-around.

#![allow(clippy::unwrap_used)]

use half::{bf16, f16};

use super::{divide, reduce, reduce_into, scale};
use crate::schedule::Operands::{IncomingFirst, LocalFirst};
use crate::{DType, ReduceOp};

const OPS: [ReduceOp; 7] = [
    ReduceOp::Sum,
    ReduceOp::Product,
    ReduceOp::Min,
    ReduceOp::Max,
    ReduceOp::Band,
    ReduceOp::Bor,
    ReduceOp::Bxor,
];

/// Counts of elements around vector widths and batches.
const COUNTS: [usize; 9] = [0, 1, 2, 3, 7, 31, 64, 513, 1025];

/// xorshift64, so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 24) as u8).collect()
    }
}

/// Reduces in place and apart, in both orders, at an odd address, and wants the same each time.
fn reduced(op: ReduceOp, dtype: DType, left: &[u8], right: &[u8]) -> Vec<u8> {
    let shifted = |bytes: &[u8]| [&[0xAA], bytes].concat();
    let (mut into, from) = (shifted(left), shifted(right));
    reduce(op, dtype, &mut into[1..], &from[1..], LocalFirst);
    let result = into[1..].to_vec();
    assert_eq!(into[0], 0xAA);

    let mut other_way = left.to_vec();
    reduce(op, dtype, &mut other_way, right, IncomingFirst);
    assert_eq!(other_way, result, "{op:?} {dtype:?} in place, incoming first");
    for (first, second) in [(left, right), (right, left)] {
        let mut apart = vec![0xBB; 1 + left.len()];
        let (first, second) = (shifted(first), shifted(second));
        reduce_into(op, dtype, &mut apart[1..], &first[1..], &second[1..], LocalFirst);
        assert_eq!(apart[1..], result, "{op:?} {dtype:?} apart");
    }
    result
}

/// The integer in `bytes`, sign-extended if `signed`.
fn read(bytes: &[u8], signed: bool) -> i128 {
    let mut wide = if signed && bytes[bytes.len() - 1] & 0x80 != 0 { [0xFF; 16] } else { [0; 16] };
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

fn integers() -> impl Iterator<Item = (DType, bool)> {
    use DType::*;
    [(U8, false), (I8, true), (U16, false), (I16, true)].into_iter().chain([
        (U32, false),
        (I32, true),
        (U64, false),
        (I64, true),
    ])
}

#[test]
fn integers_wrap_and_compare_as_their_type() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for (dtype, signed) in integers() {
        let bytes = dtype.size_bytes();
        for count in COUNTS {
            let left = random.bytes(count * bytes);
            let right = random.bytes(count * bytes);
            for op in OPS {
                let result = reduced(op, dtype, &left, &right);
                for at in (0..count).map(|at| at * bytes..(at + 1) * bytes) {
                    let (a, b) =
                        (read(&left[at.clone()], signed), read(&right[at.clone()], signed));
                    let exact = match op {
                        ReduceOp::Sum => a + b,
                        ReduceOp::Product => a.wrapping_mul(b),
                        ReduceOp::Min => a.min(b),
                        ReduceOp::Max => a.max(b),
                        ReduceOp::Band => a & b,
                        ReduceOp::Bor => a | b,
                        _ => a ^ b,
                    };
                    let expected = &exact.to_le_bytes()[..bytes];
                    assert_eq!(&result[at], expected, "{dtype:?} {op:?} of {a} and {b}");
                }
            }
        }
    }
}

#[test]
fn integers_divide_toward_zero() {
    let mut random = Random(7);
    for (dtype, signed) in integers() {
        let bytes = dtype.size_bytes();
        for ranks in [1, 2, 3, 200, u32::MAX] {
            let mut memory = [&[0x80][..], &random.bytes(65 * bytes)].concat();
            let before = memory.clone();
            divide(dtype, &mut memory[1..], ranks);
            for at in (0..65).map(|at| 1 + at * bytes..1 + (at + 1) * bytes) {
                let exact = read(&before[at.clone()], signed) / i128::from(ranks);
                assert_eq!(memory[at], exact.to_le_bytes()[..bytes], "{dtype:?} by {ranks}");
            }
        }
    }
    let mut memory = [-7i8, 7, -128].map(|x| x as u8);
    divide(DType::I8, &mut memory, 2);
    assert_eq!(memory.map(|x| x as i8), [-3, 3, -64]);
    let mut memory = i64::MIN.to_ne_bytes();
    divide(DType::I64, &mut memory, 0);
    assert_eq!(i64::from_ne_bytes(memory), i64::MIN);
}

#[test]
fn any_byte_but_zero_is_true() {
    let (left, right) = ([0, 0, 1, 1, 2, 0, 4], [0, 1, 0, 1, 1, 255, 8]);
    for (ops, expected) in [
        (&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::Bor][..], [0, 1, 1, 1, 1, 1, 1]),
        (&[ReduceOp::Product, ReduceOp::Min, ReduceOp::Band], [0, 0, 0, 1, 1, 0, 1]),
        (&[ReduceOp::Bxor], [0, 1, 1, 0, 0, 1, 0]),
    ] {
        for &op in ops {
            assert_eq!(reduced(op, DType::Bool, &left, &right), expected, "{op:?}");
        }
    }
}

fn bytes_of<T: Copy, const N: usize>(values: &[T], to: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| to(value)).collect()
}

fn f32s(op: ReduceOp, left: &[f32], right: &[f32]) -> Vec<f32> {
    let bytes = |values: &[f32]| bytes_of(values, f32::to_ne_bytes);
    let result = reduced(op, DType::F32, &bytes(left), &bytes(right));
    result.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
}

fn f64s(op: ReduceOp, left: &[f64], right: &[f64]) -> Vec<f64> {
    let bytes = |values: &[f64]| bytes_of(values, f64::to_ne_bytes);
    let result = reduced(op, DType::F64, &bytes(left), &bytes(right));
    result.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect()
}

#[test]
fn floats_of_every_length_are_reduced() {
    for count in COUNTS {
        // Small whole numbers, so that every result is exact.
        let left: Vec<i32> = (0..count as i32).map(|at| at % 37 - 18).collect();
        let right: Vec<i32> = (0..count as i32).map(|at| at % 23 - 11).collect();
        for op in &OPS[..4] {
            let expected: Vec<i32> = left
                .iter()
                .zip(&right)
                .map(|(&a, &b)| match op {
                    ReduceOp::Sum => a + b,
                    ReduceOp::Product => a * b,
                    ReduceOp::Min => a.min(b),
                    _ => a.max(b),
                })
                .collect();
            let wide = |values: &[i32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            let single = |values: &[i32]| values.iter().map(|&x| x as f32).collect::<Vec<_>>();
            assert_eq!(f32s(*op, &single(&left), &single(&right)), single(&expected));
            assert_eq!(f64s(*op, &wide(&left), &wide(&right)), wide(&expected));
        }
    }
}

#[test]
fn nan_propagates_in_one_form() {
    let odd = f32::from_bits(0xFFC1_2345);
    let (left, right) = ([odd, 1.0, odd, f32::NAN], [1.0, odd, f32::NAN, odd]);
    for op in &OPS[..4] {
        for result in f32s(*op, &left, &right) {
            assert_eq!(result.to_bits(), f32::NAN.to_bits(), "{op:?}");
        }
    }
    let odd = f64::from_bits(0xFFF8_0000_0000_0001);
    for op in &OPS[..4] {
        for result in f64s(*op, &[odd, 2.0], &[3.0, odd]) {
            assert_eq!(result.to_bits(), f64::NAN.to_bits(), "{op:?}");
        }
    }
    let infinite = [f32::INFINITY; 9];
    for result in f32s(ReduceOp::Sum, &infinite, &infinite.map(|x| -x)) {
        assert_eq!(result.to_bits(), f32::NAN.to_bits());
    }
    assert_eq!(f32s(ReduceOp::Max, &infinite, &[1.0; 9]), infinite);
}

#[test]
fn negative_zero_is_less_than_positive_zero() {
    let (left, right) = ([0.0, -0.0, 0.0, -0.0], [0.0, 0.0, -0.0, -0.0]);
    let signs =
        |op| f32s(op, &left, &right).iter().map(|x| x.is_sign_negative()).collect::<Vec<_>>();
    assert_eq!(signs(ReduceOp::Min), [false, true, true, true]);
    assert_eq!(signs(ReduceOp::Max), [false, false, false, true]);
    assert_eq!(signs(ReduceOp::Sum), [false, false, false, true]);
    assert_eq!(signs(ReduceOp::Product), [false, true, true, false]);
}

#[test]
fn halves_are_rounded_to_even_from_the_exact_result() {
    let mut random = Random(42);
    for count in COUNTS {
        let bits: Vec<(u16, u16)> = (0..count)
            .map(|_| ((random.next() >> 16) as u16, (random.next() >> 16) as u16))
            .collect();
        let left = bytes_of(&bits, |pair| pair.0.to_ne_bytes());
        let right = bytes_of(&bits, |pair| pair.1.to_ne_bytes());
        for op in &OPS[..4] {
            let found = reduced(*op, DType::F16, &left, &right);
            for (&(a, b), found) in bits.iter().zip(found.as_chunks().0) {
                let (a, b) = (f16::from_bits(a), f16::from_bits(b));
                let found = f16::from_ne_bytes(*found);
                // Sums and products of two f16 are exact in f64.
                let expected = f16::from_f64(exact(*op, a.to_f64(), b.to_f64()));
                assert!(found == expected || found.is_nan() && expected.is_nan(), "{op:?} {a} {b}");
            }
            let found = reduced(*op, DType::Bf16, &left, &right);
            for (&(a, b), found) in bits.iter().zip(found.as_chunks().0) {
                let (a, b) = (bf16::from_bits(a), bf16::from_bits(b));
                let found = bf16::from_ne_bytes(*found);
                let single = exact(*op, a.to_f64(), b.to_f64()) as f32;
                let expected = bf16::from_f32(single);
                assert!(found == expected || found.is_nan() && expected.is_nan(), "{op:?} {a} {b}");
            }
        }
    }
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
fn halves_round_ties_to_even() {
    // 2048 + 1 lies between 2048 and 2050, 2050 + 1 between 2050 and 2052.
    let bytes = |values: &[f32]| bytes_of(values, |x| f16::from_f32(x).to_ne_bytes());
    let sum = reduced(ReduceOp::Sum, DType::F16, &bytes(&[2048.0, 2050.0]), &bytes(&[1.0, 1.0]));
    assert_eq!(sum, bytes(&[2048.0, 2052.0]));
    // bf16 keeps eight bits: 256 + 1 is a tie, 258 + 1 too.
    let bytes = |values: &[f32]| bytes_of(values, |x| bf16::from_f32(x).to_ne_bytes());
    let sum = reduced(ReduceOp::Sum, DType::Bf16, &bytes(&[256.0, 258.0]), &bytes(&[1.0, 1.0]));
    assert_eq!(sum, bytes(&[256.0, 260.0]));
}

#[test]
fn complex_numbers_add_part_by_part() {
    let bytes = |values: &[f32]| bytes_of(values, f32::to_ne_bytes);
    let (left, right) = (bytes(&[1.0, -2.0, 3.0, 0.5]), bytes(&[10.0, 20.0, -3.0, 0.25]));
    assert_eq!(
        reduced(ReduceOp::Sum, DType::Complex64, &left, &right),
        bytes(&[11.0, 18.0, 0.0, 0.75])
    );
    let mut memory = bytes_of(&[3.0, -6.0], f64::to_ne_bytes);
    divide(DType::Complex128, &mut memory, 3);
    assert_eq!(memory, bytes_of(&[1.0, -2.0], f64::to_ne_bytes));
    scale(DType::Complex128, &mut memory, -0.5);
    assert_eq!(memory, bytes_of(&[-0.5, 1.0], f64::to_ne_bytes));
}

#[test]
fn scaling_and_averaging_keep_exact_values() {
    let values: Vec<f32> = (0..1025).map(|at| (at % 64) as f32 * 3.0).collect();
    let scaled: Vec<f32> = values.iter().map(|x| x * 0.5).collect();
    let averaged: Vec<f32> = values.iter().map(|x| x / 3.0).collect();
    let encoders: [(DType, fn(f32) -> Vec<u8>); 4] = [
        (DType::F32, |x| x.to_ne_bytes().to_vec()),
        (DType::F64, |x| f64::from(x).to_ne_bytes().to_vec()),
        (DType::F16, |x| f16::from_f32(x).to_ne_bytes().to_vec()),
        (DType::Bf16, |x| bf16::from_f32(x).to_ne_bytes().to_vec()),
    ];
    for (dtype, encode) in encoders {
        let bytes = |values: &[f32]| -> Vec<u8> {
            [vec![0xEE], values.iter().flat_map(|&x| encode(x)).collect()].concat()
        };
        let mut memory = bytes(&values);
        scale(dtype, &mut memory[1..], 0.5);
        assert_eq!(memory, bytes(&scaled), "{dtype:?}");
        let mut memory = bytes(&values);
        divide(dtype, &mut memory[1..], 3);
        assert_eq!(memory, bytes(&averaged), "{dtype:?}");
    }
}

#[test]
fn avg_and_premul_sum_are_summed() {
    let bytes = |values: &[f64]| bytes_of(values, f64::to_ne_bytes);
    for op in [ReduceOp::Avg, ReduceOp::PremulSum(3.0)] {
        assert_eq!(reduced(op, DType::F64, &bytes(&[1.0]), &bytes(&[2.0])), bytes(&[3.0]));
    }
}

#[test]
fn every_pair_of_the_table_has_a_kernel() {
    for dtype in DType::ALL {
        let memory = vec![1; 3 * dtype.size_bytes()];
        for op in OPS.into_iter().filter(|op| op.supports(dtype)) {
            assert_eq!(reduced(op, dtype, &memory, &memory).len(), memory.len());
        }
        if ReduceOp::Avg.supports(dtype) {
            divide(dtype, &mut memory.clone(), 2);
        }
        if ReduceOp::PremulSum(1.0).supports(dtype) {
            scale(dtype, &mut memory.clone(), 2.0);
        }
    }
}

#[test]
#[should_panic(expected = "BAND has no meaning for f32")]
fn an_unsupported_pair_is_a_mistake_of_the_caller() {
    reduce(ReduceOp::Band, DType::F32, &mut [], &[], LocalFirst);
}

#[test]
#[should_panic(expected = "3 bytes are no whole number of u16")]
fn a_cut_element_is_a_mistake_of_the_caller() {
    reduce(ReduceOp::Sum, DType::U16, &mut [0; 3], &[0; 3], LocalFirst);
}
