//! What neighbours exchange, as alltoalls of which most parts are empty: as many at once as there
//! are edges, at most, from one rank to another. Knows no backend.

use super::Topology;
use super::cartesian::invalid;
use super::edges::Edge;
use crate::completion::WaitIntent;
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::process_group::{CheckedRequest, ProcessGroup};
use crate::request::Request;
use crate::tensor::{
    Buffers, ConstBuffers, Device, OwnedBuffers, Region, Tensor, lend, lend_mut, single_tensor,
};
use crate::wire::exchange::{Exchange, ExchangeMethod};
use crate::work::Work;

/// A call of an operation, before anything is checked.
#[derive(Clone, Debug)]
pub(crate) struct NeighborCall {
    /// The method.
    pub(crate) method: ExchangeMethod,
    /// The tensors as they were given.
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) inputs: Vec<Tensor>,
}

macro_rules! operations {
    ($(
        $(#[$text:meta])*
        $name:ident, $name_async:ident, $method:ident;
    )*) => {
        impl Topology {
            $(
                $(#[$text])*
                ///
                /// # Errors
                /// [`Error::InvalidArgument`] for tensors that do not fit the neighbours;
                /// [`Error::CollectiveMismatch`] where ranks disagree. The failure of a broken
                /// group; [`Error::Reconfigured`] where its members were replaced.
                pub fn $name<B: Buffers + ?Sized, I: ConstBuffers + ?Sized>(
                    &self,
                    outputs: &mut B,
                    inputs: &I,
                ) -> Result<()> {
                    let call = NeighborCall {
                        method: ExchangeMethod::$method,
                        outputs: lend_mut(outputs),
                        inputs: lend(inputs),
                    };
                    self.issue(call, WaitIntent::Soon)?.wait(None)
                }

                #[doc = concat!(
                    "As [`Topology::", stringify!($name),
                    "`], owning the tensors until the work is done."
                )]
                ///
                /// # Errors
                #[doc = concat!("As [`Topology::", stringify!($name), "`].")]
                pub fn $name_async(
                    &self,
                    outputs: impl OwnedBuffers,
                    inputs: impl OwnedBuffers,
                ) -> Result<Work> {
                    let call = NeighborCall {
                        method: ExchangeMethod::$method,
                        outputs: outputs.into_tensors(),
                        inputs: inputs.into_tensors(),
                    };
                    self.issue(call, WaitIntent::Later)
                }
            )*
        }
    };
}

operations! {
    /// Gives one tensor to all destinations, and gets one from each source: output `i` is the input
    /// of `sources()[i]`, whose size it has.
    neighbor_allgather, neighbor_allgather_async, NeighborAllgather;

    /// As [`Topology::neighbor_allgather`], for outputs of one size in one tensor, which has them
    /// one after the other along dimension 0.
    neighbor_allgather_single, neighbor_allgather_single_async, NeighborAllgatherSingle;

    /// Gives each destination a tensor of its own, and gets one from each source: input `i` goes to
    /// `destinations()[i]`, and output `i` comes from `sources()[i]`. Tensors may differ in size,
    /// and have one type.
    neighbor_alltoall, neighbor_alltoall_async, NeighborAlltoall;

    /// As [`Topology::neighbor_alltoall`], for inputs of one size in one tensor, and outputs of one
    /// size in one tensor, each of which has them one after the other along dimension 0.
    neighbor_alltoall_single, neighbor_alltoall_single_async, NeighborAlltoallSingle;
}

impl Topology {
    /// Whether some outputs, or parts of one, stay as they are.
    pub(crate) fn leaves_outputs(&self) -> bool {
        self.inner.edges.sources.iter().any(Option::is_none)
    }

    /// Checks a call, of which nothing is read.
    ///
    /// # Errors
    /// As [`Topology::neighbor_alltoall`].
    pub(crate) fn check(&self, call: &NeighborCall) -> Result<()> {
        self.checked(call, false).map(drop)
    }

    /// Issues a call.
    ///
    /// # Errors
    /// As [`Topology::neighbor_alltoall`].
    pub(crate) fn issue(&self, call: NeighborCall, waiting: WaitIntent) -> Result<Work> {
        let group = self.group();
        let checked = self.checked(&call, true)?;
        #[cfg(not(target_family = "wasm"))]
        let (name, outputs, epoch) = (call.method.name(), call.outputs.clone(), self.inner.epoch);
        let issue = || {
            let hooked = group.before(|| group.hook_arguments(checked.request(), waiting))?;
            let issued = group.issue_checked_unhooked(checked, waiting);
            let whole = issued
                .map(|work| Work::new(group.label(call.method.name()), work.parts(), call.outputs));
            ProcessGroup::after(hooked, whole)
        };
        #[cfg(not(target_family = "wasm"))]
        if let Some(wrapper) = &group.wrapper {
            return wrapper.run(group, epoch, (name, outputs), issue);
        }
        issue()
    }

    /// The alltoalls that a call is; `copies` inputs that share memory with an output, which may be
    /// written before they are read.
    fn checked(&self, call: &NeighborCall, copies: bool) -> Result<CheckedRequest> {
        let (group, edges, epoch) = (self.group(), &self.inner.edges, self.inner.epoch);
        let name = call.method.name();
        group.require_members(name)?;
        group.check_epoch(epoch, name)?;
        let given = || call.inputs.iter().chain(&call.outputs);
        if given().any(|tensor| tensor.device() != Device::Cpu) {
            let who = "a topology".to_owned();
            return Err(Error::Unsupported { who, operation: format!("{name} over devices") });
        }
        let dtype = given().next().map_or(DType::U8, Tensor::dtype);
        if let Some(other) = given().find(|tensor| tensor.dtype() != dtype) {
            return invalid(format!(
                "{name}: all tensors of a call must have the same dtype, got {} and {}",
                dtype.name(),
                other.dtype().name()
            ));
        }
        let separate = |input: &Tensor| {
            let shares = |output: &Tensor| input.region().overlaps(output.region());
            let is_copied = copies && call.outputs.iter().any(shares);
            if is_copied { input.to_contiguous() } else { input.clone() }
        };
        let inputs: Vec<Tensor> = call.inputs.iter().map(separate).collect();
        let (givers, takers) = (&edges.sources, &edges.destinations);
        let outputs = call.blocks("output", "sources", &call.outputs, givers.len())?;
        let inputs = match call.gives_one() {
            true => vec![single_tensor(name, inputs)?; takers.len()],
            false => call.blocks("input", "destinations", &inputs, takers.len())?,
        };
        let lists = |edges: &[Option<Edge>], blocks: &[Tensor]| {
            let nothing = Tensor::contiguous(Region::zeroed(0), dtype, vec![0]);
            let size = self.inner.size as usize;
            let mut lists = vec![vec![nothing; size]; self.inner.edges.rounds.max(1)];
            for (edge, block) in edges.iter().zip(blocks) {
                if let Some(Edge { peer, round }) = *edge {
                    lists[round][peer as usize] = block.clone();
                }
            }
            lists
        };
        let request = Request {
            name,
            inputs: lists(takers, &inputs),
            outputs: lists(givers, &outputs),
            uncut_inputs: call.inputs.clone(),
            uncut_outputs: call.outputs.clone(),
            timeout: self.timeout,
            coalesced: true,
            exchange: Some(Exchange {
                method: call.method,
                topology: Some(self.number()),
                has_no_tensors: given().next().is_none(),
            }),
            epoch: Some(epoch),
            ..Request::new(Collective::Alltoall)
        };
        group.check(request)
    }
}

impl NeighborCall {
    /// A call of the operation of this name, if it is one.
    pub(crate) fn named(
        name: &str,
        outputs: Vec<Tensor>,
        inputs: Vec<Tensor>,
    ) -> Option<NeighborCall> {
        let is_it =
            |method: &ExchangeMethod| method.name() == name && *method != ExchangeMethod::Ppermute;
        let method = ExchangeMethod::ALL.into_iter().find(is_it)?;
        Some(NeighborCall { method, outputs, inputs })
    }

    /// Whether all destinations get the same.
    fn gives_one(&self) -> bool {
        use ExchangeMethod::{NeighborAllgather, NeighborAllgatherSingle};
        matches!(self.method, NeighborAllgather | NeighborAllgatherSingle)
    }

    /// What stands in each of so many places.
    fn blocks(
        &self,
        side: &str,
        places: &str,
        given: &[Tensor],
        count: usize,
    ) -> Result<Vec<Tensor>> {
        let name = self.method.name();
        if !self.method.is_single() {
            return match given.len() == count {
                true => Ok(given.to_vec()),
                false => invalid(format!(
                    "{name}: expected {count} {side} tensors, one for each of the {places}, got {}",
                    given.len()
                )),
            };
        }
        let whole = single_tensor(name, given.to_vec())?;
        let rows = whole.shape().first().copied().unwrap_or(1);
        match rows.checked_div(count) {
            None => Ok(Vec::new()),
            Some(each) if each * count == rows => whole.split(&vec![each; count]),
            Some(_) => invalid(format!(
                "{name}: the {side} has {rows} rows, which {count} {places} do not divide"
            )),
        }
    }
}
