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
//! With `--with-mpi` it becomes MPI's own launcher. `polyrank bench` starts its ranks as this does.

pub(crate) mod arguments;
pub(crate) mod environment;
mod guard;
mod mpi;
mod orphan_watchdog;
pub(crate) mod output;
pub(crate) mod process;
pub(crate) mod report;
mod supervise;

pub(crate) use arguments::{EXAMPLES, RunArguments};

/// The exit code for a wrong command line, as of getopt and clap.
const EXIT_USAGE: i32 = 2;

/// Starts the ranks and waits for them; the exit code.
pub(crate) fn run(arguments: RunArguments) -> i32 {
    match arguments.job() {
        Ok(job) if job.with_mpi => mpi::run(&job),
        Ok(job) => supervise::run(&job),
        Err(message) => {
            report::say(&message);
            EXIT_USAGE
        }
    }
}
