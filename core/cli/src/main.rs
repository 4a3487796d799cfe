//! The `polyrank` command; everything it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = polyrank_cli::main(std::env::args_os().collect());
    // Exit codes are one byte; a code that does not fit still must not read as success.
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
