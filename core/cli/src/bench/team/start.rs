//! Starts the ranks of a team and brings them together. Knows nothing of what they measure.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, Read};
use std::net::TcpListener;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

use super::connections::{AcceptGuard, Event, watch};
use super::starts_file::StartsFile;
use super::{Limits, Member, Team, TeamError};
use crate::affinity;
use crate::bench::find::ContenderPrograms;
use crate::bench::library::{Contender, Language, Library, Peer};
use crate::bench::messages::Answer;
use crate::bench::peer_settings::launcher_options;
use crate::bench::rank::{Assignment, VARIABLE, common_start};
use crate::itself;
use crate::launch::arguments::parts::Part;
use crate::launch::environment::reserve_port;
use crate::launch::output::{LastLines, keep};
use crate::launch::process::Process;
use polyrank::env::variable;

/// The ranks of Node.
const NODE_SCRIPT: &str = include_str!("../ranks/rank.mjs");

/// How far ranks go by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartStage {
    /// They have loaded their library, and wait to be told to join.
    Loaded,
    /// They are a group.
    Joined,
}

pub(super) fn start(
    contender: &Contender,
    found: &ContenderPrograms,
    ranks: u32,
    until: StartStage,
    terms: &Limits,
) -> Result<Team, TeamError> {
    let (events, inbox) = channel();
    let mut team = Team {
        name: contender.name.clone(),
        versions: Default::default(),
        unsupported: contender.unsupported.clone(),
        is_crowded: terms.placement(ranks).is_crowded(),
        start_timing: Default::default(),
        connections: Vec::new(),
        processes: Vec::new(),
        inbox,
        terms: terms.clone(),
    };
    let failed = |error: io::Error| TeamError::Failed(format!("{}: {error}", contender.name));
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
    // Held until the group stands, so that nobody else is given the port.
    let (port, _reservation) = reserve_port().map_err(failed)?;
    let random = crate::random::bytes::<16>()
        .map_err(|error| TeamError::Failed(format!("{}: {error}", contender.name)))?;
    let starts = match until {
        StartStage::Loaded => None,
        StartStage::Joined => {
            Some(StartsFile::create(common_start::file_bytes(ranks)).map_err(failed)?)
        }
    };
    let assignment = Assignment {
        control: listener.local_addr().map_err(failed)?,
        token: random.iter().map(|byte| format!("{byte:02x}")).collect(),
        library: match contender.library {
            Library::Polyrank(_) => "polyrank",
            Library::Peer(peer) => peer.name(),
        }
        .to_owned(),
        memory: contender.memory,
        call_style: contender.call_style,
        ranks,
        port,
        timeout_s: terms.limit.as_secs(),
        joins_on_command: until == StartStage::Loaded,
        // They open it before they are a group, and need its name no longer.
        starts: starts.as_ref().map(|file| file.path().to_owned()),
        yields: team.is_crowded,
        offset_bytes: terms.offset_bytes,
        pinned_cores: terms.pinned_cores.clone(),
    };
    let variables = variables(contender, &assignment).map_err(failed)?;
    for part in programs(contender, found, ranks, terms) {
        let program = part.program.to_string_lossy().into_owned();
        let member = team.processes.len();
        let own = cores_of(member, found, terms);
        let start = || Process::start(&part, None, &variables, false);
        let process = affinity::started_on(&own, start).map_err(|error| {
            TeamError::Failed(format!("{}: cannot start {program}: {error}", contender.name))
        })?;
        team.processes.push(follow(member, process, &events));
    }
    let _door =
        AcceptGuard::open(listener, assignment.token, ranks as usize, events).map_err(failed)?;
    meet(&mut team, ranks as usize, until)?;
    Ok(team)
}

/// The cores that a process may use, where ranks are pinned: a launcher of MPI starts ranks on all
/// of them, and each takes its own.
fn cores_of(member: usize, found: &ContenderPrograms, terms: &Limits) -> Vec<usize> {
    match found.launcher {
        None => terms.pinned_cores.iter().copied().cycle().nth(member).into_iter().collect(),
        Some(_) => terms.pinned_cores.clone(),
    }
}

/// The programs to start: one for each rank, or the launcher of all.
fn programs(
    contender: &Contender,
    found: &ContenderPrograms,
    ranks: u32,
    terms: &Limits,
) -> Vec<Part> {
    let script = terms.script.clone().into_os_string();
    let part = |words: Vec<OsString>| {
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        Part { program, arguments: words.collect(), rank_count: 1 }
    };
    let of_rank = |rank: u32| -> Vec<OsString> {
        let number = rank.to_string();
        let language = match &contender.library {
            Library::Polyrank(languages) => languages[rank as usize % languages.len()],
            Library::Peer(Peer::Memcpy) => Language::Rust,
            Library::Peer(_) => Language::Python,
        };
        match language {
            Language::Rust => itself::command(&["bench-rank", &number]),
            Language::Python => {
                let names = match contender.library {
                    Library::Peer(Peer::Gloo) => terms.names.prefix.as_slice(),
                    _ => &[],
                };
                let own = [found.python.clone(), script.clone(), number.into()];
                names.iter().cloned().chain(own).collect()
            }
            Language::Node => vec![
                found.node.clone(),
                "--input-type=module".into(),
                "--eval".into(),
                NODE_SCRIPT.into(),
                "--".into(),
                number.into(),
            ],
        }
    };
    let (Some(launcher), Library::Peer(peer)) = (&found.launcher, &contender.library) else {
        return (0..ranks).map(|rank| part(of_rank(rank))).collect();
    };
    let mut words = vec![launcher.clone()];
    words.extend(launcher_options(*peer, terms.placement(ranks)));
    words.extend([found.python.clone(), script.clone()]);
    vec![part(words)]
}

fn variables(contender: &Contender, assignment: &Assignment) -> io::Result<Vec<(String, String)>> {
    let assignment = serde_json::to_string(assignment)?;
    let fixed = [
        (VARIABLE, assignment.as_str()),
        (variable::PYTHONUNBUFFERED, "1"),
        // Each rank would otherwise start a thread per core in its numerical library.
        (variable::OMP_NUM_THREADS, "1"),
        // A name that leads elsewhere costs Gloo its loopback connections.
        (variable::GLOO_SOCKET_IFNAME, "lo"),
        (variable::OMPI_ALLOW_RUN_AS_ROOT, "1"),
        (variable::OMPI_ALLOW_RUN_AS_ROOT_CONFIRM, "1"),
    ];
    let fixed = fixed.map(|(variable, value)| (variable.name().to_owned(), value.to_owned()));
    Ok(fixed.into_iter().chain(contender.environment.iter().cloned()).collect())
}

fn follow(member: usize, mut process: Process, events: &Sender<Event>) -> Member {
    let last_lines = LastLines::default();
    let (readers, reading) = channel();
    if let Some((stdout, stderr)) = process.take_output() {
        follow_output(stdout, last_lines.clone(), readers.clone());
        follow_output(stderr, last_lines.clone(), readers);
    }
    watch(member, process.pid(), events.clone());
    Member { process: Some(process), last_lines, reading, ending: None }
}

/// Reads one stream on a thread of its own, which lets `reader` go at the end.
fn follow_output(
    output: impl Read + Send + 'static,
    last_lines: LastLines,
    reader: Sender<Infallible>,
) {
    thread::spawn(move || {
        keep(output, &last_lines);
        drop(reader);
    });
}

/// Waits until every rank is as far as it goes by itself.
fn meet(team: &mut Team, ranks: usize, until: StartStage) -> Result<(), TeamError> {
    let deadline = Instant::now() + team.terms.limit;
    let mut connections: Vec<_> = (0..ranks).map(|_| None).collect();
    let mut ready = vec![false; ranks];
    while ready.contains(&false) {
        match team.receive(deadline)? {
            Event::Joined(rank, stream) => {
                // Without it a command would only come later.
                let _ = stream.set_nodelay(true);
                connections[rank] = Some(stream);
                ready[rank] |= until == StartStage::Loaded;
            }
            Event::Answer(rank, Answer::Ready { versions }) => {
                ready[rank] = true;
                team.versions.extend(versions);
            }
            Event::Answer(rank, Answer::Failed { why }) => {
                return Err(team.rank_failed(rank, &why));
            }
            Event::Answer(rank, answer) => {
                return Err(team.failed(&format!("rank {rank} answers unasked: {answer:?}")));
            }
            Event::Broken(rank, why) => return Err(team.gone(rank, &why)),
            Event::Ended(member, ending) => return Err(team.ended(member, ending)),
        }
    }
    team.connections = connections.into_iter().flatten().collect();
    Ok(())
}
