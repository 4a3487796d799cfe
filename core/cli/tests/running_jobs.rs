//! What asks the ranks of a running job, as a user has it: `polyrank run --metrics-port`, `polyrank
//! top`, `inspect` and `trace`, with ranks of two languages. What is served is read by a parser
//! that is not ours (Python's prometheus_client).

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use launcher::polyrank;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long a busy machine may take.
const LIMIT: Duration = Duration::from_secs(60);

const PYTHON: &str = "
import sys, numpy, polyrank
polyrank.init_process_group()
for _ in range(20):
    polyrank.all_reduce(numpy.ones(3, numpy.float32))
import os; print('called', os.getpid(), flush=True)
sys.stdin.read()
polyrank.barrier()
polyrank.destroy_process_group()
";
const NODE: &str = "
import * as polyrank from 'polyrank';
await polyrank.initProcessGroup();
for (let call = 0; call < 20; call += 1) await polyrank.allReduce(new Float32Array(3));
console.log('called', process.pid);
await polyrank.barrier();
await polyrank.destroyProcessGroup();
";
/// Reads the page of the port, and prints what it says, as JSON.
const READER: &str = "
import json, sys, urllib.request
from prometheus_client.openmetrics.parser import text_string_to_metric_families
with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:
    assert answer.headers['Content-Type'].startswith('application/openmetrics-text; version=1.0.0')
    text = answer.read().decode()
samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
print(json.dumps([[s.name, s.labels, s.value] for s in samples]))
";

/// A job that runs, until its standard input is closed.
struct Job {
    launcher: Child,
    url: String,
    /// Of each rank.
    pids: Vec<Pid>,
}

impl Job {
    /// Starts a rank of Python and, where one is built, one of Node.
    fn start(options: &[&str]) -> Option<Job> {
        let Ok(python) = std::env::var("POLYRANK_PYTHON") else {
            eprintln!(
                "skipped: metrics: POLYRANK_PYTHON names no interpreter; `cargo xtask test` sets it"
            );
            return None;
        };
        let node = std::env::current_dir().unwrap().join("../../bindings-node");
        assert!(node.join("polyrank.node").exists(), "cargo xtask node");
        // A package's own files find it by its name.
        // Tests run beside one another, in one process.
        static SCRIPTS: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), SCRIPTS.fetch_add(1, Ordering::Relaxed));
        let script = node.join(format!("metrics-test-{process}-{number}.mjs"));
        std::fs::write(&script, NODE).unwrap();
        let words = ["-n", "1", "--metrics-port", "0"];
        let mut command = polyrank(&[&words[..], options, &[&python, "-c", PYTHON]].concat());
        command.args([":", "-n", "1", "node"]).arg(&script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut launcher = command.spawn().unwrap();
        let mut said = BufReader::new(launcher.stderr.take().unwrap()).lines();
        let first =
            said.find_map(|line| Some(line.unwrap().split_once("metrics are at ")?.1.into()));
        // Nobody may wait for room in the pipe.
        std::thread::spawn(move || said.for_each(drop));
        let called = BufReader::new(launcher.stdout.take().unwrap()).lines();
        let pid = |line: std::io::Result<String>| {
            let line = line.unwrap();
            let (rank, pid) = line.strip_prefix("[rank ")?.split_once("] called ")?;
            Some((rank.parse::<u32>().unwrap(), Pid::from_raw(pid.parse().unwrap()).unwrap()))
        };
        let mut pids: Vec<_> = called.filter_map(pid).take(2).collect();
        pids.sort_by_key(|(rank, _)| *rank);
        let pids: Vec<Pid> = pids.into_iter().map(|(_, pid)| pid).collect();
        assert_eq!(pids.len(), 2);
        std::fs::remove_file(&script).unwrap();
        Some(Job { launcher, url: first.expect("it says where"), pids })
    }

    /// What the page says: names, labels and values.
    fn samples(&self) -> Vec<Value> {
        let python = std::env::var_os("POLYRANK_PYTHON").unwrap();
        let output = Command::new(python).args(["-c", READER, &self.url]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The value of a sample, when it is there and `is_it`.
    fn value(&self, name: &str, labels: &[(&str, &str)], is_it: impl Fn(f64) -> bool) -> f64 {
        let until = Instant::now() + LIMIT;
        loop {
            let samples = self.samples();
            let has = |sample: &&Value| {
                sample[0] == name && labels.iter().all(|(name, value)| sample[1][name] == *value)
            };
            let value = samples.iter().find(has).and_then(|sample| sample[2].as_f64());
            match value {
                Some(value) if is_it(value) => return value,
                _ => {
                    assert!(Instant::now() < until, "{name} {labels:?} is {value:?}: {samples:#?}")
                }
            }
        }
    }

    /// Lets the ranks end; the exit code.
    fn end(mut self) -> Option<i32> {
        drop(self.launcher.stdin.take());
        self.launcher.wait().unwrap().code()
    }
}

#[test]
fn ranks_of_two_languages_are_served_and_one_that_hangs_holds_up_nobody() {
    let Some(job) = Job::start(&[]) else { return };
    for rank in ["0", "1"] {
        let labels = [("rank", rank), ("group", "default_pg"), ("operation", "all_reduce")];
        let operations = job.value("polyrank_operations_total", &labels, |it| it >= 20.0);
        assert_eq!(operations, 20.0);
        assert_eq!(job.value("polyrank_operation_bytes_total", &labels, |_| true), 240.0);
        job.value("polyrank_up", &[("rank", rank)], |up| up == 1.0);
    }
    // Node is in the barrier, and Python reads.
    let barrier = [("rank", "1"), ("operation", "barrier")];
    job.value("polyrank_operations_in_flight", &barrier, |open| open == 1.0);
    let stopped = job.pids[1];
    kill_process(stopped, Signal::STOP).unwrap();
    job.value("polyrank_up", &[("rank", "1")], |up| up == 0.0);
    job.value("polyrank_operations_total", &[("rank", "1"), ("operation", "all_reduce")], |it| {
        it == 20.0
    });
    kill_process(stopped, Signal::CONT).unwrap();
    job.value("polyrank_up", &[("rank", "1")], |up| up == 1.0);
    assert_eq!(job.end(), Some(0));
}

#[test]
fn what_is_no_page_is_refused_and_a_silent_client_holds_up_nobody() {
    let Some(job) = Job::start(&[]) else { return };
    let address = job.url.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    let _silent = TcpStream::connect(&address).unwrap();
    for (request, expected) in [
        ("GET / HTTP/1.1", "HTTP/1.1 404"),
        ("POST /metrics HTTP/1.1", "HTTP/1.1 405"),
        ("HEAD /metrics HTTP/1.1", "HTTP/1.1 200"),
        ("GET /metrics?x=1 HTTP/1.0", "HTTP/1.1 200"),
    ] {
        let mut client = TcpStream::connect(&address).unwrap();
        write!(client, "{request}\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(expected), "{request}: {answer}");
        assert_eq!(answer.ends_with("# EOF\n"), request.starts_with("GET /metrics"));
    }
    assert_eq!(job.end(), Some(0));
}

#[test]
fn a_port_that_is_taken_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = polyrank(&["--metrics-port", &port, "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cannot serve metrics at 127.0.0.1:{port}")), "{said}");
}

#[test]
fn top_says_what_each_rank_does() {
    let port = launcher::HeldPort::new();
    let port_text = port.number.to_string();
    let Some(job) = Job::start(&["--master-port", &port_text]) else { return };
    let top = |words: &[&str]| run(&[&["top"], words].concat());
    let url = format!("tcp://127.0.0.1:{port_text}");
    let (code, text, said) = top(&[&url, "--json"]);
    assert_eq!(code, Some(0), "{said}");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["groups"][0]["name"], "default_pg");
    let ranks = json["groups"][0]["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    assert!(ranks.iter().all(|rank| rank["answered"] == true), "{text}");
    assert_eq!(
        (&ranks[0]["operation"], &ranks[1]["operation"]["group"]),
        (&Value::Null, &"default_pg".into())
    );
    assert_eq!(ranks[1]["operation"]["name"], "barrier #21");
    let (code, text, said) = top(&[&format!("127.0.0.1:{port_text}"), "--once"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(text.starts_with("default_pg: 2 ranks, 2 have answered\n"), "{text}");
    assert!(text.contains("barrier #21 of default_pg"), "{text}");
    let (code, _, said) = top(&["http://127.0.0.1:1", "--once"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("expected HOST:PORT"), "{said}");
    assert_eq!(job.end(), Some(0));
}

#[test]
fn a_running_job_is_asked_what_it_has_called() {
    let port = launcher::HeldPort::new();
    let address = format!("127.0.0.1:{}", port.number);
    let Some(job) = Job::start(&["--master-port", &port.number.to_string()]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("asked.json");
    let (code, _, said) = run(&["inspect", &address, "-o", path.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("group default_pg: 2 of 2 ranks have told what they have called; "));
    let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let waiting = file["ranks"][1]["entries"].as_array().unwrap().last().unwrap();
    assert_eq!((&waiting["name"], &waiting["waits_for"]), (&"barrier".into(), &vec![0].into()));
    let limit = waiting["timeout_ms"].as_u64();
    assert_eq!(limit, Some(1_800_000), "c10d's default");
    let url = format!("tcp://{address}");
    let line = PYTHON.lines().position(|line| line == "sys.stdin.read()").unwrap() + 1;
    let stands = format!("its program is at <string>:{line} in <module>");
    for place in [path.to_str().unwrap(), &address, &url] {
        let (code, text, said) = run(&["trace", place]);
        assert_eq!(code, Some(0), "{said}");
        for words in [
            "Rank 1 waits in barrier #21 of default_pg for rank 0.",
            "rank 0 has issued nothing since all_reduce #20 of default_pg",
            &stands,
        ] {
            assert!(text.contains(words), "{place}: {words}: {text}");
        }
    }
    assert_eq!(job.end(), Some(0));
    let (code, _, said) = run(&["inspect", "127.0.0.1:1"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("polyrank inspect: "), "{said}");
}

/// The command's exit code, and what it writes.
fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
    let output = command.args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}
