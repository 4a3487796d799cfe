//! A permutation of the ranks' tensors, as an alltoall of which most parts are empty. Knows no
//! backend.

use super::{Inner, ProcessGroup};
use crate::completion::WaitIntent;
use crate::generated::collective::Collective;
use crate::generated::error::{Error, Result};
use crate::request::Request;
use crate::tensor::{
    Buffers, ConstBuffers, OwnedBuffers, Region, Tensor, lend, lend_mut, single_tensor,
};
use crate::wire::exchange::{Exchange, ExchangeMethod};
use crate::work::Work;

/// The method, and its name.
const METHOD: ExchangeMethod = ExchangeMethod::Ppermute;
const NAME: &str = METHOD.name();

impl ProcessGroup {
    /// Each pair is a rank that sends its `input` and the rank that gets it as `output`, as in
    /// JAX's `ppermute`. A rank is the source of one pair at most, and the destination of one at
    /// most; one that is the destination of none gets zeros. All ranks pass the same pairs, and
    /// tensors of one dtype and size.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for ranks outside of the group, and those that are named twice;
    /// [`Error::CollectiveMismatch`] where ranks disagree.
    pub fn ppermute<B: Buffers + ?Sized, I: ConstBuffers + ?Sized>(
        &self,
        output: &mut B,
        input: &I,
        pairs: &[(u32, u32)],
    ) -> Result<()> {
        let output = single_tensor(NAME, lend_mut(output))?;
        let input = single_tensor(NAME, lend(input))?;
        self.issue_permutation(output, input, pairs, WaitIntent::Soon)?.wait(None)
    }

    /// As [`ProcessGroup::ppermute`], owning the tensors until the work is done.
    ///
    /// # Errors
    /// As [`ProcessGroup::ppermute`].
    pub fn ppermute_async(
        &self,
        output: impl OwnedBuffers,
        input: impl OwnedBuffers,
        pairs: &[(u32, u32)],
    ) -> Result<Work> {
        let output = single_tensor(NAME, output.into_tensors())?;
        let input = single_tensor(NAME, input.into_tensors())?;
        self.issue_permutation(output, input, pairs, WaitIntent::Later)
    }

    /// Issues a permutation.
    ///
    /// # Errors
    /// As [`ProcessGroup::ppermute`].
    pub(crate) fn issue_permutation(
        &self,
        output: Tensor,
        mut input: Tensor,
        pairs: &[(u32, u32)],
        waiting: WaitIntent,
    ) -> Result<Work> {
        let members = self.permuting(&output, &input, pairs)?;
        if input.region().overlaps(output.region()) {
            // The output may be written before the input is read.
            input = input.to_contiguous();
        }
        let nothing = || Tensor::contiguous(Region::zeroed(0), input.dtype(), vec![0]);
        let blocks = |tensor: &Tensor, peer: Option<u32>| -> Vec<Tensor> {
            let block = |other| if peer == Some(other) { tensor.clone() } else { nothing() };
            (0..members.size()).map(block).collect()
        };
        let rank = members.rank;
        let to = pairs.iter().find(|pair| pair.0 == rank).map(|pair| pair.1);
        let from = pairs.iter().find(|pair| pair.1 == rank).map(|pair| pair.0);
        let mut request = Request::new(Collective::Alltoall);
        (request.name, request.epoch) = (NAME, Some(members.epoch));
        request.exchange = Some(Exchange { method: METHOD, topology: None, has_no_tensors: false });
        request.inputs = vec![blocks(&input, to)];
        request.outputs = vec![blocks(&output, from)];
        request.uncut_inputs = vec![input.clone()];
        request.uncut_outputs = vec![output.clone()];
        let checked = self.check(request)?;
        if from.is_none() {
            output.set_to_zero();
        }
        self.issue_checked(checked, waiting)
    }

    /// Checks the pairs and the tensors of a permutation, of which nothing is read.
    pub(crate) fn check_permutation(
        &self,
        output: &Tensor,
        input: &Tensor,
        pairs: &[(u32, u32)],
    ) -> Result<()> {
        self.permuting(output, input, pairs).map(drop)
    }

    /// As [`ProcessGroup::check_permutation`]: the members who permute.
    fn permuting(&self, output: &Tensor, input: &Tensor, pairs: &[(u32, u32)]) -> Result<&Inner> {
        let members = self.present_members(NAME)?;
        check(pairs, members.size())?;
        if output.region().device().is_some() {
            let who = "a group over devices".to_owned();
            return Err(Error::Unsupported { who, operation: NAME.to_owned() });
        }
        if output.elements() != input.elements() || output.dtype() != input.dtype() {
            let message = format!(
                "{NAME}: the output must be like the input, {} elements of {}, got {} of {}",
                input.elements(),
                input.dtype().name(),
                output.elements(),
                output.dtype().name()
            );
            return Err(Error::InvalidArgument { message });
        }
        if output.is_read_only() {
            let message = format!("{NAME}: the memory of the output is read-only");
            return Err(Error::InvalidArgument { message });
        }
        Ok(members)
    }
}

/// Checks that all ranks are in the group, and that none is named twice on a side.
fn check(pairs: &[(u32, u32)], size: u32) -> Result<()> {
    let (sources, destinations): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    for (side, ranks) in [("source", sources), ("destination", destinations)] {
        let mut seen = vec![false; size as usize];
        for rank in ranks {
            let message = match seen.get_mut(rank as usize) {
                None => {
                    let last = size.saturating_sub(1);
                    format!("{NAME}: {side} rank must be from 0 to {last}, got {rank}")
                }
                Some(true) => format!("{NAME}: rank {rank} is the {side} of two pairs"),
                Some(seen) => {
                    *seen = true;
                    continue;
                }
            };
            return Err(Error::InvalidArgument { message });
        }
    }
    Ok(())
}
