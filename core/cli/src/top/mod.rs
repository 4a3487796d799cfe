//! `polyrank top`: what the ranks of a running job do, as a table that is renewed.
//!
//! ```text
//!   store ◀── questions ── job ──▶ rows ──▶ table · JSON · screen
//!     └────── answers of the ranks' watches ──▶
//! ```
//!
//! Knows stores and terminals; what is asked and counted is the core's.

mod job;
mod rows;
mod screen;

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;

use job::Job;

pub(crate) const EXAMPLES: &str = "\
Examples:
  polyrank top 127.0.0.1:29500
      The ranks that meet in the store at that port: MASTER_ADDR and MASTER_PORT of the job.
  polyrank top ws://host-a:29500 --once
      The same once, as a plain table, which a file or a pipe gets anyway.

Ranks answer within a second, whether they wait or compute; one that is stopped, or cannot reach the
store, is shown as such. Rates are those between the last two answers. q, Esc or Ctrl-C ends.";

/// How long ranks may take to answer: they look once a second.
const ANSWER_LIMIT: Duration = Duration::from_millis(2_500);

/// The options of `polyrank top`.
#[derive(Args)]
pub(crate) struct TopArguments {
    /// Where the ranks meet: HOST:PORT, tcp://HOST:PORT or ws://HOST:PORT
    #[arg(value_name = "STORE_URL")]
    store: String,
    /// Print the table once, and end
    #[arg(long)]
    once: bool,
    /// Print JSON, once
    #[arg(long)]
    json: bool,
    /// Seconds from one look to the next; ranks answer once a second
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = interval)]
    interval: f64,
}

/// Shows the table; the exit code.
pub(crate) fn run(arguments: &TopArguments) -> i32 {
    match show(arguments) {
        Ok(()) => 0,
        Err(message) => {
            let message = format!("polyrank top: {message}\n");
            let _ = std::io::stderr().lock().write_all(message.as_bytes());
            1
        }
    }
}

fn show(arguments: &TopArguments) -> Result<(), String> {
    let mut job = Job::open(&arguments.store)?;
    if !arguments.once && !arguments.json && std::io::stdout().is_terminal() {
        return screen::run(job, Duration::from_secs_f64(arguments.interval));
    }
    // The second answers say what happens between the two.
    job.look(ANSWER_LIMIT)?;
    let groups = job.look(ANSWER_LIMIT)?;
    let text = match arguments.json {
        true => format!("{:#}\n", rows::json(&groups)),
        false => rows::text(&groups),
    };
    // If the pipe is closed, its reader has read enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (1.0..=3600.0).contains(&value) => Ok(value),
        _ => Err("expected seconds from 1 to 3600, as in --interval 5".to_owned()),
    }
}
