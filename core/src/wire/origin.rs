//! Which web pages may open a WebSocket to this process. Pure; knows nothing of sockets or HTTP.
//!
//! A browser lets any page connect to any address, this host's loopback too, and says in the
//! header `Origin` where the page came from. Programs that are not browsers send none.

use std::net::IpAddr;

/// The origins that may connect, beside programs that are not browsers and pages of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    all: bool,
    listed: Vec<String>,
}

/// A text that no browser would send as a page's origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{given}' is not an origin of web pages: expected a scheme and a host without a path, as in \
     https://example.org or http://10.0.0.5:8080; * is for all pages"
)]
pub struct WrongOrigin {
    /// The text.
    pub given: String,
}

impl AllowedOrigins {
    /// Reads a list of origins as browsers write them (`https://example.org`,
    /// `http://10.0.0.5:8080`), separated by commas or blanks; `*` allows every page.
    ///
    /// # Errors
    /// One of them is not an origin, so that no page would ever match it.
    pub fn parse(list: &str) -> Result<AllowedOrigins, WrongOrigin> {
        let origins = list.split(|letter: char| letter == ',' || letter.is_whitespace());
        AllowedOrigins::new(origins.filter(|origin| !origin.is_empty()))
    }

    /// As [`AllowedOrigins::parse`], taken apart already.
    ///
    /// # Errors
    /// As [`AllowedOrigins::parse`].
    pub fn new<T: AsRef<str>>(
        origins: impl IntoIterator<Item = T>,
    ) -> Result<AllowedOrigins, WrongOrigin> {
        let mut allowed = AllowedOrigins::default();
        for origin in origins {
            let given = origin.as_ref().trim();
            match given.strip_suffix('/').unwrap_or(given) {
                "*" => allowed.all = true,
                // What browsers say for pages that have none, as those in files.
                "null" => allowed.listed.push("null".to_owned()),
                origin if is_origin(origin) => allowed.listed.push(serialized(origin)),
                _ => return Err(WrongOrigin { given: given.to_owned() }),
            }
        }
        Ok(allowed)
    }

    /// Whether a page of `origin`, the header's value if there is one, may connect to the address
    /// `local` of this host: it is listed, it comes from a loopback name or address, or from the
    /// very address that it connects to.
    pub fn allow(&self, origin: Option<&str>, local: Option<IpAddr>) -> bool {
        let Some(origin) = origin else { return true };
        if self.all {
            return true;
        }
        let origin = serialized(origin.trim());
        if self.listed.contains(&origin) {
            return true;
        }
        let Some(host) = host(&origin) else { return false };
        if host == "localhost" || host.ends_with(".localhost") {
            return true;
        }
        let Ok(address) = host.parse::<IpAddr>() else { return false };
        // A socket for both families shows IPv4 addresses in IPv6 ones.
        let (address, local) = (address.to_canonical(), local.map(|local| local.to_canonical()));
        address.is_loopback() || local == Some(address)
    }

    /// Why a page of `origin` is turned away, with what to do about it.
    pub fn refusal(origin: &str) -> String {
        let origin: String =
            origin.chars().filter(|letter| !letter.is_control()).take(200).collect();
        format!(
            "Pages of {origin} may not connect to this polyrank process. To allow them, set \
             POLYRANK_ALLOWED_ORIGINS={origin} (a list, or * for all) where it is started, or \
             start the store with `polyrank store --allow-origin {origin}`.\n"
        )
    }
}

/// `origin` as browsers write it (RFC 6454, section 6.2): in small letters, and without the port
/// where that is the scheme's own.
fn serialized(origin: &str) -> String {
    let mut origin = origin.to_ascii_lowercase();
    for (scheme, port) in [("http://", ":80"), ("https://", ":443")] {
        if origin.starts_with(scheme) && origin.ends_with(port) {
            origin.truncate(origin.len() - port.len());
        }
    }
    origin
}

/// Whether it is a scheme, a host and perhaps a port.
fn is_origin(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "+-._~".contains(letter);
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
            ("ipv6", rest.strip_prefix(':').or((!rest.is_empty()).then_some("")))
        }
        Some(_) => return false,
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let are_names = [scheme, host].iter().all(|part| !part.is_empty() && part.chars().all(is_name));
    are_names && port.is_none_or(is_port)
}

/// The host of an origin whose scheme is a web page's.
fn host(origin: &str) -> Option<&str> {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
    if let Some((address, port)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (port.is_empty() || is_port(port.strip_prefix(':')?)).then_some(address);
    }
    match rest.split_once(':') {
        Some((host, port)) => is_port(port).then_some(host),
        None => Some(rest),
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pages_of_this_host_and_listed_ones_may_connect() {
        let allowed =
            AllowedOrigins::parse("https://example.org, http://Example.com:8080/").unwrap();
        let local = Some("192.168.1.5".parse().unwrap());
        for (origin, expected) in [
            ("https://example.org", true),
            ("http://example.com:8080", true),
            ("https://example.org:443", true),
            ("https://example.org:80", false),
            ("http://example.org", false),
            ("https://example.org.evil.example", false),
            ("http://localhost:5173", true),
            ("http://localhost", true),
            ("http://app.localhost:1", true),
            ("http://localhost.evil.example", false),
            ("http://127.0.0.1:80", true),
            ("https://127.8.9.1", true),
            ("http://127.0.0.1.evil.example", false),
            ("http://[::1]:3000", true),
            ("http://[::1", false),
            ("http://[::1]x", false),
            ("http://192.168.1.5:8080", true),
            ("http://192.168.1.6:8080", false),
            ("http://localhost:x@evil.example", false),
            ("http://localhost:80@evil.example", false),
            ("ftp://localhost", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(allowed.allow(Some(origin), local), expected, "{origin}");
        }
        assert!(allowed.allow(None, local));
        assert!(AllowedOrigins::parse("*").unwrap().allow(Some("https://anyone.example"), None));
        assert_eq!(AllowedOrigins::parse(" , ").unwrap(), AllowedOrigins::default());
        let mapped = Some("::ffff:192.168.1.5".parse().unwrap());
        assert!(AllowedOrigins::default().allow(Some("http://192.168.1.5"), mapped));
    }

    #[test]
    fn what_could_never_match_is_refused_with_an_example() {
        for wrong in [
            "example.org",
            "example.org:80",
            "http://",
            "http://a/b",
            "http://a:x",
            "//a",
            "a b",
            "http://a:99999",
            "http://[::1",
            "http://[x]",
            "http://[::1]9",
            "**",
            "http://é.example",
            "https://a.example?x",
        ] {
            let error = AllowedOrigins::new([wrong]).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("https://example.org"), "{error}");
        }
        assert!(AllowedOrigins::new([""]).is_err());
        assert!(AllowedOrigins::parse("https://a.example example.org").is_err());
        for right in
            ["null", "*", "chrome-extension://abcdef", "http://[2001:db8::1]:80", "http://A/"]
        {
            assert!(AllowedOrigins::new([right]).is_ok(), "{right}");
        }
    }

    #[test]
    fn the_schemes_own_port_may_be_written_or_left_out() {
        for (listed, origin, expected) in [
            ("https://a.example:443", "https://a.example", true),
            ("https://a.example", "https://a.example:443", true),
            ("http://a.example:80/", "http://a.example", true),
            ("http://A.example", "http://a.example:80", true),
            ("http://[2001:db8::1]:80", "http://[2001:db8::1]", true),
            ("http://a.example:443", "http://a.example", false),
            ("https://a.example:80", "https://a.example", false),
            ("http://a.example:8080", "http://a.example:80", false),
            ("http://a.example", "https://a.example", false),
        ] {
            let allowed = AllowedOrigins::parse(listed).unwrap();
            assert_eq!(allowed.allow(Some(origin), None), expected, "{listed}, {origin}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_do_and_carries_no_control_characters() {
        let text = AllowedOrigins::refusal("https://x.example\r\nX: y");
        assert!(text.contains("POLYRANK_ALLOWED_ORIGINS=https://x.exampleX: y"), "{text}");
        assert!(text.contains("--allow-origin"));
    }
}
