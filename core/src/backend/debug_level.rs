//! How strictly operations are checked before they are issued, as the environment says. Knows no
//! backend.

use crate::env::variable;
use crate::generated::error::{Error, Result};

/// How strictly operations are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DebugLevel {
    /// Only an operation that makes no progress is compared with those of the other ranks.
    Off,
    /// All ranks compare every operation through the store before it runs.
    Detail,
}

/// The level that the environment sets.
///
/// # Errors
/// [`Error::InvalidArgument`] for a value that is unknown.
pub(super) fn debug_level() -> Result<DebugLevel> {
    let variables = [variable::POLYRANK_DEBUG, variable::TORCH_DISTRIBUTED_DEBUG];
    let said = variables.into_iter().find_map(|variable| Some((variable, variable.text()?)));
    let Some((name, value)) = said else { return Ok(DebugLevel::Off) };
    match value.to_ascii_uppercase().as_str() {
        "OFF" | "INFO" => Ok(DebugLevel::Off),
        "DETAIL" => Ok(DebugLevel::Detail),
        _ => Err(Error::InvalidArgument {
            message: format!("{name} is '{value}'; expected OFF, INFO or DETAIL"),
        }),
    }
}
