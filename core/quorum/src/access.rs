//! Who may ask a lighthouse: those that have its token, or, without one, those of its own host.

use std::fmt;
use std::net::IpAddr;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use subtle::ConstantTimeEq as _;

/// Fewest characters of a token. What is shorter can be guessed.
const MIN_TOKEN: usize = 8;
/// Most characters of a token: it is a header of every request.
const MAX_TOKEN: usize = 1024;

/// What all replicas of a job know, and nobody else. It is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

/// Why a text cannot be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is too short, or too long.
    #[error("a token has {MIN_TOKEN} to {MAX_TOKEN} characters; this one has {0}")]
    Length(usize),
    /// It cannot be written in a header.
    #[error("a token has visible characters of ASCII only, and no spaces")]
    Characters,
}

impl Token {
    /// A token; white space around it, as at the end of a file, does not count.
    ///
    /// # Errors
    /// It is too short or too long, or cannot be written in a header.
    pub fn new(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        if !(MIN_TOKEN..=MAX_TOKEN).contains(&text.len()) {
            return Err(TokenError::Length(text.len()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Characters);
        }
        Ok(Token(text.to_owned()))
    }

    /// What the header `authorization` says.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether what a header `authorization` says is this token: as `Bearer`, or as the password of
    /// `Basic`, which is what browsers ask people for.
    pub(crate) fn is_in(&self, header: &str) -> bool {
        let Some((scheme, rest)) = header.split_once(' ') else { return false };
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.is(rest.as_bytes());
        }
        if !scheme.eq_ignore_ascii_case("basic") || rest.len() > 2 * MAX_TOKEN {
            return false;
        }
        let Ok(decoded) = BASE64_STANDARD.decode(rest) else { return false };
        let password = decoded.splitn(2, |byte| *byte == b':').nth(1);
        password.is_some_and(|password| self.is(password))
    }

    /// Takes as long wherever the first difference is, so that nobody finds the token letter by
    /// letter.
    fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

/// Whether the authority of a URL, as in the header `host`, means this host by an address or a name
/// that no other site can have. A page of another site that has its own name resolved to loopback
/// is not let in by that.
pub(crate) fn is_own_host(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = host.to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost") || host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_taken_from_both_schemes_and_nothing_else() {
        let token = Token::new(" correct-horse\n").unwrap();
        assert!(token.is_in("Bearer correct-horse"));
        assert!(token.is_in("bearer correct-horse"));
        // printf ':correct-horse' | base64, and the same with a user
        assert!(token.is_in("Basic OmNvcnJlY3QtaG9yc2U="));
        assert!(token.is_in("Basic YW5uOmNvcnJlY3QtaG9yc2U="));
        let wrong = [
            "",
            "Bearer",
            "Bearer ",
            "Bearer correct-hors",
            "Bearer correct-horsf",
            "correct-horse",
        ];
        for header in wrong.into_iter().chain(["Basic *", "Basic Y29ycmVjdC1ob3JzZQ=="]) {
            assert!(!token.is_in(header), "{header}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn what_cannot_be_a_token_is_said() {
        assert_eq!(Token::new("short").unwrap_err(), TokenError::Length(5));
        assert_eq!(Token::new("two words here").unwrap_err(), TokenError::Characters);
        assert_eq!(Token::new(&"x".repeat(2000)).unwrap_err(), TokenError::Length(2000));
    }

    #[test]
    fn names_of_other_sites_are_no_own_host() {
        for host in ["localhost:29510", "localhost", "127.0.0.1:1", "[::1]:29510", "a.localhost:2"]
        {
            assert!(is_own_host(host), "{host}");
        }
        for host in ["example.org:29510", "localhost.example.org", ""] {
            assert!(!is_own_host(host), "{host}");
        }
    }
}
