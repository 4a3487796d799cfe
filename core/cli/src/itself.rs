//! How to start this command again. The running program may be an interpreter, for which pip or npm
//! installed the command.

use std::ffi::OsString;
use std::sync::OnceLock;

static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the words in front of a subcommand. Only the first call in a process counts.
pub(crate) fn remember(words: Vec<OsString>) {
    let _ = WORDS.set(words);
}

/// The program and its arguments that run the subcommand `words`.
pub(crate) fn command(words: &[&str]) -> Vec<OsString> {
    let itself = WORDS.get().into_iter().flatten().cloned();
    itself.chain(words.iter().map(OsString::from)).collect()
}
