//! Options out of the words of a line, for the tests of those who read them.

use clap::{Args, Command};

/// The options that a command of this name is given.
pub(crate) fn options<T: Args>(command: &'static str, line: &str) -> Result<T, String> {
    let words = std::iter::once(command).chain(line.split_whitespace());
    let found = T::augment_args(Command::new(command)).try_get_matches_from(words);
    let options = found.and_then(|found| T::from_arg_matches(&found));
    options.map_err(|error| error.to_string())
}
