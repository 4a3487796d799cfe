//! Floating-point elements as they travel compressed: to fewer bits on the way out, back to numbers
//! on the way in, and what that loses. Knows nothing of operations.
//!
//! What travels is a row of blocks of [`BLOCK`] elements, of which the last may be shorter. A block
//! of [`Compression::Int8`] is its scale, an `f32`, and then a signed byte for each element; in the
//! other formats it is the elements. A scale is the greatest magnitude of the block divided by 127,
//! and a byte the nearest integer, ties to even, to the element divided by the scale. Where the
//! scale is 0, so are the bytes. Where an element of the block is NaN or infinite, the scale is
//! NaN, so that this does not vanish: all elements of the block come out as NaN.
//!
//! Halves are rounded once, to nearest even; NaN and infinity stay what they are, and what is
//! greater than the greatest finite half becomes infinite.

use std::marker::PhantomData;

use super::instructions::{Instructions, LANES, Loop, bf16_bits, widest};
use super::number::Lanes;
use super::processor::as_ieee;
use crate::generated::dtype::DType;

/// Elements of a block.
const BLOCK: usize = 256;
/// Bytes of a scale.
const SCALE_BYTES: usize = size_of::<f32>();
/// Most bytes of a block.
const MAX_BLOCK_BYTES: usize = 2 * BLOCK;
/// The greatest magnitude of a byte of [`Compression::Int8`].
const STEPS: f32 = 127.0;
/// The last bit of a number near this one is worth 1: adding it rounds to an integer, ties to even,
/// and leaves that in the lowest bits.
const ROUNDER: f32 = 1.5 * (1 << 23) as f32;
/// How many sums of errors there are at once.
const SUMS: usize = 8;

/// Bits of the number of an operator.
const OPERATOR_BITS: u32 = 4;
/// Stands beside it where elements are spread.
const SPREADS: u8 = 0x80;

/// In which form elements travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// As bfloat16: the range of `f32`, 8 significant bits.
    Bf16 = 1,
    /// As binary16: 11 significant bits, up to 65504.
    F16 = 2,
    /// As integers from -127 to 127, with a scale for each 256 elements.
    Int8 = 3,
}

/// What compressing lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CompressionLoss {
    /// The greatest absolute error of an element. Infinite if a finite one became infinite or NaN,
    /// or an infinite one NaN.
    pub max_abs: f64,
    /// The sum of the squares of the errors.
    squares: f64,
    elements: u64,
}

impl Compression {
    /// Every format.
    pub const ALL: [Compression; 3] = [Compression::Bf16, Compression::F16, Compression::Int8];

    /// The name of none, where one is asked for.
    pub const NONE: &str = "none";

    /// The name that every language uses.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::Bf16 => "bf16",
            Compression::F16 => "f16",
            Compression::Int8 => "int8",
        }
    }

    /// The format of a name.
    ///
    /// # Errors
    /// What the name must be.
    pub fn named(name: &str) -> Result<Compression, String> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(|known| format!("'{}'", known.name())).join(", ");
            format!("must be one of {known} or '{}', not '{name}'", Self::NONE)
        })
    }

    /// The number of an operator, and beside it that elements travel in this form: to where they
    /// are reduced or, if it `spreads`, from there to all.
    pub const fn beside(self, operator: u8, spreads: bool) -> u8 {
        operator | (self as u8) << OPERATOR_BITS | if spreads { SPREADS } else { 0 }
    }

    /// The form that stands beside the number of an operator, if one does.
    pub fn of_operator(code: u8) -> Option<Compression> {
        let number = (code & !SPREADS) >> OPERATOR_BITS;
        Self::ALL.into_iter().find(|known| *known as u8 == number)
    }

    /// Whether what stands beside the number of an operator says that elements are spread.
    pub const fn spreads(code: u8) -> bool {
        code & SPREADS != 0
    }

    /// The number of an operator, without what stands beside it.
    pub const fn operator(code: u8) -> u8 {
        code & ((1 << OPERATOR_BITS) - 1)
    }

    /// Whether elements of `dtype` can be compressed.
    pub const fn takes(self, dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F64)
    }

    /// Bytes of so many elements.
    pub const fn bytes(self, elements: usize) -> usize {
        match self {
            Compression::Bf16 | Compression::F16 => 2 * elements,
            Compression::Int8 => elements + elements.div_ceil(BLOCK) * SCALE_BYTES,
        }
    }

    /// How many elements so many bytes are.
    pub const fn elements(self, bytes: usize) -> usize {
        match self {
            Compression::Bf16 | Compression::F16 => bytes / 2,
            Compression::Int8 => bytes - bytes.div_ceil(SCALE_BYTES + BLOCK) * SCALE_BYTES,
        }
    }
}

impl CompressionLoss {
    /// The root of the mean square error of the elements; 0 where there are none.
    pub fn root_mean_square(&self) -> f64 {
        match self.elements {
            0 => 0.0,
            elements => (self.squares / elements as f64).sqrt(),
        }
    }

    /// What both lost, as one.
    #[must_use]
    pub fn and(self, other: CompressionLoss) -> CompressionLoss {
        CompressionLoss {
            max_abs: self.max_abs.max(other.max_abs),
            squares: self.squares + other.squares,
            elements: self.elements + other.elements,
        }
    }
}

/// Compresses elements of `dtype` into `into`, which has [`Compression::bytes`] bytes for them.
/// Only for types that [`Compression::takes`].
pub fn compress(
    format: Compression,
    dtype: DType,
    from: &[u8],
    into: &mut [u8],
) -> CompressionLoss {
    let mut loss = CompressionLoss::default();
    as_ieee(|| match dtype {
        DType::F64 => widest(Compressing::<f64>::new(format, from, into, &mut loss)),
        _ => widest(Compressing::<f32>::new(format, from, into, &mut loss)),
    });
    loss
}

/// Makes elements of `dtype` of compressed ones.
pub fn decompress(format: Compression, dtype: DType, from: &[u8], into: &mut [u8]) {
    as_ieee(|| match dtype {
        DType::F64 => widest(Decompressing::new(format, from, into, |_: f64, new| f64::from(new))),
        _ => widest(Decompressing::new(format, from, into, |_: f32, new| new)),
    });
}

/// Adds compressed elements to `sums`, elements of `f32`.
pub fn add_compressed(format: Compression, from: &[u8], sums: &mut [u8]) {
    as_ieee(|| widest(Decompressing::new(format, from, sums, |sum: f32, new| sum + new)));
}

/// Makes elements of `dtype` of elements of `f32`.
pub fn widen(dtype: DType, from: &[u8], into: &mut [u8]) {
    if dtype != DType::F64 {
        let bytes = from.len().min(into.len());
        return into[..bytes].copy_from_slice(&from[..bytes]);
    }
    let (from, into) = (from.as_chunks::<4>().0, into.as_chunks_mut::<8>().0);
    for (into, from) in into.iter_mut().zip(from) {
        *into = f64::from(f32::load(*from)).store();
    }
}

/// Elements that can be compressed, by way of `f32`.
trait Compressible: Lanes + Default {
    fn narrow(self) -> f32;
    /// How far off `kept` is, which stands for it.
    fn error(self, kept: f32) -> f64;
}

macro_rules! compressible {
    ($($float:ty),*) => {$(
        impl Compressible for $float {
            #[inline(always)]
            fn narrow(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn error(self, kept: f32) -> f64 {
                let kept = <$float>::from(kept);
                let difference = f64::from((self - kept).abs());
                // Of two infinities, or where there is a NaN, the difference is none.
                let other = match self == kept || (self.is_nan() && kept.is_nan()) {
                    true => 0.0,
                    false => f64::INFINITY,
                };
                if difference.is_nan() { other } else { difference }
            }
        }
    )*};
}

compressible!(f32, f64);

struct Compressing<'a, T> {
    format: Compression,
    from: &'a [u8],
    into: &'a mut [u8],
    loss: &'a mut CompressionLoss,
    elements: PhantomData<T>,
}

impl<'a, T> Compressing<'a, T> {
    fn new(
        format: Compression,
        from: &'a [u8],
        into: &'a mut [u8],
        loss: &'a mut CompressionLoss,
    ) -> Self {
        Compressing { format, from, into, loss, elements: PhantomData }
    }
}

impl<T: Compressible + Lanes<Bytes = [u8; N]>, const N: usize> Loop for Compressing<'_, T> {
    const OF_HALVES: bool = false;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        let blocks = self.from.as_chunks::<N>().0.chunks(BLOCK);
        let pieces = self.into.chunks_mut(self.format.bytes(BLOCK));
        for (elements, piece) in blocks.zip(pieces) {
            let mut exact = [T::default(); BLOCK];
            for (exact, element) in exact.iter_mut().zip(elements) {
                *exact = T::load(*element);
            }
            let mut numbers = [0.0; BLOCK];
            for (number, exact) in numbers.iter_mut().zip(&exact) {
                *number = exact.narrow();
            }
            let mut bytes = [0; MAX_BLOCK_BYTES];
            encode::<V>(self.format, &mut numbers, &mut bytes);
            let length = piece.len().min(bytes.len());
            piece[..length].copy_from_slice(&bytes[..length]);
            self.loss.note(&exact, &numbers, elements.len());
        }
    }
}

impl CompressionLoss {
    /// Adds a block of so many elements, of which `kept` is left; what is behind them is 0.
    #[inline(always)]
    fn note<T: Compressible>(&mut self, exact: &[T; BLOCK], kept: &[f32; BLOCK], elements: usize) {
        // Independent sums, which the compiler keeps in lanes.
        let (mut squares, mut greatest) = ([0.0; SUMS], [0.0_f64; SUMS]);
        let blocks = exact.as_chunks::<SUMS>().0.iter().zip(kept.as_chunks::<SUMS>().0);
        for (exact, kept) in blocks {
            for lane in 0..SUMS {
                let error = exact[lane].error(kept[lane]);
                squares[lane] += error * error;
                greatest[lane] = if error > greatest[lane] { error } else { greatest[lane] };
            }
        }
        let max_abs = greatest.into_iter().fold(0.0, f64::max);
        let squares = squares.into_iter().sum();
        *self = self.and(CompressionLoss { max_abs, squares, elements: elements as u64 });
    }
}

/// Sets each element of `into` to `f` of it and of its counterpart in `from`.
struct Decompressing<'a, T, F> {
    format: Compression,
    from: &'a [u8],
    into: &'a mut [u8],
    f: F,
    elements: PhantomData<T>,
}

impl<'a, T, F: Fn(T, f32) -> T> Decompressing<'a, T, F> {
    fn new(format: Compression, from: &'a [u8], into: &'a mut [u8], f: F) -> Self {
        Decompressing { format, from, into, f, elements: PhantomData }
    }
}

impl<T, F, const N: usize> Loop for Decompressing<'_, T, F>
where
    T: Lanes<Bytes = [u8; N]>,
    F: Fn(T, f32) -> T,
{
    const OF_HALVES: bool = false;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        let blocks = self.into.as_chunks_mut::<N>().0.chunks_mut(BLOCK);
        let pieces = self.from.chunks(self.format.bytes(BLOCK));
        for (elements, piece) in blocks.zip(pieces) {
            let mut bytes = [0; MAX_BLOCK_BYTES];
            let length = piece.len().min(bytes.len());
            bytes[..length].copy_from_slice(&piece[..length]);
            let mut numbers = [0.0; BLOCK];
            decode::<V>(self.format, &bytes, &mut numbers);
            for (element, number) in elements.iter_mut().zip(&numbers) {
                *element = (self.f)(T::load(*element), *number).store();
            }
        }
    }
}

/// Compresses a block, of which `numbers` are left.
#[inline(always)]
fn encode<V: Instructions>(
    format: Compression,
    numbers: &mut [f32; BLOCK],
    bytes: &mut [u8; MAX_BLOCK_BYTES],
) {
    match format {
        Compression::Bf16 => {
            for (half, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
                let bits = bf16_bits(*number);
                *half = ((bits >> 16) as u16).to_ne_bytes();
                *number = f32::from_bits(bits & 0xffff_0000);
            }
        }
        Compression::F16 => {
            let halves = bytes.as_chunks_mut().0.iter_mut();
            for (halves, numbers) in halves.zip(numbers.as_chunks_mut::<LANES>().0) {
                *halves = V::narrow_f16s(*numbers);
                *numbers = V::widen_f16s(*halves);
            }
        }
        Compression::Int8 => {
            let (scale, steps) = bytes.split_at_mut(SCALE_BYTES);
            let magnitude = |number: &f32| number.to_bits() & 0x7fff_ffff;
            let greatest = numbers.iter().map(magnitude).fold(0, u32::max);
            let greatest = f32::from_bits(greatest);
            let factor = if greatest.is_finite() { greatest / STEPS } else { f32::NAN };
            scale.copy_from_slice(&factor.to_ne_bytes());
            let is_scaled = factor > 0.0;
            for (step, number) in steps.iter_mut().zip(numbers) {
                let quotient = if is_scaled { *number / factor } else { 0.0 };
                let rounded = quotient.clamp(-STEPS, STEPS) + ROUNDER;
                *step = rounded.to_bits() as u8;
                *number = (rounded - ROUNDER) * factor;
            }
        }
    }
}

/// The numbers of a compressed block.
#[inline(always)]
fn decode<V: Instructions>(
    format: Compression,
    bytes: &[u8; MAX_BLOCK_BYTES],
    numbers: &mut [f32; BLOCK],
) {
    match format {
        Compression::Bf16 => {
            for (half, number) in bytes.as_chunks().0.iter().zip(numbers) {
                *number = f32::from_bits(u32::from(u16::from_ne_bytes(*half)) << 16);
            }
        }
        Compression::F16 => {
            let halves = bytes.as_chunks().0.iter();
            for (halves, numbers) in halves.zip(numbers.as_chunks_mut::<LANES>().0) {
                *numbers = V::widen_f16s(*halves);
            }
        }
        Compression::Int8 => {
            let [s0, s1, s2, s3, steps @ ..] = bytes;
            let factor = f32::from_ne_bytes([*s0, *s1, *s2, *s3]);
            for (step, number) in steps.iter().zip(numbers) {
                *number = f32::from(step.cast_signed()) * factor;
            }
        }
    }
}
