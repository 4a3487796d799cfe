//! The job as trace events, which ui.perfetto.dev and chrome://tracing open: a process for each
//! rank, a thread for each group, more threads where its operations overlap, and arrows from a
//! collective's first call to the others. Knows no finding.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::dump::{Dump, Entry};
use crate::job::Job;
use crate::lanes::lanes;
use crate::selection::Selection;
use crate::words;

/// Threads of one group within a rank: more lanes than these are numbered on into the next group's.
const LANES: usize = 1000;

/// An operation of a rank, placed.
struct Slice<'a> {
    dump: &'a Dump,
    group: usize,
    thread: usize,
    entry: &'a Entry,
    start: i64,
}

impl Job {
    /// The events, as a whole file's JSON.
    #[must_use]
    pub fn perfetto(&self, selection: &Selection) -> Value {
        let (first, _) = self.span();
        let mut events = Vec::new();
        let mut collectives: BTreeMap<(usize, u64), Vec<Slice<'_>>> = BTreeMap::new();
        for dump in self.dumps.iter().filter(|dump| selection.has_rank(dump.rank)) {
            let place = [dump.hostname.clone(), dump.pid.map(|pid| format!("pid {pid}"))];
            let place: Vec<String> = place.into_iter().flatten().collect();
            let name = match place.is_empty() {
                true => format!("rank {}", dump.rank),
                false => format!("rank {} ({})", dump.rank, place.join(", ")),
            };
            events.push(named("process_name", dump, 0, &name));
            events.push(json!({
                "ph": "M", "name": "process_sort_index", "pid": process(dump), "tid": 0,
                "args": { "sort_index": dump.rank },
            }));
            let mut groups: BTreeMap<usize, Vec<&Entry>> = BTreeMap::new();
            for (group, entry) in selection.entries(self, dump) {
                groups.entry(group).or_default().push(entry);
            }
            for (group, mut entries) in groups {
                entries.sort_by_key(|entry| entry.created_ns);
                let span = |entry: &&Entry| (entry.created_ns, entry.end_ns(dump));
                let spans: Vec<_> = entries.iter().map(span).collect();
                let (lane_of, count) = lanes(&spans);
                for lane in 0..count {
                    let title = &self.groups[group].title;
                    let name = if lane == 0 {
                        title.clone()
                    } else {
                        format!("{title} (at the same time, {})", lane + 1)
                    };
                    events.push(named("thread_name", dump, thread(group, lane), &name));
                }
                for (entry, lane) in entries.into_iter().zip(lane_of) {
                    let start = entry.created_ns - first;
                    let slice = Slice { dump, group, thread: thread(group, lane), entry, start };
                    events.push(self.slice(&slice));
                    if entry.message.is_none() {
                        collectives.entry((group, entry.sequence)).or_default().push(slice);
                    }
                }
            }
        }
        for (id, slices) in collectives.into_values().enumerate() {
            arrows(id, slices, &mut events);
        }
        json!({ "traceEvents": events, "displayTimeUnit": "ns" })
    }

    fn slice(&self, slice: &Slice<'_>) -> Value {
        let Slice { dump, group, thread, entry, start } = slice;
        let title = &self.groups[*group].title;
        let mut args = Map::new();
        let mut add = |name: &str, value: Value| args.insert(name.to_owned(), value);
        add("group", json!(title));
        add("state", json!(entry.state.name()));
        if entry.message.is_none() {
            add("number", json!(entry.sequence));
        }
        let known = [
            ("error", entry.failed.as_ref().map(|text| json!(text))),
            ("name", entry.label.as_ref().map(|text| json!(text))),
            ("bytes", entry.bytes.map(|bytes| json!(bytes))),
            ("reduction", entry.reduce_op.as_ref().map(|op| json!(op))),
            ("root", entry.root.map(|root| json!(root))),
            ("tag", entry.tag.map(|tag| json!(tag))),
            ("started_us", entry.started_ns.map(|at| json!(us(at - entry.created_ns)))),
            ("called_at", words::place(entry).map(|place| json!(place))),
        ];
        for (name, value) in known {
            if let Some(value) = value {
                add(name, value);
            }
        }
        if !entry.waits_for.is_empty() {
            add("waits_for", json!(entry.waits_for));
        }
        let mut event = json!({
            "ph": "X",
            "name": words::operation(entry, title),
            "cat": entry.operation,
            "pid": process(dump),
            "tid": thread,
            "ts": us(*start),
            "dur": us(entry.end_ns(dump) - entry.created_ns),
            "args": args,
        });
        if !entry.is_done() {
            event["cname"] = json!("terrible");
        }
        event
    }
}

/// From the first call of a collective to each of the others, in the order in which they came.
fn arrows(id: usize, mut slices: Vec<Slice<'_>>, events: &mut Vec<Value>) {
    if slices.len() < 2 {
        return;
    }
    slices.sort_by_key(|slice| (slice.start, slice.dump.rank));
    let last = slices.len() - 1;
    for (at, slice) in slices.iter().enumerate() {
        let phase = match at {
            0 => "s",
            at if at == last => "f",
            _ => "t",
        };
        let mut event = json!({
            "ph": phase,
            "id": id + 1,
            "name": "same collective",
            "cat": "collective",
            "pid": process(slice.dump),
            "tid": slice.thread,
            "ts": us(slice.start),
        });
        if phase == "f" {
            event["bp"] = json!("e");
        }
        events.push(event);
    }
}

fn named(what: &str, dump: &Dump, thread: usize, name: &str) -> Value {
    json!({
        "ph": "M", "name": what, "pid": process(dump), "tid": thread, "args": { "name": name },
    })
}

/// Processes and threads of number 0 are the idle ones to these programs.
fn process(dump: &Dump) -> u32 {
    dump.rank + 1
}

fn thread(group: usize, lane: usize) -> usize {
    group * LANES + lane + 1
}

fn us(ns: i64) -> f64 {
    ns as f64 / 1e3
}
