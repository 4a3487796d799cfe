//! The backend over NVIDIA's NCCL, for tensors of CUDA devices. The library and the driver are
//! found and loaded at run time. Knows no schedule and no transport.
//!
//! ```text
//! library ─▶ functions ─▶ communicator (one of a group, on one device, with a stream of its own)
//!  Call ─▶ collectives ─▶ running ─▶ progress ─▶ Completion
//! ```
//!
//! An operation comes after what the tensors' owner issued on its stream before the call. It is
//! enqueued immediately; waiting without a limit has the owner's stream come after it, and does not
//! block. It is done when the event recorded after it has completed: then its memory is released.

mod abort_watch;
mod backend;
mod bootstrap;
mod collectives;
mod communicator;
mod config;
mod functions;
mod library;
mod options;
mod own_messages;
mod progress;
mod reductions;
mod running_operation;
mod version;

use std::sync::OnceLock;

use crate::backend::registration::{Bootstrap, ConnectFuture, Registration};
use crate::backend::{BackendOptions, Capabilities, CudaTensors, Mismatches};
use crate::blocking::unblock;
pub use crate::generated::backend_options::{NcclConfig, NcclOptions};
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::tensor::cuda;
use library::LoadedLibrary;

/// The backend's row in the registry.
pub(super) const REGISTRATION: Registration = Registration {
    availability: available,
    capabilities: Some(capabilities),
    check,
    ..Registration::new("nccl", "cuda", connect)
};

/// Whether there is an NCCL library that this process can use, and a CUDA device.
///
/// # Errors
/// [`Error::BackendUnavailable`] saying what was looked for, and what was wrong with it.
pub fn available() -> Result<()> {
    found().map_err(unavailable)?;
    cuda::available().map_err(unavailable)
}

/// The version of the library that this process uses, and what it was opened as.
///
/// # Errors
/// As [`available`], of the library alone.
pub fn library() -> Result<String> {
    let found = found().map_err(unavailable)?;
    Ok(format!("NCCL {} ({})", found.version, found.name))
}

/// Whether NCCL can reduce elements of `dtype` by `reduce_op`.
pub fn reduces(reduce_op: ReduceOp, dtype: DType) -> bool {
    reduce_op.supports(dtype) && reductions::has(reduce_op, dtype)
}

/// What the backend can do in every process, with tensors of CUDA devices.
pub fn capabilities() -> Capabilities {
    let all = ReduceOp::WITHOUT_FACTOR.into_iter().chain([ReduceOp::PremulSum(1.0)]);
    let pairs = all.flat_map(|reduce_op| DType::ALL.map(|dtype| (reduce_op, dtype)));
    let complete = Capabilities {
        mismatches: Mismatches::WhenStalled,
        any_source: false,
        highest_tag: 0,
        cuda: CudaTensors::Directly,
        ..Capabilities::complete()
    };
    let reducing = pairs
        .filter(|(reduce_op, dtype)| !reduces(*reduce_op, *dtype))
        .fold(complete, |less, (reduce_op, dtype)| less.without_reduction(reduce_op, dtype));
    let lacks = |collective: &Collective| collectives::adder(*collective).is_none();
    Collective::ALL.into_iter().filter(lacks).fold(reducing, Capabilities::without)
}

/// Refuses options that NCCL would refuse, take for something else, or not know.
///
/// # Errors
/// [`Error::InvalidArgument`] with the member, what was expected and what came;
/// [`Error::Unsupported`] for what the library is too old for, and communicators that block.
fn check(options: &BackendOptions) -> Result<()> {
    let version = found().ok().map(|found| found.version);
    options.get().map_or(Ok(()), |options| options::check(options, version))
}

/// Joins a group whose ranks each have a CUDA device of their own.
///
/// # Errors
/// As [`available`]; those of the meeting, if the device is known.
fn connect(bootstrap: Bootstrap<'_>) -> ConnectFuture<'_> {
    Box::pin(async move {
        available()?;
        let found = found().map_err(unavailable)?;
        let Bootstrap { backend, rank, size, timeout, device, share, host, .. } = bootstrap;
        let (store, group) = (bootstrap.store.clone(), bootstrap.group.to_owned());
        let (options, members) = (bootstrap.options.cloned(), bootstrap.members.to_vec());
        // NCCL has no call for that which does not block.
        unblock(move || {
            let (store, group, options) = (&store, &*group, options.as_ref());
            backend::connect(
                found,
                Bootstrap {
                    backend,
                    store,
                    rank,
                    size,
                    members: &members,
                    group,
                    meeting: group,
                    generation: 0,
                    timeout,
                    observer: None,
                    device,
                    options,
                    share,
                    host,
                },
            )
        })
        .await
    })
}

/// The library that this process uses.
///
/// # Errors
/// What was looked for, and what was wrong with what was there.
fn found() -> std::result::Result<&'static LoadedLibrary, String> {
    static FOUND: OnceLock<std::result::Result<LoadedLibrary, String>> = OnceLock::new();
    FOUND.get_or_init(library::find).as_ref().map_err(Clone::clone)
}

fn unavailable(why: String) -> Error {
    Error::BackendUnavailable { backend: "nccl".into(), why }
}
