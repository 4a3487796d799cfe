//! `polyrank bench store` and `polyrank bench start` with real servers and ranks: exit codes, the
//! files, what happens when a server does not do its part. Times are not looked at; what is counted
//! is compared with what a server of the test's own has seen.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

fn bench(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
    command.arg("bench").args(words.split_whitespace()).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A file that no other test uses.
fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("polyrank-bench-others-{}-{name}", std::process::id()))
}

/// Runs `command` and reads the file that it writes.
fn report(command: &mut Command, name: &str) -> (Output, Value) {
    let path = temporary(name);
    let output = command.arg("--json").arg(&path).output().unwrap();
    let said = text(&output.stderr);
    let report = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{said}"));
    std::fs::remove_file(&path).unwrap();
    (output, serde_json::from_str(&report).unwrap())
}

/// A program that stands for the Python of PyTorch, and says that its server is at `port`.
fn stand_in(port: u16, name: &str) -> PathBuf {
    let path = temporary(name);
    let script = format!("#!/bin/sh\necho torch 0\necho tcp://127.0.0.1:{port}\nread line\n");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    path
}

/// What a server has been asked, by kind.
#[derive(Default)]
struct RequestCounts {
    sets: AtomicU64,
    adds: AtomicU64,
}

/// Serves a client of TCPStore's protocol, as far as the load goes; none at its end.
fn serve(stream: &TcpStream, seen: &RequestCounts) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut hello = [0; 5];
    reader.read_exact(&mut hello).ok()?;
    assert_eq!(hello, [0, 0xce, 0xf7, 0x85, 0x3c]);
    loop {
        let mut kind = [0];
        reader.read_exact(&mut kind).ok()?;
        match kind[0] {
            1 => {
                blob(&mut reader)?;
                blob(&mut reader)?;
                seen.sets.fetch_add(1, Ordering::Relaxed);
            }
            4 => {
                assert_eq!(blob(&mut reader)?, b"/counter");
                let mut amount = [0; 8];
                reader.read_exact(&mut amount).ok()?;
                assert_eq!(i64::from_le_bytes(amount), 1);
                let sum = seen.adds.fetch_add(1, Ordering::Relaxed) + 1;
                (&mut &*stream).write_all(&sum.to_le_bytes()).ok()?;
            }
            13 => {
                let mut nonce = [0; 4];
                reader.read_exact(&mut nonce).ok()?;
                (&mut &*stream).write_all(&nonce).ok()?;
            }
            other => panic!("request {other}"),
        }
    }
}

fn blob(reader: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 8];
    reader.read_exact(&mut length).ok()?;
    let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap()];
    reader.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

#[test]
fn a_store_is_measured_by_both_of_its_doors() {
    let words = "store --clients 1,20 --seconds 0.1 --turns 2";
    let (output, report) = report(&mut bench(words), "doors.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = report["rows"].as_array().unwrap();
    let mut expected = Vec::new();
    for clients in [1, 20] {
        for operation in ["set", "get", "add", "wait", "set+get"] {
            expected.push((clients, operation, "polyrank"));
            expected.push((clients, operation, "polyrank local"));
        }
    }
    let of = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row["clients"].as_u64().unwrap(), of(row, "operation"), of(row, "server")))
        .collect();
    let found: Vec<_> = found.iter().map(|row| (row.0, row.1.as_str(), row.2.as_str())).collect();
    assert_eq!(found, expected);
    for row in rows {
        assert!(row["per_second"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["p99_us"].as_f64() >= row["median_us"].as_f64(), "{row}");
    }
    assert_eq!(report["missing"].as_array().unwrap().len(), 0);
}

#[test]
fn no_more_requests_are_counted_than_a_server_has_seen() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let python = stand_in(listener.local_addr().unwrap().port(), "counting");
    let seen = Arc::new(RequestCounts::default());
    let counting = seen.clone();
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let counting = counting.clone();
            std::thread::spawn(move || serve(&stream, &counting));
        }
    });
    let words = "store --clients 3 --seconds 0.1 --turns 1 --operations set,add --against torch";
    let mut command = bench(words);
    command.arg("--python").arg(&python);
    let (output, report) = report(&mut command, "counted.json");
    std::fs::remove_file(&python).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = report["rows"].as_array().unwrap();
    for (operation, seen) in [("set", &seen.sets), ("add", &seen.adds)] {
        let is_it = |row: &&Value| row["server"] == "torch 0" && row["operation"] == operation;
        let row = rows.iter().find(is_it).unwrap();
        let counted = row["per_second"].as_f64().unwrap() * 0.1;
        let seen = seen.load(Ordering::Relaxed) as f64;
        assert!(0.0 < counted && counted <= seen + 0.5, "{operation}: {counted} of {seen}");
    }
}

#[test]
fn a_server_that_sends_clients_away_is_left_out_and_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let python = stand_in(listener.local_addr().unwrap().port(), "away");
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let words = "store --clients 2 --seconds 0.02 --turns 2 --operations get --against torch";
    let mut command = bench(words);
    command.arg("--python").arg(&python);
    let (output, report) = report(&mut command, "away.json");
    std::fs::remove_file(&python).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("torch 0 with 2 clients"), "{said}");
    assert_eq!(report["missing"].as_array().unwrap().len(), 1);
    assert_eq!(report["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn without_torch_it_is_said_how_to_get_it() {
    let words = "store --clients 1 --seconds 0.01 --turns 1 --operations get --against torch";
    let mut command = bench(words);
    command.args(["--python", "/nowhere/python"]);
    let (output, report) = report(&mut command, "without.json");
    // What is there was measured all the same.
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(said.contains("/nowhere/python") && said.contains("pip install torch"), "{said}");
    assert_eq!(report["rows"].as_array().unwrap().len(), 2);
    assert_eq!(report["missing"].as_array().unwrap().len(), 1);
    let output = bench("store --operations got").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("expected one of set, get, add"));
}

#[test]
fn starts_are_measured_from_both_beginnings() {
    let (output, report) = report(&mut bench("start -n 1,3 --turns 2"), "start.json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = report["rows"].as_array().unwrap();
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row["ranks"].as_u64().unwrap(), row["before"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [(1, "store_up"), (1, "at_once"), (3, "store_up"), (3, "at_once")]);
    for row in rows {
        assert_eq!(row["contender"], "polyrank rust");
        assert_eq!(row["turns_ms"].as_array().unwrap().len(), 2);
        let (member, reduced) = (row["member_ms"].as_f64(), row["reduced_ms"].as_f64());
        assert!(Some(0.0) < member && member <= reduced, "{row}");
        assert!(row["versions"]["polyrank"].is_string());
        assert!(row["memory_bytes"].as_u64().unwrap() > 0, "{row}");
    }
}

#[test]
fn starts_that_make_no_sense_are_refused() {
    for (words, said) in [
        ("start --against memcpy", "nothing to start"),
        ("start --against glo", "expected one of gloo"),
        ("start -l java", "expected one of rust, python, node"),
    ] {
        let output = bench(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(text(&output.stderr).contains(said), "{words}: {}", text(&output.stderr));
    }
    let words = "start -n 1 --against gloo --python gloo=/nowhere/python --turns 1";
    let output = bench(words).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text(&output.stderr)
            .contains("not measured, because the programs named above are missing: gloo")
    );
    let output =
        bench("start -n 2 --against gloo --python gloo=/nowhere/python -l python --turns 1")
            .env("POLYRANK_PYTHON", "/nowhere/else")
            .output()
            .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(said.contains("/nowhere/else") && said.contains("nothing is left"), "{said}");
}

#[test]
fn a_torch_that_is_not_there_is_told_from_one_that_fails() {
    let words =
        "store --clients 1 --operations get --seconds 0.01 --turns 1 --against torch --python";
    let output = bench(words).arg("/nowhere/python").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("pip install torch"), "{}", text(&output.stderr));
    // A Python without it, and one where something else goes wrong.
    let program = temporary("torch.sh");
    let run = |complaint: &str| {
        let script = format!("#!/bin/sh\necho 'Traceback' >&2; echo \"{complaint}\" >&2; exit 1\n");
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let output = bench(words).arg(&program).output().unwrap();
        std::fs::remove_file(&program).unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = run("ModuleNotFoundError: No module named 'torch'");
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("pip install torch"), "{said}");
    let (code, said) = run("OSError: libcudart is broken");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("Traceback") && said.contains("libcudart is broken"), "{said}");
    assert!(!said.contains("pip install"), "{said}");
}
