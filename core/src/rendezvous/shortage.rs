//! A process that may open no more files cannot join, whatever it was about to open: its error says
//! so and what to do, and accuses nobody else. Knows nothing of what is opened.

use crate::generated::error::Error;

/// What systems say where a process, or all together, have too many files open.
const TOO_MANY: &str = "Too many open files";

/// Whether `error` says that this process may open no more files.
pub(crate) fn is_shortage(error: &Error) -> bool {
    matches!(error, Error::Network { message } if message.contains(TOO_MANY))
}

/// As `error`, with how many files this process may have open, and what to do, if it has too many.
pub(crate) fn explained(error: Error) -> Error {
    match error {
        Error::Network { message } if message.contains(TOO_MANY) => {
            Error::Network { message: advised(message) }
        }
        other => other,
    }
}

fn advised(message: String) -> String {
    let advice = advice();
    if message.contains("ulimit") || advice.is_empty() {
        return message;
    }
    format!("{message}. {advice}")
}

#[cfg(feature = "tcp")]
fn advice() -> String {
    crate::store::open_files_advice()
}

#[cfg(not(feature = "tcp"))]
fn advice() -> String {
    String::new()
}
