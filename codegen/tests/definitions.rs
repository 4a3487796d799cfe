//! Every definition of the IDL is in the crate, or marked as absent there, and a test exercises it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use polyrank_codegen::definitions::{
    self, Definition, Kind, LIST, TestSource, absent_in_rust, definitions, find_tests,
};
use polyrank_codegen::model::Api;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The model of the repository's IDL.
fn api() -> Api {
    let files = fs::read_dir(root().join("idl")).unwrap().map(|entry| entry.unwrap().path());
    let idl = files.filter(|path| path.extension().is_some_and(|it| it == "webidl"));
    let named = |path: PathBuf| {
        let name = format!("idl/{}", path.file_name().unwrap().to_string_lossy());
        (name, fs::read_to_string(path).unwrap())
    };
    polyrank_codegen::read(idl.map(named).collect()).unwrap()
}

/// Whether no test can name it, but what it consists of.
fn is_named_by_parts(definition: &serde_json::Value) -> bool {
    definition["kind"] == "texts" || definition["kind"] == "result"
}

/// The generated list.
fn listed() -> Vec<serde_json::Value> {
    serde_json::from_str(&fs::read_to_string(root().join(LIST)).unwrap()).unwrap()
}

fn names(all: &[&Definition]) -> Vec<String> {
    all.iter().map(|it| it.name.clone()).collect()
}

#[test]
fn the_list_has_every_definition() {
    let all = definitions(&api());
    let listed: Vec<String> =
        listed().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(listed, names(&all.iter().collect::<Vec<_>>()));
    let known = |name: &str| all.iter().find(|it| it.name == name).unwrap();
    assert_eq!(known("ProcessGroup.allreduce").kind, Kind::Method);
    assert_eq!(known("AllreduceOptions.reduce_op").kind, Kind::Option);
    assert_eq!(known("RankFailed.rank").rust.as_deref(), Some("Error::RankFailed::rank"));
    assert_eq!(known("WorkResult.TIMEOUT").rust.as_deref(), Some("WorkResult::Timeout"));
    assert_eq!(known("TCPStore.constructor").node.as_deref(), Some("TCPStore.connect"));
    assert_eq!(known("Future").browser, None);
}

#[test]
fn the_crate_has_every_definition_that_is_not_marked_as_absent() {
    let lists = ["core", "core/quorum", "core/replicas"];
    let list = |folder| fs::read_to_string(root().join(folder).join("public-api.txt")).unwrap();
    let public = lists.map(list).concat();
    let all = definitions(&api());
    assert_eq!(names(&absent_in_rust(&all, &public)), [""; 0], "NotIn=rust marks what is absent");
    // What is not there is found.
    let without = public.replace("Work::wait(", "Work::wait_for(");
    assert_eq!(names(&absent_in_rust(&all, &without)), ["Work.wait"]);
}

#[test]
fn a_test_exercises_every_definition() {
    let all = listed();
    let alone = all.iter().filter(|it| it["test"].is_null() && !is_named_by_parts(it));
    let alone: Vec<&str> = alone.map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(alone, [""; 0], "no test names these: write one");
    for test in all.iter().filter_map(|it| it["test"].as_str()) {
        let file = test.split(": ").next().unwrap();
        assert!(root().join(file).is_file(), "{test}: `cargo xtask codegen` finds another one");
    }
}

#[test]
fn a_test_is_found_by_how_it_names_a_definition() {
    let api = api();
    let source = |path: &str, text: &str| TestSource { path: path.into(), text: text.into() };
    let python = "import x\n\ndef test_first():\n    work.wait()\n\ndef test_timeouts():\n    \
                  BarrierOptions(device_ids=[0]).timeout = 3\n    group.get_backend('cpu')\n";
    let rust =
        "#[test]\nfn a_rank() {\n    assert!(matches!(e, Error::RankFailed { rank: 3, .. }));\n}\n";
    let script = "test(\"a call\", async () => {\n  await allReduce(tensor);\n});\n";
    let sources = [source("a.py", python), source("b.rs", rust), source("c.test.js", script)];
    let mut all = definitions(&api);
    find_tests(&mut all, &sources);
    let test_of = |name: &str| {
        let known = all.iter().find(|it| it.name == name).unwrap();
        known.test.clone().unwrap_or_default()
    };
    assert_eq!(test_of("Work.wait"), "a.py: test_first");
    assert_eq!(test_of("BarrierOptions.device_ids"), "a.py: test_timeouts");
    assert_eq!(test_of("RankFailed.rank"), "b.rs: a_rank");
    assert_eq!(test_of("all_reduce"), "c.test.js: a call");
    // A method of this name is no test of the function, nor a word in another error's test.
    assert_eq!(test_of("get_backend"), "");
    assert_eq!(test_of("ProcessGroup.get_backend"), "a.py: test_timeouts");
    assert_eq!(test_of("MonitoredBarrier.rank"), "");
    let page = &definitions::files(&api, &sources)["site/reference/features.md"];
    let row = "| `Work.wait` | `Work::wait` | `Work.wait` | `Work.wait` | `Work.wait` | \
               `a.py`: test_first |";
    assert!(page.contains(row), "{page}");
}
