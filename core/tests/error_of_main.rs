//! What a program prints whose `main` returns an error: a sentence. The program is this test.

#![allow(clippy::unwrap_used)]

use std::process::Command;

/// The variable by which the test tells the program that it runs that it is one.
const IS_PROGRAM: &str = "POLYRANK_TEST_IS_PROGRAM";

fn main() -> polyrank::Result<()> {
    if std::env::var_os(IS_PROGRAM).is_some() {
        let options = polyrank::distributed::InitOptions::default().backend("carrier-pigeon");
        return polyrank::distributed::init_process_group(options).map(drop);
    }
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).env(IS_PROGRAM, "1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let start = "Error: Unknown backend type 'carrier-pigeon'; expected one of: tcp, ";
    assert!(said.starts_with(start), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    Ok(())
}
