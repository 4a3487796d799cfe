//! Reductions of memory: every operator for every element type. Knows nothing of operations.
//!
//! Memory is bytes in the host's order, at any alignment, of a whole number of elements; both
//! operands are equally long. Bytes beyond the last whole element, or beyond the shorter operand,
//! are left as they are.
//!
//! The same operands in the same order give the same bits on every processor and in every thread:
//! all NaNs become one, half-precision results are rounded once to nearest even, subnormal numbers
//! are kept.
//!
//! Speed, as a ratio to `memcpy` of as many bytes in the same rounds (an example
//! that the bench `kernels` grew out of; one thread, best rounds, two cores of an EPYC of the
//! fourth generation; `memcpy` 47 GB/s within the caches, about 10 GB/s beyond):
//!
//! | | 1 MiB | 64 MiB |
//! |---|---|---|
//! | integers, `bool`, `f32`, `f64`, complex: every operator in place | 1.0 | 1.0–1.2 |
//! | `f16`: sum, product; least, greatest | 0.42; 0.72 | 1.2; 1.2 |
//! | `bf16`: sum, product; least, greatest | 0.78; 0.71 | 1.2; 1.2 |
//! | `f32` sum into a third operand: cached; streaming | 0.65; 0.62 | 0.7; 1.0 |
//! | divided by ranks: `f32`; `i32`; `i64`; `u8` | 0.83; 0.55; 0.28; 0.27 | 2.1; 2.1; 1.3; 1.3 |
//! | copy, streaming: one thread; two | 0.65; 0.64 | 1.4; 1.5 |

mod compression;
mod copying;
mod dispatch;
mod forms;
mod halves;
mod instructions;
mod loops;
mod non_finite;
mod number;
mod pairs;
mod processor;
mod quotient;

pub use self::compression::{
    BLOCK as COMPRESSED_BLOCK, Compression, CompressionLoss, compress, decompress, recompress,
    reduce_compressed,
};
use self::forms::Memory;
#[cfg(all(target_arch = "x86_64", feature = "tcp"))]
pub(crate) use self::instructions::ticks;
pub use self::non_finite::{NonFinite, first_non_finite};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;

/// Which operand of a reduction in place comes first. All ranks must agree: the order decides
/// between signed zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `into ⊕ from`.
    IntoFirst,
    /// `from ⊕ into`.
    FromFirst,
}

/// How results are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Through the caches, where they are found if they are read soon.
    Cached = 0,
    /// Past the caches, where the processor can.
    Streaming = 1,
}

impl Stores {
    /// Whether there are processors of this kind that store past their caches. Where there are
    /// none, a program has no code that chooses.
    pub const CAN_STREAM: bool = cfg!(target_arch = "x86_64");

    /// What is likely to be faster for a result that nobody reads before it is complete, where
    /// everybody who shares a cache goes through `bytes` bytes until then, inputs and results.
    pub fn of_traffic(bytes: usize) -> Stores {
        match Stores::CAN_STREAM && bytes >= processor::last_cache().bytes {
            true => Stores::Streaming,
            false => Stores::Cached,
        }
    }

    /// The other way to store.
    #[must_use]
    pub fn other(self) -> Stores {
        match self {
            Stores::Cached => Stores::Streaming,
            Stores::Streaming => Stores::Cached,
        }
    }
}

/// How many of the ranks on a host of so many cores share their largest cache with one of them,
/// itself included, if they are spread evenly.
pub fn ranks_in_a_cache(ranks_on_host: usize, cores: usize) -> usize {
    let cores = cores.max(1);
    let sharing = processor::last_cache().threads.min(cores);
    (ranks_on_host * sharing).div_ceil(cores).max(1)
}

/// Reduces `from` into `into`. Averages and scaled sums are sums here; see [`divide`] and
/// [`scale`].
pub fn reduce(op: ReduceOp, dtype: DType, into: &mut [u8], from: &[u8], order: Order) {
    dispatch::reduce(op, dtype, Memory::Binary { into, from, order });
}

/// As [`reduce`], as a function of the operands: `into ⊕ from` into `into`.
pub fn reducer(op: ReduceOp, dtype: DType) -> impl Fn(&mut [u8], &[u8]) + Copy {
    move |into, from| reduce(op, dtype, into, from, Order::IntoFirst)
}

/// `left ⊕ right` into `into`, whose old bytes do not matter.
pub fn reduce_into(
    op: ReduceOp,
    dtype: DType,
    into: &mut [u8],
    left: &[u8],
    right: &[u8],
    stores: Stores,
) {
    dispatch::reduce(op, dtype, Memory::Ternary { into, left, right, stores });
}

/// Copies as many bytes as both have.
pub fn copy(into: &mut [u8], from: &[u8], stores: Stores) {
    match stores {
        Stores::Cached => copying::copy(into, from),
        Stores::Streaming => forms::stream(into, from),
    }
}

/// A copy of as many bytes.
pub fn copied(from: &[u8]) -> Vec<u8> {
    copying::copied(from)
}

/// Multiplies every element by `factor`, in the element's own precision (half-precision types
/// through `f32`). Only for floating-point and complex types; others are left as they are.
pub fn scale(dtype: DType, memory: &mut [u8], factor: f64) {
    dispatch::scale(dtype, memory, factor);
}

/// Divides every element by `parts`; integers truncate toward zero.
pub fn divide(dtype: DType, memory: &mut [u8], parts: u32) {
    if parts > 1 {
        dispatch::divide(dtype, memory, parts);
    }
}

#[cfg(test)]
mod tests;
