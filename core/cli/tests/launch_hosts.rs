//! `polyrank run --hosts`: a program that runs the command here stands in for ssh, and each "host"
//! is a name of this one. Shell scripts stand in for ranks.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use std::io::BufRead;

use launcher::hosts::Hosts;
use launcher::{Running, is_dead, sorted_lines, text, wait_until_dead};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn ranks_run_on_all_hosts_in_the_same_folder_with_what_they_are_given() {
    let hosts = Hosts::new();
    let script =
        "echo \"$WORLD_SIZE $GROUP_RANK $LOCAL_RANK $ON_HOST|$A|$B|$POLYRANK_ALGORITHM|$1|$PWD\"";
    let words = ["--hosts", "127.0.0.4,me@127.0.0.2:2", "-x", "A", "-x", "B=it's; $(b)"];
    let program = ["sh", "-c", script, "sh", "a 'word' \"of\" \\ $many *"];
    let mut command = hosts.command(&[&words[..], &program].concat());
    command.env("A", "a").env("NOT_PASSED", "1").env("POLYRANK_ALGORITHM", "allreduce=ring");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rest = format!(
        "a|it's; $(b)|allreduce=ring|a 'word' \"of\" \\ $many *|{}",
        hosts.place().display()
    );
    let expected = [
        format!("[rank 0] 3 0 0 127.0.0.4|{rest}"),
        format!("[rank 1] 3 1 0 me@127.0.0.2|{rest}"),
        format!("[rank 2] 3 1 1 me@127.0.0.2|{rest}"),
    ];
    assert_eq!(sorted_lines(&output.stdout), expected);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(hosts.reached(), ["127.0.0.4", "me@127.0.0.2"]);
}

#[test]
fn a_number_of_ranks_is_dealt_out_to_the_hosts_of_a_file() {
    let hosts = Hosts::new();
    std::fs::write(hosts.place().join("file"), "127.0.0.4 slots=1\n127.0.0.2 slots=4\n").unwrap();
    let words = ["-np", "4", "-hostfile", "file", "sh", "-c", "echo $ON_HOST $LOCAL_WORLD_SIZE"];
    let output = hosts.command(&words).output().unwrap();
    let expected = [
        "[rank 0] 127.0.0.4 1",
        "[rank 1] 127.0.0.2 3",
        "[rank 2] 127.0.0.2 3",
        "[rank 3] 127.0.0.2 3",
    ];
    assert_eq!(sorted_lines(&output.stdout), expected, "{output:?}");
}

/// This host needs no ssh, and no login of its own user.
#[test]
fn this_host_is_not_reached_over_ssh() {
    let hosts = Hosts::new();
    let name = text(&std::process::Command::new("uname").arg("-n").output().unwrap().stdout);
    let list = format!("localhost:2,127.0.0.1,{}", name.trim());
    let script = "echo $RANK $LOCAL_RANK $GROUP_WORLD_SIZE $ON_HOST";
    let output = hosts.command(&["-host", &list, "sh", "-c", script]).output().unwrap();
    let expected = [0, 1, 2, 3].map(|rank| format!("[rank {rank}] {rank} {rank} 1"));
    assert_eq!(sorted_lines(&output.stdout), expected, "{output:?}");
    assert_eq!(text(&output.stderr), "");
    let words = ["--hosts", "localhost,::1", "-n", "1", "sh", "-c", "echo one"];
    let more = [":", "-n", "1", "sh", "-c", "echo two"];
    let output = hosts.command(&[&words[..], &more].concat()).output().unwrap();
    let expected = ["[rank 0] one", "[rank 1] two", "[rank 2] one", "[rank 3] two"];
    assert_eq!(sorted_lines(&output.stdout), expected, "{output:?}");
    assert!(hosts.reached().is_empty());
    // Beside others it has a launcher of its own, as they have.
    let words = ["--hosts", "127.0.0.2,localhost:2", "-x", "A=it's; $(b)", "sh", "-c"];
    let script = "echo $RANK $LOCAL_RANK $GROUP_RANK $GROUP_WORLD_SIZE \"$A\" $ON_HOST";
    let output = hosts.command(&[&words[..], &[script]].concat()).output().unwrap();
    let expected = [
        "[rank 0] 0 0 0 2 it's; $(b) 127.0.0.2",
        "[rank 1] 1 0 1 2 it's; $(b)",
        "[rank 2] 2 1 1 2 it's; $(b)",
    ];
    assert_eq!(sorted_lines(&output.stdout), expected, "{output:?}");
    assert_eq!(hosts.reached(), ["127.0.0.2"]);
}

#[test]
fn several_programs_run_on_every_host() {
    let hosts = Hosts::new();
    let words = ["--hosts", "127.0.0.4,127.0.0.2", "-n", "1", "sh", "-c", "echo one $GROUP_RANK"];
    let more = [":", "-n", "1", "sh", "-c", "echo two $GROUP_RANK", "-n"];
    let output = hosts.command(&[&words[..], &more].concat()).output().unwrap();
    let expected = ["[rank 0] one 0", "[rank 1] two 0", "[rank 2] one 1", "[rank 3] two 1"];
    assert_eq!(sorted_lines(&output.stdout), expected, "{output:?}");
}

#[test]
fn the_record_has_the_ranks_of_all_hosts_and_the_failure_is_named_once() {
    let hosts = Hosts::new();
    let file = hosts.place().join("record.json");
    let script = "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 600 & \
                  [ $RANK = 1 ] && exit 7; wait; exit 0";
    let words = ["--hosts", "127.0.0.4,127.0.0.2", "--max-restarts", "1", "--record"];
    let program = [file.to_str().unwrap(), "sh", "-c", script];
    let output = hosts.command(&[&words[..], &program].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let errors = text(&output.stderr);
    let failed = "polyrank run (127.0.0.2): rank 1 failed first: exit code 7";
    assert_eq!(errors.matches(failed).count(), 2, "{errors}");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!((&record["state"], &record["nodes"]), (&"failed".into(), &2.into()));
    assert_eq!((&record["world_size"], &record["restarts"]), (&2.into(), &1.into()));
    assert!(record["store"].as_str().unwrap().starts_with("tcp://127.0.0."), "{record}");
    let attempts = record["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2);
    for attempt in attempts {
        let ranks: Vec<_> =
            attempt["ranks"].as_array().unwrap().iter().map(|rank| &rank["rank"]).collect();
        assert_eq!(ranks, [0, 1]);
        assert_eq!(attempt["first_failure"]["rank"], 1);
        assert_eq!(attempt["first_failure"]["what"], "exit code 7");
    }
}

#[test]
fn a_host_that_cannot_be_reached_ends_the_job() {
    let hosts = Hosts::new();
    for list in ["127.0.0.9", "127.0.0.4,127.0.0.9"] {
        let words = ["--hosts", list, "--grace", "0.1", "sh", "-c", "exec sleep 600"];
        let output = hosts.command(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(255), "{output:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains("ssh: no route to host"), "{errors}");
        assert!(errors.contains("does 'ssh 127.0.0.9 true' work without"), "{errors}");
    }
    let words = ["--hosts", "127.0.0.4,name.example", "true"];
    let output = hosts.command(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("give its name in the network"), "{output:?}");
}

#[test]
fn a_missing_folder_and_a_missing_ssh_are_named() {
    let hosts = Hosts::new();
    let words = ["--hosts", "127.0.0.4", "--wdir", "/not/there", "true"];
    let output = hosts.command(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("127.0.0.4 has no folder /not/there"), "{errors}");
    let mut command = hosts.command(&["--hosts", "127.0.0.4", "true"]);
    let output = command.env("POLYRANK_SSH", "/not/there/ssh").output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("name another program in POLYRANK_SSH"), "{output:?}");
}

#[test]
fn an_interrupt_is_passed_on_and_nothing_outlives_the_launcher() {
    let hosts = Hosts::new();
    let script = "trap 'echo bye; exit 0' INT; echo $$; while true; do sleep 0.05; done";
    let words = ["--no-prefix", "--hosts", "127.0.0.4,127.0.0.2", "sh", "-c", script];
    let mut job = Running::of(hosts.command(&words));
    // Before its line, a rank has no answer to the signal.
    job.output.read_line(&mut String::new()).unwrap();
    job.signal(Signal::INT);
    let (code, output, errors) = job.end();
    assert_eq!(output.matches("bye").count(), 2, "{code:?}\n{output}\n{errors}");
    assert_eq!(code, Some(130), "{errors}");
    // A launcher that is killed takes its ranks with it, here and there.
    let words = ["--no-prefix", "--hosts", "127.0.0.4", "sh", "-c", "echo $$; exec sleep 600"];
    let mut job = Running::of(hosts.command(&words));
    let pid = job.first.trim().parse().unwrap();
    assert!(!is_dead(pid));
    job.signal(Signal::KILL);
    job.launcher.wait().unwrap();
    wait_until_dead(pid);
}
