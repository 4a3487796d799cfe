//! The job as PyTorch's `fr_trace` expects it: one recording a rank, whose fields are those of its
//! layout. Knows nothing of how they are written to files.
//!
//! `fr_trace` pairs operations by the name of their group and their number, and takes a group's
//! operations for those of all its members. So that it pairs ours:
//!
//! - groups are named by their keys, and what is the same group has the same name everywhere;
//! - messages of two ranks are a group of their own, numbered in their order;
//! - what was forgotten by one member is left out on all, and records are numbered anew;
//! - shapes are flattened, and sizes that differ between ranks by right are written alike;
//! - operations that it does not know are left out, and no backend is named, of which it knows few.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::dump::{Dump, Entry, Message};
use crate::job::Job;
use crate::messages::Tags;
use crate::words;

/// The version of the layout.
const VERSION: &str = "2.10";
/// What operations' names begin with. It warns of a backend that it does not know at each look at
/// each operation; this is what it expects of those that nobody could name.
const LIBRARY: &str = "c10d";

/// The collectives that `fr_trace` knows, as it calls them.
const KNOWN: [&str; 22] = [
    "_all_gather_base",
    "_reduce_scatter_base",
    "all_gather",
    "all_gather_into_tensor_coalesced",
    "all_gather_single",
    "all_gather_v",
    "all_reduce",
    "all_reduce_barrier",
    "all_to_all",
    "all_to_all_single",
    "all_to_all_v_single",
    "allgather_coalesced",
    "allreduce_coalesced",
    "barrier",
    "broadcast",
    "gather",
    "new_window",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_v",
    "scatter",
];

/// What one rank recorded, in PyTorch's layout.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FlightRecording {
    /// The version of the layout.
    pub version: &'static str,
    /// The rank; the file's name says it, too.
    #[serde(skip)]
    pub rank: u32,
    /// The groups, by their keys.
    pub pg_config: BTreeMap<String, RecordedGroup>,
    /// The operations.
    pub entries: Vec<RecordedEntry>,
    /// How many operations were left out, since PyTorch has none like them.
    #[serde(skip)]
    pub left_out: usize,
}

/// A group in PyTorch's layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecordedGroup {
    /// Its key.
    pub name: String,
    /// What people call it.
    pub desc: String,
    /// `[0, 1, 2]`
    pub ranks: String,
}

/// An operation in PyTorch's layout.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "PyTorch's names")]
pub struct RecordedEntry {
    pub record_id: u64,
    pub pg_id: u64,
    pub process_group: (String, String),
    pub collective_seq_id: u64,
    pub p2p_seq_id: u64,
    pub op_id: u64,
    pub profiling_name: String,
    pub time_created_ns: i64,
    pub duration_ms: Option<f64>,
    pub input_sizes: Vec<Vec<u64>>,
    pub input_dtypes: Vec<String>,
    pub output_sizes: Vec<Vec<u64>>,
    pub output_dtypes: Vec<String>,
    pub state: &'static str,
    pub time_discovered_started_ns: Option<i64>,
    pub time_discovered_completed_ns: Option<i64>,
    pub retired: bool,
    pub timeout_ms: u64,
    pub is_p2p: bool,
    pub frames: Vec<RecordedFrame>,
}

/// A place in a program, in PyTorch's layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "PyTorch's names")]
pub struct RecordedFrame {
    pub name: String,
    pub filename: String,
    pub line: u64,
}

/// How many messages went through each channel: group, sender, receiver, tag.
struct Channels<'a> {
    tags: &'a Tags,
    counts: BTreeMap<(usize, u32, u32, i64), u64>,
}

impl Job {
    /// One recording for each rank that has a dump.
    #[must_use]
    pub fn flight_recordings(&self) -> Vec<FlightRecording> {
        let starts: Vec<u64> =
            (0..self.groups.len()).map(|group| self.first_of_all(group)).collect();
        let tags = Tags::new(self);
        self.dumps.iter().map(|dump| self.recording(dump, &starts, &tags)).collect()
    }

    /// The first collective of a group that no member with a dump has forgotten.
    fn first_of_all(&self, group: usize) -> u64 {
        let mut firsts: BTreeMap<u32, u64> = BTreeMap::new();
        for operation in self.operations_of(group) {
            for rank in operation.calls.keys() {
                firsts.entry(*rank).or_insert(operation.sequence);
            }
        }
        firsts.values().max().copied().unwrap_or(0)
    }

    fn recording(&self, dump: &Dump, starts: &[u64], tags: &Tags) -> FlightRecording {
        let mut recording = FlightRecording {
            version: VERSION,
            rank: dump.rank,
            pg_config: BTreeMap::new(),
            entries: Vec::new(),
            left_out: 0,
        };
        for group in self.groups.iter().filter(|group| group.places.contains_key(&dump.rank)) {
            let (key, ranks) = (group.title.clone(), &group.ranks);
            let known = recorded_group(&key, &group.name, ranks);
            recording.pg_config.insert(key, known);
        }
        let mut channels = Channels { tags, counts: BTreeMap::new() };
        for entry in &dump.entries {
            let group = self.group_of(dump, entry);
            let recorded = match entry.message {
                Some(_) => self.message(dump, entry, group, &mut channels, &mut recording),
                None if entry.sequence < starts[group] => continue,
                None => self.collective(entry, group),
            };
            match recorded {
                None => recording.left_out += 1,
                Some(mut recorded) => {
                    recorded.record_id = recording.entries.len() as u64;
                    recording.entries.push(recorded);
                }
            }
        }
        recording
    }

    fn collective(&self, entry: &Entry, group: usize) -> Option<RecordedEntry> {
        let (operation, alike) = known_operation(&entry.operation)?;
        let group_key = self.groups[group].title.clone();
        let process_group = (group_key, self.groups[group].name.clone());
        let mut recorded = recorded(entry, group, process_group, &format!("{LIBRARY}:{operation}"));
        let (inputs, outputs) = (&mut recorded.input_sizes, &mut recorded.output_sizes);
        let (reads, writes) = (&mut recorded.input_dtypes, &mut recorded.output_dtypes);
        match alike {
            Alike::InPlace if inputs.is_empty() => {
                (*inputs, *reads) = (outputs.clone(), writes.clone())
            }
            Alike::InPlace => (*outputs, *writes) = (inputs.clone(), reads.clone()),
            Alike::Input => (*outputs, *writes) = (inputs.clone(), reads.clone()),
            Alike::Output => (*inputs, *reads) = (outputs.clone(), writes.clone()),
            Alike::AsTheyAre => {}
        }
        // It compares lists of shapes; some recorders know sizes alone.
        for sizes in [inputs, outputs].into_iter().filter(|_| operation != "barrier") {
            *sizes = flat(sizes);
        }
        Some(recorded)
    }

    /// A message, in the group of its two ranks; none if nobody can tell its other end.
    fn message(
        &self,
        dump: &Dump,
        entry: &Entry,
        group: usize,
        channels: &mut Channels<'_>,
        recording: &mut FlightRecording,
    ) -> Option<RecordedEntry> {
        let (from, to, is_send) = match entry.message? {
            Message::SendTo(peer) => (dump.rank, peer, true),
            Message::ReceiveFrom(peer) => (peer?, dump.rank, false),
        };
        let tag = channels.tags.of(group, dump, entry)?;
        if from == to {
            return None;
        }
        let number = channels.counts.entry((group, from, to, tag)).or_default();
        *number += 1;
        let title = &self.groups[group].title;
        let key = format!("{title}: {from}->{to}, tag {tag}");
        let mut ranks = [from, to];
        ranks.sort_unstable();
        let known = recorded_group(&key, &key, &ranks);
        recording.pg_config.entry(key.clone()).or_insert(known);
        let (sender, receiver) = (u32::from(from > to), u32::from(from < to));
        let name = if is_send {
            format!("{LIBRARY}:send {sender}->{receiver}")
        } else {
            format!("{LIBRARY}:recv {receiver}<-{sender}")
        };
        let mut recorded = recorded(entry, group, (key.clone(), key), &name);
        recorded.input_sizes = flat(&entry.input_sizes);
        recorded.output_sizes = flat(&entry.output_sizes);
        // Collectives and messages of one number are one operation to it, and so are messages.
        recorded.collective_seq_id = *number;
        recorded.p2p_seq_id = *number;
        recorded.is_p2p = true;
        Some(recorded)
    }
}

/// The elements of some tensors, as the shape of one.
fn flat(sizes: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let product = |shape: &Vec<u64>| shape.iter().fold(1u64, |all, n| all.wrapping_mul(*n));
    vec![vec![sizes.iter().map(product).fold(0, u64::wrapping_add)]]
}

/// Which sizes members have alike, though others may differ.
enum Alike {
    AsTheyAre,
    /// What is read is what is written.
    InPlace,
    Input,
    Output,
}

/// What PyTorch calls an operation; none if it has none like it.
fn known_operation(operation: &str) -> Option<(&'static str, Alike)> {
    let operation = words::canonical(operation);
    let known = *KNOWN.iter().find(|known| words::canonical(known) == operation)?;
    Some(match known {
        "all_reduce" | "reduce" | "broadcast" => (known, Alike::InPlace),
        "all_gather_v" => (known, Alike::Output),
        "reduce_scatter_v" => (known, Alike::Input),
        // Only of these does it add up the sizes of all ranks.
        "all_to_all_v_single" => ("all_to_all_single", Alike::AsTheyAre),
        _ => (known, Alike::AsTheyAre),
    })
}

fn recorded_group(key: &str, name: &str, ranks: &[u32]) -> RecordedGroup {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let (name, desc) = (key.to_owned(), name.to_owned());
    RecordedGroup { name, desc, ranks: format!("{sorted:?}") }
}

fn recorded(
    entry: &Entry,
    group: usize,
    process_group: (String, String),
    name: &str,
) -> RecordedEntry {
    let frame = |frame: &crate::dump::Frame| RecordedFrame {
        name: frame.name.clone(),
        filename: frame.filename.clone(),
        line: frame.line,
    };
    let took = entry.completed_ns.zip(entry.started_ns).map(|(end, start)| (end - start) as f64);
    RecordedEntry {
        record_id: entry.record_id,
        pg_id: group as u64,
        process_group,
        collective_seq_id: entry.sequence,
        p2p_seq_id: 0,
        op_id: entry.record_id,
        profiling_name: name.to_owned(),
        time_created_ns: entry.created_ns,
        duration_ms: took.map(|ns| ns / 1e6),
        input_sizes: entry.input_sizes.clone(),
        input_dtypes: entry.input_dtypes.clone(),
        output_sizes: entry.output_sizes.clone(),
        output_dtypes: entry.output_dtypes.clone(),
        // An operation that failed has not completed: that is what is looked for.
        state: if entry.failed.is_some() { "started" } else { entry.state.name() },
        time_discovered_started_ns: entry.started_ns,
        time_discovered_completed_ns: entry.completed_ns.filter(|_| entry.failed.is_none()),
        retired: entry.is_done(),
        timeout_ms: entry.timeout_ms.unwrap_or(0),
        is_p2p: false,
        frames: entry.frames.iter().map(frame).collect(),
    }
}
