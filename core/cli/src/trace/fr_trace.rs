//! Writes a job's recordings as PyTorch's `fr_trace` reads them: a pickle for each rank, whose name
//! ends with the rank. Knows nothing of what is in them.

use std::io::Write;
use std::path::Path;

use polyrank_trace::{FlightRecording, Job};

/// What the files' names begin with.
const PREFIX: &str = "polyrank_";

/// Writes a file for each rank into a folder, which is made if it is not there.
pub(super) fn write(folder: &Path, job: &Job) -> Result<(), String> {
    let why = |error: std::io::Error| format!("cannot write {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(why)?;
    let recordings = job.flight_recordings();
    for recording in &recordings {
        let pickle = pickled(recording)?;
        std::fs::write(folder.join(format!("{PREFIX}{}", recording.rank)), pickle).map_err(why)?;
    }
    let left_out: usize = recordings.iter().map(|recording| recording.left_out).sum();
    if left_out > 0 {
        let said = format!(
            "polyrank trace: left out {left_out} operations of a kind that fr_trace does not know\n"
        );
        let _ = std::io::stderr().lock().write_all(said.as_bytes());
    }
    Ok(())
}

fn pickled(recording: &FlightRecording) -> Result<Vec<u8>, String> {
    let options = serde_pickle::SerOptions::new();
    let rank = recording.rank;
    serde_pickle::to_vec(recording, options)
        .map_err(|error| format!("cannot pickle what rank {rank} recorded: {error}"))
}
