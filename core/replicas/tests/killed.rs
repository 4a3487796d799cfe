//! Replicas that are processes, one of which is killed while the others wait for it in an
//! operation.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::{LIMIT, Rank, bits, lighthouse};
use polyrank::ReduceOp;
use polyrank_replicas::{ManagerOptions, StartQuorum};

/// What a started process is: the address of the lighthouse, its name, how many seconds operations
/// may take, and the step from which on it stops before an operation that both others begin.
const ROLE: &str = "REPLICAS_TEST_ROLE";
const STEPS: i64 = 12;
/// Enough to be under way for a while.
const ELEMENTS: usize = 300_001;

/// What a process says.
#[derive(Debug)]
enum Line {
    /// After so many steps it has a model with this hash.
    Committed { name: String, step: i64, hash: String },
    /// A step was lost.
    Lost { name: String, why: String },
    /// It stands still, and the others are in the operation.
    Stands,
    /// It is through.
    Ended { name: String },
}

fn hash(weights: &[f64]) -> u64 {
    bits(weights)
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, bits| (hash ^ bits).wrapping_mul(0x0100_0000_01b3))
}

/// The whole life of a process.
fn replica(role: &str) {
    let mut words = role.split_whitespace();
    let mut word = || words.next().unwrap().to_owned();
    let (lighthouse, name) = (word(), word());
    let timeout = Duration::from_secs(word().parse().unwrap());
    let stops_at: Option<i64> = word().parse().ok();
    let may_end = Arc::new(AtomicBool::new(false));
    let told = may_end.clone();
    // The test says a byte, and keeps the pipe.
    std::thread::spawn(move || {
        told.store(std::io::stdin().read(&mut [0]).is_ok_and(|bytes| bytes > 0), Ordering::SeqCst);
    });
    let options = ManagerOptions::new(1).lighthouse(lighthouse).replica_id(&name);
    let options = options.timeout(timeout);
    let rank = Rank::new(options, 0, vec![f64::from(std::process::id()); ELEMENTS]);
    let say = |what: String| println!("\nREPLICA {name} {what}");
    let mut is_through = false;
    while !is_through {
        rank.manager.start_quorum(StartQuorum::default()).unwrap();
        rank.manager.wait_quorum().unwrap();
        let step = rank.manager.current_step();
        // All end in the same step: when all may.
        let mut may_end = vec![f64::from(u8::from(may_end.load(Ordering::SeqCst))); 64];
        rank.manager.allreduce(&mut may_end, ReduceOp::Avg).unwrap();
        if stops_at.is_some_and(|stop| step >= stop && rank.manager.replicas().len() == 3) {
            say("stands".to_owned());
            loop {
                std::thread::park();
            }
        }
        let slope = |at: usize| 1.0 / (1.0 + (at as f64) * (step as f64 + 1.0));
        let slopes: Vec<f64> = (0..ELEMENTS).map(slope).collect();
        if rank.finish(&slopes) {
            let (step, replicas) = (rank.manager.current_step(), rank.manager.replicas().len());
            say(format!("committed {step} {:016x}", hash(&rank.weights())));
            // All see the same of both.
            is_through = step >= STEPS && replicas == 3 && may_end[0] == 1.0;
        } else {
            say(format!("lost {}", rank.manager.errored().unwrap()));
        }
    }
    say("ended".to_owned());
    rank.manager.shutdown().unwrap();
}

/// A process; it is killed if the test fails.
struct Process(Child);

impl Process {
    fn start(test: &str, role: String, lines: Sender<Line>) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(ROLE, role).stdout(Stdio::piped());
        command.stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some(line) = line.strip_prefix("REPLICA ") else { continue };
                // The test may have failed.
                let _ = lines.send(read(line));
            }
        });
        Process(child)
    }

    /// It ends when all may.
    fn may_end(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b".").unwrap();
    }

    /// Has it get this signal.
    fn signal(&self, name: &str) {
        let words = [name.to_owned(), self.0.id().to_string()];
        assert!(Command::new("kill").args(words).status().unwrap().success());
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read(line: &str) -> Line {
    let words: Vec<&str> = line.split(' ').collect();
    let name = words[0].to_owned();
    match words[1] {
        "committed" => {
            Line::Committed { name, step: words[2].parse().unwrap(), hash: words[3].to_owned() }
        }
        "lost" => Line::Lost { name, why: words[2..].join(" ") },
        "stands" => Line::Stands,
        "ended" => Line::Ended { name },
        other => panic!("{other}"),
    }
}

/// What all have said.
#[derive(Default)]
struct Heard {
    /// By step, and then by name.
    hashes: BTreeMap<i64, BTreeMap<String, String>>,
    lost: Vec<(String, String)>,
    ended: Vec<String>,
}

impl Heard {
    /// Hears them until `is_enough` says so.
    fn hear(&mut self, lines: &Receiver<Line>, is_enough: impl Fn(&Heard, &Line) -> bool) {
        loop {
            let line = lines.recv_timeout(LIMIT * 2).unwrap();
            match &line {
                Line::Committed { name, step, hash } => {
                    let before = self.hashes.entry(*step).or_default();
                    before.insert(name.clone(), hash.clone());
                }
                Line::Lost { name, why } => self.lost.push((name.clone(), why.clone())),
                Line::Ended { name } => self.ended.push(name.clone()),
                Line::Stands => {}
            }
            if is_enough(self, &line) {
                return;
            }
        }
    }

    /// All that committed a step have the same after it, and all three the last one.
    fn check(&self) {
        let (_, together) = self.hashes.last_key_value().unwrap();
        assert_eq!(together.len(), 3, "{together:?}");
        for (step, hashes) in &self.hashes {
            let mut all: Vec<_> = hashes.values().collect();
            all.dedup();
            assert_eq!(all.len(), 1, "after step {step}: {hashes:?}");
        }
    }
}

#[test]
fn a_replica_that_is_killed_costs_the_others_one_step_and_comes_back() {
    let test = "a_replica_that_is_killed_costs_the_others_one_step_and_comes_back";
    if let Ok(role) = std::env::var(ROLE) {
        return replica(&role);
    }
    let lighthouse = lighthouse(2);
    let (say, lines) = channel();
    let start = |name: &str, stops_at: &str| {
        Process::start(test, format!("{} {name} 60 {stops_at}", lighthouse.address()), say.clone())
    };
    let mut survivors = ["a", "b"].map(|name| start(name, "never"));
    let mut victim = start("c", "4");
    let mut heard = Heard::default();
    heard.hear(&lines, |_, line| matches!(line, Line::Stands));
    victim.kill();
    // Both have lost the step in which it was killed, and nothing else.
    heard.hear(&lines, |heard, _| heard.lost.len() == 2);
    for (name, why) in &heard.lost {
        assert!(["a", "b"].contains(&name.as_str()), "{name}: {why}");
    }
    let mut again = start("c", "never");
    survivors.iter_mut().chain([&mut again]).for_each(Process::may_end);
    heard.hear(&lines, |heard, _| heard.ended.len() == 3);
    assert_eq!(heard.lost.len(), 2, "{:?}", heard.lost);
    heard.check();
}

#[test]
fn a_replica_that_stands_still_is_gone_on_without_and_takes_the_state_afterwards() {
    let test = "a_replica_that_stands_still_is_gone_on_without_and_takes_the_state_afterwards";
    if let Ok(role) = std::env::var(ROLE) {
        return replica(&role);
    }
    let lighthouse = lighthouse(2);
    let (say, lines) = channel();
    let start = |name: &str| {
        Process::start(test, format!("{} {name} 3 never", lighthouse.address()), say.clone())
    };
    let mut others = ["a", "b"].map(start);
    let mut still = start("c");
    let mut heard = Heard::default();
    // It may be stopped in an operation, while the group is made, or while it asks for a quorum.
    heard.hear(
        &lines,
        |_, line| matches!(line, Line::Committed { name, step: 2.., .. } if name == "c"),
    );
    still.signal("-STOP");
    heard.hear(&lines, |heard, line| {
        let Line::Committed { name, step, .. } = line else { return false };
        let with = heard.hashes.iter().rfind(|(_, all)| all.contains_key("c"));
        name == "a" && with.is_some_and(|(last, _)| *step > last + 3)
    });
    still.signal("-CONT");
    others.iter_mut().chain([&mut still]).for_each(Process::may_end);
    heard.hear(&lines, |heard, _| heard.ended.len() == 3);
    heard.check();
}
