//! The identity of this host, so that ranks can tell which of them share one. Knows no transports.

use std::sync::OnceLock;

/// A text that is the same for all processes that run on one system and share its network, and
/// different elsewhere: a container with a network of its own counts as another host.
pub fn identity() -> String {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    IDENTITY.get_or_init(find).clone()
}

fn find() -> String {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let boot = read("/proc/sys/kernel/random/boot_id").filter(|text| !text.is_empty());
    let network = std::fs::read_link("/proc/self/ns/net").ok();
    let network = network.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default();
    match boot {
        Some(boot) => format!("{boot} {network}").trim().to_owned(),
        None => read("/etc/hostname").unwrap_or_else(|| "unknown".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_stable_and_one_line() {
        assert_eq!(identity(), find());
        assert!(!identity().is_empty() && !identity().contains('\n'));
    }
}
