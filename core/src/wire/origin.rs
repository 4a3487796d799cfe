//! Which web pages may open a WebSocket to this process. Pure; knows nothing of sockets or HTTP.
//!
//! A browser lets any page connect to any address, this host's loopback too, and says in the
//! header `Origin` where the page came from. Programs that are no browser send none.

use std::net::IpAddr;

/// Who may connect, beside programs that are no browser and pages of this very host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    all: bool,
    listed: Vec<String>,
}

impl AllowedOrigins {
    /// The variable that [`AllowedOrigins::parse`] is usually given.
    pub const VARIABLE: &str = "POLYRANK_ALLOWED_ORIGINS";

    /// Reads a list of origins as browsers write them (`https://example.org`,
    /// `http://10.0.0.5:8080`), separated by commas or blanks; `*` allows every page.
    pub fn parse(list: &str) -> AllowedOrigins {
        AllowedOrigins::new(list.split(|letter: char| letter == ',' || letter.is_whitespace()))
    }

    /// As [`AllowedOrigins::parse`], taken apart already.
    pub fn new<T: AsRef<str>>(origins: impl IntoIterator<Item = T>) -> AllowedOrigins {
        let mut allowed = AllowedOrigins::default();
        for origin in origins {
            match origin.as_ref().trim().trim_end_matches('/') {
                "" => {}
                "*" => allowed.all = true,
                origin => allowed.listed.push(origin.to_ascii_lowercase()),
            }
        }
        allowed
    }

    /// Whether a page of `origin`, the header's value if there is one, may connect to the address
    /// `local` of this host: it is listed, it comes from a loopback name or address, or from the
    /// very address that it connects to.
    pub fn allow(&self, origin: Option<&str>, local: Option<IpAddr>) -> bool {
        let Some(origin) = origin else { return true };
        if self.all {
            return true;
        }
        let origin = origin.trim().to_ascii_lowercase();
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
             {}={origin} (a list, or * for all) where it is started, or start the store with \
             `polyrank store --allow-origin {origin}`.\n",
            AllowedOrigins::VARIABLE
        )
    }
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
        let allowed = AllowedOrigins::parse("https://example.org, http://Example.com:8080/");
        let local = Some("192.168.1.5".parse().unwrap());
        for (origin, expected) in [
            ("https://example.org", true),
            ("http://example.com:8080", true),
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
        assert!(AllowedOrigins::parse("*").allow(Some("https://anyone.example"), None));
        assert_eq!(AllowedOrigins::parse(" , "), AllowedOrigins::default());
        let mapped = Some("::ffff:192.168.1.5".parse().unwrap());
        assert!(AllowedOrigins::default().allow(Some("http://192.168.1.5"), mapped));
    }

    #[test]
    fn a_refusal_says_what_to_do_and_carries_no_control_characters() {
        let text = AllowedOrigins::refusal("https://x.example\r\nX: y");
        assert!(text.contains("POLYRANK_ALLOWED_ORIGINS=https://x.exampleX: y"), "{text}");
        assert!(text.contains("--allow-origin"));
    }
}
