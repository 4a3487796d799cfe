//! What every file of results says of its run, whatever was measured.

use serde::Serialize;

use super::build::Build;
use super::machine::{self, Machine};

/// The program, the machine and the hour of a run.
#[derive(Debug, Serialize)]
pub(super) struct RunFacts {
    /// The command that measured.
    made_by: &'static str,
    /// The layout of the file; it changes when a reader of an older one would be wrong.
    format: u32,
    build: Build,
    /// When the file was written, ISO 8601.
    date: String,
    machine: Machine,
    /// Processes that wanted to run besides ours, at the beginning and at the end.
    load: [Option<f64>; 2],
}

impl RunFacts {
    /// Of a run of the command `made_by` that ends now, and began under this load.
    pub(super) fn at_end(made_by: &'static str, load_before: Option<f64>) -> RunFacts {
        RunFacts {
            made_by,
            format: 2,
            build: Build::here(),
            date: machine::now(),
            machine: Machine::here(),
            load: [load_before, machine::load()],
        }
    }
}
