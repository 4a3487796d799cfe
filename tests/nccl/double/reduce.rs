//! Reductions of bytes, written for this double alone. Knows no rank but the order of parts.

use std::ffi::c_int;

use half::{bf16, f16};

/// Bytes of an element.
pub(crate) fn width(dtype: c_int) -> usize {
    match dtype {
        0 | 1 => 1,
        6 | 9 => 2,
        4 | 5 | 8 => 8,
        _ => 4,
    }
}

/// The parts of all ranks as one. The numbers are NCCL's.
pub(crate) fn reduce(dtype: c_int, operator: c_int, parts: &[Vec<u8>], average: bool) -> Vec<u8> {
    macro_rules! integers {
        ($type:ty) => {
            fold::<{ size_of::<$type>() }>(parts, |elements| {
                let values = elements.iter().map(|it| <$type>::from_ne_bytes(*it));
                let sum = |values: &mut dyn Iterator<Item = $type>| {
                    values.fold(0, |a, b| <$type>::wrapping_add(a, b))
                };
                let value = match operator {
                    0 if average => sum(&mut { values }) / elements.len() as $type,
                    0 => sum(&mut { values }),
                    1 => values.fold(1, <$type>::wrapping_mul),
                    2 => values.fold(<$type>::MIN, <$type>::max),
                    _ => values.fold(<$type>::MAX, <$type>::min),
                };
                value.to_ne_bytes()
            })
        };
    }
    macro_rules! floats {
        ($type:ty, $read:expr, $write:expr) => {
            fold::<{ size_of::<$type>() }>(parts, |elements| {
                let values = elements.iter().map(|it| $read(<$type>::from_ne_bytes(*it)));
                let value: f64 = match operator {
                    0 if average => values.sum::<f64>() / elements.len() as f64,
                    0 => values.sum(),
                    1 => values.product(),
                    2 => values.fold(f64::NEG_INFINITY, greatest),
                    _ => -values.map(|it| -it).fold(f64::NEG_INFINITY, greatest),
                };
                <$type>::to_ne_bytes($write(value))
            })
        };
    }
    match dtype {
        0 => integers!(i8),
        1 => integers!(u8),
        2 => integers!(i32),
        3 => integers!(u32),
        4 => integers!(i64),
        5 => integers!(u64),
        6 => floats!(f16, f16::to_f64, f16::from_f64),
        7 => floats!(f32, f64::from, |it| it as f32),
        8 => floats!(f64, f64::from, |it| it),
        _ => floats!(bf16, bf16::to_f64, bf16::from_f64),
    }
}

/// Each element times a factor.
pub(crate) fn scale(dtype: c_int, data: &mut [u8], factor: f64) {
    macro_rules! scaled {
        ($type:ty, $read:expr, $write:expr) => {
            data.as_chunks_mut::<{ size_of::<$type>() }>().0.iter_mut().for_each(|it| {
                *it = <$type>::to_ne_bytes($write($read(<$type>::from_ne_bytes(*it)) * factor));
            })
        };
    }
    match dtype {
        6 => scaled!(f16, f16::to_f64, f16::from_f64),
        7 => scaled!(f32, f64::from, |it| it as f32),
        8 => scaled!(f64, f64::from, |it| it),
        9 => scaled!(bf16, bf16::to_f64, bf16::from_f64),
        _ => {}
    }
}

/// A factor as it lies in memory.
pub(crate) fn factor(dtype: c_int, bytes: &[u8]) -> f64 {
    let first = |count: usize| &bytes[..count];
    match dtype {
        6 => f16::from_ne_bytes(first(2).try_into().unwrap()).to_f64(),
        7 => f32::from_ne_bytes(first(4).try_into().unwrap()).into(),
        8 => f64::from_ne_bytes(first(8).try_into().unwrap()),
        9 => bf16::from_ne_bytes(first(2).try_into().unwrap()).to_f64(),
        _ => 1.0,
    }
}

/// NaN propagates.
fn greatest(a: f64, b: f64) -> f64 {
    if a.is_nan() || b > a || b.is_nan() && !a.is_nan() {
        if a.is_nan() { a } else { b }
    } else {
        a
    }
}

fn fold<const N: usize>(parts: &[Vec<u8>], one: impl Fn(&[[u8; N]]) -> [u8; N]) -> Vec<u8> {
    let columns: Vec<&[[u8; N]]> = parts.iter().map(|part| part.as_chunks::<N>().0).collect();
    let mut outcome = Vec::with_capacity(parts[0].len());
    let mut elements = vec![[0; N]; parts.len()];
    for at in 0..columns[0].len() {
        for (element, column) in elements.iter_mut().zip(&columns) {
            *element = column[at];
        }
        outcome.extend_from_slice(&one(&elements));
    }
    outcome
}
