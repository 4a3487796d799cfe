//! The identity of this host, so that ranks can tell which of them share one. Knows no transports.

use std::io;
use std::sync::OnceLock;

use rustix::io::Errno;

/// A text that is the same for all processes that run on one system and share its network, and
/// different elsewhere: a container with a network of its own counts as another host.
pub fn identity() -> String {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    if let Some(known) = IDENTITY.get() {
        return known.clone();
    }
    match find() {
        Ok(found) => IDENTITY.get_or_init(|| found).clone(),
        // A process that may open no file at the moment learns it when it asks again.
        Err(_) => UNKNOWN.to_owned(),
    }
}

/// Where the numbers of processes that this process sees are valid: the same text for all processes
/// to which a number means the same process. `None` where the system does not say.
pub fn process_namespace() -> Option<String> {
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let boot = read("/proc/sys/kernel/random/boot_id").ok()??;
    Some(format!("{boot} {}", namespace.to_string_lossy()))
}

/// The identity of a host that has no name.
const UNKNOWN: &str = "unknown";

/// The identity.
///
/// # Errors
/// This process may open no file.
fn find() -> io::Result<String> {
    let network = std::fs::read_link("/proc/self/ns/net").ok();
    let network = network.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(match read("/proc/sys/kernel/random/boot_id")?.filter(|text| !text.is_empty()) {
        Some(boot) => format!("{boot} {network}").trim().to_owned(),
        None => read("/etc/hostname")?.unwrap_or_else(|| UNKNOWN.to_owned()),
    })
}

/// What a file says, if this system has it.
fn read(path: &str) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if is_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_identity_is_stable_and_one_line() {
        assert_eq!(identity(), find().unwrap());
        assert!(!identity().is_empty() && !identity().contains('\n'));
    }
}
