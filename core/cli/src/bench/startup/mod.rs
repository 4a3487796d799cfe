//! `polyrank bench start`: how long ranks take from the command to join until all of them have run
//! their first allreduce, next to other libraries. Programs and libraries are loaded before. Every
//! turn starts new processes, so that nothing is warm. Knows nothing of how groups meet.

mod show;

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::files;
use super::find::{ContenderPrograms, Programs};
use super::library::{CallStyle, Contender, Language, Library, Memory, Peer};
use super::local_names::LocalNames;
use super::machine;
use super::messages::{Answer, Command};
use super::peer_settings;
use super::rank::monotonic_s;
use super::run_facts::RunFacts;
use super::scripts::Scripts;
use super::team::{Limits, Team, TeamError};
use super::{EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_USAGE, interruption, not_measured, say};

/// How much earlier rank 0 starts, if its store has to run before the others arrive.
const HEAD_START: Duration = Duration::from_millis(100);

pub(super) const EXAMPLES: &str = "\
Examples:
  polyrank bench start
      2, 8 and 32 Rust ranks.
  polyrank bench start -n 32 -l python --against gloo,openmpi,mpich --python gloo=gloo/bin/python
      In turn with other libraries.

Times are from the command to join until the last rank is a member of the group, and until the last
rank's first allreduce of 4 bytes is over; imports are not counted. \"at once\": all ranks get the
command together, and rank 0 still has to open its store. \"store up\": rank 0 gets it 100 ms
earlier, and the time counts from the command to the others. MPI has no store: its launcher has
started the ranks and knows them before the command, so its time is that of MPI_Init and the
allreduce. Gloo's ranks look up names in files alone where a mount namespace can be made, and the
output says so, since PyTorch's store asks for the name of every client. MiB is the largest growth
of a rank's memory since before it joined: memory not backed by files, with its share of shared
pages (PSS); socket buffers of the kernel are not counted.

Exit codes are those of polyrank bench: 3 if something that was requested is not installed.";

/// The options of `polyrank bench start`.
#[derive(Args)]
pub(crate) struct StartArguments {
    /// Numbers of ranks
    #[arg(short = 'n', long, value_name = "N,…", value_delimiter = ',', default_value = "2,8,32")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    ranks: Vec<u32>,
    /// Languages of the ranks; "+" mixes them in one group, "," separates contenders
    #[arg(short = 'l', long, value_name = "LANGUAGE,…", value_delimiter = ',')]
    #[arg(default_value = "rust")]
    language: Vec<String>,
    /// Other libraries to compare with: gloo, openmpi, openmpi-tcp, mpich
    #[arg(long, value_name = "PEER,…", value_delimiter = ',')]
    against: Vec<String>,
    /// Python interpreter that has LIBRARY (gloo, openmpi, mpich, polyrank) installed; may be
    /// repeated
    #[arg(long, value_name = "LIBRARY=PATH")]
    python: Vec<String>,
    /// Alternating turns of every contender
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    turns: u32,
    /// How long one turn may take before it counts as hung
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Write everything that was measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<std::path::PathBuf>,
}

/// What is running when the ranks are told to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum StartCondition {
    /// Nothing.
    AtOnce,
    /// Rank 0 and its store.
    StoreUp,
}

/// The measurements, as they are written to a file.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    run: RunFacts,
    rows: Vec<Row>,
}

/// One contender's turns.
#[derive(Clone, Debug, Serialize)]
struct Row {
    ranks: u32,
    before: StartCondition,
    contender: String,
    versions: std::collections::BTreeMap<String, String>,
    /// How it is started, in words.
    settings: Vec<String>,
    /// Medians of the turns: until all were members, and until all had reduced.
    member_ms: f64,
    reduced_ms: f64,
    /// Of each turn, in order.
    turns_ms: Vec<f64>,
    /// The memory that the largest rank gained by joining: anonymous pages, and its share of shared
    /// ones. Measured in the last turn; none where the system does not report it.
    memory_bytes: Option<u64>,
}

/// Runs the benchmark; the exit code.
pub(super) fn run(arguments: &StartArguments) -> i32 {
    let contenders = match contenders(arguments) {
        Ok(contenders) => contenders,
        Err(message) => {
            say(&message);
            return EXIT_USAGE;
        }
    };
    match measure(arguments, &contenders) {
        Ok(absent) if absent.is_empty() => 0,
        Ok(absent) => {
            say(&not_measured(&absent));
            EXIT_INCOMPLETE
        }
        Err(TeamError::Interrupted) => EXIT_INTERRUPTED,
        Err(TeamError::Failed(message)) => {
            say(&message);
            1
        }
    }
}

fn contenders(arguments: &StartArguments) -> Result<Vec<Contender>, String> {
    let contender = |name: String, library: Library| Contender {
        name,
        library,
        memory: Memory::User,
        call_style: CallStyle::Ordinary,
        environment: Vec::new(),
        unsupported: Vec::new(),
    };
    let mut contenders = Vec::new();
    for language in &arguments.language {
        let languages = Library::Polyrank(Language::list(language)?);
        contenders.push(contender(format!("polyrank {language}"), languages));
    }
    for name in &arguments.against {
        match Peer::from_name(name)? {
            Peer::Memcpy => return Err("memcpy has nothing to start".to_owned()),
            peer => contenders.push(contender(name.clone(), Library::Peer(peer))),
        }
    }
    Ok(contenders)
}

/// Measures, and returns the names of contenders that are missing.
fn measure(arguments: &StartArguments, contenders: &[Contender]) -> Result<Vec<String>, TeamError> {
    let programs = Programs::of_option(&arguments.python).map_err(TeamError::Failed)?;
    let scripts = Scripts::write().map_err(|error| {
        TeamError::Failed(format!("cannot write the script of Python's ranks: {error}"))
    })?;
    let terms = Limits {
        limit: Duration::from_secs(arguments.timeout),
        interrupted: interruption().map_err(TeamError::Failed)?,
        script: scripts.python(),
        names: LocalNames::prepare(scripts.folder()),
        pinned_cores: Vec::new(),
        offset_bytes: 0,
    };
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for contender in contenders {
        match programs.find(contender) {
            Ok(found) => present.push((contender, found)),
            Err(lack) => {
                say(&format!("missing: {}\n    {}", lack.what, lack.advice));
                absent.push(contender.name.clone());
            }
        }
    }
    if present.is_empty() {
        say("nothing is left to measure");
        return Ok(absent);
    }
    files::check(arguments.json.as_deref()).map_err(TeamError::Failed)?;
    let load_before = machine::load();
    for (contender, _) in &present {
        let Library::Peer(peer) = contender.library else { continue };
        for &ranks in &arguments.ranks {
            show::settings(&contender.name, &settings(peer, ranks, &terms));
        }
    }
    show::header();
    let mut rows = Vec::new();
    for &ranks in &arguments.ranks {
        for before in [StartCondition::StoreUp, StartCondition::AtOnce] {
            let measured = compare(&present, ranks, before, arguments.turns, &terms)?;
            show::rows(&measured);
            rows.extend(measured);
        }
    }
    let Some(path) = &arguments.json else { return Ok(absent) };
    let report = Report { run: RunFacts::at_end("polyrank bench start", load_before), rows };
    let text = serde_json::to_string_pretty(&report).unwrap_or_default();
    files::write(path, &(text + "\n")).map_err(TeamError::Failed)?;
    Ok(absent)
}

fn settings(peer: Peer, ranks: u32, terms: &Limits) -> Vec<String> {
    peer_settings::settings(peer, terms.placement(ranks), &terms.names.setting)
}

/// Measures all contenders in turn, from the same beginning.
fn compare(
    contenders: &[(&Contender, ContenderPrograms)],
    ranks: u32,
    before: StartCondition,
    turns: u32,
    terms: &Limits,
) -> Result<Vec<Row>, TeamError> {
    let starts = |contender: &Contender| match contender.library {
        Library::Peer(peer) => !(peer.is_mpi() && before == StartCondition::StoreUp),
        Library::Polyrank(_) => true,
    };
    let contenders: Vec<_> = contenders.iter().filter(|(one, _)| starts(one)).collect();
    let mut rows: Vec<Row> = contenders
        .iter()
        .map(|(contender, _)| Row {
            ranks,
            before,
            contender: contender.name.clone(),
            versions: Default::default(),
            settings: match contender.library {
                Library::Peer(peer) => settings(peer, ranks, terms),
                Library::Polyrank(_) => Vec::new(),
            },
            member_ms: 0.0,
            reduced_ms: 0.0,
            turns_ms: Vec::new(),
            memory_bytes: None,
        })
        .collect();
    let mut members_ms = vec![Vec::new(); rows.len()];
    for turn in 0..turns {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        // The last of one turn is the first of the next.
        if turn % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let (contender, found) = contenders[at];
            let started = start(contender, found, ranks, before, terms)?;
            members_ms[at].push(started.member_ms);
            rows[at].turns_ms.push(started.reduced_ms);
            rows[at].memory_bytes = started.memory_bytes;
            rows[at].versions.extend(started.versions);
        }
    }
    for (row, members_ms) in rows.iter_mut().zip(members_ms) {
        row.member_ms = median(&members_ms);
        row.reduced_ms = median(&row.turns_ms);
    }
    Ok(rows)
}

/// Measures one start.
struct StartMeasurement {
    member_ms: f64,
    reduced_ms: f64,
    memory_bytes: Option<u64>,
    versions: std::collections::BTreeMap<String, String>,
}

fn start(
    contender: &Contender,
    found: &ContenderPrograms,
    ranks: u32,
    before: StartCondition,
    terms: &Limits,
) -> Result<StartMeasurement, TeamError> {
    let mut team = Team::load(contender, found, ranks, terms)?;
    let first = usize::from(before == StartCondition::StoreUp && ranks > 1);
    if first > 0 {
        team.send(0..first, &Command::Join)?;
        std::thread::sleep(HEAD_START);
    }
    let word_s = monotonic_s();
    team.send(first..ranks as usize, &Command::Join)?;
    let (mut last_member_s, mut last_reduced_s) = (word_s, word_s);
    let mut all_versions = std::collections::BTreeMap::new();
    for answer in team.answers()? {
        let Answer::Joined { member_s, reduced_s, versions } = answer else {
            return Err(TeamError::Failed(format!("{}: a rank answers {answer:?}", team.name)));
        };
        last_member_s = member_s.max(last_member_s);
        last_reduced_s = reduced_s.max(last_reduced_s);
        all_versions.extend(versions);
    }
    let memory = team.tell(&Command::Memory)?.into_iter().filter_map(|answer| match answer {
        Answer::Memory { bytes } => bytes,
        _ => None,
    });
    let memory_bytes = memory.max();
    team.end()?;
    Ok(StartMeasurement {
        memory_bytes,
        member_ms: (last_member_s - word_s) * 1e3,
        reduced_ms: (last_reduced_s - word_s) * 1e3,
        versions: all_versions,
    })
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
