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

mod block;
mod loops;
mod loss;

use std::marker::PhantomData;

pub use self::block::BLOCK;
use self::block::SCALE_BYTES;
use self::loops::{Compressing, Recompressing, Reducing};
pub use self::loss::CompressionLoss;
use super::instructions::widest;
use super::processor::as_ieee;
use crate::generated::dtype::DType;

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

/// Compresses elements of `dtype` into `into`, which has [`Compression::bytes`] bytes for them.
/// Only for types that [`Compression::takes`].
pub fn compress(
    format: Compression,
    dtype: DType,
    from: &[u8],
    into: &mut [u8],
) -> CompressionLoss {
    let mut lost = CompressionLoss::default();
    let loss = &mut lost;
    as_ieee(|| match dtype {
        DType::F64 => {
            widest(Compressing { format, from, into, loss, elements: PhantomData::<f64> });
        }
        _ => widest(Compressing { format, from, into, loss, elements: PhantomData::<f32> }),
    });
    lost
}

/// Makes elements of `dtype` of compressed ones.
pub fn decompress(format: Compression, dtype: DType, from: &[u8], into: &mut [u8]) {
    reduce_compressed(format, dtype, &[from], 1, into);
}

/// Makes elements of `dtype` of the sums of compressed ones, which are added in the order of
/// `parts`, as `f32`, and divided by `divisor`.
pub fn reduce_compressed(
    format: Compression,
    dtype: DType,
    parts: &[&[u8]],
    divisor: u32,
    into: &mut [u8],
) {
    let divisor = divisor as f32;
    as_ieee(|| match dtype {
        DType::F64 => {
            widest(Reducing { format, parts, divisor, into, elements: PhantomData::<f64> });
        }
        _ => widest(Reducing { format, parts, divisor, into, elements: PhantomData::<f32> }),
    });
}

/// As [`reduce_compressed`], into as many compressed elements as each of `parts` has.
pub fn recompress(
    format: Compression,
    parts: &[&[u8]],
    divisor: u32,
    into: &mut [u8],
) -> CompressionLoss {
    let mut lost = CompressionLoss::default();
    let (divisor, loss) = (divisor as f32, &mut lost);
    as_ieee(|| widest(Recompressing { format, parts, divisor, into, loss }));
    lost
}
