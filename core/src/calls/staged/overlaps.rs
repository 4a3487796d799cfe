//! Whether outputs in a language's memory lie apart from one another. The core sees that of tensors
//! that are flat; of others it sees copies, which always do. Knows no operation.

use super::tensors::{Foreign, StagedTensor};
use crate::generated::error::{Error, Result};
use crate::tensor::{RepeatPolicy, Runs, View, overlap};

/// Refuses outputs that share elements with themselves or with one another: no result could be
/// promised. The same tensor twice is one for the core, which knows where that is allowed.
pub(super) fn refuse_overlaps(name: &str, all: &[StagedTensor], outputs: &[usize]) -> Result<()> {
    let views: Vec<Output<'_>> =
        outputs.iter().filter_map(|&index| Output::of(&all[index])).collect();
    // Of arrays that are used whole, the copies share memory as they do: the core sees for itself.
    if views.iter().all(|view| view.foreign.is_whole()) {
        return Ok(());
    }
    match overlap(&views, RepeatPolicy::Allowed) {
        Some(found) => Err(Error::InvalidArgument { message: found.of_outputs(name) }),
        None => Ok(()),
    }
}

/// An output in the language's memory.
struct Output<'a> {
    staging: &'a StagedTensor,
    foreign: &'a Foreign,
}

impl Output<'_> {
    fn of(staging: &StagedTensor) -> Option<Output<'_>> {
        staging.foreign.as_ref().map(|foreign| Output { staging, foreign })
    }
}

impl View for Output<'_> {
    fn piece(&self) -> usize {
        self.foreign.place.0
    }

    fn span(&self) -> (usize, usize) {
        let element_bytes = self.staging.tensor.dtype().size_bytes();
        let (first, last) = self.foreign.layout.extent();
        let start = self.foreign.place.1;
        (start + first * element_bytes, start + last * element_bytes)
    }

    fn overlaps_itself(&self) -> bool {
        self.foreign.layout.overlaps_itself()
    }

    /// Those that work on one copy.
    fn is_same_view(&self, other: &Self) -> bool {
        self.staging.tensor.region().is(other.staging.tensor.region())
    }

    fn runs(&self) -> Runs {
        self.foreign.layout.runs(self.foreign.place.1)
    }

    fn visit_bytes(&self, mut f: impl FnMut(usize, usize)) {
        let start = self.foreign.place.1;
        let bytes = self.foreign.layout.bytes();
        self.foreign.layout.pieces(0, bytes, |at, _, length| f(start + at, length));
    }
}
