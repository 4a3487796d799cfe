//! `polyrank run --nnodes MIN:MAX`: launchers, all on one host here, that come and go. All ranks
//! are started again then, with what the number of nodes is now. Shell scripts stand in for ranks.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::io::BufRead;
use std::path::Path;
use std::process::Command;

use launcher::{HeldPort, Running, polyrank, run, text};
use rustix::process::Signal;

/// A launcher that serves the others, or one of those. It says soon that it is there, and waits
/// for more nodes than there must be for so long.
fn node(port: &HeldPort, serves: bool, last_call: &str, words: &[&str]) -> Command {
    let endpoint = format!("--rdzv-endpoint=127.0.0.1:{}", port.number);
    let fast = "keep_alive_interval=0.2,keep_alive_max_attempt=5";
    let conf = format!("--rdzv-conf={fast},is_host={serves},last_call_timeout={last_call}");
    let meeting = ["--rdzv-backend=c10d", &endpoint, &conf, "--no-prefix"];
    let mut command = polyrank(&[&meeting[..], words].concat());
    for name in ["POLYRANK_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"] {
        command.env_remove(name);
    }
    command
}

/// Ranks that run until a file is there, or SIGTERM comes.
fn until(end: &Path) -> String {
    let end = end.to_str().unwrap();
    format!(
        "trap 'exit 0' TERM; echo $RANK of $WORLD_SIZE on $GROUP_WORLD_SIZE, \
         $TORCHELASTIC_RESTART_COUNT; until [ -e '{end}' ]; do sleep 0.05; done"
    )
}

/// Reads until a rank has said so.
fn wait_for(job: &mut Running, expected: &str) {
    let expected = format!("{expected}\n");
    let mut line = std::mem::take(&mut job.first);
    while line != expected {
        line.clear();
        assert!(job.output.read_line(&mut line).unwrap() > 0, "the job ended before {expected}");
    }
}

#[test]
fn ranks_are_started_again_when_a_node_comes_or_goes_and_that_is_no_restart() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let script = until(&end);
    let port = HeldPort::new();
    let words = ["--nnodes=1:3", "-n=2", "sh", "-c", &script];
    let mut first = Running::of(node(&port, true, "0.1", &words));
    wait_for(&mut first, "1 of 2 on 1, 0");
    for ending in [Signal::TERM, Signal::KILL] {
        let mut second = Running::of(node(&port, false, "0.1", &words));
        wait_for(&mut second, "3 of 4 on 2, 0");
        wait_for(&mut first, "0 of 4 on 2, 0");
        second.signal(ending);
        let status = second.launcher.wait().unwrap();
        assert_eq!(status.code(), (ending == Signal::TERM).then_some(143));
        wait_for(&mut first, "1 of 2 on 1, 0");
    }
    std::fs::write(end, "").unwrap();
    let (code, _, errors) = first.end();
    assert_eq!(code, Some(0), "{errors}");
    for part in [" has come; stopping the 2 ranks", " has gone: its launcher got SIGTERM; stopping"]
    {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    let again = "all ranks are started again, on the nodes that are there";
    assert_eq!(errors.matches(again).count(), 4, "{errors}");
}

#[test]
fn the_job_begins_when_there_are_enough_nodes_and_nobody_else_comes() {
    let script = ["sh", "-c", "echo $WORLD_SIZE"];
    for (nodes, last_call, started, expected) in
        [("--nnodes=2:3", "0.2", 2, "2\n"), ("--nnodes=1:3", "600", 3, "3\n")]
    {
        let port = HeldPort::new();
        let words = [&[nodes][..], &script].concat();
        let jobs: Vec<Running> = std::thread::scope(|scope| {
            let start = |at| Running::of(node(&port, at == 0, last_call, &words));
            let jobs: Vec<_> = (0..started).map(|at| scope.spawn(move || start(at))).collect();
            jobs.into_iter().map(|job| job.join().unwrap()).collect()
        });
        for job in jobs {
            assert_eq!(job.first, expected);
            assert_eq!(job.end().0, Some(0));
        }
    }
}

#[test]
fn failures_count_as_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let script = until(&folder.path().join("end"));
    // With two nodes, rank 1 fails as soon as rank 0, which is stopped then, has written its line.
    let said = format!("{}/$TORCHELASTIC_RESTART_COUNT", folder.path().display());
    let failure = format!(
        "; [ $WORLD_SIZE = 2 ] && [ $RANK = 0 ] && : > {said}; \
         [ $RANK = 1 ] && {{ until [ -e {said} ]; do sleep 0.02; done; exit 5; }}; until"
    );
    let script = script.replace("; until", &failure);
    let port = HeldPort::new();
    let words = ["--nnodes=1:2", "--max-restarts=1", "sh", "-c", &script];
    let first = Running::of(node(&port, true, "0.1", &words));
    assert_eq!(first.first, "0 of 1 on 1, 0\n");
    let second = Running::of(node(&port, false, "0.1", &words));
    let (code, _, errors) = second.end();
    assert_eq!(code, Some(5), "{errors}");
    let (code, output, errors) = first.end();
    assert_eq!(code, Some(5), "{errors}");
    assert!(output.contains("0 of 2 on 2, 0\n0 of 2 on 2, 1\n"), "{output}");
    assert!(errors.contains("restart 1 of 1"), "{errors}");
}

#[test]
fn who_finds_no_room_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let script = until(&end);
    let port = HeldPort::new();
    let words = ["--nnodes=1:2", "sh", "-c", &script];
    let mut first = Running::of(node(&port, true, "0.1", &words));
    wait_for(&mut first, "0 of 1 on 1, 0");
    let mut second = Running::of(node(&port, false, "0.1", &words));
    wait_for(&mut second, "1 of 2 on 2, 0");
    std::thread::scope(|scope| {
        let third = scope.spawn(|| Running::of(node(&port, false, "0.1", &words)));
        second.signal(Signal::TERM);
        assert_eq!(second.end().0, Some(143));
        let mut third = third.join().unwrap();
        wait_for(&mut third, "1 of 2 on 2, 0");
        std::fs::write(end, "").unwrap();
        assert_eq!(third.end().0, Some(0));
    });
    assert_eq!(first.end().0, Some(0));
}

#[test]
fn the_node_that_serves_ends_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let script = until(&folder.path().join("end"));
    let port = HeldPort::new();
    let words = ["--nnodes=1:2", "sh", "-c", &script];
    let first = Running::of(node(&port, true, "0.1", &words));
    let second = Running::of(node(&port, false, "0.1", &words));
    assert_eq!(second.first, "1 of 2 on 2, 0\n");
    first.signal(Signal::TERM);
    assert_eq!([first.end().0, second.end().0], [Some(143), Some(143)]);
}

#[test]
fn what_does_not_go_with_nodes_that_come_and_go_is_refused() {
    let endpoint = "--rdzv-endpoint=127.0.0.1:1";
    for (words, expected) in [
        (&["--nnodes=1:2"][..], "launchers that come and go must meet"),
        (&["--nnodes=2:1"], "expected MIN:MAX"),
        (&["--nnodes=1:2", "--rdzv-backend=c10d", endpoint, "--node-rank=1"], "leave out"),
        (&["--nnodes=1:2", "--rdzv-backend=c10d", endpoint, "--rdzv-conf=rank=1"], "leave out"),
    ] {
        let output = run(&[words, &["true"]].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(expected), "{words:?}: {errors}");
    }
}
