//! How much is compared before operations are issued: c10d's debug level. Knows no backend.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::env::variable;
use crate::generated::error::{Error, Result};

/// How much is compared before operations are issued, and noted of them. What is compared is about
/// the backends `mpi` and `nccl`; ranks of the others are always compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DebugLevel {
    /// Ranks are compared once an operation makes no progress.
    Off = 0,
    /// As [`DebugLevel::Off`]. With `TORCH_CPP_LOG_LEVEL=INFO` more is logged.
    Info = 1,
    /// Ranks compare through the store what they run, before they run it. Each notes where it has
    /// called it: dumps say that, and errors of ranks that disagree say it of both. That takes
    /// time; in Rust, a backtrace of each operation, which has lines where the program was built
    /// with them.
    Detail = 2,
}

/// A level that was set, or [`UNSET`].
static LEVEL: AtomicU8 = AtomicU8::new(UNSET);
const UNSET: u8 = u8::MAX;

/// How much is compared: what [`set_debug_level`] set last, else what `POLYRANK_DEBUG` or
/// `TORCH_DISTRIBUTED_DEBUG` says.
///
/// # Errors
/// [`Error::InvalidArgument`] for a value that is unknown.
pub fn get_debug_level() -> Result<DebugLevel> {
    let all = [DebugLevel::Off, DebugLevel::Info, DebugLevel::Detail];
    let set = LEVEL.load(Ordering::Relaxed);
    match all.into_iter().find(|level| *level as u8 == set) {
        Some(level) => Ok(level),
        None => level_from_env(),
    }
}

/// Sets how much groups compare that are made from now on. All ranks set the same.
pub fn set_debug_level(level: DebugLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Sets what `POLYRANK_DEBUG` or `TORCH_DISTRIBUTED_DEBUG` says now.
///
/// # Errors
/// As [`get_debug_level`].
pub fn set_debug_level_from_env() -> Result<()> {
    set_debug_level(level_from_env()?);
    Ok(())
}

fn level_from_env() -> Result<DebugLevel> {
    let variables = [variable::POLYRANK_DEBUG, variable::TORCH_DISTRIBUTED_DEBUG];
    let said = variables.into_iter().find_map(|variable| Some((variable, variable.text()?)));
    let Some((name, value)) = said else { return Ok(DebugLevel::Off) };
    DebugLevel::named(&value).ok_or_else(|| Error::InvalidArgument {
        message: format!("{name} is '{value}'; expected OFF, INFO or DETAIL"),
    })
}

impl DebugLevel {
    /// The level of this name, in capitals or not.
    pub(crate) fn named(name: &str) -> Option<DebugLevel> {
        match name.to_ascii_uppercase().as_str() {
            "OFF" => Some(DebugLevel::Off),
            "INFO" => Some(DebugLevel::Info),
            "DETAIL" => Some(DebugLevel::Detail),
            _ => None,
        }
    }
}
