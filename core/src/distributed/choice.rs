//! Which backend: what this build has, what is found here, what follows from that for a group that
//! names none, and for a program that asks. Knows no group.

use crate::backend::CudaMemory;
use crate::backend::registry::{self, BackendName, BackendSpec};
use crate::generated::error::Result;
use crate::tensor::Device;

/// What this build of polyrank has, and what of it can be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildInfo {
    /// polyrank's version.
    pub version: &'static str,
    /// What it was built for: `x86_64-linux-gnu`.
    pub target: String,
    /// The features that were built in.
    pub features: Vec<&'static str>,
    /// The backends, each under its own name, those that the program registered last.
    pub backends: Vec<BackendInfo>,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendInfo {
    /// Its name.
    pub name: &'static str,
    /// The kinds of devices that it may be named for.
    pub devices: Vec<&'static str>,
    /// Why it cannot be used here; none if it can.
    pub unavailable: Option<String>,
    /// The library behind it, if one was found: its version, and what it was opened as.
    pub library: Option<String>,
    /// Whether it reads and writes memory of CUDA devices itself.
    pub takes_cuda_memory: CudaMemory,
}

/// A backend to use here, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recommendation {
    /// Which backend serves which device.
    pub backend: BackendSpec,
    /// The reason, in words.
    pub reason: String,
}

/// What this build has, and what of it can be used here. Libraries and drivers are looked for, and
/// loaded where they are, but no MPI library is initialised.
pub fn build_info() -> BuildInfo {
    let target = match ENVIRONMENT {
        "" => format!("{}-{}", std::env::consts::ARCH, SYSTEM),
        environment => format!("{}-{}-{environment}", std::env::consts::ARCH, SYSTEM),
    };
    let features = [
        ("cuda", cfg!(feature = "cuda")),
        ("mpi", cfg!(feature = "mpi")),
        ("nccl", cfg!(feature = "nccl")),
        ("ndarray", cfg!(feature = "ndarray")),
        ("objects", cfg!(feature = "objects")),
        ("tcp", cfg!(feature = "tcp")),
        ("tls", cfg!(feature = "tls")),
        ("websocket", cfg!(feature = "websocket")),
    ];
    let features = features.into_iter().filter_map(|(name, is_there)| is_there.then_some(name));
    let own = registry::names().filter_map(|name| name.parse::<BackendName>().ok());
    let own = own.filter(|name| name.is_own());
    let backends = own.map(|name| BackendInfo {
        name: name.as_str(),
        devices: name.devices(),
        unavailable: registry::available(&name).err().map(|error| error.to_string()),
        library: registry::library(name),
        takes_cuda_memory: registry::takes_cuda_memory(name),
    });
    BuildInfo {
        version: env!("CARGO_PKG_VERSION"),
        target,
        features: features.collect(),
        backends: backends.collect(),
    }
}

const SYSTEM: &str = if cfg!(target_family = "wasm") { "browser" } else { std::env::consts::OS };
const ENVIRONMENT: &str = if cfg!(target_env = "gnu") {
    "gnu"
} else if cfg!(target_env = "musl") {
    "musl"
} else {
    ""
};

/// A browser reaches other ranks by WebSockets alone.
#[cfg(target_family = "wasm")]
pub fn recommend_backend() -> Recommendation {
    let reason = "a browser reaches other ranks by WebSockets alone".to_owned();
    Recommendation { backend: "websocket".parse().unwrap_or_default(), reason }
}

/// Which backends are best here, by the devices and the network of this host, and the launcher of
/// this process. What a group has that names none is simpler: see
/// [`InitOptions::backend`](super::InitOptions::backend).
#[cfg(not(target_family = "wasm"))]
pub fn recommend_backend() -> Recommendation {
    let (backend, reason) = match surroundings() {
        Surroundings { devices: Ok(devices), nccl: Ok(()), .. } => (
            "cpu:tcp,cuda:nccl",
            format!(
                "there {}, which NCCL serves over NVLink, PCI, InfiniBand and Ethernet; tensors of \
                 the host go over tcp",
                count(devices, "CUDA device")
            ),
        ),
        Surroundings { mpi: Ok(launcher), devices, .. } => ("mpi", {
            let host = devices.map_or("", |_| "; CUDA tensors go by way of the host");
            format!("{launcher}: MPI knows the network of its job, InfiniBand too{host}")
        }),
        Surroundings { devices: Ok(devices), nccl: Err(why), .. } => (
            "cpu:tcp,cuda:tcp",
            format!(
                "there {}, but no NCCL ({why}): CUDA tensors go by way of memory of the host",
                count(devices, "CUDA device")
            ),
        ),
        Surroundings { infiniband, .. } if !infiniband.is_empty() => (
            "tcp",
            format!(
                "there is no CUDA device. Over the InfiniBand of this host ({}) tcp goes as IP, \
                 where POLYRANK_IFNAME names its interface; ranks that mpirun starts have it \
                 natively, by mpi",
                infiniband.join(", ")
            ),
        ),
        _ => (
            "tcp",
            "there is no CUDA device, and no MPI job: ranks on one host use shared memory, others \
             sockets"
                .to_owned(),
        ),
    };
    // These names are rows of the registry.
    let backend = backend.parse().unwrap_or_default();
    Recommendation { backend, reason }
}

#[cfg(not(target_family = "wasm"))]
fn count(number: u32, what: &str) -> String {
    if number == 1 { format!("is 1 {what}") } else { format!("are {number} {what}s") }
}

/// What a choice depends on.
#[cfg(not(target_family = "wasm"))]
struct Surroundings {
    /// The number of CUDA devices, or why there are none.
    devices: std::result::Result<u32, String>,
    /// Whether NCCL can be used, and if not, why.
    nccl: std::result::Result<(), String>,
    /// That this process is one of a job of several ranks whose MPI library is here; else why not.
    mpi: std::result::Result<&'static str, String>,
    /// The names of InfiniBand devices.
    infiniband: Vec<String>,
}

#[cfg(not(target_family = "wasm"))]
fn surroundings() -> Surroundings {
    let reason = |name: &str| super::backend_unavailable_reason(name).map_or(Ok(()), Err);
    Surroundings {
        devices: devices(),
        nccl: reason("nccl"),
        mpi: job().ok_or_else(String::new).and_then(|job| reason("mpi").map(|()| job)),
        infiniband: infiniband(),
    }
}

fn devices() -> std::result::Result<u32, String> {
    #[cfg(feature = "cuda")]
    return crate::tensor::cuda::device_count().map_err(|error| error.to_string());
    #[cfg(not(feature = "cuda"))]
    Err("polyrank was built without the feature `cuda`".to_owned())
}

#[cfg(not(target_family = "wasm"))]
fn job() -> Option<&'static str> {
    registry::is_in_mpi_job().then_some("mpirun started this process")
}

/// The names of InfiniBand devices, where the system lists them.
#[cfg(not(target_family = "wasm"))]
fn infiniband() -> Vec<String> {
    let listed = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut names: Vec<String> =
        listed.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// The backends of a group that names none: those that serve the device to which it is bound, else
/// the accelerator that is found here, else the host.
///
/// # Errors
/// None: the names are rows of the registry.
pub(super) fn default_backend(device: Option<Device>) -> Result<BackendSpec> {
    let is_cuda = match device {
        Some(device) => matches!(device, Device::Cuda(_)),
        None => devices().is_ok() && super::is_backend_available("nccl"),
    };
    if is_cuda { "cpu:tcp,cuda:nccl".parse() } else { Ok(BackendSpec::default()) }
}
