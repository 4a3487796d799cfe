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
//! `environment` sets. Launchers on several hosts meet through `crate::nodes`, if they do; with
//! `--hosts`, `over_ssh` starts them.
//!
//! With `--with-mpi` it becomes MPI's own launcher. `polyrank bench` starts its ranks as this does.

pub(crate) mod arguments;
mod attempt;
mod binding;
pub(crate) mod environment;
mod error_file;
mod events;
mod guard;
mod listeners;
mod logs;
mod messages;
mod mpi;
mod orphan_watchdog;
pub(crate) mod output;
mod over_ssh;
pub(crate) mod process;
mod record;
mod remote_command;
mod replicas;
pub(crate) mod report;
pub(crate) mod stopped;
mod supervise;
mod written;

use arguments::options::RunArguments;

/// The exit code for a wrong command line, as of getopt and clap.
const EXIT_USAGE: i32 = 2;

/// Starts the ranks and waits for them; the exit code.
pub(crate) fn run(arguments: RunArguments) -> i32 {
    let job = match arguments.job() {
        Ok(job) => job,
        Err(message) => {
            report::say(&message);
            return EXIT_USAGE;
        }
    };
    match (&job.hosts, &job.replicas) {
        (Some(hosts), _) => over_ssh::run(&job, hosts),
        (None, Some(replicas)) => replicas::run(&job, replicas),
        (None, None) if job.with_mpi => mpi::run(&job),
        (None, None) => supervise::run(&job),
    }
}
