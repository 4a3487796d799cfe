//! Where a lighthouse listens, as people write it.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use super::DEFAULT_PORT;

/// The address that `bind` names: a host, which may have a port behind it, as torchft has it; else
/// the `port`, or the usual one.
///
/// # Errors
/// What is wrong with `bind`, which stands first.
pub fn listening_address(bind: &str, port: Option<u16>) -> Result<SocketAddr, String> {
    let bare = bind.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port.unwrap_or(DEFAULT_PORT)));
    }
    let has_port = bind.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port && port.is_some() {
        return Err(format!("{bind} has a port already; leave out --port"));
    }
    let usual = port.unwrap_or(DEFAULT_PORT);
    let found = if has_port { bind.to_socket_addrs() } else { (bind, usual).to_socket_addrs() };
    let mut found = found.map_err(|error| format!("{bind}: {error}"))?;
    found.next().ok_or_else(|| format!("{bind}: the name has no address"))
}
