//! Rendezvous URLs taken apart: `scheme://host:port/path?rank=0&world_size=2`.
//! Knows nothing of what they stand for.

/// A URL's parts. Nothing is decoded: c10d takes paths as they are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url<'a> {
    pub(super) scheme: &'a str,
    /// Between "//" and the next "/".
    pub(super) authority: &'a str,
    /// From that "/" on, without the query.
    pub(super) path: &'a str,
    query: &'a str,
}

impl<'a> Url<'a> {
    /// Takes `text` apart; `None` if it has no scheme.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let rest = rest.split('#').next().unwrap_or(rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let slash = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(slash);
        (!scheme.is_empty()).then_some(Self { scheme, authority, path, query })
    }

    /// The value of the query's parameter `name`.
    pub(super) fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The host and the port, if there is one. An IPv6 address stands in brackets.
    pub(super) fn host_and_port(&self) -> (&'a str, Option<&'a str>) {
        if let Some((host, rest)) =
            self.authority.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        {
            return (host, rest.strip_prefix(':').filter(|port| !port.is_empty()));
        }
        match self.authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port).filter(|port| !port.is_empty())),
            None => (self.authority, None),
        }
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
