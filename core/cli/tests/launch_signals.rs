//! `polyrank run` passes on SIGUSR1 and SIGUSR2 to ranks that have an answer to them, and says
//! where ranks of a group write what they have called. Those are this program, started again;
//! shell scripts stand in for others.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use launcher::{Running, polyrank, text};
use polyrank::distributed::{InitOptions, barrier, destroy_process_group, init_process_group};
use rustix::process::{Pid, Signal, kill_process};

/// The file by which ranks are told to end.
const END: &str = "SIGNAL_TEST_END";
/// How long a busy machine may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A rank of a job; nothing in the program of the tests.
#[test]
fn rank() {
    let Some(end) = std::env::var_os(END) else { return };
    init_process_group(InitOptions::default()).unwrap();
    barrier(()).unwrap();
    // As a line of its own, whatever the harness has written before.
    println!("\nready");
    until("the end", || Path::new(&end).exists().then_some(()));
    destroy_process_group(None).unwrap();
}

fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A job of two ranks of a group, which get SIGUSR1; the folder of which its launcher speaks.
fn traced(mut command: Command, folder: &Path) -> PathBuf {
    let end = folder.join("end");
    let _ = std::fs::remove_file(&end);
    command.arg("--no-python").arg(std::env::current_exe().unwrap());
    command.args(["--exact", "rank", "--nocapture"]).env(END, &end).env("TMPDIR", folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.by_ref().filter(|line| line.ends_with("ready")).take(2).count(), 2);
    kill_process(Pid::from_child(&launcher), Signal::USR1).unwrap();
    let mut errors = BufReader::new(launcher.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = errors.find(|line| line.contains("SIGUSR1")).unwrap();
    assert_eq!(line, "polyrank run: SIGUSR1: passed on to 2 ranks");
    let line = errors.find(|line| line.contains("`polyrank trace ")).unwrap();
    let (who, rest) = line.split_once(": `polyrank trace ").unwrap();
    assert_eq!(who, "polyrank run: 2 ranks have written what they have called");
    let traces = PathBuf::from(rest.strip_suffix("` reads it").unwrap());
    for rank in 0..2 {
        let file = traces.join(format!("polyrank_trace_rank_{rank}.json"));
        until("a rank's file", || file.exists().then_some(()));
    }
    std::fs::write(end, "").unwrap();
    lines.for_each(drop);
    assert!(launcher.wait().unwrap().success());
    traces
}

#[test]
fn nobody_has_prepared_for_it_and_the_files_outlive_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = polyrank(&["-n", "2"]);
    command.env_remove("POLYRANK_TRACE_DIR");
    let traces = traced(command, folder.path());
    let place = folder.path().canonicalize().unwrap();
    assert!(traces.starts_with(&place), "{traces:?}");
    let output = Command::new(env!("CARGO_BIN_EXE_polyrank")).arg("trace").arg(&traces).output();
    let said = text(&output.unwrap().stdout);
    assert!(said.contains("2 ranks, files of all") && said.contains("SIGUSR1"), "{said}");
    // Nothing else of the job is left.
    let mut left = Vec::new();
    launcher::collect(&place, &mut left);
    let is_other = |path: &&PathBuf| !path.starts_with(&traces) && !path.ends_with("end");
    assert_eq!(left.iter().filter(is_other).count(), 0, "{left:?}");
}

#[test]
fn the_files_are_where_the_user_has_said() {
    let folder = tempfile::tempdir().unwrap();
    let dumps = folder.path().join("dumps");
    let mut command = polyrank(&["-n", "2"]);
    command.env("POLYRANK_TRACE_DIR", &dumps);
    assert_eq!(traced(command, folder.path()), dumps);
    let mut command = polyrank(&["-n", "2", "-x"]);
    command.arg(format!("POLYRANK_TRACE_DIR={}", dumps.display()));
    assert_eq!(traced(command, folder.path()), dumps);
    let logs = folder.path().canonicalize().unwrap().join("logs");
    let mut command = polyrank(&["-n", "2", "--log-dir", logs.to_str().unwrap()]);
    command.env_remove("POLYRANK_TRACE_DIR");
    let traces = traced(command, folder.path());
    assert!(traces.starts_with(logs) && traces.ends_with("attempt_0/traces"), "{traces:?}");
}

fn line(job: &mut Running) -> String {
    let mut line = String::new();
    job.output.read_line(&mut line).unwrap();
    line
}

/// Rank 0 has no handler. Rank 1 has one, and rank 2 has started a program that has.
const SCRIPT: &str = "child='trap \"echo got it; exit 0\" NAME; echo ready; \
                      while :; do sleep 0.05; done'; \
                      case $RANK in 0) read line < \"$FIFO\";; 1) eval \"$child\";; \
                      2) sh -c \"$child\"; exit 0;; esac";

#[test]
fn a_rank_without_a_handler_is_spared_and_named() {
    for (name, signal, why) in [
        ("USR1", Signal::USR1, "has not begun to join a group, and no handler of its own"),
        ("USR2", Signal::USR2, "has no handler for it"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let mut command = polyrank(&["-n", "3", "sh", "-c", &SCRIPT.replace("NAME", name)]);
        command.env("FIFO", &fifo).env("TMPDIR", folder.path());
        let mut job = Running::of(command);
        // Two ranks are ready when they have said it.
        line(&mut job);
        job.signal(signal);
        let mut lines: Vec<_> = (0..2).map(|_| line(&mut job)).collect();
        lines.sort();
        assert_eq!(lines, ["[rank 1] got it\n", "[rank 2] got it\n"]);
        // Rank 0 lives, and reads on.
        std::fs::write(fifo, "\n").unwrap();
        let (code, _, errors) = job.end();
        assert_eq!(code, Some(0), "{errors}");
        let line = format!("SIG{name}: passed on to 2 ranks; not to rank 0, which {why}");
        assert!(errors.contains(&line), "{errors}");
        // Nobody has written anything.
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}

#[test]
fn where_no_rank_is_in_a_group_nothing_is_said_to_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let script = "trap 'echo got it' USR1; echo ready; \
                  until [ -e \"$END\" ]; do sleep 0.05; done";
    let mut command = polyrank(&["-n", "1", "sh", "-c", script]);
    command.env("END", &end).env("TMPDIR", folder.path()).env_remove("POLYRANK_TRACE_DIR");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "[rank 0] ready");
    kill_process(Pid::from_child(&launcher), Signal::USR1).unwrap();
    let errors = BufReader::new(launcher.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said: Vec<String> = errors.filter(|line| !line.contains("logs are")).take(2).collect();
    assert_eq!(said[0], "polyrank run: SIGUSR1: passed on to 1 rank");
    let none = "polyrank run: no rank has written what it has called within 15 s: those do, to ";
    let folder = folder.path().to_str().unwrap();
    assert!(said[1].starts_with(&format!("{none}{folder}/")), "{said:?}");
    std::fs::write(end, "").unwrap();
    lines.for_each(drop);
    assert!(launcher.wait().unwrap().success());
}
