//! What a program asks of its surroundings: its launcher, the backends for its devices. Knows
//! no group.

use crate::env::variable::{self, Variable};
use crate::generated::error::{Error, Result};
use crate::tensor::Device;

/// Whether this package can be used here: it can.
pub fn is_available() -> bool {
    true
}

/// Whether a launcher started this process: `POLYRANK_RUN_ID` or `TORCHELASTIC_RUN_ID` is set.
pub fn is_torchelastic_launched() -> bool {
    let names = [variable::POLYRANK_RUN_ID, variable::TORCHELASTIC_RUN_ID];
    names.into_iter().any(Variable::is_set)
}

/// As [`is_torchelastic_launched`].
pub fn is_launched() -> bool {
    is_torchelastic_launched()
}

/// This process's rank among those on its host, as the launcher said, or `fallback_rank`.
///
/// # Errors
/// [`Error::Rendezvous`] where no launcher said it, and there is no other.
pub fn get_node_local_rank(fallback_rank: Option<i32>) -> Result<i32> {
    let said = variable::LOCAL_RANK.text().and_then(|text| text.parse().ok());
    said.or(fallback_rank).ok_or_else(|| Error::Rendezvous {
        message: "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow \
                  get_node_local_rank to work outside of a launcher"
            .to_owned(),
    })
}

/// The name of the backend that serves a kind of device, whether it can be used here or not:
/// `tcp` for [`Device::Cpu`], `nccl` for CUDA devices.
pub fn get_default_backend_for_device(device: Device) -> &'static str {
    match device {
        Device::Cuda(_) => "nccl",
        Device::Cpu => "tcp",
    }
}

macro_rules! is_available {
    ($($(#[$doc:meta])* $function:ident: $backend:literal),* $(,)?) => {$(
        $(#[$doc])*
        pub fn $function() -> bool {
            super::is_backend_available($backend)
        }
    )*};
}

is_available! {
    /// Whether the TCP backend, of which `gloo` is an alias, is available.
    is_gloo_available: "tcp",
    /// Whether the NCCL backend is available.
    is_nccl_available: "nccl",
    /// Whether the MPI backend is available: an MPI library is found that matches the launcher of
    /// this process. It is loaded, but not initialised.
    is_mpi_available: "mpi",
    /// Whether the UCC backend is available; it never is.
    is_ucc_available: "ucc",
    /// Whether the XCCL backend is available; it never is.
    is_xccl_available: "xccl",
}
