//! The addresses of this host at which others reach its ranks, if the user chooses interfaces.
//! Knows nothing of sockets.
//!
//! `POLYRANK_IFNAME` is a list such as `eth0,eth1`; the first is tried first. A name is a prefix,
//! as in NCCL, unless it follows `=` (`=eth0`, on a host with an `eth01`). An address (`10.0.0.5`,
//! `fd00::5`) means itself. With `^` in front, the list excludes interfaces: all others are used,
//! except loopback. `GLOO_SOCKET_IFNAME` lists whole names, as in Gloo.

use std::net::IpAddr;

use crate::env::variable::{self, Variable};
use crate::generated::error::{Error, Result};

/// The variable whose names are whole names, not prefixes.
const GLOO: Variable = variable::GLOO_SOCKET_IFNAME;

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    name: String,
    address: IpAddr,
}

/// The addresses of this host that the value `list` of `variable` chooses, best first. An address
/// of the same family as `toward` comes before others of its interface.
///
/// # Errors
/// [`Error::Rendezvous`], which lists the interfaces that exist, if one of `list` does not.
pub fn addresses(variable: Variable, list: &str, toward: IpAddr) -> Result<Vec<IpAddr>> {
    let found = if_addrs::get_if_addrs().map_err(|error| Error::Network {
        message: format!("cannot list the network interfaces: {error}"),
    })?;
    // An address that is valid on one link only means nothing to another host.
    let usable = found.into_iter().filter(|found| found.is_oper_up() && !is_link_local(found.ip()));
    let interfaces: Vec<Interface> =
        usable.map(|found| Interface { address: found.ip(), name: found.name }).collect();
    choose(variable, list, toward, &interfaces)
}

fn choose(
    variable: Variable,
    list: &str,
    toward: IpAddr,
    interfaces: &[Interface],
) -> Result<Vec<IpAddr>> {
    let (excludes, rest) = match list.trim().strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, list),
    };
    let entries: Vec<&str> =
        rest.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    if let Some(entry) = entries.iter().find(|entry| entry.starts_with('^')) {
        let why =
            format!("`{entry}` is not an interface; write `^` once, in front of the whole list");
        return Err(bad_list(variable, list, &why, interfaces));
    }
    let matching = |entry: &&str| -> Vec<&Interface> {
        interfaces.iter().filter(|interface| matches(variable, entry, interface)).collect()
    };
    let chosen: Vec<&Interface> = if excludes {
        let is_used = |interface: &&Interface| {
            !entries.iter().any(|entry| matches(variable, entry, interface))
                && !interface.address.is_loopback()
        };
        in_order(interfaces.iter().filter(is_used).collect(), toward)
    } else {
        if let Some(entry) = entries.iter().find(|entry| matching(entry).is_empty()) {
            return Err(bad_list(
                variable,
                list,
                &format!("`{entry}` is not an interface of this host"),
                interfaces,
            ));
        }
        entries.iter().flat_map(|entry| in_order(matching(entry), toward)).collect()
    };
    let mut addresses = Vec::new();
    for interface in chosen {
        if !addresses.contains(&interface.address) {
            addresses.push(interface.address);
        }
    }
    if addresses.is_empty() {
        return Err(bad_list(variable, list, "no address is left", interfaces));
    }
    Ok(addresses)
}

fn matches(variable: Variable, entry: &str, interface: &Interface) -> bool {
    if let Ok(address) = entry.trim_matches(['[', ']']).parse::<IpAddr>() {
        return interface.address == address;
    }
    match entry.strip_prefix('=') {
        Some(whole) => interface.name == whole,
        None if variable == GLOO => interface.name == entry,
        None => interface.name.starts_with(entry),
    }
}

/// Interfaces in the system's order; of each, the addresses of the wanted family first.
fn in_order(mut interfaces: Vec<&Interface>, toward: IpAddr) -> Vec<&Interface> {
    let names: Vec<String> = interfaces.iter().map(|one| one.name.clone()).collect();
    let first = |interface: &Interface| names.iter().position(|name| *name == interface.name);
    interfaces.sort_by_key(|one| (first(one), one.address.is_ipv4() != toward.is_ipv4()));
    interfaces
}

fn bad_list(variable: Variable, list: &str, why: &str, interfaces: &[Interface]) -> Error {
    let known: Vec<String> =
        interfaces.iter().map(|one| format!("{} ({})", one.name, one.address)).collect();
    Error::Rendezvous {
        message: format!(
            "environment variable {variable} is '{list}': {why}; expected one of {}",
            known.join(", ")
        ),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const OURS: Variable = variable::POLYRANK_IFNAME;

    fn chosen(variable: Variable, list: &str, toward: &str) -> std::result::Result<String, String> {
        let host = [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("eth0", "10.0.0.5"),
            ("eth0", "fd00::5"),
            ("eth01", "10.1.0.5"),
            ("docker0", "172.17.0.1"),
        ];
        let one = |(name, address): (&str, &str)| Interface {
            name: name.to_owned(),
            address: address.parse().unwrap(),
        };
        let addresses = choose(variable, list, toward.parse().unwrap(), &host.map(one));
        let addresses = addresses.map_err(|error| error.to_string())?;
        Ok(addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn names_are_prefixes_except_in_gloos_variable_and_after_an_equals_sign() {
        for (variable, list, expected) in [
            (OURS, "eth", "10.0.0.5 fd00::5 10.1.0.5"),
            (OURS, "=eth0", "10.0.0.5 fd00::5"),
            (GLOO, "eth0", "10.0.0.5 fd00::5"),
            (OURS, "eth01, eth0", "10.1.0.5 10.0.0.5 fd00::5"),
            (OURS, "lo", "127.0.0.1 ::1"),
            (OURS, "fd00::5,[::1]", "fd00::5 ::1"),
            (OURS, "^docker", "10.0.0.5 fd00::5 10.1.0.5"),
            (OURS, "^=eth0,docker0", "10.1.0.5"),
            (OURS, "^10.0.0.5,docker", "fd00::5 10.1.0.5"),
        ] {
            assert_eq!(chosen(variable, list, "10.0.0.1").unwrap(), expected, "{list}");
        }
    }

    #[test]
    fn the_stores_family_comes_first() {
        assert_eq!(chosen(OURS, "=eth0,lo", "fd00::1").unwrap(), "fd00::5 10.0.0.5 ::1 127.0.0.1");
    }

    #[test]
    fn an_unknown_interface_is_an_error_that_lists_those_that_exist() {
        for (variable, list, why) in [
            (
                OURS,
                "ib0",
                "`ib0` is not an interface of this host; expected one of lo (127.0.0.1), lo (::1), \
                 eth0",
            ),
            (GLOO, "eth", "`eth` is not an interface"),
            (OURS, "eth0,10.0.0.9", "`10.0.0.9` is not an interface"),
            (OURS, "^eth,docker", "no address is left"),
            (OURS, ",", "no address is left"),
            (
                OURS,
                "eth,^eth01",
                "`^eth01` is not an interface; write `^` once, in front of the whole list",
            ),
            (OURS, "^eth01,^docker", "`^docker` is not an interface"),
        ] {
            let error = chosen(variable, list, "10.0.0.1").unwrap_err();
            assert!(error.contains(variable.name()) && error.contains(why), "{error}");
        }
    }
}
