//! `polyrank predict` as a user has it: tables, JSON, drawings, wrong command lines; and, with
//! `--run`, the executors of thousands of ranks in one process.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn predict(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
    command.arg("predict").args(words.split_whitespace()).stdin(Stdio::null());
    command.output().unwrap()
}

fn answer(words: &str) -> Value {
    let output = predict(&format!("{words} --json"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The oracle: recursive doubling has as many messages of a rank as the logarithm, one after the
/// other, each of the whole tensor, to as many partners; one ring neighbour is none of them.
#[test]
fn four_thousand_ranks_are_carried_out_in_one_process() {
    let words = "allreduce --ranks 4096 --bytes 1K --algorithm recursive_doubling --run";
    let answer = answer(words);
    let runs = answer["runs"].as_array().unwrap();
    let ranks: Vec<_> = runs.iter().map(|run| run["ranks"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [16, 64, 256, 1024, 4096]);
    for (run, rounds) in runs.iter().zip([4, 6, 8, 10, 12]) {
        let counted = &run["counted"];
        assert_eq!((&counted["wrong"], &counted["rounds"]), (&0.into(), &rounds.into()), "{run}");
        assert_eq!(counted["messages_per_rank"], rounds, "{run}");
        assert_eq!(counted["bytes_per_rank"], rounds * 1024, "{run}");
        assert_eq!(counted["connections_per_rank"], rounds + 1, "{run}");
        assert_eq!(run["predicted"]["messages_per_rank"], rounds, "{run}");
        assert!(counted["memory_bytes_per_rank"].as_u64().unwrap() < 1024 * (rounds + 1), "{run}");
    }
    if let Some(peak_bytes) = answer["peak_resident_bytes"].as_u64() {
        assert!(peak_bytes < 1 << 30, "{peak_bytes}");
    }
}

#[test]
fn a_run_says_what_it_leaves_out() {
    let output = predict("alltoall --ranks 4096 --bytes 128K --algorithm direct,bruck --run");
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(out.contains("4096  not run: it has more than"), "{out}");
    assert_eq!(predict("allreduce -n 64 -b 1G --run").status.code(), Some(1));
}

#[test]
fn every_collective_of_many_ranks_has_a_table_and_a_curve() {
    let path = std::env::temp_dir().join(format!("polyrank-predict-{}.svg", std::process::id()));
    for name in [
        "allreduce",
        "reduce",
        "broadcast",
        "allgather",
        "gather",
        "scatter",
        "reduce_scatter",
        "alltoall",
        "barrier",
    ] {
        let words = format!("{name} --ranks 65536 --bytes 1GiB --topology 8x8192 --svg");
        let output = predict(&format!("{words} {}", path.display()));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let out = text(&output.stdout);
        assert!(out.lines().any(|line| line.starts_with("* ")), "{out}");
        assert!(!out.contains("NaN") && !out.contains("inf"), "{out}");
        assert_eq!(out.contains(" of 1 GiB, 65536 ranks"), name != "barrier", "{out}");
        let drawing = std::fs::read_to_string(&path).unwrap();
        assert!(drawing.contains(name) && !drawing.contains("NaN"), "{name}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn wrong_command_lines_are_refused() {
    for (words, advice) in [
        ("allreduce", "--ranks"),
        ("all_reduce -n 8", "expected one of allreduce"),
        ("allreduce -n 0", "--ranks"),
        ("allreduce -n 8 -a rign", "it has one_shot"),
        ("allreduce -n 100000 --run", "up to 16384"),
        ("allreduce -n 8 --run --svg x.svg", "cannot be used with"),
        ("allreduce -n 8 -t 3x3", "has 9 ranks"),
        ("allreduce -n 8 --latency 5us", "all ranks are on one; say which are on which"),
        ("allreduce -n 8 -t 4x2 --bandwidth fast", "'fast' is not a unit; expected one of Gbit/s"),
        ("allreduce -n 8 -b 1P", "'p' is not a unit; expected one of K, M, G and T"),
        ("allreduce -n -8", "-8 is not in 1..="),
    ] {
        let output = predict(words);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(text(&output.stderr).contains(advice), "{words}: {}", text(&output.stderr));
    }
    let output = predict("allreduce -n 1 -b 2T");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("allreduce of 2 TiB, 1 rank, on one host"));
    let output = predict("allreduce -n 8 --svg /nonexistent/curve.svg");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nonexistent/curve.svg"));
}
