//! Launchers of several nodes, on one host: they meet at a rendezvous, hand out ranks, restart
//! together, and notice each other's end. Shell scripts stand in for ranks.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::process::{Child, Command, Output, Stdio};

use launcher::{HeldPort, Running, polyrank, sorted_lines, text};
use rustix::process::Signal;

/// The launcher of one of two nodes.
fn node(port: &HeldPort, words: &[&str]) -> Command {
    let endpoint = format!("--rdzv_endpoint=127.0.0.1:{}", port.number);
    let meeting = ["--nnodes=2", "--rdzv-backend=c10d", &endpoint];
    let mut command = polyrank(&[&meeting[..], words].concat());
    for name in ["POLYRANK_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"] {
        command.env_remove(name);
    }
    command
}

fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What two nodes come to, started at the same time.
fn both(first: &[&str], second: &[&str]) -> [Output; 2] {
    let port = HeldPort::new();
    [first, second]
        .map(|words| start(node(&port, words)))
        .map(|launcher| launcher.wait_with_output().unwrap())
}

/// The lines of both, sorted.
fn lines(outputs: &[Output; 2]) -> Vec<String> {
    let all = outputs.iter().flat_map(|output| sorted_lines(&output.stdout));
    let mut all: Vec<String> = all.collect();
    all.sort();
    all
}

#[test]
fn launchers_that_meet_get_their_ranks_from_each_other() {
    let script = "echo $WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR $ROLE_NAME \
                  $ROLE_RANK $ROLE_WORLD_SIZE; echo $MASTER_PORT $POLYRANK_RUN_ID > /dev/stderr";
    let program = ["sh", "-c", script];
    let words = ["--role", "big", "-n", "3"];
    let first = [&words[..], &program].concat();
    let second = [&["--role", "small", "-n", "2"][..], &program].concat();
    let outputs = both(&first, &second);
    // Which of them is faster serves the others and is node 0.
    let found = lines(&outputs);
    let expected = |order: [(&str, u32); 2]| {
        let mut lines = Vec::new();
        let mut rank = 0;
        for (node, (role, count)) in order.into_iter().enumerate() {
            for local in 0..count {
                let place = format!("5 {node} 2 127.0.0.1 {role} {local} {count}");
                lines.push(format!("[rank {rank}] {place}"));
                rank += 1;
            }
        }
        lines
    };
    let (big, small) = (("big", 3), ("small", 2));
    assert!(found == expected([big, small]) || found == expected([small, big]), "{found:#?}");
    let mut agreed: Vec<String> = outputs
        .iter()
        .flat_map(|output| sorted_lines(&output.stderr))
        .map(|line| line.split_once("] ").expect(&line).1.to_owned())
        .collect();
    agreed.dedup();
    assert_eq!(agreed.len(), 1, "one port and one name: {agreed:?}");
    assert!(outputs.iter().all(|output| output.status.code() == Some(0)));
}

#[test]
fn a_given_node_rank_is_kept() {
    let script = ["sh", "-c", "echo $GROUP_RANK"];
    let first = [&["--node-rank", "1"][..], &script].concat();
    let second = [&["--node_rank", "0"][..], &script].concat();
    let [first, second] = both(&first, &second);
    assert_eq!(text(&first.stdout), "[rank 1] 1\n");
    assert_eq!(text(&second.stdout), "[rank 0] 0\n");
}

#[test]
fn all_nodes_restart_together() {
    let script = "echo $RANK $TORCHELASTIC_RESTART_COUNT; \
                  [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; \
                  [ $RANK = 3 ] && exit 5; exec sleep 600";
    let words = ["-n", "2", "--max-restarts", "2", "sh", "-c", script];
    let outputs = both(&words, &words);
    for output in &outputs {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let errors = text(&output.stderr);
        assert_eq!(errors.matches("restart 1 of 2").count(), 1, "{errors}");
    }
    let second: Vec<String> =
        lines(&outputs).into_iter().filter(|line| line.ends_with(" 1")).collect();
    assert_eq!(second, [0, 1, 2, 3].map(|rank| format!("[rank {rank}] {rank} 1")));
}

#[test]
fn a_failure_ends_the_other_nodes_with_its_exit_code() {
    let script = "[ $RANK = 1 ] && exit 9; exec sleep 600";
    let words = ["-n", "1", "sh", "-c", script];
    let outputs = both(&words, &words);
    assert!(outputs.iter().all(|output| output.status.code() == Some(9)), "{outputs:?}");
    let said = outputs.map(|output| text(&output.stderr)).concat();
    assert!(said.contains("rank 1 failed first: exit code 9"), "{said}");
    let elsewhere = "): rank 1 failed: exit code 9; stopping the rank here";
    assert!(said.contains("polyrank run: node 1 (") && said.contains(elsewhere), "{said}");
}

#[test]
fn a_node_whose_ranks_ended_well_waits_for_the_others() {
    // Restarts need all nodes, so one that is done may have to start its ranks again.
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "echo $RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; \
         [ $RANK = 0 ] && {{ : > {done}; exit 0; }}; \
         until [ -e {done} ]; do sleep 0.02; done; exit 3",
        done = folder.path().join("done").display()
    );
    let words = ["--max-restarts", "1", "sh", "-c", &script];
    let outputs = both(&words, &words);
    assert!(outputs.iter().all(|output| output.status.code() == Some(0)), "{outputs:?}");
    let expected = [0, 0, 1, 1].map(|rank| format!("[rank {rank}] {rank}"));
    assert_eq!(lines(&outputs), expected);
}

#[test]
fn launchers_of_two_jobs_do_not_meet() {
    let port = HeldPort::new();
    let first = start(node(
        &port,
        &["--node-rank=0", "--rdzv-conf=join_timeout=5,is_host=1", "--rdzv-id=A", "true"],
    ));
    let second =
        node(&port, &["--node-rank=1", "--rdzv-conf", "is_host=0", "--rdzv_id", "B", "true"]);
    let second = start(second).wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let errors = text(&second.stderr);
    assert!(errors.contains("start job 'A', and this one 'B'"), "{errors}");
    let first = first.wait_with_output().unwrap();
    assert_eq!(first.status.code(), Some(1));
    let errors = text(&first.stderr);
    assert!(errors.contains("1 of 2 nodes are at the rendezvous"), "{errors}");
    assert!(errors.contains("missing: node 1"), "{errors}");
}

#[test]
fn a_launcher_that_waits_for_others_can_be_interrupted() {
    let mut alone = start(node(&HeldPort::new(), &["--timeout", "600", "true"]));
    // Signals are handled from the first moment on, and so may come at any.
    let status = loop {
        rustix::process::kill_process(rustix::process::Pid::from_child(&alone), Signal::INT)
            .unwrap();
        std::thread::yield_now();
        if let Some(status) = alone.try_wait().unwrap() {
            break status;
        }
    };
    // Before the handler stands, the signal itself ends the launcher.
    assert!(status.code() == Some(130) || status.code().is_none(), "{status:?}");
}

#[test]
fn a_launcher_that_is_killed_ends_the_job() {
    let fast = "--rdzv-conf=keep_alive_interval=0.2,keep_alive_max_attempt=5";
    let script = ["sh", "-c", "echo ready; exec sleep 600"];
    for killed in [1, 0] {
        let port = HeldPort::new();
        let words = |rank| [&[fast, "--node-rank", rank][..], &script].concat();
        let first = start(node(&port, &words("0")));
        let second = Running::of(node(&port, &words("1")));
        assert_eq!(second.first, "[rank 1] ready\n");
        let (victim, code, said) = if killed == 1 {
            second.signal(Signal::KILL);
            let output = first.wait_with_output().unwrap();
            (second.launcher, output.status.code(), text(&output.stderr))
        } else {
            rustix::process::kill_process(rustix::process::Pid::from_child(&first), Signal::KILL)
                .unwrap();
            let (code, _, said) = second.end();
            (first, code, said)
        };
        assert_eq!(code, Some(1), "{said}");
        let expected = ["has given no sign for 1 s", "that serves the rendezvous at 127.0.0.1"];
        assert!(expected.iter().any(|words| said.contains(words)), "{said}");
        let mut victim = victim;
        victim.wait().unwrap();
    }
}

#[test]
fn a_signal_to_one_launcher_ends_all() {
    let port = HeldPort::new();
    let words = |rank| ["--node-rank", rank, "sh", "-c", "echo ready; exec sleep 600"];
    let first = start(node(&port, &words("0")));
    let second = Running::of(node(&port, &words("1")));
    second.signal(Signal::TERM);
    assert_eq!(second.end().0, Some(143));
    let output = first.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143));
    let errors = text(&output.stderr);
    assert!(errors.contains("its launcher got SIGTERM"), "{errors}");
}
