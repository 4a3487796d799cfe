//! `polyrank bench`: measures collectives, in any language, next to one another and to other
//! libraries.
//!
//! ```text
//!                     commands and answers, one JSON object a line
//!  polyrank bench ──┬─────────────▶ contender A: rank 0, rank 1, …  (polyrank, Rust)
//!                   ├─────────────▶ contender B: rank 0, rank 1, …  (polyrank, Python and Node)
//!                   └─────────────▶ contender C: rank 0, rank 1, …  (Gloo)
//!  for each case:   prepare A, B, C · check · A B C · C B A · A B C · …
//! ```
//!
//! The ranks of a contender are a [`team::Team`]. All teams run at the same time and take turns, so
//! that other load on the machine affects all of them alike. Between its turns a team waits without
//! using the processor. Its ranks communicate only through their library.
//!
//! Knows the launcher's processes and, in its Rust ranks, the public API. Nothing of polyrank knows
//! the benchmark.

mod algorithms;
mod arguments;
mod benchmark_run;
mod build;
mod calibrate;
mod calibrate_copies;
mod calibrate_network;
mod files;
mod find;
mod help;
mod inputs;
mod library;
mod local_names;
mod machine;
mod measure;
mod messages;
mod operation;
mod pattern;
mod peer_settings;
mod plot;
mod processor;
mod rank;
mod results;
mod rewritten;
mod run_facts;
mod scripts;
#[cfg(target_os = "linux")]
mod start_timing;
mod startup;
#[cfg(target_os = "linux")]
mod store;
mod system_files;
mod table;
mod team;
mod turn_settings;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub(crate) use arguments::BenchArguments;
use arguments::Benchmark;
use benchmark_run::{BenchmarkRun, Measurement, StartError};
pub(crate) use help::EXAMPLES;
use results::Report;

/// The exit code for a wrong command line.
const EXIT_USAGE: i32 = 2;
/// The exit code of a run for which something was missing, such as a library that is not installed;
/// the rest was measured, if there was any.
const EXIT_INCOMPLETE: i32 = 3;
/// The exit code of a run that the user interrupted: 128 + SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// Runs the benchmark; the exit code: 0 if everything was measured and nothing was wrong, others as
/// [`EXAMPLES`] lists them.
pub(crate) fn run(arguments: &BenchArguments) -> i32 {
    #[cfg(target_os = "linux")]
    match &arguments.other {
        Some(arguments::OtherCommand::Store(arguments)) => return store::run(arguments),
        Some(arguments::OtherCommand::Start(arguments)) => return startup::run(arguments),
        None => {}
    }
    if arguments.show_processor {
        files::show(&format!("{}\n", machine::Machine::here().processor.name));
        return 0;
    }
    if let Some(path) = arguments.calibrate.as_deref()
        && calibrate_network::is_rank()
    {
        return match calibrate_network::run(path) {
            Ok(()) => 0,
            Err(message) => {
                say(&message);
                1
            }
        };
    }
    let benchmark = match arguments.calibrate.as_ref() {
        Some(_) => calibrate::benchmark(),
        None => arguments.benchmark(),
    };
    match benchmark {
        Ok(benchmark) => execute(arguments, benchmark),
        Err(message) => {
            say(&message);
            EXIT_USAGE
        }
    }
}

/// Runs the benchmark and writes its files; the exit code.
fn execute(arguments: &BenchArguments, benchmark: Benchmark) -> i32 {
    let outputs = [&arguments.json, &arguments.svg, &arguments.calibrate];
    if let Err(message) = files::check(outputs.into_iter().flatten().map(PathBuf::as_path)) {
        say(&message);
        return 1;
    }
    let interrupted = match interruption() {
        Ok(interrupted) => interrupted,
        Err(message) => {
            say(&message);
            return 1;
        }
    };
    benchmark.notes.iter().for_each(|note| say(note));
    let (report, mut code) = match measured(benchmark, &interrupted) {
        Ok(measured) => measured,
        Err(code) => return code,
    };
    if matches!(code, 0 | EXIT_INCOMPLETE)
        && report.cases.iter().all(|case| case.results.is_empty())
    {
        say(NOTHING_MEASURED);
        code = EXIT_USAGE;
    }
    let calibrated = match &arguments.calibrate {
        // The costs of a part of the sizes would replace better ones.
        Some(path) if code != 0 => {
            say(&format!("{} is not written: the measurement is incomplete", path.display()));
            Ok(())
        }
        Some(path) => calibrate::write(&report, path),
        None => Ok(()),
    };
    // Elsewhere there is but one way.
    if cfg!(target_os = "linux") && arguments.calibrate.is_some() && code == 0 {
        code = calibrate_copies(&interrupted);
    }
    if let Err(message) = calibrated.and(write_files(arguments, &report)) {
        say(&message);
        code = code.max(1);
    }
    code
}

/// What a benchmark has measured, and its exit code; only that if nothing could be.
fn measured(benchmark: Benchmark, interrupted: &Arc<AtomicBool>) -> Result<(Report, i32), i32> {
    let mut benchmark_run = match BenchmarkRun::new(benchmark, interrupted.clone()) {
        Ok(benchmark_run) => benchmark_run,
        Err(StartError::Absence) => {
            say("nothing is left to measure");
            return Err(EXIT_INCOMPLETE);
        }
        Err(StartError::Failure(message)) => {
            say(&message);
            return Err(1);
        }
    };
    let ending = benchmark_run.run();
    let Measurement { report, failures, absent } = benchmark_run.finish();
    let code = match ending {
        Ok(()) if !failures.is_empty() || has_wrong(&report) => 1,
        Ok(()) if !absent.is_empty() => EXIT_INCOMPLETE,
        Ok(()) => 0,
        Err(measure::Interruption) => EXIT_INTERRUPTED,
    };
    for failure in &failures {
        say(failure);
    }
    if code == EXIT_INCOMPLETE {
        say(&not_measured(&absent));
    }
    Ok((report, code))
}

/// Measures what the ways to copy cost on this host, and keeps that; the exit code.
fn calibrate_copies(interrupted: &Arc<AtomicBool>) -> i32 {
    // Its folder is gone at the end, and nobody else can write there.
    let scripts = match scripts::Scripts::write() {
        Ok(scripts) => scripts,
        Err(error) => {
            say(&format!("cannot make a folder for what copies cost: {error}"));
            return 1;
        }
    };
    let folder = scripts.folder().join("prices");
    let [messages, choices] = match calibrate_copies::benchmarks(&folder) {
        Ok(benchmarks) => benchmarks,
        Err(message) => {
            say(&message);
            return 1;
        }
    };
    let report = match measured(messages, interrupted) {
        Ok((report, 0)) => report,
        Ok((_, code)) | Err(code) => return code,
    };
    match measured(choices, interrupted) {
        Ok((_, 0)) => {}
        Ok((_, code)) | Err(code) => return code,
    }
    match calibrate_copies::show(&report, &folder) {
        Ok(()) => 0,
        Err(message) => {
            say(&message);
            1
        }
    }
}

/// Runs one rank of a team; the exit code.
pub(crate) fn run_rank(rank: u32) -> i32 {
    rank::run(rank)
}

/// Printed where no operation can be combined with the other options.
const NOTHING_MEASURED: &str = "nothing was measured: what --op, --dtype, --call, --memory and \
    --form ask for exists for none of these operations and libraries; bitwise reductions need \
    integers, and only an allreduce in place can be prepared";

/// A flag that becomes true when the user wants to end.
fn interruption() -> Result<Arc<AtomicBool>, String> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone())
            .map_err(|error| format!("cannot listen for signals: {error}"))?;
    }
    Ok(interrupted)
}

/// The note below a table that lacks contenders.
fn not_measured(absent: &[String]) -> String {
    format!("not measured, because the programs named above are missing: {}", absent.join(", "))
}

fn has_wrong(report: &Report) -> bool {
    let results = report.cases.iter().flat_map(|case| &case.results);
    results.into_iter().any(|result| result.wrong.is_some_and(|wrong| wrong > 0))
}

fn write_files(arguments: &BenchArguments, report: &Report) -> Result<(), String> {
    if let Some(path) = &arguments.json {
        let mut text = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
        text.push('\n');
        files::write(path, &text)?;
    }
    if let Some(path) = &arguments.svg {
        files::write(path, &plot::plot(report).svg())?;
    }
    Ok(())
}

/// Writes a line of the benchmark's own to stderr. It is not an error if nobody reads stderr.
fn say(message: &str) {
    let _ = std::io::stderr().lock().write_all(format!("polyrank bench: {message}\n").as_bytes());
}
