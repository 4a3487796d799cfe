//! The URLs of WebSockets: what a socket needs of them. Knows nothing of what answers there.

use crate::generated::error::{Error, Result};
use crate::store::url::Url;

/// `ws://host:port/path` or `wss://…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketUrl {
    /// Whether the connection is encrypted: `wss`.
    pub(crate) secure: bool,
    /// Name or address, without the brackets of an IPv6 address.
    pub(crate) host: String,
    /// 80, or 443 if it is secure, where the URL has none.
    pub(crate) port: u16,
    /// The URL itself, without user data that it might carry, a fragment or a query.
    pub(crate) text: String,
}

impl SocketUrl {
    /// Takes `url` apart.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it is none.
    pub(crate) fn parse(url: &str) -> Result<SocketUrl> {
        let wrong = |why: &str| Error::InvalidArgument {
            message: format!("'{url}' is not the address of a store: {why}; write ws://host:port"),
        };
        let parsed = Url::parse(url).ok_or_else(|| wrong("it has no scheme"))?;
        let secure = match parsed.scheme.to_ascii_lowercase().as_str() {
            "ws" => false,
            "wss" => true,
            other => return Err(wrong(&format!("its scheme is {other}, not ws or wss"))),
        };
        let (authority, path) = (parsed.authority, parsed.path);
        if authority.contains('@') {
            return Err(wrong("it has a user's name"));
        }
        let (host, port) = parsed.host_and_port();
        let is_clean = |text: &str| text.chars().all(|char| char.is_ascii_graphic());
        if host.is_empty() || !is_clean(authority) || !is_clean(path) {
            return Err(wrong("its host is missing, or it has characters that a URL cannot have"));
        }
        let port = match port {
            None => 80 + 363 * u16::from(secure),
            Some(port) => {
                port.parse().map_err(|_| wrong("its port is not a number up to 65535"))?
            }
        };
        let path = if path.is_empty() { "/" } else { path };
        let scheme = if secure { "wss" } else { "ws" };
        let text = format!("{scheme}://{authority}{path}");
        Ok(SocketUrl { secure, host: host.to_owned(), port, text })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn urls_come_apart() {
        for (url, secure, host, port, text) in [
            ("ws://localhost:29500", false, "localhost", 29500, "ws://localhost:29500/"),
            ("WSS://a.example/x?rank=1#y", true, "a.example", 443, "wss://a.example/x"),
            ("ws://[::1]:7/", false, "::1", 7, "ws://[::1]:7/"),
            ("ws://[::1]", false, "::1", 80, "ws://[::1]/"),
            ("ws://h:?rank=1", false, "h", 80, "ws://h:/"),
        ] {
            let parsed = SocketUrl::parse(url).unwrap();
            let expected = SocketUrl { secure, host: host.into(), port, text: text.into() };
            assert_eq!(parsed, expected, "{url}");
        }
        for url in
            ["localhost:1", "http://x", "ws://", "ws://:1", "ws://h:x", "ws://a b", "ws://u@h"]
        {
            let error = SocketUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains("ws://host:port"), "{error}");
        }
    }
}
