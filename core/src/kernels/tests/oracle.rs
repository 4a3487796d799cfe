//! Every operator for every element type, with every set of vectors, against one element at a time
//! in a wider type.

use half::{bf16, f16};

use super::super::instructions::tests::{every_set, limited_to};
use super::super::*;

/// Elements of each operand: none, one, and about as many as are combined at a time, stored at a
/// time, or aligned.
const LENGTHS: [usize; 16] = [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 257, 1023, 1100];

/// Where operands begin, bytes from a line of the cache: into, left or from, right.
const OFFSETS_BYTES: [[usize; 3]; 5] = [[0, 0, 0], [16, 16, 16], [1, 0, 3], [8, 5, 0], [60, 4, 2]];

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[test]
fn every_operator_type_length_and_alignment() {
    for dtype in DType::ALL {
        let ops = ReduceOp::WITHOUT_FACTOR.into_iter();
        let ops = ops.filter(|op| op.supports(dtype) && !op.takes_pairs());
        for op in ops.chain([ReduceOp::PremulSum(2.0)].into_iter().filter(|o| o.supports(dtype))) {
            for elements in LENGTHS {
                check_reductions(op, dtype, elements);
            }
        }
    }
}

fn check_reductions(op: ReduceOp, dtype: DType, elements: usize) {
    let mut random = Random(SEED ^ elements as u64);
    let (left, right) = (random.elements(dtype, elements), random.elements(dtype, elements));
    let each = left.chunks_exact(dtype.size_bytes()).zip(right.chunks_exact(dtype.size_bytes()));
    let expected: Vec<u8> = each.flat_map(|(a, b)| reduced(op, dtype, a, b)).collect();
    for (set, offsets) in every_set().into_iter().flat_map(|s| OFFSETS_BYTES.map(|o| (s, o))) {
        let what = format!("{op:?} of {elements} {dtype:?}, {set:?}, {offsets:?}, seed {SEED:#x}");
        for (order, into, from) in
            [(Order::IntoFirst, &left, &right), (Order::FromFirst, &right, &left)]
        {
            let (mut into, from) =
                (PlacedBytes::new(into, offsets[0]), PlacedBytes::new(from, offsets[1]));
            limited_to(set, || reduce(op, dtype, into.bytes_mut(), from.bytes(), order));
            into.expect(&expected, &format!("{what}, {order:?}"));
        }
        for stores in [Stores::Cached, Stores::Streaming] {
            let mut into = PlacedBytes::new(&vec![0xa5; left.len()], offsets[0]);
            let (left, right) =
                (PlacedBytes::new(&left, offsets[1]), PlacedBytes::new(&right, offsets[2]));
            let (left, right) = (left.bytes(), right.bytes());
            limited_to(set, || reduce_into(op, dtype, into.bytes_mut(), left, right, stores));
            into.expect(&expected, &format!("{what}, {stores:?}"));
        }
    }
}

#[test]
fn every_type_is_divided_and_scaled() {
    for (dtype, elements) in DType::ALL.into_iter().flat_map(|d| LENGTHS.map(|l| (d, l))) {
        let all = Random(SEED ^ elements as u64).elements(dtype, elements);
        let expect = |f: &dyn Fn(&[u8]) -> Vec<u8>| -> Vec<u8> {
            all.chunks_exact(dtype.size_bytes()).flat_map(f).collect()
        };
        for (set, offset) in every_set().into_iter().flat_map(|set| [0, 16, 3].map(|o| (set, o))) {
            for parts in [1, 3, 1000] {
                let mut memory = PlacedBytes::new(&all, offset);
                limited_to(set, || divide(dtype, memory.bytes_mut(), parts));
                let expected = expect(&|element| match parts {
                    1 => element.to_vec(),
                    _ => divided(dtype, element, parts),
                });
                memory.expect(&expected, &format!("{elements} {dtype:?} / {parts}, {set:?}"));
            }
            let mut memory = PlacedBytes::new(&all, offset);
            limited_to(set, || scale(dtype, memory.bytes_mut(), 0.3));
            let expected = expect(&|element| scaled(dtype, element, 0.3));
            memory.expect(&expected, &format!("{elements} {dtype:?} * 0.3, {set:?}"));
        }
    }
}

#[test]
fn copies_of_every_length_and_alignment() {
    for (bytes, offsets) in LENGTHS.into_iter().flat_map(|l| OFFSETS_BYTES.map(|o| (l, o))) {
        let from = Random(SEED).elements(DType::U8, bytes);
        for (set, stores) in
            every_set().into_iter().flat_map(|s| [(s, Stores::Cached), (s, Stores::Streaming)])
        {
            let mut into = PlacedBytes::new(&vec![0; bytes], offsets[0]);
            let placed = PlacedBytes::new(&from, offsets[1]);
            limited_to(set, || copy(into.bytes_mut(), placed.bytes(), stores));
            into.expect(&from, &format!("{bytes} bytes at {offsets:?}, {set:?}, {stores:?}"));
        }
    }
}

#[test]
fn what_is_beyond_the_shorter_operand_or_the_last_element_stays() {
    for set in every_set() {
        let mut memory = [1_u8; 15];
        limited_to(set, || {
            reduce(ReduceOp::Sum, DType::I32, &mut memory, &[1; 20], Order::IntoFirst);
        });
        assert_eq!(memory, [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1]);
        let mut memory = [0_u8; 9];
        limited_to(set, || {
            let (left, right) = ([0x3c; 7], [0; 5]);
            reduce_into(ReduceOp::Max, DType::F16, &mut memory, &left, &right, Stores::Streaming);
        });
        assert_eq!(memory, [0x3c, 0x3c, 0x3c, 0x3c, 0, 0, 0, 0, 0]);
    }
}

/// Bytes at an offset from a line of the cache, between others that nobody may change.
struct PlacedBytes {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl PlacedBytes {
    const AROUND: u8 = 0x77;

    fn new(bytes: &[u8], offset: usize) -> PlacedBytes {
        let mut memory = vec![PlacedBytes::AROUND; bytes.len() + 256];
        let start = memory.as_ptr().align_offset(64) + offset;
        memory[start..start + bytes.len()].copy_from_slice(bytes);
        PlacedBytes { memory, start, len: bytes.len() }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    fn expect(&self, expected: &[u8], what: &str) {
        let differs = self.bytes().iter().zip(expected).position(|(a, b)| a != b);
        let at = differs.map(|at| (at, self.bytes()[at], expected[at]));
        assert!(at.is_none(), "{what}: (byte, found, expected) = {at:?}");
        assert_eq!(self.len, expected.len(), "{what}");
        let (before, after) = (&self.memory[..self.start], &self.memory[self.start + self.len..]);
        assert!(
            before.iter().chain(after).all(|&b| b == PlacedBytes::AROUND),
            "{what}: out of bounds"
        );
    }
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Any bits, and often those that are something special: zeros, infinities, NaNs, extremes.
    fn elements(&mut self, dtype: DType, elements: usize) -> Vec<u8> {
        let part_bytes = dtype.size_bytes().min(if is_complex(dtype) { 4 } else { 8 });
        let part_bytes = if dtype == DType::Complex128 { 8 } else { part_bytes };
        let special = specials(dtype);
        let parts = elements * dtype.size_bytes() / part_bytes;
        let mut bytes = Vec::with_capacity(parts * part_bytes);
        for _ in 0..parts {
            let choice = self.next() >> 32;
            let part = match special.get((choice % (2 * special.len() as u64)) as usize) {
                Some(special) => *special,
                None => self.next().rotate_left(32),
            };
            bytes.extend_from_slice(&part.to_le_bytes()[..part_bytes]);
        }
        bytes
    }
}

fn is_complex(dtype: DType) -> bool {
    matches!(dtype, DType::Complex64 | DType::Complex128)
}

/// Patterns of bits, of the lowest bytes that an element or its part has.
fn specials(dtype: DType) -> Vec<u64> {
    let (digits, exponents): (u32, u32) = match dtype {
        DType::F16 => (10, 5),
        DType::Bf16 => (7, 8),
        DType::F32 | DType::Complex64 => (23, 8),
        DType::F64 | DType::Complex128 => (52, 11),
        _ => return vec![0, 1, 2, u64::MAX, 0x7f7f_7f7f_7f7f_7f7f, 0x8080_8080_8080_8080],
    };
    let infinity = ((1 << exponents) - 1) << digits;
    let one = ((1 << (exponents - 1)) - 1) << digits;
    let quiet = 1 << (digits - 1);
    let positive = [
        0,
        1,
        quiet,
        (1 << digits) - 1,
        1 << digits,
        one,
        one + 1,
        infinity - 1,
        infinity,
        infinity | quiet,
        infinity | 1,
        infinity | quiet | 5,
    ];
    let sign = 1 << (digits + exponents);
    positive.into_iter().chain(positive.map(|bits| bits | sign)).collect()
}

/// One element, by an exact or twice as precise result.
fn reduced(op: ReduceOp, dtype: DType, a: &[u8], b: &[u8]) -> Vec<u8> {
    match dtype {
        DType::Bool => {
            let (a, b) = (a[0] != 0, b[0] != 0);
            let result = match op {
                ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor | ReduceOp::Lor => a || b,
                ReduceOp::Bxor | ReduceOp::Lxor => a != b,
                _ => a && b,
            };
            vec![u8::from(result)]
        }
        DType::F64 | DType::Complex128 => parts(dtype, a, b, |a, b| exact(op, a, b)),
        _ if !is_integer(dtype) => parts(dtype, a, b, |a, b| exact(op, a, b)),
        _ => {
            let (x, y) = (integer(dtype, a), integer(dtype, b));
            let result = match op {
                ReduceOp::Sum | ReduceOp::Avg => x + y,
                ReduceOp::Product => x.wrapping_mul(y),
                ReduceOp::Min => x.min(y),
                ReduceOp::Max => x.max(y),
                ReduceOp::Band => x & y,
                ReduceOp::Bor => x | y,
                ReduceOp::Bxor => x ^ y,
                ReduceOp::Land => i128::from(x != 0 && y != 0),
                ReduceOp::Lor => i128::from(x != 0 || y != 0),
                ReduceOp::Lxor => i128::from((x != 0) != (y != 0)),
                _ => unreachable!("not for integers"),
            };
            result.to_le_bytes()[..dtype.size_bytes()].to_vec()
        }
    }
}

fn divided(dtype: DType, element: &[u8], by: u32) -> Vec<u8> {
    match dtype {
        DType::Bool => element.to_vec(),
        _ if is_integer(dtype) => {
            (integer(dtype, element) / i128::from(by)).to_le_bytes()[..dtype.size_bytes()].to_vec()
        }
        _ => parts(dtype, element, element, |element, _| element / f64::from(by)),
    }
}

fn scaled(dtype: DType, element: &[u8], by: f64) -> Vec<u8> {
    match dtype {
        DType::F64 | DType::Complex128 => parts(dtype, element, element, |x, _| x * by),
        DType::Bool => element.to_vec(),
        _ if is_integer(dtype) => element.to_vec(),
        // The factor itself is rounded, and halves are scaled in `f32`.
        _ => parts(dtype, element, element, |x, _| f64::from((x as f32) * (by as f32))),
    }
}

fn is_integer(dtype: DType) -> bool {
    use DType::*;
    matches!(dtype, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
}

/// The integer in little-endian `bytes`.
fn integer(dtype: DType, bytes: &[u8]) -> i128 {
    use DType::*;
    let signed = matches!(dtype, I8 | I16 | I32 | I64);
    let negative = signed && bytes[bytes.len() - 1] & 0x80 != 0;
    let mut all = [if negative { 0xff } else { 0 }; 16];
    all[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(all)
}

fn exact(op: ReduceOp, a: f64, b: f64) -> f64 {
    match op {
        ReduceOp::Product => a * b,
        ReduceOp::Min | ReduceOp::Max if a.is_nan() || b.is_nan() => f64::NAN,
        ReduceOp::Min if a < b => a,
        ReduceOp::Max if a > b => a,
        ReduceOp::Min | ReduceOp::Max => b,
        _ => a + b,
    }
}

/// `f` of the numbers that elements consist of, rounded to their type. A result of `f64` arithmetic
/// on numbers of at most half the digits keeps its bits when it is rounded again.
fn parts(dtype: DType, a: &[u8], b: &[u8], f: impl Fn(f64, f64) -> f64) -> Vec<u8> {
    fn each<const N: usize>(
        a: &[u8],
        b: &[u8],
        f: impl Fn([u8; N], [u8; N]) -> [u8; N],
    ) -> Vec<u8> {
        a.as_chunks().0.iter().zip(b.as_chunks().0).flat_map(|(a, b)| f(*a, *b)).collect()
    }
    match dtype {
        DType::F16 => each(a, b, |a, b| {
            let result = f(f16::from_ne_bytes(a).to_f64(), f16::from_ne_bytes(b).to_f64());
            if result.is_nan() {
                0x7e00_u16.to_ne_bytes()
            } else {
                f16::from_f64(result).to_ne_bytes()
            }
        }),
        DType::Bf16 => each(a, b, |a, b| {
            let result = f(bf16::from_ne_bytes(a).to_f64(), bf16::from_ne_bytes(b).to_f64());
            if result.is_nan() {
                0x7fc0_u16.to_ne_bytes()
            } else {
                bf16::from_f64(result).to_ne_bytes()
            }
        }),
        DType::F32 | DType::Complex64 => each(a, b, |a, b| {
            let result = f(f32::from_ne_bytes(a).into(), f32::from_ne_bytes(b).into());
            if result.is_nan() { f32::NAN.to_ne_bytes() } else { (result as f32).to_ne_bytes() }
        }),
        _ => each(a, b, |a, b| {
            let result = f(f64::from_ne_bytes(a), f64::from_ne_bytes(b));
            if result.is_nan() { f64::NAN.to_ne_bytes() } else { result.to_ne_bytes() }
        }),
    }
}
