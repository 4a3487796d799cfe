//! The `polyrank` command. Everything it does is in [`polyrank::launch`].

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = polyrank::launch::main(std::env::args_os().collect());
    // Exit codes are one byte; a code that does not fit still must not read as success.
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
