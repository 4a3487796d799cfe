//! `polyrank run --replicas` on several nodes, whose launchers are on one host here: who has which
//! replicas, and what happens when nodes come and go. Shell scripts stand in for ranks.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use launcher::{HeldPort, Running, polyrank, sorted_lines, text};
use rustix::process::{Pid, Signal, kill_process};

/// How often launchers say that they are there.
const FAST: &str = "keep_alive_interval=0.2,keep_alive_max_attempt=5";

/// A launcher that serves the others, or one of those.
fn node(port: &HeldPort, serves: bool, words: &[&str]) -> Command {
    let endpoint = format!("--rdzv-endpoint=127.0.0.1:{}", port.number);
    let conf = format!("--rdzv-conf={FAST},is_host={serves}");
    let meeting = ["--rdzv-backend=c10d", &endpoint, &conf];
    let mut command = polyrank(&[&meeting[..], words].concat());
    let names = ["POLYRANK_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "TORCHFT_LIGHTHOUSE"];
    for name in names.into_iter().chain(["POLYRANK_TOKEN", "CUDA_VISIBLE_DEVICES"]) {
        command.env_remove(name);
    }
    command
}

fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn both(words: &[&str]) -> [Output; 2] {
    let port = HeldPort::new();
    [true, false]
        .map(|serves| start(node(&port, serves, words)))
        .map(|launcher| launcher.wait_with_output().unwrap())
}

/// Ranks that run until a file is there, or SIGTERM comes.
fn until(end: &Path) -> String {
    let end = end.to_str().unwrap();
    format!(
        "trap 'exit 0' TERM; echo $REPLICA_GROUP_ID of $NUM_REPLICA_GROUPS; \
         until [ -e '{end}' ]; do sleep 0.05; done"
    )
}

#[test]
fn nodes_share_the_replicas_of_a_job() {
    let script = "echo $REPLICA_GROUP_ID $NUM_REPLICA_GROUPS $RANK $WORLD_SIZE $MASTER_ADDR \
                  $POLYRANK_MANAGER_HOST $POLYRANK_RUN_ID; echo $TORCHFT_LIGHTHOUSE >&2";
    let words = ["--nnodes=2", "--replicas=3", "-n=2", "--run-id=j", "sh", "-c", script];
    let outputs = both(&words);
    for (output, replicas) in outputs.iter().zip([0..2, 2..3]) {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let mut expected = Vec::new();
        for replica in replicas {
            for rank in 0..2 {
                expected.push(format!(
                    "[replica {replica}, rank {rank}] {replica} 3 {rank} 2 127.0.0.1 127.0.0.1 \
                     j-replica-{replica}"
                ));
            }
        }
        assert_eq!(sorted_lines(&output.stdout), expected);
    }
    let mut urls: Vec<String> = outputs
        .iter()
        .flat_map(|output| sorted_lines(&output.stderr))
        .filter_map(|line| Some(line.rsplit_once("http://")?.1.to_owned()))
        .collect();
    assert_eq!(urls.len(), 7);
    urls.dedup();
    assert_eq!(urls.len(), 1, "{urls:?}");
}

#[test]
fn a_node_that_comes_adds_replicas_and_takes_the_place_of_one_that_went() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let script = until(&end);
    let words = ["--nnodes=1:2", "--replicas=2", "--no-prefix", "sh", "-c", &script];
    let port = HeldPort::new();
    let first = Running::of(node(&port, true, &words));
    assert!(["0 of 4\n", "1 of 4\n"].contains(&first.first.as_str()), "{}", first.first);
    for ending in [Signal::TERM, Signal::KILL, Signal::TERM] {
        // It takes a while until one that was killed is known to be gone.
        let second = Running::of(node(&port, false, &words));
        assert!(["2 of 4\n", "3 of 4\n"].contains(&second.first.as_str()), "{}", second.first);
        second.signal(ending);
        let Running { mut launcher, .. } = second;
        let status = launcher.wait().unwrap();
        assert_eq!(status.code(), (ending == Signal::TERM).then_some(143));
    }
    std::fs::write(end, "").unwrap();
    let (code, output, errors) = first.end();
    assert_eq!(code, Some(0), "{errors}");
    // The replicas of the first were started once.
    assert_eq!(output.lines().count(), 1, "{output}");
    let gone = "has given no sign for 1 s: its replicas are gone, and another may take its place";
    assert_eq!(errors.matches(gone).count(), 1, "{errors}");
}

#[test]
fn too_many_nodes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let script = until(&end);
    let words = ["--nnodes=1:2", "--replicas=1", "sh", "-c", &script];
    let port = HeldPort::new();
    let first = Running::of(node(&port, true, &words));
    let second = Running::of(node(&port, false, &words));
    assert_eq!(second.first, "[replica 1, rank 0] 1 of 2\n");
    let third = node(&port, false, &words).output().unwrap();
    assert_eq!(third.status.code(), Some(1));
    let errors = text(&third.stderr);
    assert!(errors.contains("all 2 nodes of the job are there already"), "{errors}");
    std::fs::write(end, "").unwrap();
    assert_eq!([first.end().0, second.end().0], [Some(0), Some(0)]);
}

#[test]
fn the_job_fails_on_all_nodes_with_too_few_replicas() {
    let script = "[ $REPLICA_GROUP_ID = 1 ] && exit 7; trap 'exit 0' TERM; \
                  while :; do sleep 0.05; done";
    let words = ["--nnodes=2", "--replicas=2", "--min-replicas=2", "sh", "-c", script];
    let [first, second] = both(&words);
    assert_eq!([first.status.code(), second.status.code()], [Some(7), Some(7)]);
    let errors = text(&first.stderr);
    let lost = "polyrank run: replica 1 is lost, after no restart: rank 0: exit code 7; stopping \
                the replicas here\n";
    assert!(errors.contains(lost), "{errors}");
    let errors = text(&second.stderr);
    let lost = "exit code 7; 1 left, fewer than --min-replicas 2: stopping them\n";
    assert!(errors.contains(lost), "{errors}");
}

#[test]
fn the_replicas_of_other_nodes_go_on_without_one_that_is_lost() {
    let script = "[ $REPLICA_GROUP_ID = 1 ] && exit 7; exit 0";
    let words = ["--nnodes=2", "--replicas=2", "--min-replicas=1", "sh", "-c", script];
    let [first, second] = both(&words);
    assert_eq!([first.status.code(), second.status.code()], [Some(0), Some(7)]);
    let errors = text(&second.stderr);
    assert!(errors.contains("exit code 7; 1 is left and goes on\n"), "{errors}");
}

#[test]
fn without_the_node_that_serves_the_others_end() {
    let folder = tempfile::tempdir().unwrap();
    let script = until(&folder.path().join("end"));
    let words = ["--nnodes=2", "--replicas=2", "sh", "-c", &script];
    for (ending, code, said) in [
        (Signal::TERM, 143, "the launcher that serves the rendezvous got SIGTERM; stopping the"),
        (Signal::KILL, 1, "the launcher that serves the rendezvous at 127.0.0.1:"),
    ] {
        let port = HeldPort::new();
        let mut first = start(node(&port, true, &words));
        let second = Running::of(node(&port, false, &words));
        kill_process(Pid::from_child(&first), ending).unwrap();
        let (ended, _, errors) = second.end();
        assert_eq!(ended, Some(code), "{errors}");
        assert!(errors.contains(said), "{errors}");
        let status = first.wait().unwrap();
        assert_eq!(status.code(), (ending == Signal::TERM).then_some(143));
    }
}

#[test]
fn a_launcher_that_waits_for_others_can_be_told_to_end() {
    let port = HeldPort::new();
    let words = ["--nnodes=2", "--replicas=2", "--timeout=0.5", "true"];
    let output = node(&port, true, &words).output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    assert!(text(&output.stderr).contains("not all nodes have come"), "{output:?}");
}

#[test]
fn a_lighthouse_for_other_hosts_needs_a_token() {
    let port = HeldPort::new();
    // A name that is no loopback address: this host's own, if it has one in the network.
    let name = Command::new("hostname").arg("-I").output().unwrap();
    let Some(address) = text(&name.stdout).split_whitespace().next().map(str::to_owned) else {
        eprintln!("skipped: this host has no address in a network");
        return;
    };
    let words = ["--nnodes=2", "--replicas=2", "true"];
    let endpoint = format!("--rdzv-endpoint={address}:{}", port.number);
    let meeting = ["--rdzv-backend=c10d", &endpoint, "--rdzv-conf=is_host=1"];
    let mut command = polyrank(&[&meeting[..], &words].concat());
    for name in ["POLYRANK_TOKEN", "POLYRANK_INSECURE", "TORCHFT_LIGHTHOUSE"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("POLYRANK_TOKEN"), "{output:?}");
}
