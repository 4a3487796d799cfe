//! The `polyrank` command; everything it does is in the library beside it.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    // If the system does not tell the program's path, the name by which it was called has to do.
    let itself = std::env::current_exe().map(OsString::from);
    let itself = itself.ok().or_else(|| arguments.first().cloned()).into_iter().collect();
    let code = polyrank_cli::main(arguments, itself);
    // Exit codes are one byte; a code that does not fit still must not read as success.
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
