//! Whether outputs in a language's memory lie apart from one another. The core sees that of tensors
//! that are flat; of others it sees copies, which always do. Knows no operation.

use super::tensors::{Foreign, Staging};
use crate::{Error, Result};

/// Refuses outputs that share elements with themselves or with one another: no result could be
/// promised. The same tensor twice is one for the core, which knows where that is allowed.
pub(super) fn refuse_overlaps(name: &str, all: &[Staging], outputs: &[usize]) -> Result<()> {
    let of = |index: usize| all[index].foreign.as_ref().filter(|it| it.layout.bytes() > 0);
    let mut spans = Vec::with_capacity(outputs.len());
    for (number, &index) in outputs.iter().enumerate() {
        let Some(foreign) = of(index) else { continue };
        if foreign.layout.overlaps_itself() {
            return Err(invalid(format!(
                "{name}: elements of output tensor {number} share memory with one another"
            )));
        }
        let (first, last) = foreign.span(&all[index]);
        spans.push((foreign.place.0, first, last, number));
    }
    spans.sort_unstable();
    for (place, &(piece, _, last, number)) in spans.iter().enumerate() {
        let behind = spans[place + 1..].iter();
        for &(.., other) in behind.take_while(|it| it.0 == piece && it.1 < last) {
            let (one, two) = (&all[outputs[number]], &all[outputs[other]]);
            if share(one, two) {
                let (first, second) = (number.min(other), number.max(other));
                return Err(invalid(format!(
                    "{name}: output tensors {first} and {second} share memory"
                )));
            }
        }
    }
    Ok(())
}

/// Whether two tensors of one piece of memory share bytes, which their copies do not.
fn share(one: &Staging, two: &Staging) -> bool {
    let (Some(a), Some(b)) = (&one.foreign, &two.foreign) else { return false };
    if one.tensor.region().overlaps(two.tensor.region()) {
        return false;
    }
    let ((first, last), (other_first, other_last)) = (a.span(one), b.span(two));
    let (from, until) = (first.max(other_first), last.min(other_last));
    let mut seen = vec![false; until.saturating_sub(from)];
    let mut shared = false;
    for foreign in [a, b] {
        let bytes = foreign.layout.bytes();
        foreign.layout.pieces(0, bytes, |at, _, length| {
            let at = foreign.place.1 + at;
            let (start, end) = (at.max(from), (at + length).min(until));
            if start < end {
                let part = &mut seen[start - from..end - from];
                shared |= part.contains(&true);
                part.fill(true);
            }
        });
    }
    shared
}

impl Foreign {
    /// The first byte of the elements in the piece of memory, and the one behind the last.
    fn span(&self, staging: &Staging) -> (usize, usize) {
        let element_bytes = staging.tensor.dtype().size_bytes();
        let (first, last) = self.layout.extent();
        (self.place.1 + first * element_bytes, self.place.1 + last * element_bytes)
    }
}

fn invalid(message: String) -> Error {
    Error::InvalidArgument { message }
}
