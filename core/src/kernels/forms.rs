//! Loops with their operands, as they are compiled for sets of instructions. Knows no operators but
//! those of halves, whose elements depend on the set.

use std::marker::PhantomData;

use super::halves::{Bf16PairLanes, F16Lanes, HalfArithmetic};
use super::instructions::{Instructions, Loop, widest};
#[cfg(target_arch = "x86_64")]
use super::loops::copy_cached;
use super::loops::{binary, copy_streaming, ternary, ternary_streaming, unary};
use super::number::{Lanes, Number};
use super::{Order, Stores};

/// Whether less code is worth a pass more over memory: a page has to load it, and its ranks are far
/// slower at sending than at reducing.
const SMALL: bool = cfg!(target_family = "wasm");

/// The operands of one reduction.
pub(super) enum Memory<'a> {
    Binary { into: &'a mut [u8], from: &'a [u8], order: Order },
    Ternary { into: &'a mut [u8], left: &'a [u8], right: &'a [u8], stores: Stores },
}

/// Combines elements where the order of operands makes no difference.
pub(super) fn combine<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    memory: Memory<'_>,
    f: impl Fn(T, T) -> T + Copy,
) {
    widest(CombineForm { memory, f, elements: PhantomData });
}

/// Combines elements where it decides between signed zeros.
pub(super) fn combine_ordered<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    memory: Memory<'_>,
    f: impl Fn(T, T) -> T + Copy,
) {
    match memory {
        Memory::Binary { order: Order::FromFirst, .. } => combine(
            memory,
            #[inline(always)]
            move |into, from| f(from, into),
        ),
        _ => combine(memory, f),
    }
}

/// Combines half-precision elements.
pub(super) fn combine_halves<H: HalfType, O: Arithmetic>(memory: Memory<'_>) {
    widest(CombiningHalves::<H, O> { memory, types: PhantomData });
}

/// Replaces elements.
pub(super) fn map<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    memory: &mut [u8],
    f: impl Fn(T) -> T + Copy,
) {
    widest(MapForm { memory, f, elements: PhantomData });
}

/// Replaces half-precision elements.
pub(super) fn map_halves<H: HalfType>(memory: &mut [u8], f: impl Fn(f32) -> f32 + Copy) {
    widest(MappingHalves::<H, _> { memory, f, elements: PhantomData });
}

/// Copies as many bytes as both have through the caches, by the longest vectors.
#[cfg(target_arch = "x86_64")]
pub(super) fn copy_by_vectors(into: &mut [u8], from: &[u8]) {
    widest(CachedCopyForm { into, from });
}

/// Copies past the cache.
pub(super) fn stream(into: &mut [u8], from: &[u8]) {
    widest(CopyForm { into, from });
}

/// An operator for which the order of operands makes no difference.
pub(super) trait Arithmetic {
    /// The result.
    fn of<T: Number>(left: T, right: T) -> T;
}

/// Addition.
pub(super) struct Addition;

/// Multiplication.
pub(super) struct Multiplication;

impl Arithmetic for Addition {
    #[inline(always)]
    fn of<T: Number>(left: T, right: T) -> T {
        left.add(right)
    }
}

impl Arithmetic for Multiplication {
    #[inline(always)]
    fn of<T: Number>(left: T, right: T) -> T {
        left.multiply(right)
    }
}

/// A half-precision type.
pub(super) trait HalfType {
    /// Combines elements by the instructions of `V`.
    fn combine<V: Instructions, O: Arithmetic>(memory: Memory<'_>);
    /// Replaces elements by the instructions of `V`.
    fn map<V: Instructions>(memory: &mut [u8], f: impl Fn(f32) -> f32 + Copy);
}

/// IEEE 754 binary16.
pub(super) struct F16;

/// bfloat16.
pub(super) struct Bf16;

macro_rules! half_types {
    ($($name:ident: $lanes:ident),*) => {$(
        impl HalfType for $name {
            #[inline(always)]
            fn combine<V: Instructions, O: Arithmetic>(memory: Memory<'_>) {
                memory.combine::<V, $lanes<V>, _>(
                    #[inline(always)]
                    |left, right| O::of(left, right),
                );
            }
            #[inline(always)]
            fn map<V: Instructions>(memory: &mut [u8], f: impl Fn(f32) -> f32 + Copy) {
                unary(
                    memory,
                    #[inline(always)]
                    move |elements: $lanes<V>| elements.map(f),
                );
            }
        }
    )*};
}

half_types!(F16: F16Lanes, Bf16: Bf16PairLanes);

impl Memory<'_> {
    #[inline(always)]
    fn combine<V, T, const N: usize>(self, f: impl Fn(T, T) -> T + Copy)
    where
        V: Instructions,
        T: Lanes<Bytes = [u8; N]>,
    {
        let (into, from) = match self {
            Memory::Binary { into, from, .. } => (into, from),
            Memory::Ternary { into, left, right, .. } if SMALL => {
                let bytes = into.len().min(left.len()).min(right.len());
                let into = &mut into[..bytes];
                into.copy_from_slice(&left[..bytes]);
                (into, right)
            }
            Memory::Ternary { into, left, right, stores: Stores::Cached } => {
                return ternary(into, left, right, f);
            }
            Memory::Ternary { into, left, right, stores: Stores::Streaming } => {
                return ternary_streaming::<V, _, _>(into, left, right, f);
            }
        };
        binary(into, from, f);
    }
}

struct CombineForm<'a, T, F> {
    memory: Memory<'a>,
    f: F,
    elements: PhantomData<T>,
}

impl<T, F, const N: usize> Loop for CombineForm<'_, T, F>
where
    T: Lanes<Bytes = [u8; N]>,
    F: Fn(T, T) -> T + Copy,
{
    const OF_HALVES: bool = false;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        self.memory.combine::<V, _, _>(self.f);
    }
}

struct CombiningHalves<'a, H, O> {
    memory: Memory<'a>,
    types: PhantomData<(H, O)>,
}

impl<H: HalfType, O: Arithmetic> Loop for CombiningHalves<'_, H, O> {
    const OF_HALVES: bool = true;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        H::combine::<V, O>(self.memory);
    }
}

struct MapForm<'a, T, F> {
    memory: &'a mut [u8],
    f: F,
    elements: PhantomData<T>,
}

impl<T, F, const N: usize> Loop for MapForm<'_, T, F>
where
    T: Lanes<Bytes = [u8; N]>,
    F: Fn(T) -> T + Copy,
{
    const OF_HALVES: bool = false;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        unary(self.memory, self.f);
    }
}

struct MappingHalves<'a, H, F> {
    memory: &'a mut [u8],
    f: F,
    elements: PhantomData<H>,
}

impl<H: HalfType, F: Fn(f32) -> f32 + Copy> Loop for MappingHalves<'_, H, F> {
    const OF_HALVES: bool = true;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        H::map::<V>(self.memory, self.f);
    }
}

struct CopyForm<'a> {
    into: &'a mut [u8],
    from: &'a [u8],
}

#[cfg(target_arch = "x86_64")]
struct CachedCopyForm<'a> {
    into: &'a mut [u8],
    from: &'a [u8],
}

#[cfg(target_arch = "x86_64")]
impl Loop for CachedCopyForm<'_> {
    const OF_HALVES: bool = false;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        copy_cached::<V>(self.into, self.from);
    }
}

impl Loop for CopyForm<'_> {
    const OF_HALVES: bool = false;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        copy_streaming::<V>(self.into, self.from);
    }
}
