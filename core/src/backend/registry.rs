//! Names of backends, and `cpu:tcp,cuda:nccl` strings. Knows no group.

use std::fmt;
use std::str::FromStr;

use super::{BackendOptions, Capabilities};
use crate::{Error, Result};

/// A backend's name in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendName(String);

impl BackendName {
    /// The CPU backend over sockets.
    pub fn tcp() -> BackendName {
        BackendName("tcp".into())
    }

    /// The CPU backend over an MPI library.
    #[cfg(all(unix, feature = "mpi"))]
    pub(crate) fn mpi() -> BackendName {
        BackendName("mpi".into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The names that are known, `gloo` being another name of `tcp`.
pub const KNOWN: [&str; 5] = ["tcp", "gloo", "nccl", "mpi", "websocket"];

impl FromStr for BackendName {
    type Err = Error;

    fn from_str(name: &str) -> Result<BackendName> {
        let lower = name.trim().to_ascii_lowercase();
        match lower.as_str() {
            "gloo" => Ok(BackendName::tcp()),
            known if KNOWN.contains(&known) => Ok(BackendName(lower)),
            _ => Err(Error::UnknownBackend { name: name.trim().into(), known: KNOWN.join(", ") }),
        }
    }
}

/// Which backend serves which kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSpec {
    /// (`cpu` or `cuda`, backend), in the order given.
    pub devices: Vec<(String, BackendName)>,
}

impl BackendSpec {
    /// Whether it says which backend serves this kind of device.
    pub fn serves(&self, device: &str) -> bool {
        self.devices.iter().any(|(kind, _)| kind == device)
    }

    /// Whether this backend serves some device.
    pub(crate) fn has(&self, backend: &str) -> bool {
        self.devices.iter().any(|(_, name)| name.as_str() == backend)
    }
}

impl Default for BackendSpec {
    fn default() -> BackendSpec {
        BackendSpec { devices: vec![("cpu".into(), BackendName::tcp())] }
    }
}

impl fmt::Display for BackendSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (device, backend)) in self.devices.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{device}:{backend}")?;
        }
        Ok(())
    }
}

impl FromStr for BackendSpec {
    type Err = Error;

    /// Reads `tcp`, or pairs as in `cpu:tcp,cuda:nccl`. A bare name serves the device that the
    /// backend is made for.
    fn from_str(spec: &str) -> Result<BackendSpec> {
        if !spec.contains(':') {
            let backend: BackendName = spec.parse()?;
            let device = if backend.as_str() == "nccl" { "cuda" } else { "cpu" };
            return Ok(BackendSpec { devices: vec![(device.into(), backend)] });
        }
        let mut devices: Vec<(String, BackendName)> = Vec::new();
        for pair in spec.split(',') {
            let Some((device, backend)) = pair.split_once(':') else {
                return Err(invalid(spec, "every item must be device:backend"));
            };
            let device = device.trim().to_ascii_lowercase();
            if !["cpu", "cuda"].contains(&device.as_str()) {
                return Err(invalid(spec, &format!("unknown device type '{device}'")));
            }
            if devices.iter().any(|(known, _)| *known == device) {
                return Err(invalid(spec, &format!("device '{device}' is given twice")));
            }
            devices.push((device, backend.parse()?));
        }
        Ok(BackendSpec { devices })
    }
}

/// Whether a backend can be used in this process, and if not, why.
///
/// # Errors
/// [`Error::BackendUnavailable`] saying what is missing.
pub fn available(name: &BackendName) -> Result<()> {
    let why = match name.as_str() {
        // In a browser, the same schedules run over WebSockets.
        "tcp" if cfg!(any(feature = "tcp", target_family = "wasm")) => return Ok(()),
        "tcp" => "polyrank was built without the feature `tcp`",
        "websocket" => return Ok(()),
        #[cfg(all(unix, feature = "mpi"))]
        "mpi" => return super::mpi::available(),
        #[cfg(not(all(unix, feature = "mpi")))]
        "mpi" => "polyrank was built without the feature `mpi`, or for another system than Unix",
        #[cfg(all(unix, feature = "nccl"))]
        "nccl" => return super::nccl::available(),
        #[cfg(not(all(unix, feature = "nccl")))]
        "nccl" => "polyrank was built without the feature `nccl`, or for another system than Unix",
        other => {
            let why = format!("this version of polyrank has no {other} backend");
            return Err(Error::BackendUnavailable { backend: other.into(), why });
        }
    };
    Err(Error::BackendUnavailable { backend: name.to_string(), why: why.into() })
}

/// Initialises what of these backends there is once in a process, before the first group.
///
/// # Errors
/// [`Error::BackendUnavailable`] saying what is missing.
pub(crate) fn initialise(spec: &BackendSpec) -> Result<()> {
    #[cfg(all(unix, feature = "mpi"))]
    if spec.has(BackendName::mpi().as_str()) {
        super::mpi::place()?;
    }
    #[cfg(not(all(unix, feature = "mpi")))]
    let _ = spec;
    Ok(())
}

/// Refuses options that their backend, as this build has it, cannot take.
///
/// # Errors
/// [`Error::InvalidArgument`] with what was expected and what came; [`Error::Unsupported`].
pub(crate) fn check(options: &BackendOptions) -> Result<()> {
    match options.backend() {
        #[cfg(all(unix, feature = "nccl"))]
        "nccl" => super::nccl::check(options),
        // That there is no such backend is said when it is asked for.
        _ => Ok(()),
    }
}

/// What a backend can do, where this build has it: in every process, whatever its library and the
/// variables of its environment add to that.
pub fn capabilities(name: &BackendName) -> Option<Capabilities> {
    match name.as_str() {
        "tcp" | "websocket" => Some(Capabilities::complete()),
        #[cfg(all(unix, feature = "mpi"))]
        "mpi" => Some(super::mpi::capabilities()),
        #[cfg(all(unix, feature = "nccl"))]
        "nccl" => Some(super::nccl::capabilities()),
        _ => None,
    }
}

fn invalid(spec: &str, why: &str) -> Error {
    let message = format!(
        "cannot read the backend '{spec}': {why}. Expected a name as 'tcp', or pairs as \
         'cpu:tcp,cuda:nccl'"
    );
    Error::InvalidArgument { message }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_and_pairs_are_read_in_any_case() {
        assert_eq!("GLOO".parse::<BackendName>().unwrap().as_str(), "tcp");
        let spec: BackendSpec = "cpu:tcp,CUDA:nccl".parse().unwrap();
        assert_eq!(spec.to_string(), "cpu:tcp,cuda:nccl");
        assert_eq!("nccl".parse::<BackendSpec>().unwrap().to_string(), "cuda:nccl");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (spec, says) in [
            ("carrier-pigeon", "Unknown backend type 'carrier-pigeon'"),
            ("cpu:tcp,cpu:mpi", "device 'cpu' is given twice"),
            ("cpu:tcp,mpi", "every item must be device:backend"),
            ("tpu:tcp", "unknown device type 'tpu'"),
        ] {
            let error = spec.parse::<BackendSpec>().unwrap_err().to_string();
            assert!(error.contains(says), "{spec}: {error}");
        }
    }
}
