//! The reply files of ranks: why a rank failed, in its own words, as torchrun's `@record` writes it
//! (TORCHELASTIC_ERROR_FILE). Knows nothing of processes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// Most bytes of a reply that are read: a message with its call stack is far shorter.
const MAX_BYTES: u64 = 1 << 20;

/// What a rank said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// The error, as in `ValueError: no such column`.
    pub(super) message: String,
    pub(super) call_stack: Option<String>,
    /// When it was written, in seconds since 1970.
    pub(super) timestamp: Option<u64>,
}

/// The reply in a file, if there is one that can be read.
pub(super) fn read(path: &Path) -> Option<Reply> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    parse(&bytes)
}

/// `message` is a text, or an object with more.
fn parse(bytes: &[u8]) -> Option<Reply> {
    let reply: Value = serde_json::from_slice(bytes).ok()?;
    let message = reply.get("message")?;
    if let Some(text) = message.as_str() {
        return Some(Reply { message: text.to_owned(), call_stack: None, timestamp: None });
    }
    let more = message.get("extraInfo");
    let timestamp = more.and_then(|more| more.get("timestamp"));
    // PyTorch writes the number as a text.
    let timestamp =
        timestamp.and_then(|time| time.as_u64().or_else(|| time.as_str()?.parse().ok()));
    let call_stack = more.and_then(|more| more.get("py_callstack")?.as_str());
    Some(Reply {
        message: message.get("message")?.as_str()?.to_owned(),
        call_stack: call_stack.map(str::to_owned),
        timestamp,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn both_forms_of_replies_are_read() {
        let long = br#"{"message": {"message": "E: x", "extraInfo":
            {"py_callstack": "a\nb\n", "timestamp": "17"}}}"#;
        let reply = parse(long).unwrap();
        let expected = ("E: x", Some("a\nb\n"), Some(17));
        assert_eq!(
            (reply.message.as_str(), reply.call_stack.as_deref(), reply.timestamp),
            expected
        );
        assert_eq!(parse(br#"{"message": "short"}"#).unwrap().message, "short");
        for wrong in ["", "{", "[]", "{}", r#"{"message": 1}"#, r#"{"message": {"a": 1}}"#] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
