//! `polyrank bench` with real ranks, in Rust: exit codes, the table, the files, and what happens
//! when something is missing or goes wrong. Times are not looked at.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn bench(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
    // As little as there can be: these tests are about what is said, not about how long it takes.
    command.arg("bench").args(words.split_whitespace());
    let is_set = words.contains("--iters");
    let iterations: &[&str] = if is_set { &[] } else { &["--iters", "2", "--warmup", "0"] };
    command.args(["--turns", "2"]).args(iterations).stdin(Stdio::null());
    command
}

fn run(words: &str) -> Output {
    bench(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A file that no other test uses.
fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("polyrank-bench-test-{}-{name}", std::process::id()))
}

/// Runs `words` and reads the file that it writes.
fn report(words: &str, name: &str) -> (Output, Value) {
    let path = temporary(name);
    let output = bench(words).arg("--json").arg(&path).output().unwrap();
    let report = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    (output, serde_json::from_str(&report).unwrap())
}

#[test]
fn every_operation_is_measured_and_right() {
    let words = "all -n 2,3 --sizes 4,5000 --form both";
    let (output, report) = report(words, "every.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let cases = report["cases"].as_array().unwrap();
    // Eleven operations of two sizes, allreduce in two forms, and a barrier; twice.
    assert_eq!(cases.len(), 2 * (10 * 2 + 2 * 2 + 1));
    for case in cases {
        let result = &case["results"][0];
        assert_eq!(result["wrong"], 0, "{case}");
        assert_eq!(result["turns_us"].as_array().unwrap().len(), 2, "{case}");
        let (bytes, time) = (case["bytes"].as_f64().unwrap(), result["time_us"].as_f64().unwrap());
        let rate = result["algbw_gbps"].as_f64().unwrap();
        assert!((rate - bytes / time / 1e3).abs() <= 1e-9 * rate, "{case}");
    }
    let out = text(&output.stdout);
    assert_eq!(out.matches("# Out of bounds values : 0 OK").count(), 24, "{out}");
}

#[test]
fn sizes_are_whole_elements_or_none() {
    let words = "all -n 2,3 --sizes 0,3,5,13 --form both --memory user,polyrank";
    let (output, report) = report(words, "sizes.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for case in report["cases"].as_array().unwrap() {
        let results = case["results"].as_array().unwrap();
        assert!(results.len() == 2 && results.iter().all(|one| one["wrong"] == 0), "{case}");
        let bytes = case["bytes"].as_u64().unwrap();
        assert_eq!((bytes % 4, bytes == 0), (0, case["count"] == 0), "{case}");
    }
    let out = text(&output.stdout);
    let said = "# sizes (B) in whole elements: 3 as 0, 5 as 4, 13 as 12\n";
    assert!(out.contains(said), "{out}");
    // 0 and 3 are one row.
    let sizes: Vec<_> = report["cases"].as_array().unwrap().iter().collect();
    let of_broadcast = sizes.iter().filter(|case| case["operation"] == "broadcast");
    let bytes: Vec<_> = of_broadcast.map(|case| case["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes, [0, 4, 12, 0, 4, 12]);
}

#[test]
fn inputs_are_measured_rewritten_and_untouched_and_results_of_both_are_right() {
    let words = "all -n 2,3 --sizes 4,1K,70000 --inputs untouched,rewritten -o sum,bxor -d i32";
    // More calls than one, so that small ones come in bursts.
    let (output, report) = report(&format!("{words} --iters 5 -w 3"), "inputs.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let cases = report["cases"].as_array().unwrap();
    for pair in cases.chunks(2) {
        let [first, second] = pair else { panic!("an odd number of cases") };
        assert_eq!(
            (&first["inputs"], &second["inputs"]),
            (&"rewritten".into(), &"untouched".into())
        );
        assert_eq!(
            (&first["operation"], &first["bytes"]),
            (&second["operation"], &second["bytes"])
        );
        let (rewritten, untouched) = (&first["results"][0], &second["results"][0]);
        assert_eq!((&rewritten["wrong"], &untouched["wrong"]), (&0.into(), &0.into()), "{first}");
        assert!(rewritten["rewrite_us"].is_f64() && untouched["rewrite_us"].is_null(), "{first}");
        assert!(rewritten["burst"].is_u64() && untouched["burst"].is_null(), "{first}");
        assert!(rewritten["cpu_us"].is_null() && untouched["cpu_us"].is_f64(), "{first}");
    }
    let starts = report["starts"].as_array().unwrap();
    let ranks: Vec<_> = starts.iter().map(|start| start["ranks"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [2, 3]);
    let out = text(&output.stdout);
    assert_eq!(out.matches("# Common start ").count(), 2, "{out}");
    assert!(
        out.contains("in-place, inputs rewritten") && out.contains("inputs untouched"),
        "{out}"
    );
}

#[test]
fn odd_sizes_and_addresses_another_root_and_one_core_are_right() {
    let words = "all -n 2,3 --sizes 3,65537 -d i8,f64 -r 1 --offset 1 --inputs rewritten,untouched \
                 --memory user,polyrank";
    let mut words = words.to_owned();
    if cfg!(target_os = "linux") {
        words.push_str(" --pin 0");
    }
    let (output, report) = report(&words, "odd.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let cases = report["cases"].as_array().unwrap();
    assert!(cases.iter().any(|case| case["bytes"] == 65537 && case["root"] == 1));
    for result in cases.iter().flat_map(|case| case["results"].as_array().unwrap()) {
        assert_eq!(result["wrong"], 0, "{result}");
    }
    let settings = report["settings"]["polyrank user"].to_string();
    assert!(settings.contains("1 B after a cache line's beginning"), "{settings}");
}

#[test]
fn results_name_the_processor_and_a_flag_shows_the_name() {
    let (_, report) = report("barrier", "processor.json");
    let shown = run("--show-processor");
    let name = report["machine"]["processor"]["name"].as_str().unwrap();
    assert_eq!((shown.status.code(), text(&shown.stdout)), (Some(0), format!("{name}\n")));
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    assert!(name.split('-').all(|word| !word.is_empty() && word.chars().all(is_plain)), "{name}");
    assert!(name.ends_with("-cores"), "{name}");
}

#[test]
fn operations_without_an_algorithm_are_left_out_and_named() {
    let (output, report) = report("all -n 2 --sizes 1K -a ring", "ring.json");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let cases = report["cases"].as_array().unwrap();
    let names: Vec<_> = cases.iter().map(|case| case["operation"].as_str().unwrap()).collect();
    assert!(names.contains(&"allreduce") && !names.contains(&"barrier"), "{names:?}");
    assert!(said.contains("--algorithm ring: operations without it are left out; "), "{said}");
    assert!(said.contains("barrier has ") && said.contains("pingpong has no algo"), "{said}");
}

#[test]
fn element_types_and_reductions_are_right() {
    let words = "allreduce,reduce_scatter -n 3 --sizes 1000 -d f16,bf16,i8,u64,f64 \
                 -o avg,prod,max,bxor --language rust";
    let (output, report) = report(words, "types.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2 * 5 * 4);
    let measured = |case: &&Value| !case["results"].as_array().unwrap().is_empty();
    // Bits of floating-point numbers have no meaning, which is said.
    assert_eq!(cases.iter().filter(measured).count(), 2 * (5 * 4 - 3));
    let said = text(&output.stderr);
    assert!(said.contains("left out: polyrank: allreduce: bxor of f16 has no meaning"), "{said}");
    let missing = report["missing"].to_string();
    assert!(missing.contains("bxor of") && missing.contains("no meaning"), "{missing}");
}

#[test]
fn groups_are_compared_in_one_run() {
    let words = "allreduce -n 2 --sizes 1K,64K --algorithm auto,ring --against memcpy --title T";
    let (output, report) = report(words, "compared.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!((&report["title"], &report["reference"]), (&"T".into(), &"polyrank auto".into()));
    for case in report["cases"].as_array().unwrap() {
        let results = case["results"].as_array().unwrap();
        let names: Vec<_> = results.iter().map(|result| &result["contender"]).collect();
        assert_eq!(names, ["polyrank auto", "polyrank ring", "memcpy"]);
        assert!(results[0]["ratio"].is_null());
        let (ours, theirs) = (results[0]["time_us"].as_f64(), results[2]["time_us"].as_f64());
        let ratio = results[2]["ratio"].as_f64().unwrap();
        assert!((ratio - ours.unwrap() / theirs.unwrap()).abs() <= 1e-9 * ratio, "{case}");
    }
    assert!(report["versions"]["polyrank ring"]["polyrank"].is_string());
    assert_eq!(report["build"]["version"], env!("CARGO_PKG_VERSION"));
    // A build without git does not know it.
    assert!(report["build"].as_object().unwrap().contains_key("commit"));
}

#[test]
fn memory_calls_and_transports_are_right() {
    let words = "allreduce,alltoall -n 3 --sizes 4,200000 --memory user,polyrank \
                 --call ordinary,prepared --transport auto,tcp";
    let (output, report) = report(words, "settings.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for case in report["cases"].as_array().unwrap() {
        let results = case["results"].as_array().unwrap();
        assert!(results.iter().all(|result| result["wrong"] == 0), "{case}");
        // Only an allreduce can be prepared.
        let expected = if case["operation"] == "allreduce" { 8 } else { 4 };
        assert_eq!(results.len(), expected, "{case}");
    }
}

#[test]
fn memory_beside_the_buffers_is_told_and_bounded() {
    let words = "allreduce -n 2,3 --sizes 4,16M --against memcpy";
    let (output, report) = report(words, "memory.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let memory = report["memory"].as_array().unwrap();
    let found: Vec<_> = memory
        .iter()
        .map(|one| (one["ranks"].as_u64().unwrap(), one["contender"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [(2, "polyrank"), (2, "memcpy"), (3, "polyrank"), (3, "memcpy")]);
    for one in memory.iter().filter(|one| one["contender"] == "polyrank") {
        // The buffers are gone, or it were more than 16 MiB; the shared memory is not.
        let bytes = one["most_bytes"].as_u64().unwrap();
        assert!((64 << 10..16 << 20).contains(&bytes), "{one}");
    }
    let out = text(&output.stdout);
    assert_eq!(out.matches("MiB beside its buffers, polyrank").count(), 2, "{out}");
}

#[test]
fn a_drawing_is_written() {
    let path = temporary("drawing.svg");
    let output = bench("allreduce --sizes 4,1K").arg("--svg").arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let drawing = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // Two panels of two sizes, and the mark beside the curve's name.
    assert_eq!(drawing.matches("<circle").count(), 5);
    assert!(drawing.contains("allreduce, 2 ranks, f32, sum"));
}

#[test]
fn what_is_missing_is_said_and_the_rest_is_measured() {
    let words = "barrier --against gloo --python gloo=/nowhere/python";
    let (output, report) = report(words, "missing.json");
    // Asked for, and not measured.
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(
        said.contains("not measured, because the programs named above are missing: gloo"),
        "{said}"
    );
    assert!(said.contains("missing: gloo (/nowhere/python: No such file"), "{said}");
    assert!(said.contains("pip install torch numpy"), "{said}");
    assert!(report["missing"]["gloo"].is_string());
    assert_eq!(report["cases"][0]["results"].as_array().unwrap().len(), 1);
}

#[test]
fn ranks_that_fail_are_quoted() {
    // A variable that polyrank refuses ends every rank before it has joined.
    let output = run("allreduce --env POLYRANK_ALGORITHM=allreduce=rign");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("polyrank: rank ") && said.contains("no algorithm 'rign'"), "{said}");
}

#[test]
fn an_interrupted_calibration_leaves_the_file_of_link_costs_alone() {
    let path = temporary("costs");
    std::fs::write(&path, "of another run").unwrap();
    let mut command = bench("");
    command.arg("--calibrate").arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut benchmark = command.spawn().unwrap();
    let output = BufReader::new(benchmark.stdout.take().unwrap());
    // Enough sizes for costs, but not all.
    let measured =
        output.lines().map_while(Result::ok).filter(|line| line.contains(" tcp ")).nth(3);
    assert!(measured.is_some());
    let pid = Pid::from_child(&benchmark);
    kill_process(pid, Signal::INT).unwrap();
    let output = benchmark.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("is not written: the measurement is incomplete"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "of another run");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_link_between_two_hosts_is_not_measured_on_one() {
    let path = temporary("network-costs");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: u32| {
        let mut command = bench("");
        command.arg("--calibrate").arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.spawn().unwrap()
    };
    for rank in [start(0), start(1)] {
        let output = rank.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("rank 0 and rank 1 are on one host"), "{said}");
    }
    assert!(!path.exists());
}

#[test]
fn wrong_command_lines_are_refused() {
    for (words, advice) in [
        ("allredcue", "expected one of allreduce"),
        ("allreduce,", "'allreduce,': an operation is missing"),
        ("-a rign", "one_shot"),
        ("-n -1", "-1 is not in 1..=120"),
        ("--sizes 4,-4", "-4 is not between 0 and 16T"),
        ("all -a rign", "barrier has direct"),
        ("--inputs written", "neither rewritten nor untouched"),
        ("--offset 5000", "5000 is not in 0..=4096"),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(advice), "{words}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_polyrank")).args(["bench-rank", "0"]).output();
    assert_eq!(output.unwrap().status.code(), Some(1));
}
