//! How long a caller waits: the header `grpc-timeout`.

use std::time::Duration;

use http::HeaderMap;

/// The header.
const NAME: &str = "grpc-timeout";
/// What is kept back, so that the caller has the answer, and the reason in it, before it gives up.
const MAX_KEPT_BACK: Duration = Duration::from_millis(100);

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// As the caller said it.
    pub(crate) asked: Duration,
    /// What is kept to: a little less.
    pub(crate) kept: Duration,
}

/// How long an answer may take. A header that says nothing is taken as none.
pub(crate) fn of(headers: &HeaderMap) -> Option<Limit> {
    let asked = parse(headers.get(NAME)?.to_str().ok()?)?;
    Some(Limit { asked, kept: asked - (asked / 10).min(MAX_KEPT_BACK) })
}

/// At most eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_grpc_are_read_and_nothing_else() {
        assert_eq!(parse("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(parse("2M"), Some(Duration::from_secs(120)));
        assert_eq!(parse("3S"), Some(Duration::from_secs(3)));
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("7u"), Some(Duration::from_micros(7)));
        assert_eq!(parse("0n"), Some(Duration::ZERO));
        for wrong in ["", "S", "1", "1s", "100000000S", "-1S", "1.5S", "+1S", "ü"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
