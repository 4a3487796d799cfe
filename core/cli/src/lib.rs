//! The `polyrank` command as a library, so that `cargo install`, pip and npm give the same one.
//!
//! | Subcommand            | What it does                                         | Module       |
//! |-----------------------|------------------------------------------------------|--------------|
//! | `polyrank run`        | starts the ranks of a job on this host, watches them | `launch`     |
//! | `polyrank store`      | serves a store for ranks that come and go            | `serve`      |
//! | `polyrank lighthouse` | says which replicas train together                   | `lighthouse` |
//! | `polyrank bench`      | measures collectives, beside other libraries         | `bench`      |
//! | `polyrank predict`    | predicts collectives on machines that are not here   | `predict`    |
//! | `polyrank trace`      | says what went wrong, from what recorders wrote      | `trace`      |
//! | `polyrank top`        | shows what the ranks of a running job do             | `top`        |
//! | `polyrank inspect`    | has all ranks of a job tell what they called         | `inspect`    |

mod affinity;
mod arguments;
mod bench;
mod chart;
#[cfg(test)]
mod command_line;
mod inspect;
mod itself;
mod job_store;
mod launch;
mod lighthouse;
mod metrics;
mod nodes;
mod predict;
mod random;
mod serve;
mod sizes;
mod stalls;
mod top;
mod trace;

use std::ffi::OsString;

use clap::FromArgMatches;

use arguments::{Command, CommandLine};

/// Runs the `polyrank` command and returns its exit code.
///
/// `args` is the whole command line, the name of the program first: `python -m polyrank.run` calls
/// this with `["polyrank", "run", …]`. `itself` are the words that start the command again, as
/// `polyrank bench` does for its ranks: `["/usr/bin/python3", "-m", "polyrank"]`. Call it from a
/// thread that lives as long as the call (the main thread): the ranks are killed by the kernel when
/// the thread that started them ends.
///
/// The exit code of `store` and `lighthouse` is 0 when they were told to end, and 1 when they
/// cannot serve.
///
/// The exit code of `run` is 0 when every rank ended with 0, the exit code of the rank that failed
/// first (128 plus the signal's number if a signal ended it), 124 when its `--timeout` was over,
/// 127 when a program was not found, 126 when it could not be started, and 2 for a wrong command
/// line.
#[must_use]
pub fn main(args: Vec<OsString>, itself: Vec<OsString>) -> i32 {
    itself::remember(itself);
    // In a package for another language this was done when it was loaded.
    drop(polyrank_log::start_program(polyrank_log::LevelFilter::WARN));
    let command = arguments::command();
    let args = arguments::normalised(args, &command);
    let matches = command.try_get_matches_from(args);
    let command_line = match matches.and_then(|found| CommandLine::from_arg_matches(&found)) {
        Ok(command_line) => command_line,
        Err(error) => {
            // Help and version arrive here too; they go to stdout and end with 0.
            let _ = error.print();
            arguments::advise(&error);
            return error.exit_code();
        }
    };
    match command_line.command {
        Command::Run(arguments) => launch::run(*arguments),
        Command::Store(arguments) => serve::serve(&arguments),
        Command::Lighthouse(arguments) => lighthouse::serve(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::BenchRank { rank } => bench::run_rank(rank),
    }
}
