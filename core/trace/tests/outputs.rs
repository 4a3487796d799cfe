//! What is made of a job for other programs: drawings, trace events, PyTorch's layout, JSON.
//! Checked by what is in them; the command's suite parses the same with parsers of others.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod world;

use std::collections::{BTreeMap, BTreeSet};

use polyrank_trace::{Job, Selection, read};
use serde_json::{Value, json};
use world::{Call, MS, World, collective, message, step};

fn job_of(value: &Value) -> Job {
    Job::new(vec![read("dump.json", &value.to_string()).unwrap()]).unwrap()
}

/// Four ranks with a thousand operations each, of which the last hangs.
fn long() -> World {
    let calls: Vec<Call> = (0..334).flat_map(|_| step()).take(1000).collect();
    let mut world = World::new(4, &calls);
    world.calls[2].pop();
    world
}

/// Eight operations at a time, and messages.
fn overlapping() -> World {
    let mut calls = step();
    for line in 0..8 {
        calls.push(Call { waits: false, before_ns: 10, ..collective(0, "allreduce", 50 + line) });
    }
    let mut world = World::new(3, &calls);
    world.calls[2][5].before_ns = 5 * MS;
    world.calls[0].push(message(0, 0, 1, true));
    world.calls[1].push(message(0, 0, 1, false));
    world
}

#[test]
fn every_operation_is_in_the_drawing_and_those_that_hang_are_marked() {
    let job = job_of(&long().gathered(&[]));
    let svg = job.svg(&Selection::default());
    assert_eq!(svg.matches("<title>").count(), 3 * 1000 + 999);
    // One in the legend.
    assert_eq!(svg.matches("class=\"wait\"").count(), 3 + 1, "those that have not ended");
    assert_eq!(svg.matches("class=\"hang\"").count(), 3 + 1);
    for words in [">rank 3<", ">allreduce<", ">barrier<", "of waiting, shortened", "then 12 s"] {
        assert!(svg.contains(words), "{words}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    let few = job.svg(&Selection { ranks: vec![1], last: Some(20), ..Selection::default() });
    assert_eq!(few.matches("<title>").count(), 20);
    assert!(!few.contains(">rank 3<"));
}

#[test]
fn names_of_the_user_are_in_words_drawings_and_trace_events() {
    let mut dumps = World::new(2, &step()).dumps();
    for dump in &mut dumps {
        for entry in dump["entries"].as_array_mut().unwrap() {
            entry["comm_name"] = "layer 1".into();
        }
        dump["entries"].as_array_mut().unwrap().truncate(1);
        dump["entries"][0]["state"] = "started".into();
        dump["entries"][0]["time_discovered_completed_ns"] = Value::Null;
        dump["entries"][0]["retired"] = false.into();
    }
    let files = dumps.iter().map(|dump| read("dump.json", &dump.to_string()).unwrap());
    let job = Job::new(files.collect()).unwrap();
    let named = "allreduce #0 (\"layer 1\") of default_pg";
    let report = job.report(&Selection::default());
    assert!(report.contains(named), "{report}");
    let svg = job.svg(&Selection::default());
    assert!(svg.contains("layer 1"), "{svg}");
    let events = job.perfetto(&Selection::default()).to_string();
    assert!(events.contains(&named.replace('"', "\\\"")), "{events}");
}

#[test]
fn a_rank_without_a_file_has_its_row() {
    let job = job_of(&World::new(3, &step()).gathered(&[1]));
    let svg = job.svg(&Selection::default());
    assert!(svg.contains(">rank 1<") && svg.contains(">no file<"));
}

#[test]
fn names_cannot_break_the_drawing() {
    let mut dump = World::new(1, &step()).dumps().remove(0);
    dump["entries"][0]["name"] = "</title><script>&\u{1b}[2J\u{202e}".into();
    dump["run_id"] = "\"<&>\u{0}\u{ffff}".into();
    let job = job_of(&dump);
    for text in [job.svg(&Selection::default()), job.report(&Selection::default())] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{0}') && !text.contains('\u{202e}'));
    }
    let svg = job.svg(&Selection::default());
    assert!(!svg.contains("<script>") && !svg.contains('\u{ffff}'));
}

#[test]
fn trace_events_do_not_overlap_within_a_thread() {
    for world in [overlapping(), long()] {
        let trace = job_of(&world.gathered(&[])).perfetto(&Selection::default());
        let events = trace["traceEvents"].as_array().unwrap();
        let mut threads: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
        for event in events.iter().filter(|event| event["ph"] == "X") {
            let key = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
            let (ts, dur) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
            assert!(ts >= 0.0 && dur >= 0.0, "{event}");
            threads.entry(key).or_default().push((ts, ts + dur));
        }
        let count: usize = threads.values().map(Vec::len).sum();
        assert_eq!(count, world.calls.iter().map(Vec::len).sum::<usize>());
        for (thread, mut spans) in threads {
            spans.sort_by(|a, b| a.partial_cmp(b).unwrap());
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-6), "{thread:?}");
        }
    }
}

#[test]
fn an_arrow_goes_from_the_first_call_of_a_collective_to_each_other() {
    let world = overlapping();
    let trace = job_of(&world.gathered(&[])).perfetto(&Selection::default());
    let events = trace["traceEvents"].as_array().unwrap();
    let mut arrows: BTreeMap<u64, Vec<(&str, u64)>> = BTreeMap::new();
    for event in events {
        let phase = event["ph"].as_str().unwrap();
        if ["s", "t", "f"].contains(&phase) {
            let id = event["id"].as_u64().unwrap();
            arrows.entry(id).or_default().push((phase, event["pid"].as_u64().unwrap()));
        }
    }
    assert_eq!(arrows.len(), 3 + 8);
    for arrow in arrows.values() {
        let phases: Vec<&str> = arrow.iter().map(|(phase, _)| *phase).collect();
        assert_eq!(phases, ["s", "t", "f"]);
        let ranks: BTreeSet<u64> = arrow.iter().map(|(_, process)| *process).collect();
        assert_eq!(ranks, BTreeSet::from([1, 2, 3]));
    }
    let names: BTreeSet<&str> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert!(names.contains("default_pg"), "{names:?}");
    assert!(names.contains("default_pg (at the same time, 2)"), "{names:?}");
}

#[test]
fn the_report_shows_what_is_chosen_and_finds_in_all() {
    let job = job_of(&long().gathered(&[]));
    let chosen = Selection { ranks: vec![2], last: Some(3), ..Selection::default() };
    let report = job.report(&chosen);
    assert!(report.contains("wait in allreduce #999 of default_pg for rank 2"), "{report}");
    let rows = report.lines().filter(|line| line.contains("ended after")).count();
    assert_eq!(rows, 3, "{report}");
    assert!(!report.contains("\n  rank 0  "), "{report}");
    let data = job.report_json(&chosen);
    assert_eq!(data["ok"], false);
    assert_eq!(data["findings"][0]["kind"], "hang");
    assert_eq!(data["findings"][0]["ranks"], json!([2]));
    assert_eq!(data["findings"][0]["sequence"], 999);
    assert_eq!(data["ranks"].as_array().unwrap().len(), 1);
    assert_eq!(data["ranks"][0]["last"].as_array().unwrap().len(), 3);
}

#[test]
fn what_has_ended_at_a_time_that_was_not_noted_has_no_duration() {
    let mut gathered = long().gathered(&[]);
    let entries = gathered["ranks"][1]["entries"].as_array_mut().unwrap();
    let ended = entries.iter_mut().rfind(|entry| entry["state"] == "completed").unwrap();
    ended["time_discovered_completed_ns"] = Value::Null;
    let chosen = Selection { ranks: vec![1], last: Some(3), ..Selection::default() };
    let report = job_of(&gathered).report(&chosen);
    assert_eq!(report.lines().filter(|line| line.contains("  ended  ")).count(), 1, "{report}");
}

#[test]
fn recordings_for_pytorch_pair_what_belongs_together() {
    let mut gathered = overlapping().gathered(&[]);
    // One recorder has forgotten its first two.
    gathered["ranks"][1]["entries"].as_array_mut().unwrap().drain(..2);
    // One has an operation that PyTorch has not.
    gathered["ranks"][2]["entries"][4]["profiling_name"] = "polyrank:ppermute".into();
    let recordings = job_of(&gathered).flight_recordings();
    let first = |at: usize| recordings[at].entries[0].collective_seq_id;
    assert_eq!([first(0), first(1), first(2)], [2, 2, 2]);
    assert_eq!([0, 1, 2].map(|at: usize| recordings[at].left_out), [0, 0, 1]);
    let message = |at: usize| recordings[at].entries.last().unwrap();
    assert_eq!(message(0).profiling_name, "c10d:send 0->1");
    assert_eq!(message(1).profiling_name, "c10d:recv 1<-0");
    assert_eq!(message(0).process_group, message(1).process_group);
    let config = &recordings[0].pg_config[&message(0).process_group.0];
    assert_eq!(config.ranks, "[0, 1]");
    for recording in &recordings {
        for (entry, number) in recording.entries.iter().zip(0..) {
            assert_eq!(entry.record_id, number);
            assert!(recording.pg_config.contains_key(&entry.process_group.0));
        }
    }
}
