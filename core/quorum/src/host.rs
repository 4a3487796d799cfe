//! Hosts as people and URLs write them. Asks no name server.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

/// A host without the brackets that an IPv6 address has in URLs.
#[must_use]
pub fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host)
}

/// `host:port`, with an IPv6 address in brackets (RFC 3986, section 3.2.2).
#[must_use]
pub fn authority(host: &str, port: impl Display) -> String {
    let host = bare(host);
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Whether only this host finds itself there.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let host = bare(host);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|it| it.to_canonical().is_loopback())
}

/// `host` as clients write it: "all addresses" is replaced by the one that leads to the network.
#[must_use]
pub fn reachable(host: &str) -> String {
    let bracketed = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    match host.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => {
            outward().map_or_else(|| "localhost".into(), bracketed)
        }
        Ok(address) => bracketed(address),
        Err(_) => host.to_owned(),
    }
}

/// The address from which this host would reach the network. Nothing is sent.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // An address for documentation (RFC 5737): any address beyond the router would do.
    let beyond: SocketAddr = "192.0.2.1:9".to_socket_addrs().ok()?.next()?;
    socket.connect(beyond).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_are_those_of_ipv6_and_come_once() {
        assert_eq!(authority("::1", 1), "[::1]:1");
        assert_eq!(authority("[::1]", 1), "[::1]:1");
        assert_eq!(authority("head", "29500"), "head:29500");
        assert!(is_loopback("[::1]") && is_loopback("::ffff:127.0.0.1") && !is_loopback("[::]"));
        assert!(is_loopback("LocalHost") && !is_loopback("head"));
    }
}
