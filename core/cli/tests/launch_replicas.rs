//! `polyrank run --replicas` with real processes: what replicas find in their environment, and how
//! the job goes on and ends when one of them does. Shell scripts stand in for ranks.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output};

use launcher::{Running, file_below, polyrank, sorted_lines, text};
use rustix::process::Signal;
use serde_json::Value;

/// `polyrank run` with these words, in an environment that names no lighthouse and no devices.
fn replicas(words: &[&str]) -> Command {
    let mut command = polyrank(words);
    for name in ["TORCHFT_LIGHTHOUSE", "CUDA_VISIBLE_DEVICES", "POLYRANK_TOKEN"] {
        command.env_remove(name);
    }
    command
}

fn run(words: &[&str]) -> Output {
    replicas(words).output().unwrap()
}

/// What the launcher said besides where the lighthouse is.
fn said(output: &Output) -> Vec<String> {
    let lines = text(&output.stderr);
    let lines = lines.lines().filter(|line| !line.contains("the lighthouse of the replicas"));
    lines.map(str::to_owned).collect()
}

#[test]
fn each_replica_is_a_world_of_its_own() {
    let script = "echo $REPLICA_GROUP_ID $NUM_REPLICA_GROUPS $RANK $WORLD_SIZE $LOCAL_RANK \
                  $GROUP_WORLD_SIZE $MASTER_ADDR $POLYRANK_RUN_ID $OMP_NUM_THREADS";
    for (count, ranks) in [(1, 1), (1, 2), (2, 1), (3, 2), (5, 1)] {
        let [replicas, per_replica] = [count, ranks].map(|number: u32| number.to_string());
        let words = ["--replicas", &replicas, "-n", &per_replica, "--run-id", "j"];
        let output = run(&[&words[..], &["sh", "-c", script]].concat());
        let mut expected = Vec::new();
        for replica in 0..count {
            for rank in 0..ranks {
                let threads = if count * ranks > 1 { " 1" } else { "" };
                expected.push(format!(
                    "[replica {replica}, rank {rank}] {replica} {count} {rank} {ranks} {rank} 1 \
                     127.0.0.1 j-replica-{replica}{threads}"
                ));
            }
        }
        assert_eq!(sorted_lines(&output.stdout), expected, "{output:?}");
        assert_eq!((output.status.code(), said(&output)), (Some(0), vec![]));
    }
}

#[test]
fn replicas_have_stores_of_their_own_and_one_lighthouse() {
    let script = "echo $MASTER_PORT; echo $TORCHFT_LIGHTHOUSE >&2";
    let words = ["--no-prefix", "--replicas", "3", "-n", "2", "sh", "-c", script];
    let output = run(&words);
    let mut ports = sorted_lines(&output.stdout);
    assert_eq!(ports.len(), 6);
    ports.dedup();
    assert_eq!(ports.len(), 3, "{ports:?}");
    let errors = sorted_lines(&output.stderr);
    let (urls, line) = errors.split_at(6);
    assert!(urls.iter().all(|url| url.starts_with("http://127.0.0.1:") && *url == urls[0]));
    assert_eq!(line, [format!("polyrank run: the lighthouse of the replicas is at {}", urls[0])]);
}

#[test]
fn a_lighthouse_that_is_named_is_passed_on_and_none_is_served() {
    let program = ["sh", "-c", "echo $TORCHFT_LIGHTHOUSE"];
    for (variable, words, expected) in [
        (None, &["--lighthouse", "http://host-a:29510"][..], "http://host-a:29510"),
        (Some("http://b:1"), &["--lighthouse", "http://[::1]:2"], "http://[::1]:2"),
        (Some("http://b:1"), &[], "http://b:1"),
        (Some("http://b:1"), &["-x", "TORCHFT_LIGHTHOUSE=http://c:3"], "http://c:3"),
    ] {
        let mut command = replicas(&[&["--replicas", "2"], words, &program].concat());
        if let Some(url) = variable {
            command.env("TORCHFT_LIGHTHOUSE", url);
        }
        let output = command.output().unwrap();
        let lines = [0, 1].map(|number| format!("[replica {number}, rank 0] {expected}"));
        assert_eq!(sorted_lines(&output.stdout), lines);
        let expected = match words.contains(&"--lighthouse") {
            true => String::new(),
            // Nobody may have thought of the variable.
            false => format!(
                "polyrank run: the lighthouse of the replicas is that at {expected}, which \
                 TORCHFT_LIGHTHOUSE names\n"
            ),
        };
        assert_eq!(text(&output.stderr), expected);
    }
}

#[test]
fn the_lighthouse_that_is_served_waits_as_long_as_it_is_told() {
    let script = "echo $TORCHFT_LIGHTHOUSE; exec sleep 600";
    let words = ["--no-prefix", "--replicas", "2", "--join-timeout", "7.5", "sh", "-c", script];
    let running = Running::of(replicas(&words));
    let status = status_of(running.first.trim_end());
    assert_eq!(status["options"]["join_timeout_seconds"], 7.5, "{status}");
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, Some(143));
}

/// What the lighthouse there says of itself.
fn status_of(url: &str) -> Value {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let (start, end) = (body.find('{').unwrap(), body.rfind('}').unwrap());
    serde_json::from_str(&body[start..=end]).unwrap()
}

/// Replica 1 ends when the others wait for a line of its last start; they are never started again.
const FAILS_TWICE: &str = "echo $$ >> \"$FOLDER/pids-$REPLICA_GROUP_ID-$RANK\"; \
    fifo=\"$FOLDER/fifo-$REPLICA_GROUP_ID-$RANK\"; \
    [ $REPLICA_GROUP_ID = 1 ] || { read line < \"$fifo\"; exit 0; }; \
    [ $TORCHELASTIC_RESTART_COUNT = 2 ] || { [ $RANK = 0 ] || exec sleep 600; kill -9 $$; }; \
    [ $RANK = 0 ] || exit 0; \
    for other in 0-0 0-1 2-0 2-1; do echo > \"$FOLDER/fifo-$other\"; done";

#[test]
fn a_replica_whose_rank_is_killed_is_started_again_alone() {
    let folder = tempfile::tempdir().unwrap();
    for other in ["0-0", "0-1", "2-0", "2-1"] {
        let path = folder.path().join(format!("fifo-{other}"));
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }
    let record = folder.path().join("record.json");
    let words = ["--replicas", "3", "-n", "2", "--max-restarts", "3", "--record"];
    let program = [record.to_str().unwrap(), "sh", "-c", FAILS_TWICE];
    let mut command = replicas(&[&words[..], &program].concat());
    let output = command.env("FOLDER", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // Of those that were not killed there was one process each.
    let starts = |place: &str| {
        let text = std::fs::read_to_string(folder.path().join(format!("pids-{place}"))).unwrap();
        text.lines().count()
    };
    assert_eq!(["0-0", "0-1", "2-0", "2-1", "1-0"].map(starts), [1, 1, 1, 1, 3]);
    let errors = text(&output.stderr);
    for part in [
        "polyrank run (replica 1): rank 0 failed first: killed by SIGKILL",
        "(replica 1): all ranks are started again: restart 2 of 3; other replicas go on",
        "polyrank run: 3 of 3 replicas ended well\n    replica 1: ended well after 2 restarts\n",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    let record: Value = serde_json::from_str(&std::fs::read_to_string(record).unwrap()).unwrap();
    assert_eq!((&record["state"], &record["restarts"]), (&"succeeded".into(), &2.into()));
    assert!(record["lighthouse"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{record}");
    let all = record["replicas"].as_array().unwrap();
    let of = |name: &str| all.iter().map(|replica| replica[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("replica"), [0, 1, 2]);
    assert_eq!(of("restarts"), [0, 2, 0]);
    assert_eq!(of("world_size"), [2, 2, 2]);
    assert_eq!(all[1]["attempts"][1]["first_failure"]["what"], "killed by SIGKILL");
    assert_eq!(all[1]["attempts"].as_array().unwrap().len(), 3);
}

/// Replicas that are told to wait end well once this one is lost and spoken of.
#[test]
fn the_others_go_on_without_a_replica_that_is_out_of_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let script = "[ $REPLICA_GROUP_ID = 2 ] && exit $((5 + TORCHELASTIC_RESTART_COUNT)); \
                  echo waits; [ $REPLICA_GROUP_ID = 0 ] && read line < \"$FIFO\"; exit 0";
    let words = ["--replicas", "3", "--min-replicas", "2", "--max-restarts", "1"];
    let mut command = replicas(&[&words[..], &["sh", "-c", script]].concat());
    command.env("FIFO", &fifo).stdout(std::process::Stdio::piped());
    let mut launcher = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut errors = std::io::BufReader::new(launcher.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(&mut errors).map(Result::unwrap);
    let lost = lines.find(|line| line.contains("is lost")).unwrap();
    let expected = "polyrank run: replica 2 is lost, after 1 restart: rank 0: exit code 6; 2 are \
                    left and go on";
    assert_eq!(lost, expected);
    std::fs::write(fifo, "\n").unwrap();
    let report: Vec<String> = lines.collect();
    assert_eq!(
        report,
        [
            "polyrank run: 2 of 3 replicas ended well",
            "    replica 2: lost after 1 restart: rank 0: exit code 6"
        ]
    );
    // It was not all that was asked for.
    assert_eq!(launcher.wait().unwrap().code(), Some(6));
}

#[test]
fn with_too_few_replicas_the_job_fails_and_says_of_what() {
    let script = "[ $REPLICA_GROUP_ID$RANK = 11 ] && exit 9; trap 'exit 0' TERM; \
                  while :; do sleep 0.05; done";
    let words = ["--replicas", "2", "--min-replicas", "2", "-n", "2", "sh", "-c", script];
    let output = run(&words);
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    let errors = text(&output.stderr);
    let lost = "replica 1 is lost, after no restart: rank 1: exit code 9; 1 left, fewer than \
                --min-replicas 2: stopping them\n";
    assert!(errors.contains(lost), "{errors}");
    assert!(errors.contains("    replica 1: lost after no restart: rank 1: exit code 9\n"));
}

#[test]
fn a_replica_that_ends_early_and_well_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Replica 0 ends when replica 1 is gone.
    let script = "trap 'exit 0' TERM; \
                  [ $REPLICA_GROUP_ID = 0 ] && { read pid < \"$FIFO\"; kill -TERM $pid; \
                  while kill -0 $pid 2> /dev/null; do :; done; exit 0; }; \
                  echo $$ > \"$FIFO\"; while :; do sleep 0.05; done";
    let words = ["--replicas", "2", "--min-replicas", "2", "sh", "-c", script];
    let output = replicas(&words).env("FIFO", fifo).output().unwrap();
    assert_eq!((output.status.code(), said(&output)), (Some(0), vec![]));
}

#[test]
fn a_signal_to_the_launcher_ends_all_replicas() {
    let script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    for count in ["1", "3"] {
        let words = ["--replicas", count, "--max-restarts", "9", "sh", "-c", script];
        let mut job = Running::of(replicas(&words));
        for _ in 1..count.parse().unwrap() {
            std::io::BufRead::read_line(&mut job.output, &mut String::new()).unwrap();
        }
        job.signal(Signal::TERM);
        let (code, output, errors) = job.end();
        assert_eq!(output.matches("bye").count().to_string(), count, "{errors}");
        // The job was not done, though its ranks left in good order.
        assert_eq!(code, Some(143), "{errors}");
        assert!(!errors.contains("lost") && !errors.contains("restart"), "{errors}");
    }
}

#[test]
fn the_time_of_a_job_is_that_of_all_its_replicas() {
    let words = ["--replicas", "2", "--timeout", "0.3", "sh", "-c", "exec sleep 600"];
    let output = run(&words);
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    assert!(!text(&output.stderr).contains("lost"), "{output:?}");
}

#[test]
fn a_program_that_is_not_there_is_started_once() {
    let output = run(&["--replicas", "2", "--max-restarts", "3", "/not/there"]);
    assert_eq!(output.status.code(), Some(127));
    let errors = text(&output.stderr);
    assert_eq!(errors.matches("cannot start rank 0 (/not/there)").count(), 2, "{errors}");
    assert!(!errors.contains("started again"), "{errors}");
}

#[test]
fn each_replica_has_logs_and_devices_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().to_str().unwrap();
    let words = ["--replicas", "2", "-n", "2", "--run-id", "j", "--log-dir", logs];
    let program = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"];
    let mut command = replicas(&[&words[..], &program].concat());
    let output = command.env("CUDA_VISIBLE_DEVICES", "4,5,6,7,8").output().unwrap();
    let expected = [(0, 0, "4,5"), (0, 1, "4,5"), (1, 0, "6,7"), (1, 1, "6,7")]
        .map(|(replica, rank, shown)| format!("[replica {replica}, rank {rank}] {shown}"));
    assert_eq!(sorted_lines(&output.stdout), expected);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let shown = if name.starts_with("j-replica-0_") { "4,5\n" } else { "6,7\n" };
        assert_eq!(file_below(&entry.path(), "attempt_0/1/stdout.log"), shown, "{name}");
    }
}

#[test]
fn wrong_options_are_refused_in_words() {
    for (words, expected) in [
        (&["--replicas", "0"][..], "0 is not in 1..=4096"),
        (&["--replicas", "two"], "invalid digit"),
        (
            &["--replicas", "2", "--min-replicas", "3"],
            "--min-replicas 3 are more than there can be: --replicas 2 make 2",
        ),
        (&["--join-timeout", "5"], "--replicas <N>"),
        (&["--replicas", "2", "--join-timeout", "soon"], "expected seconds, as in 2.5"),
        (
            &["--replicas", "2", "--join-timeout", "5", "--lighthouse", "http://a:1"],
            "cannot be used with '--lighthouse",
        ),
        (&["--replicas", "2", "--min-replicas", "0"], "0 is not in 1.."),
        (&["--min-replicas", "1"], "--replicas <N>"),
        (&["--lighthouse", "http://a:1"], "--replicas <N>"),
        (&["--replicas", "2", "--lighthouse", "a:1"], "expected http://HOST:PORT"),
        (&["--replicas", "2", "--lighthouse", "http://a"], "expected http://HOST:PORT"),
        (&["--replicas", "2", "--hosts", "a,b"], "cannot be used with '--hosts"),
        (&["--replicas", "2", "--external", "1"], "cannot be used with '--external"),
        (&["--replicas", "2", "--keep-going"], "cannot be used with '--keep-going"),
        (&["--replicas", "2", "--with-mpi"], "cannot be used with '--with-mpi"),
        (&["--replicas", "2", "--master-port", "1"], "cannot be used with '--master-port"),
        (&["--replicas", "2", "-n", "cpu"], "give the number of ranks of one replica"),
    ] {
        let output = run(&[words, &["true"]].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(expected), "{words:?}: {errors}");
    }
    let output = replicas(&["--replicas", "2", "true"]).env("TORCHFT_LIGHTHOUSE", "x").output();
    let errors = text(&output.unwrap().stderr);
    assert!(errors.contains("TORCHFT_LIGHTHOUSE: x: expected http://HOST:PORT"), "{errors}");
    let mut command = replicas(&["--replicas", "2", "--join-timeout", "5", "true"]);
    let output = command.env("TORCHFT_LIGHTHOUSE", "http://a:1").output().unwrap();
    let errors = text(&output.stderr);
    assert!(errors.contains("TORCHFT_LIGHTHOUSE names that at http://a:1: unset it"), "{errors}");
    let output = replicas(&["--replicas", "2", "true"]).env("POLYRANK_TOKEN", "x").output();
    let errors = text(&output.unwrap().stderr);
    assert!(errors.contains("a token has 8 to 1024 characters"), "{errors}");
}
