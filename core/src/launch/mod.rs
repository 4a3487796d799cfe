//! `polyrank run`: starts the ranks of one job on this host, watches them, and tells how it ended.
//!
//! ```text
//!                        RANK, WORLD_SIZE, MASTER_PORT …
//!  polyrank run ──┬──────────────────────────────────────▶ rank 0   (its own process group)
//!   supervise     ├──────────────────────────────────────▶ rank 1
//!                 └──────────────────────────────────────▶ rank 2
//!        ▲          "[rank 1] …" lines, exit codes           │
//!        └───────────────────────────────────────────────────┘
//! ```
//!
//! The launcher knows processes, pipes and signals. It knows nothing of stores, groups or
//! collectives: the ranks meet each other through the `env://` rendezvous, from the variables that
//! `environment` sets.
//!
//! With `--with-mpi` it becomes MPI's own launcher.
//!
//! `polyrank store`, which serves a store without ranks, shares the command line and nothing else;
//! `polyrank bench`, which measures ranks, starts them as this does.

pub(crate) mod arguments;
pub(crate) mod environment;
mod mpi;
pub(crate) mod output;
pub(crate) mod process;
pub(crate) mod report;
mod supervise;

use std::ffi::OsString;

use clap::FromArgMatches;

use arguments::{Command, CommandLine};

/// The exit code of a command line that makes no sense, as getopt and clap have it.
const EXIT_USAGE: i32 = 2;

/// Runs the `polyrank` command and returns its exit code.
///
/// `args` is the whole command line, the name of the program first. `python -m polyrank.run` calls
/// this with `["polyrank", "run", …]`. Call it from a thread that lives as long as the call (the
/// main thread): the ranks are killed by the kernel when the thread that started them ends.
///
/// The exit code of `store` is 0 when it was told to end, and 1 when it cannot serve.
///
/// The exit code of `run` is 0 when every rank ended with 0, the exit code of the rank that failed
/// first (128 plus the signal's number if a signal ended it), 127 when a program was not found, 126
/// when it could not be started, and 2 for a wrong command line.
#[must_use]
pub fn main(args: Vec<OsString>) -> i32 {
    let matches = arguments::command().try_get_matches_from(args);
    let command_line = match matches.and_then(|found| CommandLine::from_arg_matches(&found)) {
        Ok(command_line) => command_line,
        Err(error) => {
            // Help and version arrive here too; they go to stdout and end with 0.
            let _ = error.print();
            return error.exit_code();
        }
    };
    match command_line.command {
        Command::Run(arguments) => match arguments.job() {
            Ok(job) if job.with_mpi => mpi::run(&job),
            Ok(job) => supervise::run(&job),
            Err(message) => {
                report::say(&message);
                EXIT_USAGE
            }
        },
        #[cfg(feature = "websocket")]
        Command::Store(arguments) => crate::serve::serve(&arguments),
        #[cfg(feature = "bench")]
        Command::Bench(arguments) => crate::bench::run(&arguments),
        #[cfg(feature = "bench")]
        Command::Predict(arguments) => crate::predict::run(&arguments),
        #[cfg(feature = "bench")]
        Command::BenchRank { rank } => crate::bench::run_rank(rank),
    }
}
