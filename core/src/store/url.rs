//! URLs of stores and meetings taken apart: `scheme://host:port/path?rank=0&world_size=2`.
//! Knows nothing of what they stand for.

/// A URL's parts. Nothing is decoded: c10d takes paths as they are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    pub(crate) scheme: &'a str,
    /// Between "//" and the next "/".
    pub(crate) authority: &'a str,
    /// From that "/" on, without the query.
    pub(crate) path: &'a str,
    query: &'a str,
}

impl<'a> Url<'a> {
    /// Takes `text` apart; `None` if it has no scheme.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let rest = rest.split('#').next().unwrap_or(rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let slash = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(slash);
        (!scheme.is_empty()).then_some(Self { scheme, authority, path, query })
    }

    /// The value of the query's parameter `name`.
    pub(crate) fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// As [`Url::parameter`], with what was written as %XX read as a browser reads it.
    pub(crate) fn decoded_parameter(&self, name: &str) -> Option<String> {
        let text = self.parameter(name)?.as_bytes();
        let (mut decoded, mut at) = (Vec::new(), 0);
        while let Some(byte) = text.get(at) {
            let digits = text.get(at + 1..at + 3).and_then(|it| std::str::from_utf8(it).ok());
            let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            let (byte, bytes) = match escaped.filter(|_| *byte == b'%') {
                Some(escaped) => (escaped, 3),
                None => (*byte, 1),
            };
            decoded.push(byte);
            at += bytes;
        }
        Some(String::from_utf8_lossy(&decoded).into_owned())
    }

    /// The host and the port, if there is one. An IPv6 address is in brackets.
    pub(crate) fn host_and_port(&self) -> (&'a str, Option<&'a str>) {
        host_and_port(self.authority)
    }
}

/// `host:port`, with an IPv6 address in brackets (RFC 3986, section 3.2.2).
pub(crate) fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// The host of an [`authority`], without brackets, and the port, if there is one.
pub(crate) fn host_and_port(authority: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':').filter(|port| !port.is_empty()));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port).filter(|port| !port.is_empty())),
        None => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn urls_come_apart() {
        let url = Url::parse("tcp://[::1]:29500/?rank=1&world_size=2&use_libuv=0").unwrap();
        assert_eq!((url.scheme, url.path), ("tcp", "/"));
        assert_eq!(url.host_and_port(), ("::1", Some("29500")));
        assert_eq!(url.parameter("rank"), Some("1"));
        assert_eq!(url.parameter("world_size"), Some("2"));
        assert_eq!(url.parameter("size"), None);
        let url = Url::parse("ws://h?run_id=a%20b%2f100%&x=%e4%").unwrap();
        assert_eq!(url.decoded_parameter("run_id").as_deref(), Some("a b/100%"));
        assert_eq!(url.decoded_parameter("x").as_deref(), Some("\u{fffd}%"));
        assert_eq!(url.decoded_parameter("y"), None);
        let url = Url::parse("file:///tmp/a file?rank=0").unwrap();
        assert_eq!((url.authority, url.path), ("", "/tmp/a file"));
        for (text, host, port) in [
            ("tcp://host:1", "host", Some("1")),
            ("tcp://host", "host", None),
            ("tcp://host:", "host", None),
            ("tcp://", "", None),
            ("tcp://[::1]", "::1", None),
        ] {
            assert_eq!(Url::parse(text).unwrap().host_and_port(), (host, port), "{text}");
        }
        assert_eq!(Url::parse("localhost:29500"), None);
        assert_eq!(Url::parse("://x"), None);
    }
}
