//! `polyrank bench store`: requests per second of a store's server and how long each takes, from
//! one client to ten thousand, next to PyTorch's server. Knows TCPStore's bytes; the servers are
//! processes of their own, so that nothing but bytes is shared.

mod load;
mod requests;
mod server;
mod show;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::files;
use super::local_names::LocalNames;
use super::machine;
use super::run_facts::RunFacts;
use super::scripts::Scripts;
use super::{EXIT_INCOMPLETE, not_measured, say};
use load::{Clients, Run};
use requests::Operation;
use server::{MissingServer, Server};

/// More clients than this have no room in one process.
const MAX_CLIENTS: u64 = 100_000;

pub(super) const EXAMPLES: &str = "\
Examples:
  polyrank bench store
      1, 16, 1,000 and 10,000 clients of a polyrank store.
  polyrank bench store --clients 1,16 --against torch --python venv/bin/python --json store.json
      In turn with PyTorch's server.

All clients live in one thread of this process and speak TCPStore's protocol, over TCP to all
servers alike; \"polyrank local\" is the same server reached by the socket that its own clients of
the same host take. Every client has one request under way. `set` has no reply: 32 of them are
followed by a PING, and count when that is answered, so the times of `set` are those of 32. `wait`
waits for a key that is not there, sets it and deletes it, sent at once; `set+get` is one of each.
Ratios are of polyrank to the other; a server that does not let all clients in within 30 s is left
out, and the exit code is 1. PyTorch's looks up the name of every client that comes: it does so in
files alone where a mount namespace can be made (as root or with unshare -Ur), and the output says
if it asks DNS, which makes it slower. A server that holds n clients has n files open, and so has
this process: raise ulimit -Hn if it is too low. The exit code is 3 if torch was asked for and is
not installed.";

/// The options of `polyrank bench store`.
#[derive(Args)]
pub(crate) struct StoreBenchArguments {
    /// Numbers of clients
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16,1000,10000")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_CLIENTS))]
    clients: Vec<u64>,
    /// Requests to measure: set, get, add, wait, set+get
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "set,get,add,wait,set+get"
    )]
    operations: Vec<String>,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    value_bytes: u64,
    /// Length of one turn of one operation
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
    /// Alternating turns of every server
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    turns: u32,
    /// Others to compare with: torch
    #[arg(long, value_name = "PEER,…", value_delimiter = ',', value_parser = ["torch"])]
    against: Vec<String>,
    /// The Python that has torch [default: POLYRANK_BENCH_GLOO, or python3]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Write everything that was measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    run: RunFacts,
    value_bytes: u64,
    /// How other servers are started, in words.
    settings: BTreeMap<String, Vec<String>>,
    /// What could not be measured, and why.
    missing: Vec<String>,
    rows: Vec<Row>,
}

/// One server under one load.
#[derive(Clone, Debug, Serialize)]
struct Row {
    clients: u64,
    operation: &'static str,
    server: String,
    /// Median of the turns.
    per_second: f64,
    /// Of single requests, medians of the turns; of 32 at once for `set`.
    median_us: f64,
    p99_us: f64,
    /// Until all clients were connected and known to the server.
    connect_ms: f64,
    /// What the server's memory had grown by, for each client.
    kib_per_client: Option<f64>,
}

/// Runs the benchmark; the exit code.
pub(super) fn run(arguments: &StoreBenchArguments) -> i32 {
    match measure(arguments) {
        Ok(Completeness::Complete) => 0,
        // What was left out has been told.
        Ok(Completeness::LeftOut) => 1,
        Ok(Completeness::Absent) => {
            say(&not_measured(&["torch".to_owned()]));
            EXIT_INCOMPLETE
        }
        Err(message) => {
            say(&message);
            1
        }
    }
}

/// What was measured of what was asked for.
enum Completeness {
    Complete,
    /// A server failed.
    LeftOut,
    /// A server is not installed.
    Absent,
}

fn measure(arguments: &StoreBenchArguments) -> Result<Completeness, String> {
    let named = |name: &String| {
        Operation::from_name(name).ok_or_else(|| {
            format!(
                "'{name}' is not a request to measure; expected one of set, get, add, wait, set+get"
            )
        })
    };
    let operations: Vec<Operation> =
        arguments.operations.iter().map(named).collect::<Result<_, _>>()?;
    files::check(arguments.json.as_deref())?;
    let load_before = machine::load();
    let mut servers = vec![Server::polyrank()?];
    let nearest = servers[0].nearest().map_err(|error| format!("polyrank: {error}"))?;
    servers.extend(nearest);
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    let (mut is_absent, mut settings) = (false, BTreeMap::new());
    // Its folder has to be there for as long as the servers start.
    let scripts = Scripts::write().map_err(|error| format!("cannot write a file: {error}"))?;
    let names = LocalNames::prepare(scripts.folder());
    if !arguments.against.is_empty() {
        match Server::torch(arguments.python.as_deref(), &names) {
            Ok(server) => {
                show::setting(&server.name, &names.setting);
                settings.insert(server.name.clone(), vec![names.setting.clone()]);
                servers.push(server);
            }
            Err(MissingServer::Absence(why)) => {
                say(&format!("missing: {why}"));
                missing.push(why);
                is_absent = true;
            }
            Err(MissingServer::Failure(why)) => {
                say(&why);
                missing.push(why);
            }
        }
    }
    show::header();
    for &clients in &arguments.clients {
        let measured = compare(&servers, clients, &operations, arguments, &mut missing);
        show::rows(&measured);
        rows.extend(measured);
    }
    let ending = match missing.len() - usize::from(is_absent) {
        0 if is_absent => Completeness::Absent,
        0 => Completeness::Complete,
        _ => Completeness::LeftOut,
    };
    let Some(path) = &arguments.json else { return Ok(ending) };
    let report = Report {
        run: RunFacts::at_end("polyrank bench store", load_before),
        value_bytes: arguments.value_bytes,
        settings,
        missing,
        rows,
    };
    let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    files::write(path, &(text + "\n"))?;
    Ok(ending)
}

/// All servers under the load of so many clients: rows by operation, then by server. One that fails
/// is left out and told in `missing`; the others continue.
fn compare(
    servers: &[Server],
    clients: u64,
    operations: &[Operation],
    arguments: &StoreBenchArguments,
    missing: &mut Vec<String>,
) -> Vec<Row> {
    let mut runs: Vec<Option<Vec<Turn>>> = vec![Some(Vec::new()); servers.len()];
    for turn in 0..arguments.turns {
        let mut order: Vec<usize> = (0..servers.len()).collect();
        // The last of one turn is the first of the next.
        if turn % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let Some(turns) = &mut runs[at] else { continue };
            match take_turn(&servers[at], clients, operations, arguments) {
                Ok(turn) => turns.push(turn),
                Err(error) => {
                    let why = format!("{} with {clients} clients: {error}", servers[at].name);
                    say(&why);
                    missing.push(why);
                    runs[at] = None;
                }
            }
        }
    }
    let mut rows = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        for (server, turns) in servers.iter().zip(&runs) {
            let Some(turns) = turns else { continue };
            let of =
                |pick: fn(&Run) -> f64| median(turns.iter().map(|turn| pick(&turn.runs[number])));
            rows.push(Row {
                clients,
                operation: operation.name(),
                server: server.name.clone(),
                per_second: of(|run| run.per_second),
                median_us: of(|run| run.median_us),
                p99_us: of(|run| run.p99_us),
                connect_ms: median(turns.iter().map(|turn| turn.connect_ms)),
                // Memory that one turn has freed is not asked for again in the next.
                kib_per_client: turns.first().and_then(|turn| turn.kib_per_client),
            });
        }
    }
    rows
}

/// One server's turn.
#[derive(Clone, Debug)]
struct Turn {
    /// By operation.
    runs: Vec<Run>,
    connect_ms: f64,
    kib_per_client: Option<f64>,
}

fn take_turn(
    server: &Server,
    clients: u64,
    operations: &[Operation],
    arguments: &StoreBenchArguments,
) -> std::io::Result<Turn> {
    let before = server.resident_bytes();
    let (mut load, took) = Clients::connect(&server.door, clients as usize)?;
    let grown = before.zip(server.resident_bytes());
    let each = |(before, now): (u64, u64)| now.saturating_sub(before) as f64 / 1024.0;
    let bytes = arguments.value_bytes as usize;
    let length = Duration::from_secs_f64(arguments.seconds);
    let runs = operations.iter().map(|operation| load.run(*operation, bytes, length));
    Ok(Turn {
        runs: runs.collect::<std::io::Result<_>>()?,
        connect_ms: took.as_secs_f64() * 1e3,
        kib_per_client: grown.map(|grown| each(grown) / clients as f64),
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.01 to 60".to_owned()),
    }
}
