//! Tensors of CUDA devices in groups whose backends are for the host: they are copied to the host,
//! the operation runs there, and its results are copied back. Knows no particular backend.
//!
//! The call waits until the device has done what the tensors' owners issued before it. A work is
//! done when the results are in the memory of the device.

use std::sync::Arc;

use super::ProcessGroup;
use super::check::CheckedRequest;
use super::device_backend::one_device;
use super::messages::contiguous_on_device;
use crate::completion::{Completion, WaitIntent};
use crate::generated::collective::Blocks;
use crate::generated::error::Result;
use crate::request::Request;
use crate::tensor::{Device, Region, Tensor, cuda};
use crate::work::Work;

/// A tensor of a device, and the memory of the host that stands for it.
struct Staged {
    device: Tensor,
    host: Tensor,
}

impl ProcessGroup {
    /// Whether the tensors of a request are a device's, and no backend of the group is for it.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for tensors of several devices.
    pub(super) fn goes_over_host(&self, request: &Request) -> Result<bool> {
        let mut tensors = request.tensors();
        let Some(first) = tensors.next().filter(|_| self.inner.cuda.is_none()) else {
            return Ok(false);
        };
        let device = one_device(request.name, first, tensors)?;
        Ok(matches!(device, Device::Cuda(_)))
    }

    /// Issues a checked request whose tensors are a device's over the backend for the host.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue`]; [`crate::Error::BackendUnavailable`] and
    /// [`crate::Error::Network`] with the driver's words.
    pub(super) fn issue_over_host(
        &self,
        checked: &CheckedRequest,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let request = checked.request();
        request.tensors().try_for_each(|tensor| contiguous_on_device(request.name, tensor))?;
        let facts = request.collective.facts();
        let is_in_place = facts.input == Blocks::None;
        let is_root = self.rank() == request.root;
        // The root of a broadcast only reads, as others do where the root alone gets a result.
        let only_reads = match facts.output {
            Blocks::OneAtRoot | Blocks::AllAtRoot => !is_root,
            _ => facts.rooted && is_in_place && is_root,
        };
        let inputs = staged_lists(&request.inputs, true)?;
        let outputs = staged_lists(&request.outputs, is_in_place)?;
        let host = Request {
            inputs: hosts(&inputs),
            outputs: hosts(&outputs),
            uncut_inputs: Vec::new(),
            uncut_outputs: Vec::new(),
            ..request.clone()
        };
        let label = self.request_label(request);
        let work = self.issue_checked_unhooked(self.check(host)?, waiting)?;
        let back = if only_reads { Vec::new() } else { outputs.into_iter().flatten().collect() };
        let endings = vec![copied_back(&work, back)];
        let devices = request.tensors().filter_map(|tensor| tensor.region().device()).collect();
        let outputs = request.outputs.concat();
        Ok(Work::followed(label, work.parts(), endings, outputs, devices))
    }
}

/// The tensors of the host that stand for those of `lists`; with their elements, where they are
/// read.
fn staged_lists(lists: &[Vec<Tensor>], is_read: bool) -> Result<Vec<Vec<Staged>>> {
    let one = |tensor: &Tensor| {
        let region = tensor.region();
        // What was issued before is done then, also where nothing is read.
        let host = match is_read {
            true => Region::from_vec(cuda::download(region)?),
            false => {
                cuda::synchronize(region)?;
                Region::zeroed(region.len())
            }
        };
        let host = Tensor::contiguous(host, tensor.dtype(), tensor.shape().to_vec());
        Ok(Staged { device: tensor.clone(), host })
    };
    lists.iter().map(|list| list.iter().map(one).collect()).collect()
}

fn hosts(lists: &[Vec<Staged>]) -> Vec<Vec<Tensor>> {
    let of = |list: &Vec<Staged>| list.iter().map(|it| it.host.clone()).collect();
    lists.iter().map(of).collect()
}

/// Copies results back when `work` has ended well; what is told when they are there.
fn copied_back(work: &Work, results: Vec<Staged>) -> Arc<Completion> {
    let completion = Arc::new(Completion::new());
    let told = completion.clone();
    work.on_outcome(move |ended| {
        let copied = ended.clone().and_then(|()| {
            results.iter().try_for_each(|Staged { device, host }| {
                host.region().read(|bytes| cuda::upload_into(device.region(), bytes))
            })
        });
        told.complete(copied);
    });
    completion
}
