//! Replicas of `polyrank run --replicas` that train: those that are killed come back and take the
//! others' state, and those that are told to leave cost the others no step, or one. Ranks are this
//! program, started again.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use launcher::{HeldPort, polyrank, text};
use polyrank::ReduceOp;
use polyrank_quorum::{Lighthouse, LighthouseOptions, Token};
use polyrank_replicas::{Manager, ManagerOptions, StartQuorum};
use rustix::process::{Pid, Signal, kill_process};

/// The file by which ranks are told after which step they end: at one for all ranks of a replica,
/// which vote together.
const END: &str = "REPLICAS_TEST_END";
/// How many steps all ranks have time to read it.
const NOTICE: i64 = 100;
/// How long a step computes.
const STEP: Duration = Duration::from_millis(20);

/// A rank of a job; nothing in the program of the tests.
#[test]
fn rank() {
    let Some(end) = std::env::var_os(END) else { return };
    let leaves = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, leaves.clone()).unwrap();
    // As a line of its own, whatever the harness has written before.
    println!("\npid {}", std::process::id());
    let manager = Manager::new(ManagerOptions::new(1)).unwrap();
    let model = Arc::new(Mutex::new(vec![0.0]));
    manager.register_model("model", model.clone()).unwrap();
    let is_over =
        |step| std::fs::read_to_string(&end).is_ok_and(|last| last <= format!("{step:9}"));
    while !leaves.load(Ordering::SeqCst) && !is_over(manager.current_step()) {
        manager.start_quorum(StartQuorum::default()).unwrap();
        let mut gradient = [1.0];
        std::thread::sleep(STEP);
        manager.allreduce(&mut gradient, ReduceOp::Avg).unwrap();
        if manager.should_commit(None).unwrap() {
            let mut model = model.lock().unwrap();
            model[0] += gradient[0];
            let (step, count) = (manager.current_step(), manager.num_participants());
            println!("step {step}, model {}, {count} participating", model[0]);
        } else {
            println!("lost");
        }
    }
    manager.shutdown().unwrap();
    println!("left");
}

/// A job whose ranks train.
struct Training {
    launcher: Child,
    lines: Box<dyn Iterator<Item = String>>,
    end: tempfile::TempDir,
    /// The processes of each rank, by replica and rank.
    pids: BTreeMap<(u32, u32), Vec<i32>>,
    /// How many steps each replica's rank 0 has lost.
    lost: BTreeMap<u32, u32>,
    /// What the model is after each step, of whichever replica.
    models: BTreeMap<String, String>,
}

impl Training {
    fn start(words: &[&str], with: impl FnOnce(&mut Command)) -> Training {
        let end = tempfile::tempdir().unwrap();
        let mut command = polyrank(words);
        command.arg("--no-python").arg(std::env::current_exe().unwrap());
        command.args(["--exact", "rank", "--nocapture"]).env(END, end.path().join("end"));
        for name in ["TORCHFT_LIGHTHOUSE", "POLYRANK_TOKEN", "POLYRANK_RUN_ID"] {
            command.env_remove(name);
        }
        with(&mut command);
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(launcher.stdout.take().unwrap()).lines().map(Result::unwrap);
        let (pids, lost, models) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Training { launcher, lines: Box::new(lines), end, pids, lost, models }
    }

    /// The next line that a rank's program has written, and by which replica and rank.
    fn next(&mut self) -> Option<((u32, u32), String)> {
        for line in self.lines.by_ref() {
            let Some((place, said)) = line.strip_prefix("[replica ").and_then(|it| {
                let (place, said) = it.split_once("] ")?;
                let (replica, rank) = place.split_once(", rank ")?;
                Some(((replica.parse().ok()?, rank.parse().ok()?), said.to_owned()))
            }) else {
                continue;
            };
            if let Some(pid) = said.strip_prefix("pid ") {
                self.pids.entry(place).or_default().push(pid.parse().unwrap());
            }
            if said == "lost" && place.1 == 0 {
                *self.lost.entry(place.0).or_default() += 1;
            }
            if let Some((step, model)) =
                said.strip_prefix("step ").and_then(|it| it.split_once(", "))
            {
                // Whoever comes later has the state of the others.
                let model = model.split(',').next().unwrap_or_default();
                let known = self.models.entry(step.to_owned()).or_insert_with(|| model.to_owned());
                assert_eq!(known, model, "step {step}");
            }
            return Some((place, said));
        }
        None
    }

    /// Reads until all these replicas have committed a step of so many.
    fn until_together(&mut self, replicas: &[u32], participants: u32) {
        let mut missing: BTreeSet<u32> = replicas.iter().copied().collect();
        let end = format!(", {participants} participating");
        while !missing.is_empty() {
            let ((replica, _), said) = self.next().expect("the job has ended");
            if said.starts_with("step ") && said.ends_with(&end) {
                missing.remove(&replica);
            }
        }
    }

    fn signal(&self, place: (u32, u32), signal: Signal) {
        let pid = *self.pids[&place].last().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Has all ranks end; the exit code, and what the launcher said.
    fn end(mut self) -> (Option<i32>, String) {
        let steps = self.models.keys().filter_map(|step| step.parse::<i64>().ok());
        let last = steps.max().unwrap_or_default() + NOTICE;
        // As a whole, or not yet.
        let written = self.end.path().join("written");
        std::fs::write(&written, format!("{last:9}")).unwrap();
        std::fs::rename(&written, self.end.path().join("end")).unwrap();
        while self.next().is_some() {}
        let mut errors = Vec::new();
        self.launcher.stderr.take().unwrap().read_to_end(&mut errors).unwrap();
        (self.launcher.wait().unwrap().code(), text(&errors))
    }
}

#[test]
fn replicas_train_together_and_one_that_is_killed_comes_back_alone() {
    for (count, ranks) in [(2, 2), (3, 1)] {
        let [replicas, per_replica] = [count, ranks].map(|number: u32| number.to_string());
        let words = ["--replicas", &replicas, "-n", &per_replica, "--max-restarts", "1"];
        let mut job = Training::start(&words, |_| {});
        let all: Vec<u32> = (0..count).collect();
        job.until_together(&all, count);
        job.signal((1, ranks - 1), Signal::KILL);
        // It is there again, as another process.
        while job.pids[&(1, 0)].len() < 2 {
            job.next().expect("the job has ended");
        }
        job.until_together(&all, count);
        let pids = job.pids.clone();
        let (code, errors) = job.end();
        assert_eq!(code, Some(0), "{errors}");
        for (place, pids) in &pids {
            assert_eq!(pids.len(), if place.0 == 1 { 2 } else { 1 }, "{place:?}");
        }
        assert!(errors.contains("    replica 1: ended well after 1 restart\n"), "{errors}");
    }
}

#[test]
fn a_replica_that_is_told_to_leave_costs_the_others_at_most_one_step() {
    let mut job = Training::start(&["--replicas", "3", "--min-replicas", "2"], |_| {});
    job.until_together(&[0, 1, 2], 3);
    let before = job.lost.clone();
    job.signal((1, 0), Signal::TERM);
    while job.next().expect("the job has ended") != ((1, 0), "left".to_owned()) {}
    job.until_together(&[0, 2], 2);
    for other in [0, 2] {
        let lost = |all: &BTreeMap<u32, u32>| all.get(&other).copied().unwrap_or(0);
        assert!(lost(&job.lost) - lost(&before) <= 1, "{other}: {:?}", job.lost);
    }
    // It has left, and is not started again; nobody has failed.
    let (code, errors) = job.end();
    assert_eq!((code, errors.lines().count()), (Some(0), 1), "{errors}");
}

#[test]
fn a_node_that_goes_takes_its_replicas_along_and_nobody_else_is_started_again() {
    let port = HeldPort::new();
    let endpoint = format!("127.0.0.1:{}", port.number);
    let words = ["--nnodes", "1:3", "--rdzv-backend", "c10d", "--rdzv-endpoint", &endpoint];
    let words = |is_host| [&words[..], &["--rdzv-conf", is_host, "--replicas", "1"]].concat();
    let mut first = Training::start(&words("is_host=1"), |_| {});
    first.until_together(&[0], 1);
    let end = first.end.path().join("end");
    for _ in 0..2 {
        let mut second = Training::start(&words("is_host=0"), |command| {
            command.env(END, &end);
        });
        // The second time, in the place that the first has left.
        second.until_together(&[1], 2);
        first.until_together(&[0], 2);
        let before = first.lost.get(&0).copied().unwrap_or(0);
        kill_process(Pid::from_child(&second.launcher), Signal::TERM).unwrap();
        while second.next().is_some() {}
        assert_eq!(second.launcher.wait().unwrap().code(), Some(143));
        first.until_together(&[0], 1);
        assert!(first.lost.get(&0).copied().unwrap_or(0) - before <= 1);
    }
    assert_eq!(first.pids[&(0, 0)].len(), 1);
    let (code, errors) = first.end();
    assert_eq!((code, errors.lines().count()), (Some(0), 1), "{errors}");
}

#[test]
fn managers_are_found_where_their_launchers_say() {
    let lighthouse = Lighthouse::start(LighthouseOptions {
        address: ([127, 0, 0, 1], 0).into(),
        ..LighthouseOptions::default()
    });
    let lighthouse = lighthouse.unwrap();
    let port = HeldPort::new();
    let endpoint = format!("127.0.0.1:{}", port.number);
    let url = lighthouse.url();
    let words = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint", &endpoint];
    let words = [&words[..], &["--replicas=2", "--lighthouse", &url, "--rdzv-conf"]].concat();
    let mut first = Training::start(&[&words[..], &["is_host=1"]].concat(), |_| {});
    let end = first.end.path().join("end");
    let second = [&words[..], &["is_host=0", "--local-addr=127.0.0.2"]].concat();
    let mut second = Training::start(&second, |command| {
        command.env(END, &end);
    });
    second.until_together(&[1], 2);
    first.until_together(&[0], 2);
    let mut asked = std::net::TcpStream::connect(lighthouse.address()).unwrap();
    let host = lighthouse.address();
    write!(asked, "GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut status = String::new();
    asked.read_to_string(&mut status).unwrap();
    for address in ["http://127.0.0.1:", "http://127.0.0.2:"] {
        assert!(status.contains(address), "{address}: {status}");
    }
    assert_eq!(first.end().0, Some(0));
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn replicas_go_on_with_those_that_are_left() {
    let mut job = Training::start(&["--replicas", "2", "--min-replicas", "1"], |_| {});
    job.until_together(&[0, 1], 2);
    job.signal((0, 0), Signal::KILL);
    job.until_together(&[1], 1);
    let (code, errors) = job.end();
    assert_eq!(code, Some(137), "{errors}");
    let lost = "polyrank run: replica 0 is lost, after no restart: rank 0: killed by SIGKILL; 1 \
                is left and goes on";
    assert!(errors.contains(lost), "{errors}");
}

#[test]
fn a_lighthouse_elsewhere_serves_them_with_its_token() {
    let token = "a-long-secret";
    let lighthouse = Lighthouse::start(LighthouseOptions {
        address: ([127, 0, 0, 1], 0).into(),
        token: Some(Token::new(token).unwrap()),
        ..LighthouseOptions::default()
    });
    let url = lighthouse.as_ref().unwrap().url();
    let words = ["--replicas", "2", "--lighthouse", &url];
    let mut job = Training::start(&words, |command| {
        command.env("POLYRANK_TOKEN", token);
    });
    job.until_together(&[0, 1], 2);
    let (code, errors) = job.end();
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    // One that the launcher serves has it, too.
    let mut job = Training::start(&["--replicas", "2"], |command| {
        command.env("POLYRANK_TOKEN", token);
    });
    job.until_together(&[0, 1], 2);
    let (code, errors) = job.end();
    assert_eq!(code, Some(0), "{errors}");
}
