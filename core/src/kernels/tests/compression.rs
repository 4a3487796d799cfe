//! Compressed elements, with every set of vectors, against one element at a time.

use half::{bf16, f16};

use super::super::instructions::tests::{every_set, limited_to};
use super::super::*;

/// None, one, and about as many as a block or its vectors have.
const LENGTHS: [usize; 10] = [0, 1, 2, 15, 17, 255, 256, 257, 511, 1100];
const SEED: u64 = 0x243f_6a88_85a3_08d3;

/// What is left of the elements of a block: by the definition, in doubles where that is exact.
fn kept(format: Compression, block: &[f32]) -> Vec<f32> {
    match format {
        Compression::Bf16 => block.iter().map(|it| bf16::from_f32(*it).to_f32()).collect(),
        Compression::F16 => block.iter().map(|it| f16::from_f32(*it).to_f32()).collect(),
        Compression::Int8 => {
            if block.iter().any(|it| !it.is_finite()) {
                return vec![f32::NAN; block.len()];
            }
            let scale = block.iter().fold(0.0_f32, |most, it| most.max(it.abs())) / 127.0;
            let step = |it: &f32| if scale == 0.0 { 0.0 } else { (it / scale).round_ties_even() };
            block.iter().map(|it| step(it).clamp(-127.0, 127.0) * scale).collect()
        }
    }
}

/// Numbers of very different magnitudes, by a linear congruential generator.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = SEED ^ seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 40) as i32 - (1 << 23)
    };
    (0..count).map(|_| next() as f32 * 1e-6 * (next() as f32 / 1.5e6).exp()).collect()
}

fn f32_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn of_f32_bytes(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
}

/// What comes out of what goes in, and what that lost.
fn through(format: Compression, numbers: &[f32]) -> (Vec<f32>, CompressionLoss) {
    let mut compressed = vec![0xa5; format.bytes(numbers.len())];
    assert_eq!(format.elements(compressed.len()), numbers.len());
    let lost = compress(format, DType::F32, &f32_bytes(numbers), &mut compressed);
    let mut out = vec![0xa5; 4 * numbers.len()];
    decompress(format, DType::F32, &compressed, &mut out);
    (of_f32_bytes(&out), lost)
}

fn same(one: f32, other: f32) -> bool {
    one == other || (one.is_nan() && other.is_nan())
}

#[test]
fn every_format_and_length_is_as_defined() {
    for (format, length) in Compression::ALL.into_iter().flat_map(|f| LENGTHS.map(|l| (f, l))) {
        let given = numbers(length as u64, length);
        let expected: Vec<f32> = given.chunks(256).flat_map(|block| kept(format, block)).collect();
        for set in every_set() {
            let what = format!("{length} as {format:?}, {set:?}, seed {SEED:#x}");
            let (found, lost) = limited_to(set, || through(format, &given));
            assert!(found.iter().zip(&expected).all(|(a, b)| same(*a, *b)), "{what}: {found:?}");
            let errors: Vec<f64> =
                given.iter().zip(&found).map(|(a, b)| f64::from((a - b).abs())).collect();
            let most = errors.iter().copied().fold(0.0, f64::max);
            let mean = errors.iter().map(|e| e * e).sum::<f64>() / length.max(1) as f64;
            assert_eq!(lost.max_abs, most, "{what}");
            let difference = (lost.root_mean_square() - mean.sqrt()).abs();
            assert!(difference <= 1e-12 * mean.sqrt(), "{what}: {lost:?}, {}", mean.sqrt());
        }
    }
}

/// Each compressed to as many bytes as it takes.
fn compressed(format: Compression, of: &[Vec<f32>]) -> Vec<Vec<u8>> {
    let one = |numbers: &Vec<f32>| {
        let mut bytes = vec![0xa5; format.bytes(numbers.len())];
        compress(format, DType::F32, &f32_bytes(numbers), &mut bytes);
        bytes
    };
    of.iter().map(one).collect()
}

#[test]
fn sums_are_made_of_what_is_left() {
    for (format, length) in Compression::ALL.into_iter().flat_map(|f| LENGTHS.map(|l| (f, l))) {
        let given: Vec<Vec<f32>> = (1..4).map(|rank| numbers(rank, length)).collect();
        let parts = compressed(format, &given);
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let left: Vec<Vec<f32>> = given.iter().map(|one| through(format, one).0).collect();
        let sum = |at: usize| (left[0][at] + left[1][at] + left[2][at]) / 3.0;
        let expected: Vec<f32> = (0..length).map(sum).collect();
        for set in every_set() {
            let what = format!("{length} as {format:?}, {set:?}");
            let (mut sums, mut wide) = (vec![0xa5; 4 * length], vec![0xa5; 8 * length]);
            let mut again = vec![0xa5; format.bytes(length)];
            let lost = limited_to(set, || {
                reduce_compressed(format, DType::F32, &parts, 3, &mut sums);
                reduce_compressed(format, DType::F64, &parts, 3, &mut wide);
                recompress(format, &parts, 3, &mut again)
            });
            assert_eq!(of_f32_bytes(&sums), expected, "{what}");
            let wide = wide.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes));
            assert!(wide.eq(expected.iter().map(|sum| f64::from(*sum))), "{what}");
            assert_eq!(again, compressed(format, std::slice::from_ref(&expected))[0], "{what}");
            assert_eq!(lost, limited_to(set, || through(format, &expected).1), "{what}");
        }
    }
}

#[test]
fn sums_of_zeros_and_of_what_is_not_finite_are_those_of_floats() {
    let (zero, infinity) = (0.0_f32, f32::INFINITY);
    for (format, one, other, sum) in [
        (Compression::Bf16, -zero, -zero, -zero),
        (Compression::F16, -zero, zero, zero),
        (Compression::Bf16, infinity, -infinity, f32::NAN),
        (Compression::F16, infinity, 1.0, infinity),
        (Compression::F16, -infinity, f32::NAN, f32::NAN),
        (Compression::Int8, infinity, 1.0, f32::NAN),
    ] {
        let parts = compressed(format, &[vec![one], vec![other]]);
        for set in every_set() {
            let mut found = [0; 4];
            let parts = [parts[0].as_slice(), &parts[1]];
            limited_to(set, || reduce_compressed(format, DType::F32, &parts, 1, &mut found));
            // The one NaN that stands for all.
            assert_eq!(found, sum.to_ne_bytes(), "{one} and {other} as {format:?}, {set:?}");
        }
    }
}

#[test]
fn every_set_of_instructions_makes_the_same_bytes() {
    let odd = [f32::NAN, -f32::NAN, f32::INFINITY, -0.0, f32::from_bits(1), f32::MAX, 65519.9];
    for (format, length) in Compression::ALL.into_iter().flat_map(|f| LENGTHS.map(|l| (f, l))) {
        let mut given = numbers(7 + length as u64, length);
        // In the second block and those behind it, so that one of int8 has a scale.
        for (at, odd) in odd.into_iter().enumerate() {
            given.iter_mut().skip(256 + at).step_by(11).for_each(|number| *number = odd);
        }
        for dtype in [DType::F32, DType::F64] {
            let wide = || given.iter().flat_map(|number| f64::from(*number).to_ne_bytes());
            let bytes = if dtype == DType::F64 { wide().collect() } else { f32_bytes(&given) };
            let made = every_set().into_iter().map(|set| {
                limited_to(set, || {
                    let mut into = vec![0xa5; format.bytes(length)];
                    let lost = compress(format, dtype, &bytes, &mut into);
                    let mut out = vec![0xa5; bytes.len()];
                    decompress(format, dtype, &into, &mut out);
                    let mean = lost.root_mean_square();
                    (into, out, lost.max_abs.to_bits(), mean.to_bits())
                })
            });
            let made: Vec<_> = made.collect();
            assert!(
                made.windows(2).all(|two| two[0] == two[1]),
                "{length} as {format:?}, {dtype:?}"
            );
        }
    }
}

#[test]
fn doubles_lose_what_a_float_does_not_hold_too() {
    let given = [1.0 + 1e-12, 1e300, -3.5];
    let bytes: Vec<u8> = given.iter().flat_map(|number: &f64| number.to_ne_bytes()).collect();
    let mut compressed = vec![0; Compression::Bf16.bytes(3)];
    let lost = compress(Compression::Bf16, DType::F64, &bytes, &mut compressed);
    let mut out = vec![0; 24];
    decompress(Compression::Bf16, DType::F64, &compressed, &mut out);
    let out: Vec<f64> = out.as_chunks().0.iter().map(|it| f64::from_ne_bytes(*it)).collect();
    assert_eq!(out, [1.0, f64::INFINITY, -3.5]);
    assert_eq!(lost.max_abs, f64::INFINITY);
    let mut first = vec![0; 2];
    let lost = compress(Compression::Bf16, DType::F64, &bytes[..8], &mut first);
    assert_eq!(lost.max_abs, given[0] - 1.0);
}

#[test]
fn what_is_not_finite_does_not_vanish() {
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut given = vec![1.0; 600];
        given[300] = odd;
        let (found, lost) = through(Compression::Int8, &given);
        assert!(found[256..512].iter().all(|it| it.is_nan()), "the block of {odd}");
        assert!(found[..256].iter().chain(&found[512..]).all(|it| *it == 1.0), "the others");
        assert_eq!(lost.max_abs, f64::INFINITY);
        for format in [Compression::Bf16, Compression::F16] {
            let (found, lost) = through(format, &given);
            assert!(found.iter().zip(&given).all(|(a, b)| same(*a, *b)), "{format:?} of {odd}");
            assert_eq!(lost.max_abs, 0.0, "{format:?} of {odd}");
        }
    }
    let (found, lost) = through(Compression::F16, &[65520.0, 65504.0]);
    assert_eq!((found, lost.max_abs), (vec![f32::INFINITY, 65504.0], f64::INFINITY));
}

#[test]
fn zeros_and_the_smallest_numbers_have_a_scale() {
    let tiny = f32::from_bits(1);
    for given in [vec![0.0; 256], vec![-0.0, 0.0], vec![tiny; 3], vec![tiny, -200.0 * tiny]] {
        let (found, lost) = through(Compression::Int8, &given);
        assert!(found.iter().zip(&given).all(|(a, b)| (a - b).abs() <= 100.0 * tiny), "{found:?}");
        assert!(lost.max_abs < 1e-42);
    }
}

#[test]
fn what_stands_beside_an_operator_is_found_again() {
    for format in Compression::ALL {
        for (op, spreads) in
            ReduceOp::WITHOUT_FACTOR.into_iter().flat_map(|o| [(o, true), (o, false)])
        {
            let code = format.beside(op.code(), spreads);
            assert_eq!(Compression::of_operator(code), Some(format));
            assert_eq!(
                (Compression::operator(code), Compression::spreads(code)),
                (op.code(), spreads)
            );
            assert_eq!(Compression::of_operator(op.code()), None);
        }
        assert_eq!(Compression::named(format.name()), Ok(format));
    }
}
