//! How this command is started again. The program that runs may be an interpreter, into which pip
//! or npm brought the command.

use std::ffi::OsString;
use std::sync::OnceLock;

static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Remembers the words that stand before a subcommand. The first ones of a process stay.
pub(crate) fn remember(words: Vec<OsString>) {
    let _ = WORDS.set(words);
}

/// The program and its arguments that run the subcommand `words`.
pub(crate) fn command(words: &[&str]) -> Vec<OsString> {
    let itself = WORDS.get().into_iter().flatten().cloned();
    itself.chain(words.iter().map(OsString::from)).collect()
}
