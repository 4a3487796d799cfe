//! `polyrank trace`: what flight recorders wrote, in words, as drawings, and for other programs.
//!
//! ```text
//!   files and folders ──▶ files (texts) ──▶ polyrank-trace ──▶ report · JSON · SVG · Perfetto
//!                                                     └──▶ fr_trace (pickles)
//! ```
//!
//! A running job is asked by `inspect`. Knows files; what is in them is the package's.

mod arguments;
mod files;
mod fr_trace;

use std::io::Write;
use std::path::Path;

pub(crate) use arguments::{EXAMPLES, TraceArguments};
use polyrank_trace::{Job, Selection};

/// Reads the files and answers on stdout and in files; the exit code.
pub(crate) fn run(arguments: &TraceArguments) -> i32 {
    match answer(arguments) {
        Ok(()) => 0,
        Err(message) => {
            let message = format!("polyrank trace: {message}\n");
            let _ = std::io::stderr().lock().write_all(message.as_bytes());
            1
        }
    }
}

fn answer(arguments: &TraceArguments) -> Result<(), String> {
    let files = files::read(&arguments.files)?;
    let job = Job::new(files).map_err(|error| error.to_string())?;
    let selection = arguments.selection();
    check(&job, &selection)?;
    let text = if arguments.json {
        format!("{:#}\n", job.report_json(&selection))
    } else {
        job.report(&selection)
    };
    // If the pipe is closed, its reader has read enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    if let Some(path) = &arguments.svg {
        write(path, &job.svg(&selection))?;
    }
    if let Some(path) = &arguments.perfetto {
        write(path, &job.perfetto(&selection).to_string())?;
    }
    if let Some(folder) = &arguments.fr_trace {
        fr_trace::write(folder, &job)?;
    }
    Ok(())
}

/// What is chosen must be there: nothing is shown as if nothing were wrong.
fn check(job: &Job, selection: &Selection) -> Result<(), String> {
    let world_size = job.world_size;
    if let Some(rank) = selection.ranks.iter().find(|rank| **rank >= world_size) {
        return Err(format!("--rank {rank}: the job has {world_size} ranks"));
    }
    let is_there = |name: &&String| job.groups.iter().any(|it| it.is_called(name));
    if let Some(name) = selection.groups.iter().find(|name| !is_there(name)) {
        let mut known: Vec<&str> = job.groups.iter().map(|group| group.title.as_str()).collect();
        known.dedup();
        return Err(format!("--group {name}: expected one of {}", known.join(", ")));
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
