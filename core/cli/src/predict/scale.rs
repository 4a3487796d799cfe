//! `polyrank predict --run`: what algorithms do with more and more ranks, run, beside what
//! their figures say. Knows nothing of executors.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::arguments::Question;
use super::rehearsal::{Rehearsal, TrafficCount};
use super::show;
use crate::sizes;
use polyrank::clock::Instant;
use polyrank::schedule::cost::Traffic;
use polyrank::schedule::select::{CallSize, Overrides, Selector};
use polyrank::schedule::{Algorithm, Topology};

/// The fewest ranks of a series.
const MIN_RANKS: u32 = 16;
/// How often a run says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

/// Says on stderr how far a run is, once in a while.
struct Progress {
    last: Instant,
    /// What is run.
    what: String,
    /// How many were run before.
    done: usize,
}

impl Progress {
    /// Of what is run, so many ranks have ended.
    fn tell(&mut self, ended: usize) {
        if self.last.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.last = Instant::now();
        let (what, done) = (&self.what, self.done);
        super::say(&format!("{what}: {ended} have ended; {done} others are done"));
    }
}

/// One algorithm with one number of ranks.
struct Row {
    algorithm: &'static Algorithm,
    /// Whether polyrank would pick it.
    is_chosen: bool,
    ranks: u32,
    hosts: u32,
    /// What the figures of the algorithm say.
    says: Traffic,
    /// The size of the whole.
    bytes: u64,
    counted: Result<TrafficCount, String>,
}

/// Runs all algorithms that the question names, shows what was counted on `out` as it comes
/// or as JSON at the end; the exit code.
pub(super) fn run(question: &Question, is_json: bool, out: &mut impl Write) -> i32 {
    let algorithms: Vec<_> = question.usable().collect();
    let names = algorithms.iter().map(|(_, algorithm)| algorithm.name.len());
    let width = names.max().unwrap_or_default().max("algorithm".len());
    // If the pipe is closed, its reader has read enough: here and below.
    let mut show = |text: &str| {
        if !is_json {
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    };
    show(&header(question, width));
    let series = series(&question.on);
    let mut rows = Vec::new();
    let mut progress = Progress { last: Instant::now(), what: String::new(), done: 0 };
    for (index, algorithm) in algorithms {
        for on in &series {
            progress.what = format!("{} with {}", algorithm.name, sizes::ranks(on.size()));
            let row = Row::new(question, index, algorithm, on, &mut progress);
            progress.done += 1;
            show(&row.text(width));
            rows.push(row);
        }
    }
    let peak_bytes = peak_resident_bytes();
    show(&footer(peak_bytes));
    if is_json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        let answer = json!({
            "collective": question.collective.facts().name,
            "bytes": question.bytes,
            "runs": rows,
            "peak_resident_bytes": peak_bytes,
        });
        let _ = writeln!(out, "{answer:#}");
    }
    // What is too large to be run is said, and is not a failure unless nothing else is left.
    let done = rows.iter().filter_map(|row| row.counted.as_ref().ok());
    let wrong = done.clone().any(|counted| counted.wrong > 0);
    i32::from(wrong || done.count() == 0)
}

impl Row {
    fn new(
        question: &Question,
        index: usize,
        algorithm: &'static Algorithm,
        on: &Topology,
        progress: &mut Progress,
    ) -> Row {
        let rehearsal =
            Rehearsal { collective: question.collective, algorithm, on, bytes: question.bytes };
        let selector = Selector::new(on, &question.link_costs, Overrides::none());
        let bytes = rehearsal.whole_bytes();
        let known = CallSize { bytes: Some(bytes), equal_blocks: question.equal_blocks };
        Row {
            algorithm,
            is_chosen: selector.choose(question.collective, known) == index,
            ranks: on.size(),
            hosts: on.hosts(),
            says: (algorithm.load)(on).total(),
            bytes,
            counted: rehearsal.run(&mut |ended| progress.tell(ended)),
        }
    }

    fn text(&self, width: usize) -> String {
        let star = if self.is_chosen { '*' } else { ' ' };
        let start = format!("{star} {:width$}  {:>6}", self.algorithm.name, self.ranks);
        let counted = match &self.counted {
            Ok(counted) => counted,
            Err(why) => return format!("{start}  not run: {why}\n"),
        };
        format!(
            "{start}  {:>6} {:>6}  {:>8} {:>6}  {:>10} {:>10}  {:>11}  {:>10}  {:>6}  {:>10}\n",
            counted.rounds,
            self.says.rounds,
            counted.messages,
            self.says.messages,
            show::bytes(counted.bytes as f64),
            show::bytes(self.says_bytes()),
            counted.connections,
            show::bytes(counted.memory_bytes as f64),
            counted.wrong,
            show::time(counted.took.as_secs_f64()),
        )
    }

    fn says_bytes(&self) -> f64 {
        self.says.bytes * self.bytes as f64
    }

    fn json(&self) -> Value {
        let mut row = json!({
            "algorithm": self.algorithm.name,
            "chosen": self.is_chosen,
            "ranks": self.ranks,
            "hosts": self.hosts,
            "bytes": self.bytes,
            "predicted": {
                "rounds": self.says.rounds,
                "messages_per_rank": self.says.messages,
                "bytes_per_rank": self.says_bytes(),
            },
        });
        match &self.counted {
            Err(why) => row["not_carried_out"] = json!(why),
            Ok(counted) => {
                row["counted"] = json!({
                    "rounds": counted.rounds,
                    "messages_per_rank": counted.messages,
                    "bytes_per_rank": counted.bytes,
                    "frames_per_rank": counted.frames,
                    "connections_per_rank": counted.connections,
                    "memory_bytes_per_rank": counted.memory_bytes,
                    "wrong": counted.wrong,
                    "seconds": counted.took.as_secs_f64(),
                });
            }
        }
        row
    }
}

fn header(question: &Question, width: usize) -> String {
    format!(
        "{}, run by the executor of every rank, in one process, over an imagined \
         network\n\n  {:width$}  {:>6}  {:>6} {:>6}  {:>8} {:>6}  {:>10} {:>10}  {:>11}  {:>10}  \
         {:>6}  {:>10}\n",
        show::what(question),
        "algorithm",
        "ranks",
        "rounds",
        "say",
        "messages",
        "say",
        "bytes",
        "say",
        "connections",
        "memory",
        "#wrong",
        "took",
    )
}

fn footer(peak_bytes: Option<u64>) -> String {
    let mut text =
        "\n  * what polyrank picks. TrafficCount, and what the figures of the algorithm say: \
                    messages one after\n  the other, and the most that one rank sends or gets. \
                    memory: what a rank keeps of its peers and\n  schedules, besides its buffers.\n"
            .to_owned();
    if let Some(bytes) = peak_bytes {
        text += &format!("  All ranks together had {} at most.\n", show::bytes(bytes as f64));
    }
    text
}

/// Ever more ranks, four times as many each time, up to all of them; as many on each host.
fn series(on: &Topology) -> Vec<Topology> {
    let mut series = Vec::new();
    let (mut ranks, mut hosts) = (on.size(), on.hosts());
    loop {
        series.push(match hosts {
            1 => Topology::one_host(ranks),
            _ => Topology::blocks(hosts, on.most()),
        });
        (ranks, hosts) = if on.hosts() == 1 { (ranks / 4, 1) } else { (ranks / 4, hosts / 4) };
        if ranks < MIN_RANKS || hosts == 0 || on.hosts() > 1 && hosts < 2 {
            break;
        }
    }
    series.reverse();
    series
}

/// The most memory that this process ever had, where the system reports it.
fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}
