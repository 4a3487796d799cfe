//! How jobs of `polyrank run` end: all ranks are started again, the time is over, and the record
//! says what happened. Also what ranks are given: variables, a folder, cores. Shell scripts stand
//! in for ranks.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::path::Path;

use launcher::{Running, file_below, polyrank, run, sorted_lines, text, wait_until_dead};
use rustix::process::Signal;
use serde_json::Value;

fn record(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn all_ranks_start_again_when_one_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, file) = (folder.path().join("logs"), folder.path().join("record"));
    let script = "echo $RANK $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MASTER_PORT; \
                  [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; \
                  [ $RANK = 1 ] && exit 5; exec sleep 600";
    let words = ["-n", "2", "--max_restarts", "3", "--master-port", "4713"];
    let kept = ["--log-dir", logs.to_str().unwrap(), "--record", file.to_str().unwrap()];
    let output = run(&[&words[..], &kept, &["sh", "-c", script]].concat());
    assert_eq!(output.status.code(), Some(0));
    let mut lines = sorted_lines(&output.stdout);
    // What ranks that are stopped wrote before is theirs to lose.
    lines.retain(|line| !line.starts_with("[rank 0]") || line.contains(" 2 3 "));
    let expected = [
        "[rank 0] 0 2 3 4713",
        "[rank 1] 1 0 3 4713",
        "[rank 1] 1 1 3 4713",
        "[rank 1] 1 2 3 4713",
    ];
    assert_eq!(lines, expected);
    let errors = text(&output.stderr);
    assert!(errors.contains("all ranks are started again: restart 1 of 3"), "{errors}");
    assert!(errors.contains("restart 2 of 3") && !errors.contains("restart 3"), "{errors}");
    assert_eq!(file_below(&logs, "attempt_1/1/stdout.log"), "1 1 3 4713\n");
    let record = record(&file);
    assert_eq!((&record["state"], &record["restarts"]), (&"succeeded".into(), &2.into()));
    assert_eq!(record["store"], "tcp://127.0.0.1:4713");
    let attempts = record["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 3);
    assert_eq!(attempts[1]["first_failure"]["rank"], 1);
    assert_eq!(attempts[1]["first_failure"]["what"], "exit code 5");
    assert_eq!(attempts[2]["first_failure"], Value::Null);
}

#[test]
fn restarts_come_to_an_end() {
    let output = run(&["-n", "2", "--max-restarts", "1", "sh", "-c", "exit 6"]);
    assert_eq!(output.status.code(), Some(6));
    let errors = text(&output.stderr);
    assert_eq!(errors.matches("all ranks are started again").count(), 1, "{errors}");
    assert_eq!(errors.matches("failed first: exit code 6").count(), 2, "{errors}");
}

#[test]
fn a_job_that_is_interrupted_is_not_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record");
    let script = "echo ready; exec sleep 600";
    let words = ["--max-restarts", "3", "--record", file.to_str().unwrap(), "sh", "-c", script];
    let job = Running::start(&words);
    // It is written when all ranks have started; this one was faster.
    while !file.exists() {
        std::thread::yield_now();
    }
    assert_eq!(record(&file)["state"], "running");
    let pid = record(&file)["attempts"][0]["ranks"][0]["pid"].as_u64().unwrap();
    job.signal(Signal::INT);
    let (code, _, errors) = job.end();
    assert_eq!(code, Some(130));
    assert!(!errors.contains("again"), "{errors}");
    wait_until_dead(pid as u32);
    let record = record(&file);
    assert_eq!((&record["state"], &record["signal"]), (&"interrupted".into(), &"SIGINT".into()));
    assert_eq!((&record["exit_code"], &record["restarts"]), (&130.into(), &0.into()));
    assert_eq!(record["attempts"][0]["ranks"][0]["signal"], "SIGINT");
}

/// As `timeout` asks: once the command, and once its process group.
#[test]
fn ranks_have_their_time_though_two_signals_come_at_once() {
    let script = "trap 'sleep 0.2; echo saved; exit 0' TERM INT; echo ready; \
                  while :; do sleep 0.05; done";
    let job = Running::start(&["sh", "-c", script]);
    job.signal(Signal::TERM);
    job.signal(Signal::INT);
    let (code, output, errors) = job.end();
    assert_eq!(output, "[rank 0] saved\n", "{errors}");
    // Which of the two it sees first is the system's choice.
    assert!(code == Some(143) || code == Some(130), "{code:?} {errors}");
    assert!(!errors.contains("were killed"), "{errors}");
}

#[test]
fn a_job_ends_when_its_time_is_over_and_the_late_ranks_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record");
    let script = "[ $RANK = 1 ] && exit 0; exec sleep 600";
    let words = ["-n", "3", "--timeout", "1", "--record", file.to_str().unwrap()];
    let output = run(&[&words[..], &["sh", "-c", script]].concat());
    assert_eq!(output.status.code(), Some(124));
    let errors = text(&output.stderr);
    assert!(errors.contains("stopped after --timeout 1; ranks that still ran: 0, 2"), "{errors}");
    assert_eq!(record(&file)["state"], "timed out");
    let output = run(&["--timeout", "600", "true"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn the_record_has_every_rank_with_its_process_and_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record");
    let script = "echo $$; [ $RANK = 0 ] && exit 0; \
                  [ $RANK = 1 ] && kill -9 $$; exec sleep 600";
    let words = ["-n", "3", "--no-prefix", "--run-id", "night", "--record"];
    let output = run(&[&words[..], &[file.to_str().unwrap(), "sh", "-c", script]].concat());
    assert_eq!(output.status.code(), Some(137));
    let record = record(&file);
    assert_eq!((&record["run_id"], &record["state"]), (&"night".into(), &"failed".into()));
    assert_eq!((&record["exit_code"], &record["world_size"]), (&137.into(), &3.into()));
    let attempt = &record["attempts"][0];
    assert_eq!(attempt["first_failure"]["rank"], 1);
    assert_eq!(attempt["first_failure"]["what"], "killed by SIGKILL");
    let ranks = attempt["ranks"].as_array().unwrap();
    let host = text(&std::process::Command::new("uname").arg("-n").output().unwrap().stdout);
    let mut pids: Vec<String> = Vec::new();
    for (number, rank) in ranks.iter().enumerate() {
        assert_eq!((&rank["rank"], &rank["local_rank"]), (&number.into(), &number.into()));
        assert_eq!(rank["host"], host.trim());
        assert!(rank["started"].as_str().unwrap() <= rank["ended"].as_str().unwrap(), "{rank}");
        pids.push(rank["pid"].to_string());
    }
    assert_eq!((&ranks[1]["exit_code"], &ranks[1]["signal"]), (&Value::Null, &"SIGKILL".into()));
    // A rank that is stopped before it has written its number has none to show.
    for shown in text(&output.stdout).lines() {
        assert!(pids.contains(&shown.to_owned()), "{shown} is not among {pids:?}");
    }
    // Nothing else lies beside the file.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn ranks_get_what_torchrun_gives_them_and_what_the_user_adds() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let script = "echo $ROLE_NAME $ROLE_RANK $ROLE_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT \
                  $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $A $HERE $OMP_NUM_THREADS $PWD";
    let words = ["-n", "2", "--role", "trainer", "--run-id", "j", "-x", "A=b c", "-x", "HERE"];
    let more = ["-x", "OMP_NUM_THREADS=7", "-wdir", place.to_str().unwrap()];
    let mut command = polyrank(&[&words[..], &more, &["sh", "-c", script]].concat());
    let output = command.env("HERE", "yes").output().unwrap();
    let expected =
        [0, 1].map(|n| format!("[rank {n}] trainer {n} 2 0 0 j b c yes 7 {}", place.display()));
    assert_eq!(sorted_lines(&output.stdout), expected);
    let output = run(&["-x", "POLYRANK_TEST_NOWHERE", "true"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(errors.contains("as in -x POLYRANK_TEST_NOWHERE=1"), "{errors}");
}

#[test]
fn a_script_runs_as_it_is_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("own.py");
    std::fs::write(&script, "#!/bin/sh\necho not python\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let output = run(&["--no_python", script.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), "[rank 0] not python\n");
}

#[test]
#[cfg(target_os = "linux")]
fn ranks_have_the_cores_that_they_are_bound_to() {
    // What lscpu says of the processors that this process may use.
    let usable =
        text(&std::process::Command::new("sh").args(["-c", "nproc"]).output().unwrap().stdout);
    let listed = std::process::Command::new("lscpu").args(["-p=CPU,CORE"]).output().unwrap();
    let mut cores: Vec<(usize, Vec<usize>)> = Vec::new();
    for line in text(&listed.stdout).lines().filter(|line| !line.starts_with('#')) {
        let (cpu, core) = line.split_once(',').unwrap();
        let (cpu, core) = (cpu.parse().unwrap(), core.parse().unwrap());
        match cores.iter_mut().find(|(number, _)| *number == core) {
            Some((_, cpus)) => cpus.push(cpu),
            None => cores.push((core, vec![cpu])),
        }
    }
    let all: usize = cores.iter().map(|(_, cpus)| cpus.len()).sum();
    if usable.trim() != all.to_string() {
        eprintln!("skipped: this process may not use all processors, and lscpu does not say which");
        return;
    }
    let count = cores.len().min(3);
    let script = "echo $(grep Cpus_allowed_list /proc/self/status | cut -f 2)";
    let words = ["-n", &count.to_string(), "--bind-to", "core", "sh", "-c", script];
    let output = run(&words);
    let allowed = |list: &str| -> Vec<usize> {
        let ranges = list.split(',').map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse().unwrap()..=last.parse().unwrap()
        });
        ranges.flatten().collect()
    };
    for (rank, line) in sorted_lines(&output.stdout).iter().enumerate() {
        let list = line.strip_prefix(&format!("[rank {rank}] ")).expect(line);
        assert_eq!(allowed(list), cores[rank].1, "{line}");
    }
    let too_many = (cores.len() + 1).to_string();
    let output = run(&["-n", &too_many, "-bind-to", "core", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("start fewer ranks"), "{output:?}");
}

#[test]
fn options_that_only_others_have_come_with_advice() {
    for (words, advice) in [
        (&["--numa-binding", "node", "true"][..], "--bind-to core, socket or numa"),
        (&["--use_env", "true"], "leave it out"),
        (&["-map-by", "node", "true"], "ranks are numbered host by host"),
        (&["--report-bindings", "true"], "`taskset -cp PID` shows the cores of a rank"),
        (&["-n", "2", "-mca", "a", "b", "true"], "-x NAME=VALUE"),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(advice), "{words:?}: {output:?}");
    }
}
