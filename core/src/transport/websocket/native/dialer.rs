//! Opening WebSockets from this process, as a browser does. Knows nothing of what they carry.

use std::net::ToSocketAddrs;

use tungstenite::client::IntoClientRequest;

use super::super::socket::{Dialer, Socket};
use super::connect::PendingConnect;
use super::socket::NativeSocket;
use crate::generated::error::{Error, Result};

/// Opens `ws://` URLs from this process. A rank that only dials, as a browser does, reaches the
/// others with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeDialer;

impl Dialer for NativeDialer {
    /// A host's name that is not an address is looked up, which may block.
    fn dial(&self, url: &str) -> Result<Box<dyn Socket>> {
        let wrong = |why: &dyn std::fmt::Display| Error::InvalidArgument {
            message: format!("cannot open a WebSocket to '{url}': {why}"),
        };
        let request = url.into_client_request().map_err(|error| wrong(&error))?;
        if request.uri().scheme_str() != Some("ws") {
            return Err(wrong(&"expected a URL that begins with ws://"));
        }
        let host = request.uri().host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = request.uri().port_u16().unwrap_or(80);
        let found = (host, port).to_socket_addrs().map_err(|error| wrong(&error))?.next();
        let address = found.ok_or_else(|| wrong(&"no such host"))?;
        let connecting = PendingConnect::begin(address, request).map_err(|error| {
            Error::Network { message: format!("cannot connect to {address}: {error}") }
        })?;
        Ok(Box::new(NativeSocket::dial(connecting)))
    }
}
