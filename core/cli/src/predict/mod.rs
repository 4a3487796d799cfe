//! `polyrank predict`: what a collective would cost on machines that are not here, by the link
//! costs of the same schedules that ranks run.
//!
//! ```text
//!   question ──▶ forecast (every algorithm, over sizes) ──▶ table · JSON · SVG
//!       └──────▶ scale (ever more ranks) ──▶ rehearsal (imagined network) ──▶ table · JSON
//! ```
//!
//! Knows schedules and link costs, and executors on an imagined network; starts no process, no
//! thread and opens no socket.

mod arguments;
mod forecast;
mod rehearsal;
mod scale;
mod show;
#[cfg(test)]
mod tests;

use std::io::Write;

pub(crate) use arguments::{EXAMPLES, PredictArguments};
use forecast::Forecast;

/// The exit code of a command line that makes no sense.
const EXIT_USAGE: i32 = 2;

/// Answers the question on stdout and in files; the exit code.
pub(crate) fn run(arguments: &PredictArguments) -> i32 {
    let question = match arguments.question() {
        Ok(question) => question,
        Err(message) => {
            say(&message);
            return EXIT_USAGE;
        }
    };
    if arguments.run {
        return scale::run(&question, arguments.json, &mut std::io::stdout().lock());
    }
    let forecast = Forecast::new(question);
    let text = if arguments.json { show::json(&forecast) } else { show::table(&forecast) };
    // If the pipe is closed, its reader has read enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    if let Some(path) = &arguments.svg
        && let Err(error) = std::fs::write(path, show::chart(&forecast).svg())
    {
        say(&format!("cannot write {}: {error}", path.display()));
        return 1;
    }
    0
}

fn say(message: &str) {
    let _ = std::io::stderr().lock().write_all(format!("polyrank predict: {message}\n").as_bytes());
}
