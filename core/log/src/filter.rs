//! What the environment says about how much is logged. Knows nothing of who reads it.

use polyrank::env::variable;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Whether the environment says how much is logged.
#[must_use]
pub fn is_set() -> bool {
    variable::POLYRANK_LOG.text().is_some() || of_c10d().is_some()
}

/// Whether lines on standard error are JSON, as `POLYRANK_LOG_FORMAT` says.
pub(crate) fn is_json() -> bool {
    variable::POLYRANK_LOG_FORMAT.text().is_some_and(|text| text.eq_ignore_ascii_case("json"))
}

/// How much is logged.
pub(crate) struct Filter {
    /// By the parts of polyrank.
    pub(crate) targets: Targets,
    /// What is wrong with what the environment says, if something is.
    pub(crate) flaw: Option<String>,
}

/// What `POLYRANK_LOG` says, in the words of `RUST_LOG`: `info`, or
/// `warn,polyrank::transport=debug`. Without it, what c10d's variables say; without them,
/// `otherwise`.
pub(crate) fn filter(otherwise: LevelFilter) -> Filter {
    let said = variable::POLYRANK_LOG.text();
    let (targets, flaw) = match said.as_deref().map(targets) {
        Some(Ok(targets)) => (Some(targets), None),
        Some(Err(flaw)) => (None, Some(flaw)),
        None => (of_c10d().map(|level| Targets::new().with_default(level)), None),
    };
    // What cannot be read asks for no more than usual.
    let otherwise = if flaw.is_some() { LevelFilter::WARN } else { otherwise };
    let targets = targets.unwrap_or_else(|| Targets::new().with_default(otherwise));
    Filter { targets, flaw }
}

/// As [`filter`]; without `POLYRANK_LOG`, what `RUST_LOG` says goes before c10d's variables.
pub(crate) fn filter_of_program(otherwise: LevelFilter) -> Filter {
    let said = match variable::POLYRANK_LOG.text() {
        Some(_) => None,
        None => variable::RUST_LOG.text(),
    };
    match said {
        Some(text) => Filter { targets: targets_of_all(&text), flaw: None },
        None => filter(otherwise),
    }
}

/// What `text` says, which is written for other programs, too: it may name their parts, and what
/// cannot be read, such as the fields of spans, is not for us.
fn targets_of_all(text: &str) -> Targets {
    // Nothing names no part, and spans are asked for in brackets.
    let is_read = |said: &&str| !said.is_empty() && !said.contains('[');
    let said = text.split(',').map(str::trim).filter(is_read);
    let said: Vec<Targets> = said.filter_map(|said| said.parse().ok()).collect();
    let default = said.iter().rev().find_map(Targets::default_level);
    let targets = Targets::new().with_default(default.unwrap_or(LevelFilter::WARN));
    targets.with_targets(said.into_iter().flatten())
}

/// What `text` says; what it does not speak of is logged as ever.
fn targets(text: &str) -> Result<Targets, String> {
    let name = variable::POLYRANK_LOG;
    let flaw = |why: String| {
        format!(
            "{name} is '{text}', {why}; expected off, error, warn, info, debug or trace, or one of \
             them for a part, as in 'warn,polyrank::transport=debug'"
        )
    };
    let targets: Targets =
        text.parse().map_err(|error| flaw(format!("which cannot be read ({error})")))?;
    // A word that is no level is read as a part.
    let is_part = |part: &str| part == "polyrank" || part.starts_with("polyrank::");
    if let Some((part, _)) = targets.iter().find(|(part, _)| !is_part(part)) {
        return Err(flaw(format!("but '{part}' is neither a level nor a part of polyrank")));
    }
    Ok(match targets.default_level() {
        Some(_) => targets,
        None => targets.with_default(LevelFilter::WARN),
    })
}

/// The level that PyTorch's table gives: `TORCH_CPP_LOG_LEVEL` is that of the messages, of which
/// `TORCH_DISTRIBUTED_DEBUG` lets more through once it is INFO.
fn of_c10d() -> Option<LevelFilter> {
    let level = variable::TORCH_CPP_LOG_LEVEL.text()?.to_ascii_uppercase();
    let debug = variable::TORCH_DISTRIBUTED_DEBUG.text().unwrap_or_default().to_ascii_uppercase();
    Some(match (level.as_str(), debug.as_str()) {
        ("ERROR" | "FATAL" | "2" | "3", _) => LevelFilter::ERROR,
        ("WARNING" | "WARN" | "1", _) => LevelFilter::WARN,
        ("INFO" | "0", "DETAIL") => LevelFilter::TRACE,
        ("INFO" | "0", "INFO") => LevelFilter::DEBUG,
        ("INFO" | "0", _) => LevelFilter::INFO,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tracing::Level;

    use super::*;

    #[test]
    fn parts_are_told_apart_and_the_rest_is_as_ever() {
        let transport = "polyrank::transport::tcp";
        for (text, of_transport, of_others) in [
            ("info", LevelFilter::INFO, LevelFilter::INFO),
            ("OFF", LevelFilter::OFF, LevelFilter::OFF),
            ("polyrank::transport=debug", LevelFilter::DEBUG, LevelFilter::WARN),
            ("error,polyrank::transport=trace", LevelFilter::TRACE, LevelFilter::ERROR),
        ] {
            let targets = targets(text).unwrap();
            for (target, most) in [(transport, of_transport), ("polyrank::stall", of_others)] {
                let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
                for level in levels {
                    assert_eq!(targets.would_enable(target, &level), level <= most, "{text}");
                }
            }
        }
    }

    #[test]
    fn what_other_programs_understand_is_no_flaw() {
        let (own, other) = ("polyrank::stall", "tokio::net");
        for (text, of_own, of_other) in [
            ("info", LevelFilter::INFO, LevelFilter::INFO),
            ("off", LevelFilter::OFF, LevelFilter::OFF),
            ("tokio=debug", LevelFilter::WARN, LevelFilter::DEBUG),
            ("error,polyrank=trace", LevelFilter::TRACE, LevelFilter::ERROR),
            ("[step{n=1}]=trace,polyrank=info", LevelFilter::INFO, LevelFilter::WARN),
            ("my_program", LevelFilter::WARN, LevelFilter::WARN),
            ("", LevelFilter::WARN, LevelFilter::WARN),
        ] {
            let targets = targets_of_all(text);
            for (target, most) in [(own, of_own), (other, of_other)] {
                for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                    assert_eq!(targets.would_enable(target, &level), level <= most, "{text}");
                }
            }
        }
    }

    #[test]
    fn words_that_mean_nothing_are_said() {
        for (text, why) in [
            ("verbose", "'verbose' is neither a level nor"),
            ("warn,transport=debug", "'transport' is neither a level nor"),
            ("polyrankx=info", "'polyrankx' is neither a level nor"),
            ("polyrank::stall=loud", "cannot be read"),
        ] {
            let flaw = targets(text).unwrap_err();
            assert!(flaw.contains(why) && flaw.contains("expected off, error"), "{flaw}");
        }
    }
}
