//! Kernels against known values.

mod compression;
mod oracle;

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
    let (left, right) = if order == IntoFirst { (into, from) } else { (from, into) };
    for stores in [Stores::Cached, Stores::Streaming] {
        let mut separate = vec![0xa5; into.len()];
        reduce_into(op, dtype, &mut separate, left, right, stores);
        assert_eq!(result, separate, "{op:?} {dtype:?}: reduce and reduce_into differ");
    }
    result
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
fn subnormal_numbers_are_kept_whatever_the_threads_mode_is() {
    let least = f32s(&[f32::from_bits(1); 99]);
    let sum = f32s(&[f32::from_bits(2); 99]);
    let found = processor::tests::flushing(|| {
        reduced(ReduceOp::Sum, DType::F32, &least, &least, IntoFirst)
    });
    assert_eq!(found, sum);
}

#[test]
fn results_are_streamed_only_if_they_outgrow_the_cache() {
    assert_eq!(Stores::of_traffic(256 << 10), Stores::Cached);
    assert_eq!(Stores::of_traffic(usize::MAX), Stores::Streaming);
}

#[test]
fn a_rank_alone_shares_its_cache_with_itself_and_more_ranks_with_more() {
    for cores in [0, 1, 2, 48] {
        assert_eq!(ranks_in_a_cache(1, cores), 1);
        let shared: Vec<usize> = (1..100).map(|ranks| ranks_in_a_cache(ranks, cores)).collect();
        assert!(shared.is_sorted(), "{shared:?}");
        let mut each = (1..).zip(&shared);
        assert!(each.all(|(ranks, shared)| (1..=ranks).contains(shared)), "{shared:?}");
    }
}
