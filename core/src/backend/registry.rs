//! The backends, a row each; their names, and `cpu:tcp,cuda:nccl` strings. Knows no group.

use std::fmt;
use std::str::FromStr;

#[cfg(not(target_family = "wasm"))]
use super::fake;
use super::options::ProgramOptions;
use super::registration::Registration;
use super::{BackendOptions, Capabilities, CudaMemory, scheduled};
use crate::generated::error::{Error, Result};
use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};

/// Every backend: a new one has its row here.
static BACKENDS: &[Registration] = &[
    Registration {
        aliases: &["gloo"],
        other_devices: if cfg!(feature = "cuda") { &["cuda"] } else { &[] },
        availability: scheduled::has_sockets,
        capabilities: Some(scheduled::capabilities),
        reconfigures: true,
        ..Registration::new("tcp", "cpu", scheduled::connect)
    },
    #[cfg(all(unix, feature = "nccl"))]
    super::nccl::REGISTRATION,
    #[cfg(not(all(unix, feature = "nccl")))]
    Registration::missing("nccl", "cuda", || not_built("nccl")),
    #[cfg(all(unix, feature = "mpi"))]
    super::mpi::REGISTRATION,
    #[cfg(not(all(unix, feature = "mpi")))]
    Registration::missing("mpi", "cpu", || not_built("mpi")),
    Registration {
        capabilities: Some(scheduled::capabilities),
        reconfigures: true,
        ..Registration::new("websocket", "cpu", scheduled::connect)
    },
    #[cfg(not(target_family = "wasm"))]
    fake::REGISTRATION,
    #[cfg(target_family = "wasm")]
    Registration::missing("fake", "cpu", || {
        let why = "it is not part of the module for browsers".to_owned();
        Err(Error::BackendUnavailable { backend: "fake".into(), why })
    }),
];

/// Those that the program registered, for the rest of its time.
static REGISTERED: ProcessMutex<Vec<&'static Registration>> = ProcessMutex::new(Vec::new());

/// Adds a backend.
///
/// # Errors
/// [`Error::DuplicateBackend`] if there is one of this name.
pub(super) fn add(registration: Registration) -> Result<()> {
    let mut registered = registered();
    let is_known =
        |it: &Registration| it.name == registration.name || it.aliases.contains(&registration.name);
    if BACKENDS.iter().chain(registered.iter().copied()).any(is_known) {
        return Err(Error::DuplicateBackend { backend: registration.name.into() });
    }
    registered.push(Box::leak(Box::new(registration)));
    Ok(())
}

fn registered() -> ProcessMutexGuard<'static, Vec<&'static Registration>> {
    REGISTERED.lock()
}

/// Why there is no backend `name`, which this build could have on Unix.
#[allow(dead_code, reason = "some build has all backends")]
fn not_built(name: &str) -> Result<()> {
    let why =
        format!("polyrank was built without the feature `{name}`, or for another system than Unix");
    Err(Error::BackendUnavailable { backend: name.into(), why })
}

/// The names that are known, other names of a backend after its own; those that the program
/// registered last.
pub fn names() -> impl Iterator<Item = &'static str> {
    let mut names = Vec::new();
    for known in BACKENDS.iter().chain(registered().iter().copied()) {
        names.push(known.name);
        names.extend_from_slice(known.aliases);
    }
    names.into_iter()
}

/// A backend that is known, by the name that it was asked for: `gloo` is another name of `tcp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackendName(&'static str);

impl BackendName {
    /// The CPU backend over sockets.
    pub fn tcp() -> BackendName {
        BackendName("tcp")
    }

    /// The name.
    pub fn as_str(&self) -> &'static str {
        self.0
    }

    /// Whether it is one of polyrank's own, and not one that the program registered.
    pub(crate) fn is_built_in(self) -> bool {
        BACKENDS.iter().any(|it| it.name == self.registration().name)
    }

    /// Whether it is the backend's own name, and not another one for it.
    pub(crate) fn is_own(self) -> bool {
        self.registration().name == self.0
    }

    /// The kinds of devices that it may be named for, the one that its name alone is for first.
    pub fn devices(&self) -> Vec<&'static str> {
        let registration = self.registration();
        let others = registration.other_devices.iter().copied();
        let others = others.filter(|other| *other != registration.device);
        std::iter::once(registration.device).chain(others).collect()
    }

    /// The backend's row.
    pub(crate) fn registration(self) -> &'static Registration {
        let found = BACKENDS.iter().find(|it| it.name == self.0 || it.aliases.contains(&self.0));
        let later = || registered().iter().copied().find(|it| it.name == self.0);
        // The name was made of a row, and tcp is the first.
        found.or_else(later).unwrap_or(&BACKENDS[0])
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for BackendName {
    type Err = Error;

    fn from_str(name: &str) -> Result<BackendName> {
        let lower = name.trim().to_ascii_lowercase();
        let is_meant = |it: &&'static str| **it == *lower;
        match names().find(is_meant) {
            Some(name) => Ok(BackendName(name)),
            None => {
                let known = names().collect::<Vec<_>>().join(", ");
                Err(Error::UnknownBackend { backend: name.trim().into(), known })
            }
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

    /// The backend that serves this kind of device.
    pub(crate) fn backend_for(&self, device: &str) -> Option<BackendName> {
        self.devices.iter().find(|(kind, _)| kind == device).map(|(_, backend)| *backend)
    }

    /// Which backend serves a kind of device, for each that has one: `cpu tensors=tcp`, by the
    /// backends' own names. Tensors of the host are served in every group.
    pub(crate) fn served(&self) -> Vec<String> {
        let line = |kind: &str, name: BackendName| {
            format!("{kind} tensors served by={}", name.registration().name)
        };
        let host = (!self.serves("cpu")).then(|| line("cpu", BackendName::tcp()));
        // What a registered one has of CUDA devices, it has by way of the host, named or not.
        let is_told = |kind: &str, name: BackendName| {
            kind == "cpu" || name.is_built_in() || !self.stages_cuda()
        };
        let told = self.devices.iter().filter(|(kind, name)| is_told(kind, *name));
        let others = told.map(|(kind, name)| line(kind, *name));
        host.into_iter().chain(others).collect()
    }

    /// Refuses backends that serve another kind of device than they are to serve.
    pub(crate) fn check(&self) -> Result<()> {
        for (kind, backend) in &self.devices {
            let registration = backend.registration();
            let served = registration.device;
            if served != kind && !registration.other_devices.contains(&kind.as_str()) {
                let message = format!(
                    "the backend '{backend}' serves {served} tensors, not those of {kind}; \
                     expected {served}:{backend}"
                );
                return Err(Error::InvalidArgument { message });
            }
        }
        let host = self.backend_for("cpu").filter(|_| !self.stages_cuda());
        let is_by_host = self.backend_for("cuda").is_some_and(|it| it.registration().name == "tcp");
        match host.filter(|_| is_by_host) {
            None => Ok(()),
            Some(host) => Err(Error::InvalidArgument {
                message: format!(
                    "tensors of CUDA devices go by way of the host here, over its backend: name \
                     none for cuda, or cuda:nccl, beside cpu:{host}"
                ),
            }),
        }
    }

    /// Whether tensors of CUDA devices are to go by way of the host, over the backend for that:
    /// TCP, or one that the program registered for both.
    pub(crate) fn stages_cuda(&self) -> bool {
        let host = self.backend_for("cpu").unwrap_or_else(BackendName::tcp).registration().name;
        self.backend_for("cuda").is_some_and(|cuda| {
            cuda.registration().name == host && (host == "tcp" || !cuda.is_built_in())
        })
    }

    /// Whether all of its backends can be used in this process, and if not, why.
    pub(crate) fn available(&self) -> Result<()> {
        self.devices.iter().try_for_each(|(_, backend)| available(backend))
    }

    /// Whether a backend serves some device that the program registered.
    pub(crate) fn has_registered(&self) -> bool {
        !self.devices.iter().all(|(_, name)| name.is_built_in())
    }

    /// Whether one of its backends takes these options.
    pub(crate) fn takes(&self, options: &BackendOptions) -> bool {
        match options.get::<ProgramOptions>() {
            Some(options) => options.why_foreign.is_none() || self.has_registered(),
            None => self.has(options.backend()),
        }
    }

    /// Whether a group with the backends `child` takes these options over from one with its own.
    pub(crate) fn hands_on(&self, options: &BackendOptions, child: &BackendSpec) -> bool {
        let is_of_program = options.get::<ProgramOptions>().is_some();
        let is_known = !is_of_program || (self.has_registered() && child.has_registered());
        is_known && child.takes(options)
    }

    /// Whether this backend serves some device.
    pub(crate) fn has(&self, backend: &str) -> bool {
        self.devices.iter().any(|(_, name)| name.registration().name == backend)
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
    /// backend is made for; that of one that the program registered, all devices of that.
    fn from_str(spec: &str) -> Result<BackendSpec> {
        if !spec.contains(':') {
            let backend: BackendName = spec.parse()?;
            // One that the program registered was said to serve each of its devices.
            let served = if backend.is_built_in() { 1 } else { usize::MAX };
            let devices = backend.devices().into_iter().take(served);
            return Ok(BackendSpec { devices: devices.map(|it| (it.into(), backend)).collect() });
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
    (name.registration().availability)()
}

/// Initialises what of these backends there is once in a process, before the first group.
///
/// # Errors
/// [`Error::BackendUnavailable`] saying what is missing.
pub(crate) fn initialise(spec: &BackendSpec) -> Result<()> {
    spec.devices.iter().try_for_each(|(_, backend)| (backend.registration().initialise)())
}

/// Refuses options that their backend, as this build has it, cannot take.
///
/// # Errors
/// [`Error::InvalidArgument`] with what was expected and what came; [`Error::Unsupported`].
pub(crate) fn check(options: &BackendOptions) -> Result<()> {
    // That there is no such backend is said when it is asked for.
    let backend = options.backend().parse::<BackendName>();
    backend.map_or(Ok(()), |backend| (backend.registration().check)(options))
}

/// What a backend can do, where this build has it: in every process, whatever its library and the
/// variables of its environment add to that.
pub fn capabilities(name: &BackendName) -> Option<Capabilities> {
    name.registration().capabilities.map(|capabilities| capabilities())
}

/// The library behind a backend, if there is one and it was found.
pub(crate) fn library(name: BackendName) -> Option<String> {
    match name.registration().name {
        #[cfg(all(unix, feature = "mpi"))]
        "mpi" => super::mpi::library_version().ok(),
        #[cfg(all(unix, feature = "nccl"))]
        "nccl" => super::nccl::library().ok(),
        _ => None,
    }
}

/// Whether a backend reads and writes memory of CUDA devices itself.
pub(crate) fn takes_cuda_memory(name: BackendName) -> CudaMemory {
    match name.registration().name {
        #[cfg(all(unix, feature = "mpi"))]
        "mpi" if !super::mpi::is_initialised() => CudaMemory::Unknown,
        #[cfg(all(unix, feature = "mpi"))]
        "mpi" => super::mpi::takes_cuda_memory().unwrap_or(CudaMemory::Unknown),
        name => CudaMemory::of(name == "nccl"),
    }
}

/// Whether the launcher of an MPI library started this process as one of several ranks.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn is_in_mpi_job() -> bool {
    #[cfg(all(unix, feature = "mpi"))]
    return super::mpi::is_in_job();
    #[cfg(not(all(unix, feature = "mpi")))]
    false
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
        assert_eq!("GLOO".parse::<BackendName>().unwrap().as_str(), "gloo");
        assert_eq!(available(&"gloo".parse().unwrap()), available(&BackendName::tcp()));
        assert_eq!("Cpu:Gloo".parse::<BackendSpec>().unwrap().to_string(), "cpu:gloo");
        let spec: BackendSpec = "cpu:tcp,CUDA:nccl".parse().unwrap();
        assert_eq!(spec.to_string(), "cpu:tcp,cuda:nccl");
        assert_eq!("nccl".parse::<BackendSpec>().unwrap().to_string(), "cuda:nccl");
    }

    #[test]
    fn names_and_aliases_belong_to_one_backend_each() {
        let all: Vec<&str> = names().collect();
        for name in &all {
            assert_eq!(all.iter().filter(|other| *other == name).count(), 1, "{name}");
            let backend: BackendName = name.parse().unwrap();
            let registration = backend.registration();
            assert!(registration.name == *name || registration.aliases.contains(name), "{name}");
        }
    }

    #[test]
    fn a_backend_serves_its_own_kind_of_device_only() {
        let spec: BackendSpec = "cuda:websocket".parse().unwrap();
        let said = spec.check().unwrap_err().to_string();
        assert!(said.contains("'websocket' serves cpu tensors, not those of cuda"), "{said}");
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
