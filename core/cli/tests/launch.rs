//! `polyrank run` with real processes: shell scripts stand in for ranks. Expected lines and exit
//! codes are written by hand. Knows nothing of collectives.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use launcher::{Running, is_dead, polyrank, run, sorted_lines, text, wait_until_dead};
use rustix::process::{Pid, Signal, kill_process};

/// A file name that no other test uses.
fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("polyrank-launch-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Starts the launcher and reads its output up to the first line that a rank writes.
fn start_until_first_line(words: &[&str]) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let Running { launcher, output, first } = Running::start(words);
    (launcher, output, first)
}

fn signal(launcher: &Child, signal: Signal) {
    kill_process(Pid::from_child(launcher), signal).unwrap();
}

#[test]
fn every_rank_finds_its_place_in_the_environment() {
    let script = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK \
                  $GROUP_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $OMP_NUM_THREADS $POLYRANK_RUN_ID";
    let output = run(&["-n", "3", "--master-port", "4711", "--run-id", "j", "sh", "-c", script]);
    let expected = [0, 1, 2].map(|n| format!("[rank {n}] {n} {n} 3 3 0 1 127.0.0.1 4711 1 j"));
    assert_eq!(sorted_lines(&output.stdout), expected);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn ranks_of_the_second_node_follow_those_of_the_first() {
    let script = "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR $MASTER_PORT";
    let nodes = ["--nnodes", "3", "--node-rank", "1", "--master-addr", "host-a"];
    let output = run(&[&nodes[..], &["-n", "2", "sh", "-c", script]].concat());
    let expected = ["[rank 2] 2 0 6 1 host-a 29500", "[rank 3] 3 1 6 1 host-a 29500"];
    assert_eq!(sorted_lines(&output.stdout), expected);
}

#[test]
fn external_ranks_count_and_get_urls() {
    let words = ["--external", "2", "--master-port", "4712", "--run-id", "a job", "-n", "2"];
    let output =
        run(&[&words[..], &["sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_WORLD_SIZE"]].concat());
    assert_eq!(sorted_lines(&output.stdout), ["[rank 0] 0 4 2", "[rank 1] 1 4 2"]);
    let said = [2, 3].map(|rank| {
        let url = format!("ws://127.0.0.1:4712/?rank={rank}&world_size=4&run_id=a%20job");
        format!("polyrank run: rank {rank} joins from elsewhere: {url}")
    });
    assert_eq!(sorted_lines(&output.stderr), said);
}

#[test]
fn a_free_port_is_picked_once_for_all_ranks() {
    let script = "echo $MASTER_PORT $POLYRANK_RUN_ID";
    let output = run(&["--no-prefix", "-n", "5", "sh", "-c", script]);
    let mut lines = sorted_lines(&output.stdout);
    assert_eq!(lines.len(), 5);
    lines.dedup();
    assert_eq!(lines.len(), 1, "the ranks disagree: {lines:?}");
    let (port, run_id) = lines[0].split_once(' ').unwrap();
    assert!(port.parse::<u16>().unwrap() > 0 && !run_id.is_empty());
}

#[test]
fn a_job_has_the_name_that_its_surroundings_gave_it() {
    let words = ["--no-prefix", "-n", "1"];
    let program = ["sh", "-c", "echo $POLYRANK_RUN_ID"];
    for (variable, named, expected) in [
        ("POLYRANK_RUN_ID", &[][..], "night\n"),
        ("TORCHELASTIC_RUN_ID", &[], "night\n"),
        ("SLURM_JOB_ID", &[], "slurm-night\n"),
        ("POLYRANK_RUN_ID", &["--run-id", "day"], "day\n"),
    ] {
        let mut launcher = polyrank(&[&words[..], named, &program].concat());
        for other in ["POLYRANK_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"] {
            launcher.env_remove(other);
        }
        let output = launcher.env(variable, "night").output().unwrap();
        assert_eq!(text(&output.stdout), expected, "{variable} {named:?}");
    }
}

#[test]
fn several_programs_are_ranks_of_one_job() {
    let one = "echo one $RANK $WORLD_SIZE";
    let two = "echo two $RANK $WORLD_SIZE $0";
    let output =
        run(&["-n", "2", "sh", "-c", one, ":", "-n", "1", "sh", "-c", two, "-n", ":", "true"]);
    let expected = ["[rank 0] one 0 4", "[rank 1] one 1 4", "[rank 2] two 2 4 -n"];
    assert_eq!(sorted_lines(&output.stdout), expected);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn lines_stay_whole_and_the_last_one_needs_no_end() {
    let script = "i=0; while [ $i -lt 200 ]; do printf a$RANK; printf b$i; printf 'c\\n'; \
                  printf 'e%s\\n' $i >&2; i=$((i+1)); done; printf end";
    let output = run(&["-n", "5", "sh", "-c", script]);
    for rank in 0..5 {
        let prefix = format!("[rank {rank}] ");
        let of_rank = |bytes: &[u8]| -> Vec<String> {
            let all = text(bytes);
            all.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
        };
        let mut expected: Vec<String> = (0..200).map(|i| format!("a{rank}b{i}c")).collect();
        expected.push("end".to_owned());
        assert_eq!(of_rank(&output.stdout), expected);
        let expected: Vec<String> = (0..200).map(|i| format!("e{i}")).collect();
        assert_eq!(of_rank(&output.stderr), expected);
    }
    assert_eq!(text(&output.stdout).lines().count(), 5 * 201);
    assert!(output.stdout.ends_with(b"\n"));
}

#[test]
fn the_first_failure_stops_the_others_and_is_reported() {
    let script = "if [ $RANK = 2 ]; then echo reading; echo 'no such file' >&2; exit 7; fi; \
                  exec sleep 600";
    let output = run(&["-n", "4", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7));
    let errors = text(&output.stderr);
    assert!(errors.contains("rank 2 failed: exit code 7; stopping the other 3"), "{errors}");
    let report = errors.split("rank 2 failed first: exit code 7").nth(1).expect(&errors);
    let mut last: Vec<&str> = report.lines().skip(1).collect();
    last.sort_unstable();
    assert_eq!(last, ["    | no such file", "    | reading"]);
}

#[test]
fn a_killed_rank_is_named_with_its_signal() {
    let script = "if [ $RANK = 1 ]; then kill -9 $$; fi; exec sleep 600";
    let output = run(&["-n", "3", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(137));
    let errors = text(&output.stderr);
    assert!(errors.contains("rank 1 failed first: killed by SIGKILL"), "{errors}");
    assert!(errors.contains("it wrote nothing"), "{errors}");
}

#[test]
fn what_does_not_stop_when_asked_is_killed_with_its_children() {
    let pids = temporary("stubborn");
    let ready = temporary("ready");
    let (pids_name, ready_name) = (pids.to_str().unwrap(), ready.to_str().unwrap());
    let status = Command::new("mkfifo").arg(&ready).status().unwrap();
    assert!(status.success());
    // Rank 1 fails only after rank 0 has set its trap and started its child.
    let script = format!(
        "if [ $RANK = 0 ]; then trap '' TERM; sleep 600 & echo $! $$ > {pids_name}; \
         echo > {ready_name}; while true; do sleep 600; done; fi; read line < {ready_name}; exit 1"
    );
    let output = run(&["-n", "2", "--grace", "0.2", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("did not stop and were killed: 0"), "{errors}");
    for pid in std::fs::read_to_string(&pids).unwrap().split_whitespace() {
        wait_until_dead(pid.parse().unwrap());
    }
    let _ = (std::fs::remove_file(pids), std::fs::remove_file(ready));
}

#[test]
fn a_job_that_sigterm_has_stopped_did_not_succeed_though_its_ranks_end_with_0() {
    let script = "trap 'echo bye; exit 0' TERM; echo ready; while true; do sleep 0.05; done";
    let (mut launcher, mut output, first) = start_until_first_line(&["sh", "-c", script]);
    assert_eq!(first, "[rank 0] ready\n");
    signal(&launcher, Signal::TERM);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "[rank 0] bye\n");
    assert_eq!(launcher.wait().unwrap().code(), Some(143));
}

#[test]
fn sigint_ends_the_job_with_the_code_of_a_shell() {
    let script = "echo ready; exec sleep 600";
    let (mut launcher, _output, _) = start_until_first_line(&["-n", "3", "sh", "-c", script]);
    signal(&launcher, Signal::INT);
    assert_eq!(launcher.wait().unwrap().code(), Some(130));
    let mut errors = String::new();
    launcher.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(errors.contains("SIGINT: passed on to 3 ranks"), "{errors}");
    assert!(!errors.contains("failed first"), "{errors}");
}

#[test]
#[cfg(target_os = "linux")]
fn ranks_do_not_outlive_a_killed_launcher() {
    let script = "echo $$; exec sleep 600";
    let (mut launcher, _output, line) =
        start_until_first_line(&["--no-prefix", "-n", "1", "sh", "-c", script]);
    let pid = line.trim().parse().unwrap();
    assert!(!is_dead(pid));
    signal(&launcher, Signal::KILL);
    launcher.wait().unwrap();
    wait_until_dead(pid);
}

#[test]
fn a_program_that_cannot_start_stops_the_job() {
    let output = run(&["-n", "2", "sleep", "600", ":", "./no-such-program", "x"]);
    assert_eq!(output.status.code(), Some(127));
    let errors = text(&output.stderr);
    assert!(errors.contains("cannot start rank 2 (./no-such-program x): No such"), "{errors}");
    let output = run(&["/"]);
    assert_eq!(output.status.code(), Some(126));
}

#[test]
fn only_rank_0_reads_standard_input() {
    let mut launcher = polyrank(&["-n", "2", "sh", "-c", "cat; echo done"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    launcher.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = launcher.wait_with_output().unwrap();
    let expected = ["[rank 0] done", "[rank 0] hello", "[rank 1] done"];
    assert_eq!(sorted_lines(&output.stdout), expected);
}

#[test]
fn the_others_may_go_on() {
    let script = "if [ $RANK = 0 ]; then exit 4; fi; echo still here";
    let output = run(&["--keep-going", "-n", "3", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(4));
    let expected = ["[rank 1] still here", "[rank 2] still here"];
    assert_eq!(sorted_lines(&output.stdout), expected);
}

#[test]
fn python_files_and_the_old_rank_argument() {
    let mut command = polyrank(&["-n", "2", "--pass-local-rank", "train.py", "--lr", "1"]);
    let output = command.env("POLYRANK_PYTHON", "echo").output().unwrap();
    let expected = [0, 1].map(|n| format!("[rank {n}] train.py --lr 1 --local-rank={n}"));
    assert_eq!(sorted_lines(&output.stdout), expected);
}

#[test]
fn a_reader_that_leaves_ends_the_job() {
    let script = "while true; do echo y; done";
    let (mut launcher, output, _) = start_until_first_line(&["-n", "2", "sh", "-c", script]);
    drop(output);
    assert_eq!(launcher.wait().unwrap().code(), Some(141));
}

#[test]
fn output_held_by_a_daemon_does_not_hold_the_launcher() {
    let pid_file = temporary("daemon");
    let name = pid_file.to_str().unwrap();
    // The daemon leaves the rank's process group and keeps its stdout open.
    let script = format!(
        "setsid sh -c 'echo $$ > {name}; exec sleep 600' & \
                          while [ ! -s {name} ]; do sleep 0.01; done; echo started"
    );
    let output = run(&["sh", "-c", &script]);
    assert_eq!(text(&output.stdout), "[rank 0] started\n");
    assert_eq!(output.status.code(), Some(0));
    let pid: i32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let _ = std::fs::remove_file(Path::new(&pid_file));
}

#[test]
fn help_shows_examples_and_mistakes_end_with_2() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for expected in ["--nproc-per-node", "polyrank run -n 4 python train.py", "MASTER_PORT"] {
        assert!(help.contains(expected), "{expected} is missing in:\n{help}");
    }
    let output = run(&["-n", "0", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "polyrank run: number of ranks 0: a program runs as at least one rank, as in -n 1\n"
    );
}

#[test]
fn what_ranks_started_does_not_outlive_a_killed_launcher() {
    for ranks in [1, 3] {
        let script = "sleep 600 & echo $! $$; exec sleep 600";
        let words = ["-n", &ranks.to_string(), "--no-prefix", "sh", "-c", script];
        let (mut launcher, mut output, first) = start_until_first_line(&words);
        let mut pids = first;
        for _ in 1..ranks {
            output.read_line(&mut pids).unwrap();
        }
        kill_process(Pid::from_child(&launcher), Signal::KILL).unwrap();
        launcher.wait().unwrap();
        let pids: Vec<&str> = pids.split_whitespace().collect();
        assert_eq!(pids.len(), 2 * ranks);
        pids.into_iter().for_each(|pid| wait_until_dead(pid.parse().unwrap()));
    }
}
