//! Parses options from a line of words, for tests.

use clap::{Args, Command};

/// The options of the command of this name, parsed from words.
pub(crate) fn options<T: Args>(command: &'static str, line: &str) -> Result<T, String> {
    let words = std::iter::once(command).chain(line.split_whitespace());
    let found = T::augment_args(Command::new(command)).try_get_matches_from(words);
    let options = found.and_then(|found| T::from_arg_matches(&found));
    options.map_err(|error| error.to_string())
}
