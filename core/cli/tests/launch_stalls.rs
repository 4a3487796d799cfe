//! `polyrank run` says once for all ranks who waits for whom. The ranks are this program, started
//! again; whoever is to go on looks for a file.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use launcher::hosts::Hosts;
use launcher::polyrank;
use polyrank::distributed::{
    InitOptions, NewGroupOptions, barrier, destroy_process_group, init_process_group, new_group,
};
use rustix::process::{Pid, Signal, getpid, kill_process};

/// What ranks do, and the folder of the files by which they are told to go on.
const PART: &str = "STALL_TEST_PART";
const FOLDER: &str = "STALL_TEST_FOLDER";
/// How long a busy machine may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A rank of a job; nothing in the program of the tests.
#[test]
fn rank() {
    let Ok(part) = std::env::var(PART) else { return };
    let rank = std::env::var("RANK").unwrap();
    let is_late = |at: &str| part == format!("rank {rank} is late for {at}");
    if is_late("the rendezvous") {
        until_told("come");
    }
    init_process_group(InitOptions::default()).unwrap();
    if is_late("the barrier") {
        until_told("come");
    }
    if part == "a stopped rank" && rank == "1" {
        kill_process(getpid(), Signal::STOP).unwrap();
        // Another thread may be the one that is stopped first.
        until_told("come");
    }
    if part == "a circle" && rank == "0" {
        new_group(NewGroupOptions::default().ranks([0, 1]).description("tp")).unwrap();
    }
    if part == "new_group" {
        if rank == "1" {
            until_told("come");
        }
        // The default group's ranks would be all of them, too.
        new_group(NewGroupOptions::default().ranks([0, 1])).unwrap();
    }
    barrier(()).unwrap();
    // What is over is said as long as they live.
    until_told("end");
    destroy_process_group(None).unwrap();
}

fn until_told(what: &str) {
    let file = std::path::PathBuf::from(std::env::var_os(FOLDER).unwrap()).join(what);
    let until = Instant::now() + LIMIT;
    while !file.exists() {
        assert!(Instant::now() < until, "nobody says {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A job whose ranks do what a part says, and what is read of its launcher's standard error.
struct Job {
    launcher: Child,
    lines: std::io::Lines<BufReader<ChildStderr>>,
    folder: tempfile::TempDir,
    /// What was said so far.
    said: Vec<String>,
}

impl Job {
    fn start(mut command: Command, part: &str) -> Job {
        let folder = tempfile::tempdir().unwrap();
        command.args(["-x", PART, "-x", FOLDER, "-x", "POLYRANK_STALL_REPORT"]);
        command.arg("--no-python").arg(std::env::current_exe().unwrap());
        command.args(["--exact", "rank", "--nocapture"]);
        command.env(PART, part).env(FOLDER, folder.path()).env("POLYRANK_STALL_REPORT", "0.5");
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut launcher = command.spawn().unwrap();
        let lines = BufReader::new(launcher.stderr.take().unwrap()).lines();
        Job { launcher, lines, folder, said: Vec::new() }
    }

    /// Reads on until there was a line of the launcher's own with these words.
    fn until_said(&mut self, words: &str) {
        self.until(|line| line.starts_with("polyrank run") && line.contains(words));
    }

    /// Reads on until there was such a line, which is the last that was read if it is new.
    fn until(&mut self, is_it: impl Fn(&str) -> bool) {
        while !self.said.iter().any(|line| is_it(line)) {
            let line = self.lines.next();
            self.said.push(line.unwrap_or_else(|| panic!("{:#?}", self.said)).unwrap());
        }
    }

    fn tell(&self, what: &str) {
        std::fs::write(self.folder.path().join(what), "").unwrap();
    }

    /// Waits for its end: all lines.
    fn end(mut self) -> Vec<String> {
        self.tell("end");
        self.said.extend(self.lines.map(Result::unwrap));
        assert!(self.launcher.wait().unwrap().success(), "{:#?}", self.said);
        self.said
    }
}

/// How many lines of the launchers have these words; in front may stand the name of a host.
fn count(said: &[String], words: &str) -> usize {
    let is_it = |line: &&String| line.starts_with("polyrank run") && line.contains(words);
    said.iter().filter(is_it).count()
}

#[test]
fn it_is_said_once_for_all_who_is_missing_and_when_it_goes_on() {
    let mut job = Job::start(polyrank(&["-n", "4"]), "rank 2 is late for the barrier");
    let waits = "barrier #1 of group default_pg: ranks 0, 1, 3 have waited for ";
    job.until_said(waits);
    let line = job.said.last().unwrap().clone();
    assert!(line.ends_with("; rank 2 has called no collective of group default_pg"), "{line}");
    // Each rank says it on its own log, too.
    for rank in [0, 1, 3] {
        job.until(|line| line.starts_with(&format!("[rank {rank}] polyrank: {waits}")));
    }
    // Nobody has chosen the port at which the job is asked.
    job.until_said("`polyrank trace tcp://127.0.0.1:");
    let url = job.said.last().unwrap().split(['`', ' ']).find(|word| word.starts_with("tcp://"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
    let output = command.args(["trace", url.unwrap()]).output().unwrap();
    let traced = launcher::text(&output.stdout);
    assert!(traced.contains("barrier #1 of default_pg"), "{output:?}");
    job.tell("come");
    job.until_said("barrier #1 of group default_pg waits no longer, after ");
    let said = job.end();
    assert_eq!(count(&said, "`polyrank trace "), 1, "{said:#?}");
    // It may be said again on a slow machine, but by one for all.
    let own = said.iter().filter(|line| line.starts_with(&format!("[rank 0] polyrank: {waits}")));
    assert!(count(&said, waits) <= own.count(), "{said:#?}");
    assert_eq!(count(&said, "waits no longer"), 1, "{said:#?}");
}

#[test]
fn who_has_not_come_to_the_rendezvous_is_said_once_for_all() {
    let port = launcher::HeldPort::new();
    let words = ["-n", "3", "--master-port", &port.number.to_string()];
    let mut job = Job::start(polyrank(&words), "rank 1 is late for the rendezvous");
    let waits = "group 'default_pg': rank 1 of 3 has not come to the rendezvous";
    job.until_said(&format!("{waits}; waited for "));
    let told = traced(port.number);
    let expected = format!("\n{}.\n", waits.replacen("group", "Group", 1));
    assert!(told.contains(&expected), "{told}");
    assert!(told.contains("- ranks 0 and 2 have waited up to "), "{told}");
    job.tell("come");
    job.until_said("the rendezvous of group 'default_pg' waits no longer, after ");
    let said = job.end();
    assert_eq!(count(&said, "waits no longer"), 1, "{said:#?}");
}

/// What `polyrank trace` says of the job that meets there.
fn traced(port: u16) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
    let output = command.args(["trace", &format!("tcp://127.0.0.1:{port}")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn who_has_not_called_new_group_is_named_by_launcher_and_trace_alike() {
    let port = launcher::HeldPort::new();
    let mut command = polyrank(&["-n", "2", "--master-port", &port.number.to_string()]);
    // Lines of programs in Rust are known where calls are noted.
    command.args(["-x", "POLYRANK_DEBUG"]).env("POLYRANK_DEBUG", "DETAIL");
    let mut job = Job::start(command, "new_group");
    let waits = "new_group of ranks 0, 1: rank 1 has not come to the rendezvous";
    job.until_said(&format!("{waits}; waited for "));
    let line = job.said.last().unwrap();
    assert!(line.contains("; rank 0 is at ") && line.contains("launch_stalls::rank"), "{line}");
    let told = traced(port.number);
    assert!(told.contains(&format!("\n{waits}.\n")), "{told}");
    assert!(told.contains("- rank 0 has waited "), "{told}");
    assert!(told.contains("- rank 1 has issued nothing at all"), "{told}");
    job.tell("come");
    job.until_said("new_group of ranks 0, 1 waits no longer, after ");
    job.end();
}

#[test]
fn that_the_store_is_not_served_yet_is_said_once_for_all() {
    let mut job = Job::start(polyrank(&["-n", "3"]), "rank 0 is late for the rendezvous");
    job.until_said(" cannot be reached (");
    let line = job.said.last().unwrap().clone();
    assert!(line.contains("the store at ") && line.contains("Has rank 0"), "{line}");
    job.tell("come");
    job.until_said("a client of the store at ");
    let said = job.end();
    assert_eq!(count(&said, "waits no longer"), 1, "{said:#?}");
}

#[test]
fn of_launchers_on_several_hosts_one_says_it() {
    for late in [0, 1, 2] {
        let hosts = Hosts::new();
        let command = hosts.command(&["--hosts", "127.0.0.4,127.0.0.2,127.0.0.3"]);
        let part = format!("rank {late} is late for the barrier");
        let mut job = Job::start(command, &part);
        let waiting: Vec<_> =
            (0..3).filter(|rank| *rank != late).map(|it| it.to_string()).collect();
        let waits = format!("group default_pg: ranks {} have waited for ", waiting.join(", "));
        job.until_said(&waits);
        let line = job.said.last().unwrap().clone();
        assert!(line.starts_with("polyrank run (127.0.0.4): barrier #1 of "), "{line}");
        job.tell("come");
        job.until_said("barrier #1 of group default_pg waits no longer, after ");
        let said = job.end();
        assert_eq!(count(&said, "waits no longer"), 1, "{said:#?}");
        let others = count(&said, " have waited for ") - count(&said, &waits);
        assert_eq!(others, 0, "{said:#?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_rank_that_is_stopped_is_named_with_what_lets_it_go_on() {
    let mut job = Job::start(polyrank(&["-n", "3"]), "a stopped rank");
    job.until_said("barrier #1 of group default_pg: ranks 0, 2 have waited for ");
    job.until_said("rank 1 is stopped (`kill -CONT ");
    let line = job.said.last().unwrap();
    assert!(line.starts_with("polyrank run: rank 1 is ") && line.ends_with("` lets it go on)"));
    let (_, rest) = line.split_once("kill -CONT ").unwrap();
    let pid = rest.split('`').next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT).unwrap();
    job.tell("come");
    job.until_said("barrier #1 of group default_pg waits no longer");
    job.end();
}

#[test]
fn a_call_that_makes_a_group_and_a_collective_that_wait_for_each_other_are_a_deadlock() {
    let mut job = Job::start(polyrank(&["-n", "2"]), "a circle");
    job.until_said("wait for each other between the groups default_pg and tp: a deadlock; ");
    let line = job.said.last().unwrap();
    let words = [
        "polyrank run: ranks 0 and 1 wait for each other",
        "; rank 0 is in new_group of group tp (ranks 0, 1)",
        "; rank 1 is in barrier #1 of default_pg",
        "in different orders; all must use them in the same order",
    ];
    words.iter().for_each(|words| assert!(line.contains(words), "{words}: {line}"));
    kill_process(Pid::from_child(&job.launcher), Signal::TERM).unwrap();
    assert!(!job.launcher.wait().unwrap().success());
}
