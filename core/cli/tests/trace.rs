//! `polyrank trace` as a user has it: words, JSON, drawings, and files for other programs, each
//! read by a parser that is not ours (Python's standard library, and PyTorch's analyser).

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../trace/tests/world/mod.rs"]
mod world;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use world::{Call, World, collective, message, step};

fn trace(words: &[&str], files: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
    command.arg("trace").args(words).args(files).stdin(Stdio::null());
    command.output().unwrap()
}

fn said(words: &[&str], files: &[&Path]) -> String {
    let output = trace(words, files);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A world that hangs: rank 2 is in a broadcast instead.
fn hang() -> World {
    let calls: Vec<Call> = (0..17).map(|_| collective(0, "allreduce", 40)).collect();
    let mut world = World::new(4, &[calls, vec![collective(0, "allreduce", 40)]].concat());
    world.calls[2].pop();
    world.calls[2].push(collective(0, "broadcast", 41));
    world
}

/// A world in which operations overlap, and ranks send.
fn mixed() -> World {
    let mut calls = step();
    calls.push(collective(0, "allgather", 50));
    calls.push(collective(0, "alltoall_base", 51));
    calls.extend((0..8).map(|_| Call { waits: false, ..collective(0, "allreduce", 52) }));
    calls.push(collective(0, "barrier", 53));
    let mut world = World::new(3, &calls);
    world.groups.push(("pair", vec![2, 0]));
    for rank in [0, 2] {
        world.calls[rank].push(collective(1, "broadcast", 54));
    }
    world.calls[0].push(message(0, 0, 1, true));
    world.calls[1].push(message(0, 0, 1, false));
    world
}

fn write(folder: &Path, name: &str, value: &Value) {
    std::fs::write(folder.join(name), value.to_string()).unwrap();
}

fn python(script: &str, arguments: &[&Path]) -> Output {
    let python = std::env::var_os("POLYRANK_PYTHON").unwrap_or_else(|| "python3".into());
    Command::new(python).arg("-c").arg(script).args(arguments).output().unwrap()
}

/// What a script prints, as JSON.
fn printed(script: &str, arguments: &[&Path]) -> Value {
    let output = python(script, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_hang_is_told_in_words_and_as_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.json");
    write(folder.path(), "dump.json", &hang().gathered(&[]));
    let words = said(&[], &[&file]);
    let lines = [
        "run run-1: 4 ranks, files of all; 1 group, 18 collectives in",
        "written by ranks 0, 1, 2 and 3: the signal SIGUSR1",
        "Ranks 0, 1 and 3 are in allreduce #17 of default_pg, and rank 2 is in broadcast #17",
        "ranks 0, 1 and 3 are in allreduce #17 of default_pg (train.py:40 in step)",
        "rank 2 is in broadcast #17 of default_pg (train.py:41 in step)",
    ];
    for line in lines {
        assert!(words.contains(line), "{line}: {words}");
    }
    let data: Value = serde_json::from_str(&said(&["--json"], &[&file])).unwrap();
    assert_eq!(data["findings"][0]["kind"], "mismatch");
    assert_eq!(data["findings"][0]["ranks"], json!([2]));
    assert_eq!(data["findings"][0]["sequence"], 17);
}

#[test]
fn single_files_and_folders_are_one_job() {
    let folder = tempfile::tempdir().unwrap();
    let dumps = hang().dumps();
    for (rank, dump) in dumps.iter().enumerate() {
        write(folder.path(), &format!("rank_{rank}.json"), dump);
    }
    std::fs::write(folder.path().join("notes.txt"), "no dump").unwrap();
    let by_folder = said(&[], &[folder.path()]);
    let files: Vec<_> =
        (0..4).map(|rank| folder.path().join(format!("rank_{rank}.json"))).collect();
    let paths: Vec<&Path> = files.iter().map(|path| path.as_path()).collect();
    assert_eq!(by_folder, said(&[], &paths));
    let of_three = said(&[], &paths[..3]);
    assert!(of_three.contains("files of 3, none of rank 3"), "{of_three}");
}

#[test]
fn what_cannot_be_read_ends_with_1_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let whole = hang().gathered(&[]);
    let cut = folder.path().join("cut.json");
    std::fs::write(&cut, &whole.to_string()[..500]).unwrap();
    let binary = folder.path().join("binary");
    std::fs::write(&binary, [0xff, 0xfe, 0]).unwrap();
    let good = folder.path().join("good");
    std::fs::write(&good, whole.to_string()).unwrap();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let missing = folder.path().join("missing.json");
    let nowhere = folder.path().join("no/where.svg").display().to_string();
    let tries: [(&[&str], &Path, &str); 7] = [
        (&[], &cut, "cut.json is not a whole JSON file"),
        (&[], &binary, "binary is not text"),
        (&[], &empty, "has no file whose name ends with .json"),
        (&[], &missing, "cannot read"),
        (&["--rank", "4"], &good, "--rank 4: the job has 4 ranks"),
        (&["--group", "dp"], &good, "--group dp: expected one of default_pg"),
        (&["--svg", &nowhere], &good, "cannot write"),
    ];
    for (words, path, why) in tries {
        let output = trace(words, &[path]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with("polyrank trace: ") && error.contains(why), "{error}");
    }
    assert_eq!(trace(&[], &[]).status.code(), Some(2));
}

#[test]
fn drawings_and_trace_events_are_what_other_parsers_read() {
    let folder = tempfile::tempdir().unwrap();
    for (name, world) in [("hang", hang()), ("mixed", mixed())] {
        let file = folder.path().join(format!("{name}.json"));
        write(folder.path(), &format!("{name}.json"), &world.gathered(&[]));
        let svg = folder.path().join(format!("{name}.svg"));
        let events = folder.path().join(format!("{name}.events"));
        let (to_svg, to_events) = (svg.display().to_string(), events.display().to_string());
        said(&["--svg", &to_svg, "--perfetto", &to_events], &[&file]);
        let script = "
import json, sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
titles = root.iter('{http://www.w3.org/2000/svg}title')
events = json.load(open(sys.argv[2]))['traceEvents']
phases = [event['ph'] for event in events]
json.dump([root.tag, len(list(titles)), phases.count('X'), phases.count('s')], sys.stdout)";
        let operations: usize = world.calls.iter().map(Vec::len).sum();
        let mut numbers = world.calls.iter().map(Vec::len).max().unwrap();
        // The message has no arrow.
        numbers -= usize::from(name == "mixed");
        let expected = json!(["{http://www.w3.org/2000/svg}svg", operations, operations, numbers]);
        assert_eq!(printed(script, &[&svg, &events]), expected, "{name}");
    }
}

const LOAD: &str = "
import json, pathlib, pickle, sys
files = sorted(pathlib.Path(sys.argv[1]).iterdir())
json.dump({file.name: pickle.load(file.open('rb')) for file in files}, sys.stdout)";

#[test]
fn python_unpickles_what_is_written_for_fr_trace() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.json");
    write(folder.path(), "dump.json", &mixed().gathered(&[]));
    let pickles = folder.path().join("torch");
    let to = pickles.display().to_string();
    said(&["--fr-trace", &to], &[&file]);
    let loaded = printed(LOAD, &[&pickles]);
    let names: Vec<&String> = loaded.as_object().unwrap().keys().collect();
    assert_eq!(names, ["polyrank_0", "polyrank_1", "polyrank_2"]);
    let first = &loaded["polyrank_0"];
    assert_eq!(first["version"], "2.10");
    assert_eq!(first["pg_config"]["default_pg"]["ranks"], "[0, 1, 2]");
    assert_eq!(first["pg_config"]["pair"]["ranks"], "[0, 2]");
    let entry = &first["entries"][0];
    assert_eq!(entry["profiling_name"], "c10d:all_reduce");
    assert_eq!(entry["process_group"], json!(["default_pg", "default_pg"]));
    assert_eq!(entry["input_sizes"], json!([[1024]]));
    assert_eq!(entry["time_created_ns"], world::START_NS + world::MS);
    assert_eq!((&entry["retired"], &entry["is_p2p"]), (&json!(true), &json!(false)));
    assert_eq!(entry["duration_ms"], 0.05);
    assert_eq!(entry["frames"][0]["line"], 40);
}

/// With `FR_TRACE_PYTHON`, a Python that has PyTorch: what its analyser finds is what ours finds.
#[test]
fn fr_trace_of_pytorch_reads_them() {
    let Some(python) = std::env::var_os("FR_TRACE_PYTHON") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut late = World::new(3, &step());
    late.calls[1].pop();
    let tries: [(&str, World, &[&str]); 4] = [
        ("clean", World::new(3, &[step(), step()].concat()), &[]),
        ("mixed", mixed(), &[]),
        ("mismatch", hang(), &["Culprit rank 2", "'all_reduce' does not match", "'broadcast'"]),
        ("hang", late, &["Not all ranks joining", "missing ranks: {1}"]),
    ];
    for (name, world, expected) in tries {
        let file = folder.path().join(format!("{name}.json"));
        write(folder.path(), &format!("{name}.json"), &world.gathered(&[]));
        let pickles = folder.path().join(name);
        let to = pickles.display().to_string();
        said(&["--fr-trace", &to], &[&file]);
        let mut command = Command::new(&python);
        command.args(["-m", "torch.distributed.flight_recorder.fr_trace"]).arg(&pickles);
        let output = command.output().unwrap();
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{name}: {all}");
        assert!(!all.contains("unrecognized"), "{name}: {all}");
        for words in expected {
            assert!(all.contains(words), "{name}: {words}: {all}");
        }
        let is_wrong = ["Culprit", "Not all ranks", "MISMATCH"].iter().any(|it| all.contains(it));
        assert_eq!(is_wrong, !expected.is_empty(), "{name}: {all}");
    }
}
