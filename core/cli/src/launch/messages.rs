//! What a launcher on another host says to the one that started it, in lines among the ranks' own.
//! Knows nothing of how they get there.

use serde::{Deserialize, Serialize};

use super::record::Record;

/// A control character ("record separator") that no rank's line begins with: it has a prefix, or
/// is text.
const MARK: &str = "\x1epolyrank ";

/// One message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// The port at which this launcher serves the rendezvous.
    Port(u16),
    /// Where the ranks meet that are started.
    Store(String),
    /// What it knows of the job, which is over.
    Record(Box<Record>),
}

impl Message {
    /// The line that says it.
    pub(super) fn line(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        format!("{MARK}{text}\n")
    }

    /// What a line says, if it is a message.
    pub(super) fn of_line(line: &[u8]) -> Option<Message> {
        let line = std::str::from_utf8(line).ok()?;
        serde_json::from_str(line.strip_prefix(MARK)?).ok()
    }
}
