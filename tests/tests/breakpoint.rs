//! `breakpoint` of Rust: one rank is held until a debugger or SIGCONT lets it go on, and the others
//! wait, and learn what becomes of it. What they are told meanwhile is in `stalls.rs`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use polyrank::distributed::{
    BreakpointOptions, NewGroupOptions, breakpoint, default_group, new_group,
};
use polyrank::{Error, ProcessGroup};
use polyrank_tests::languages::say_skipped;
use polyrank_tests::processes::{all_went_well, is_rank, lines_of_survivors, processes, report};

/// Tells the others which process this rank is, and has one of them wait until it is held.
fn held_process(group: &ProcessGroup, held: u32) -> Option<String> {
    let store = group.get_group_store();
    if group.rank() == held {
        store.set("id", std::process::id().to_string().as_bytes()).unwrap();
        return None;
    }
    let id = String::from_utf8(store.get("id").unwrap()).unwrap();
    (group.rank() == (held + 1) % group.size()).then_some(id)
}

/// Whether the process catches SIGTRAP, which it does last when it is held: SIGCONT, before.
fn is_held(id: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() >> (5 - 1) & 1 == 1
}

/// Calls `act` with the process as soon as it is held, on a thread of its own.
fn when_held(
    id: Option<String>,
    act: impl FnOnce(&str) + Send + 'static,
) -> Option<JoinHandle<()>> {
    let id = id?;
    Some(std::thread::spawn(move || {
        while !is_held(&id) {
            std::thread::yield_now();
        }
        act(&id);
    }))
}

fn signal(name: &str, id: &str) {
    assert!(Command::new("kill").args([name, id]).status().unwrap().success());
}

#[test]
fn the_rank_goes_on_by_sigcont_and_the_others_with_it() {
    for size in [2, 3, 5] {
        let test = "the_rank_goes_on_by_sigcont_and_the_others_with_it";
        let ended = processes(test, size, |group| {
            when_held(held_process(&group, 1), |id| signal("-CONT", id));
            breakpoint(BreakpointOptions::default().rank(1)).unwrap();
            report(group.allreduce(&mut [1.0], ()).is_ok());
        });
        all_went_well(&ended);
        assert!(ended.iter().all(|end| end.printed == ["true"]));
        let said = "polyrank: rank 1 is at its breakpoint, tests/tests/breakpoint.rs:";
        assert!(ended[1].output.contains(said), "{}", ended[1].output);
        assert!(ended[1].output.contains(" lets the rank go on."), "{}", ended[1].output);
    }
}

#[test]
fn a_debugger_that_attaches_stops_at_the_line() {
    let test = "a_debugger_that_attaches_stops_at_the_line";
    if !is_rank() && Command::new("gdb").arg("--version").output().is_err() {
        return say_skipped("gdb is not installed; cargo xtask setup installs it");
    }
    let ended = processes(test, 2, |group| {
        let debugger = when_held(held_process(&group, 0), move |id| {
            let commands = ["continue", "bt", "detach"];
            let commands = commands.iter().flat_map(|command| ["-ex", command]);
            let words = ["-q", "-batch", "-nx", "-p", id];
            let output = Command::new("gdb").args(words).args(commands).output().unwrap();
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let has = |text: &str| shown.contains(text);
            let is_there = has("received signal SIGTRAP") && has(&format!(" breakpoint::{test}::"));
            report(if is_there { "there".to_owned() } else { format!("{shown}{errors}") });
        });
        breakpoint(BreakpointOptions::default()).unwrap();
        debugger.map(JoinHandle::join).transpose().unwrap();
    });
    all_went_well(&ended);
    assert_eq!(ended[1].printed, ["there"], "{}", ended[1].output);
}

#[test]
fn a_rank_that_is_killed_at_its_breakpoint_has_failed() {
    let test = "a_rank_that_is_killed_at_its_breakpoint_has_failed";
    let ended = processes(test, 3, |group| {
        when_held(held_process(&group, 1), |id| signal("-KILL", id));
        let error = breakpoint(BreakpointOptions::default().rank(1)).unwrap_err();
        let Error::RankFailed { rank, collective, .. } = error else { panic!("{error}") };
        report(format!("{collective}: rank {rank}"));
        std::process::exit(0);
    });
    for (_, line) in lines_of_survivors(&ended, 1) {
        assert_eq!(line, "barrier: rank 1");
    }
}

#[test]
fn a_rank_that_is_held_too_long_is_named() {
    let test = "a_rank_that_is_held_too_long_is_named";
    let ended = processes(test, 2, |group| {
        let held = held_process(&group, 1);
        let limit = Duration::from_millis(300);
        let error = breakpoint(BreakpointOptions::default().rank(1).timeout(limit)).unwrap_err();
        report(matches!(error, Error::CollectiveTimeout { .. }));
        // It learns it when it goes on.
        if let Some(go_on) = when_held(held, |id| signal("-CONT", id)) {
            go_on.join().unwrap();
        }
        std::process::exit(0);
    });
    all_went_well(&ended);
    assert_eq!(ended[0].printed, ["true"], "{}", ended[0].output);
    assert_eq!(ended[1].printed.len(), 1, "{}", ended[1].output);
}

#[test]
fn the_first_calls_of_a_line_are_skipped_and_limits_are_raised_by_others() {
    let test = "the_first_calls_of_a_line_are_skipped_and_limits_are_raised_by_others";
    let ended = processes(test, 2, |group| {
        let short = NewGroupOptions::default().group_name("short").timeout(Duration::from_secs(9));
        let short = new_group(short).unwrap().unwrap();
        when_held(held_process(&group, 1), |id| signal("-CONT", id));
        let before = group.timeout();
        for step in 0..3 {
            let options = BreakpointOptions::default().rank(1).skip(2).group(short.clone());
            breakpoint(options).unwrap();
            report(format!("{step}: {:?}", short.timeout()));
        }
        assert_eq!(default_group().unwrap().timeout(), before.max(Duration::from_secs(3600)));
        let error = breakpoint(BreakpointOptions::default().rank(7)).unwrap_err();
        assert!(matches!(error, Error::RankNotInGroup { .. }), "{error}");
    });
    all_went_well(&ended);
    for end in &ended {
        assert_eq!(end.printed, ["0: 9s", "1: 9s", "2: 3600s"], "{}", end.output);
    }
}
