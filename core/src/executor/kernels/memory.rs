//! The loops over memory that every kernel shares. Knows no element type and no operator.

/// The operands of a reduction.
pub(super) enum Memory<'a> {
    /// The left one is overwritten.
    InPlace { into: &'a mut [u8], from: &'a [u8] },
    /// The result goes elsewhere.
    Apart { into: &'a mut [u8], left: &'a [u8], right: &'a [u8] },
}

/// How pieces of `N` bytes become one.
pub(super) trait Combine<const N: usize> {
    fn combine(left: [u8; N], right: [u8; N]) -> [u8; N];
}

/// What becomes of a piece of `N` bytes.
pub(super) trait Map<const N: usize> {
    fn map(&self, bytes: [u8; N]) -> [u8; N];
}

impl Memory<'_> {
    /// Combines piece by piece. What is left over at the end, if the length is no multiple of `N`,
    /// stays as it is.
    #[inline(always)]
    pub(super) fn combine<const N: usize, C: Combine<N>>(self) {
        match self {
            Memory::InPlace { into, from } => {
                for (into, from) in into.as_chunks_mut().0.iter_mut().zip(from.as_chunks().0) {
                    *into = C::combine(*into, *from);
                }
            }
            Memory::Apart { into, left, right } => {
                let operands = left.as_chunks().0.iter().zip(right.as_chunks().0);
                for (into, (left, right)) in into.as_chunks_mut().0.iter_mut().zip(operands) {
                    *into = C::combine(*left, *right);
                }
            }
        }
    }

    /// As `combine`, but what is left over at the end is filled up with zeros and combined too.
    #[inline(always)]
    pub(super) fn combine_padded<const N: usize, C: Combine<N>>(self) {
        match self {
            Memory::InPlace { into, from } => {
                let whole = into.len() / N * N;
                let (into, into_rest) = into.split_at_mut(whole);
                let (from, from_rest) = from.split_at(whole);
                Memory::InPlace { into, from }.combine::<N, C>();
                let last = C::combine(padded(into_rest), padded(from_rest));
                into_rest.copy_from_slice(&last[..into_rest.len()]);
            }
            Memory::Apart { into, left, right } => {
                let whole = into.len() / N * N;
                let (into, into_rest) = into.split_at_mut(whole);
                let (left, left_rest) = left.split_at(whole);
                let (right, right_rest) = right.split_at(whole);
                Memory::Apart { into, left, right }.combine::<N, C>();
                let last = C::combine(padded(left_rest), padded(right_rest));
                into_rest.copy_from_slice(&last[..into_rest.len()]);
            }
        }
    }
}

/// Changes memory piece by piece; what is left over at the end is filled up with zeros for the call.
#[inline(always)]
pub(super) fn map<const N: usize>(memory: &mut [u8], by: &impl Map<N>) {
    let (whole, rest) = memory.as_chunks_mut();
    for bytes in whole {
        *bytes = by.map(*bytes);
    }
    if !rest.is_empty() {
        let last = by.map(padded(rest));
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[inline(always)]
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut whole = [0; N];
    whole[..bytes.len()].copy_from_slice(bytes);
    whole
}
