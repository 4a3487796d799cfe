//! `polyrank lighthouse` as a process of its own: where it says it is, what it refuses, how it
//! ends.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod served;

use rustix::process::{Pid, Signal, kill_process};

use served::{ServedLighthouse, command};

/// What it says when it does not start.
fn refusal(words: &[&str], variables: &[(&str, &str)]) -> String {
    let output = command(variables).args(words).output().unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{words:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn it_says_where_it_is_and_serves_until_it_is_told_to_end() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut served = ServedLighthouse::start(&["--min-replicas", "2"], &[]);
        let url = format!("http://127.0.0.1:{}", served.port());
        assert_eq!(served.lines[0], "polyrank lighthouse");
        assert_eq!(served.url(), url);
        assert_eq!(served.lines[2], format!("status page: {url}/"));
        assert_eq!(served.status()["options"]["min_replicas"], 2);
        assert_eq!(served.status()["options"]["join_timeout_seconds"], 30.0);
        let (status, page) = served.ask("GET /", "");
        assert!(status.ends_with("200 OK") && page.contains("<title>polyrank lighthouse"));
        kill_process(Pid::from_child(&served.child), signal).unwrap();
        assert_eq!(served.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn options_may_be_spelt_as_torchft_spells_them() {
    let ours = ["--min-replicas=3", "--join-timeout=1.5", "--quorum-tick=0.02"];
    let ours = [&ours[..], &["--heartbeat-timeout=2.5"]].concat();
    let theirs = ["--min_replicas=3", "--join_timeout_ms=1500", "--quorum_tick_ms=20"];
    let theirs = [&theirs[..], &["--heartbeat_timeout_ms=2500", "--bind=127.0.0.1"]].concat();
    for words in [ours, theirs] {
        let options = &ServedLighthouse::start(&words, &[]).status()["options"];
        assert_eq!(options["min_replicas"], 3);
        assert_eq!(options["join_timeout_seconds"], 1.5);
        assert_eq!(options["quorum_tick_seconds"], 0.02);
        assert_eq!(options["heartbeat_timeout_seconds"], 2.5);
    }
}

#[test]
fn beyond_this_host_it_wants_a_token_or_a_word_and_says_so_in_two_lines() {
    for bind in ["0.0.0.0", "[::]:0", "::"] {
        let said = refusal(&["--min-replicas", "1", "--bind", bind], &[("POLYRANK_INSECURE", "0")]);
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines[0].contains("can be reached from other hosts"), "{said}");
        assert!(lines[1].contains("POLYRANK_TOKEN"), "{said}");
        assert!(lines[1].contains("POLYRANK_INSECURE=1"), "{said}");
    }
    let words = ["--min-replicas", "1", "--bind", "0.0.0.0"];
    let open = ServedLighthouse::start(&words, &[("POLYRANK_INSECURE", "1")]);
    assert!(open.ask("GET /status", "").0.ends_with("200 OK"));
    let closed = ServedLighthouse::start(&words, &[("POLYRANK_TOKEN", "correct-horse")]);
    assert!(closed.ask("GET /status", "").0.contains("401"));
    let token = "Authorization: Bearer correct-horse\r\n";
    assert!(closed.ask("GET /status", token).0.ends_with("200 OK"));
}

#[test]
fn a_token_may_be_in_a_file_which_goes_before_the_variable() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "battery-staple\n").unwrap();
    let file = file.to_str().unwrap();
    let words = ["--min-replicas", "1", "--token-file", file];
    let served = ServedLighthouse::start(&words, &[("POLYRANK_TOKEN", "correct-horse")]);
    let asked =
        |token: &str| served.ask("GET /metrics", &format!("Authorization: Bearer {token}\r\n")).0;
    assert!(asked("battery-staple").ends_with("200 OK"));
    assert!(asked("correct-horse").contains("401"));
    std::fs::write(file, "short").unwrap();
    let said = refusal(&words, &[]);
    assert!(said.contains("--token-file") && said.contains("8 to 1024 characters"), "{said}");
    let said = refusal(&["--min-replicas", "1"], &[("POLYRANK_TOKEN", "two words")]);
    assert!(said.contains("POLYRANK_TOKEN: a token has visible characters"), "{said}");
}

#[test]
fn what_cannot_be_is_named() {
    let served = ServedLighthouse::start(&["--min-replicas", "1"], &[]);
    let port = served.port().to_string();
    let said = refusal(&["--min-replicas", "1", "--port", &port], &[]);
    assert!(said.starts_with("polyrank lighthouse: ") && said.contains(&port), "{said}");
    let said = refusal(&["--min-replicas", "1", "--bind", "127.0.0.1:1", "--port", "2"], &[]);
    assert!(said.contains("has a port already"), "{said}");
    assert!(refusal(&["--min-replicas", "0"], &[]).contains("min_replicas must be more than 0"));
    assert!(refusal(&[], &[]).contains("--min-replicas <N>"));
    let both = ["--min-replicas=1", "--join-timeout=1", "--join_timeout_ms=1"];
    assert!(refusal(&both, &[]).contains("cannot be used with"));
    let said = refusal(&["--min-replicas=1", "--join-timeout=-1"], &[]);
    assert!(said.contains("expected seconds"), "{said}");
}
