//! A rank of the benchmark in Rust: joins the group, then does what it is told until the benchmark
//! closes the connection. Knows nothing of the other ranks' languages or libraries.

mod buffers;
mod burst;
pub(super) mod common_start;
mod storage;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::library::{CallStyle, Memory};
use super::messages::{Answer, Case, Command, RunTimes};
use buffers::{Member, PreparedCase, prepare};
use common_start::CommonStart;
use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::env::variable::{self, Variable};
use polyrank::{DType, ProcessGroup};

/// The variable in which a rank finds what it needs to know, as JSON.
pub(super) const VARIABLE: Variable = variable::POLYRANK_BENCH;

/// What a rank of any library needs to know besides its number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Assignment {
    /// Where the benchmark listens.
    pub(super) control: SocketAddr,
    /// Proves to the benchmark that this rank is its own.
    pub(super) token: String,
    /// Which library it loads; of polyrank, the name of the package in its language.
    pub(super) library: String,
    pub(super) memory: Memory,
    pub(super) call_style: CallStyle,
    pub(super) ranks: u32,
    /// Where rank 0 serves the rendezvous.
    pub(super) port: u16,
    pub(super) timeout_s: u64,
    /// Whether it joins on a command, instead of immediately.
    pub(super) joins_on_command: bool,
    /// The file through which ranks agree on when to start; none where only joining is measured.
    pub(super) starts: Option<PathBuf>,
    /// Whether there are more ranks than cores, so that one that waits makes room.
    pub(super) yields: bool,
    /// How many bytes after a cache line's beginning tensors begin.
    pub(super) offset_bytes: usize,
    /// The cores of the ranks, in turn; none: the system chooses.
    pub(super) pinned_cores: Vec<usize>,
}

/// Runs rank `rank`; the exit code.
pub(super) fn run(rank: u32) -> i32 {
    match serve(rank) {
        Ok(()) => 0,
        Err(why) => {
            // Nobody may read it, which is no reason to fail in another way.
            let _ = writeln!(std::io::stderr(), "{why}");
            1
        }
    }
}

fn serve(rank: u32) -> Result<(), String> {
    let assignment =
        VARIABLE.text().ok_or_else(|| "this command is for `polyrank bench` itself".to_owned())?;
    let assignment: Assignment = serde_json::from_str(&assignment).map_err(text)?;
    let mut control = Control::connect(&assignment)?;
    control.say(&Answer::Hello { rank, token: assignment.token.clone() })?;
    let result = serve_group(&mut control, &assignment, rank);
    if let Err(why) = &result {
        // The benchmark may be gone.
        let _ = control.say(&Answer::Failed { why: why.clone() });
    }
    result
}

fn serve_group(control: &mut Control, assignment: &Assignment, rank: u32) -> Result<(), String> {
    let baseline_bytes = memory_bytes();
    let mut start = common_start(assignment, rank)?;
    if assignment.joins_on_command && control.hear()? != Some(Command::Join) {
        return Ok(());
    }
    let group = match assignment.library.as_str() {
        "polyrank" => {
            let options = InitOptions::default()
                .init_method(format!("tcp://127.0.0.1:{}", assignment.port))
                .rank(rank)
                .world_size(assignment.ranks)
                .timeout(Duration::from_secs(assignment.timeout_s));
            Some(init_process_group(options).map_err(text)?)
        }
        _ => None,
    };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let versions = BTreeMap::from([("polyrank".to_owned(), version)]);
    control.say(&match &group {
        Some(group) if assignment.joins_on_command => {
            first_allreduce(group, assignment.ranks, versions)?
        }
        _ => Answer::Ready { versions },
    })?;
    let Assignment { ranks, memory, call_style, offset_bytes, .. } = *assignment;
    let member = Member { group: group.clone(), rank, ranks, memory, call_style, offset_bytes };
    let mut prepared: Vec<Box<dyn PreparedCase>> = Vec::new();
    while let Some(command) = control.hear()? {
        let answer = match (command, &mut start) {
            (Command::Bursts { iterations, lead_ns }, Some(start)) => {
                Answer::Bursts(burst::run(&mut prepared, iterations, lead_ns, start)?)
            }
            (Command::Empty { iterations, lead_ns }, Some(start)) => {
                Answer::Empty(burst::empty(iterations, lead_ns, start)?)
            }
            (command, _) => execute(command, &member, baseline_bytes, &mut prepared)?,
        };
        control.say(&answer)?;
    }
    // What it holds ends before its group does.
    drop((prepared, member));
    match group {
        Some(_) => destroy_process_group(None).map_err(text),
        None => Ok(()),
    }
}

/// This rank's side of the agreement on when to start.
fn common_start(assignment: &Assignment, rank: u32) -> Result<Option<CommonStart>, String> {
    let Assignment { ranks, yields, timeout_s, .. } = *assignment;
    let open = |path: &PathBuf| CommonStart::open(path, rank, ranks, yields, timeout_s);
    assignment.starts.as_ref().map(open).transpose()
}

/// Runs and times a new rank's first allreduce.
fn first_allreduce(
    group: &ProcessGroup,
    ranks: u32,
    versions: BTreeMap<String, String>,
) -> Result<Answer, String> {
    let member_s = monotonic_s();
    let mut sum = [1f32];
    group.allreduce(&mut sum, ()).map_err(text)?;
    let reduced_s = monotonic_s();
    match sum[0] == ranks as f32 {
        true => Ok(Answer::Joined { member_s, reduced_s, versions }),
        false => Err(format!("the first allreduce is wrong: {} of {ranks} ranks", sum[0])),
    }
}

/// Memory not backed by files: private pages plus this process's share of shared ones (PSS). `None`
/// where the system does not report it.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().split(' ').next()?.parse::<u64>().ok()
    };
    Some((kib("Pss_Anon:")? + kib("Pss_Shmem:")?) << 10)
}

/// The system's monotonic clock, which all processes of a host share.
pub(super) fn monotonic_s() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Runs `command`. `baseline_bytes` is the memory that the process had before it joined.
fn execute(
    command: Command,
    member: &Member,
    baseline_bytes: Option<u64>,
    prepared: &mut Vec<Box<dyn PreparedCase>>,
) -> Result<Answer, String> {
    if matches!(command, Command::Prepare(_) | Command::Memory) {
        // The buffers of the previous case are no longer needed.
        prepared.clear();
    }
    let nothing_prepared = || "nothing is prepared".to_owned();
    match command {
        Command::Join => Err("it has joined already".to_owned()),
        Command::Bursts { .. } | Command::Empty { .. } => {
            Err("it has no file to agree on a start".to_owned())
        }
        Command::Prepare(case) => {
            let Some(dtype) = DType::from_name(&case.dtype) else {
                return Ok(Answer::Unsupported { why: format!("no dtype {}", case.dtype) });
            };
            Ok(match copies(&case, dtype, member) {
                Ok(copies) => {
                    *prepared = copies;
                    Answer::Prepared
                }
                Err(why) => Answer::Unsupported { why },
            })
        }
        Command::Memory => {
            let both = memory_bytes().zip(baseline_bytes);
            Ok(Answer::Memory { bytes: both.map(|(now, before)| now.saturating_sub(before)) })
        }
        Command::Check => {
            let prepared = prepared.first_mut().ok_or_else(nothing_prepared)?;
            Ok(Answer::Checked { wrong: prepared.check().map_err(text)? })
        }
        Command::Run { iterations } => {
            let prepared = prepared.first_mut().ok_or_else(nothing_prepared)?;
            let RunTimes { seconds, cpu_seconds } = prepared.run(iterations).map_err(text)?;
            Ok(Answer::Ran { seconds, cpu_seconds })
        }
        Command::Each { iterations } => {
            let prepared = prepared.first_mut().ok_or_else(nothing_prepared)?;
            Ok(Answer::Each { seconds: prepared.each(iterations).map_err(text)? })
        }
    }
}

/// The buffers of a case, as often as it says.
fn copies(
    case: &Case,
    dtype: DType,
    member: &Member,
) -> Result<Vec<Box<dyn PreparedCase>>, String> {
    (0..case.copies.max(1)).map(|_| prepare(case, dtype, member)).collect()
}

/// The connection to the benchmark.
struct Control {
    reader: BufReader<TcpStream>,
}

impl Control {
    fn connect(assignment: &Assignment) -> Result<Control, String> {
        let stream = TcpStream::connect(assignment.control).map_err(text)?;
        stream.set_nodelay(true).map_err(text)?;
        Ok(Control { reader: BufReader::new(stream) })
    }

    fn say(&mut self, answer: &Answer) -> Result<(), String> {
        let mut line = serde_json::to_vec(answer).map_err(text)?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line).map_err(text)
    }

    /// The next command; none at the end.
    fn hear(&mut self) -> Result<Option<Command>, String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line).map_err(text)? {
            0 => Ok(None),
            _ => serde_json::from_str(&line).map(Some).map_err(text),
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
