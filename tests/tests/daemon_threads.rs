//! Python programs that end while a daemon thread of theirs is in an operation, over TCP and over
//! real MPI libraries: the interpreter ends cleanly, also if the operation does so meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::OsString;
use std::process::Command;

use polyrank_tests::folder::Folder;
use polyrank_tests::languages::{Language, Program, built, say_skipped};
use polyrank_tests::mpi::{Job, Mpi, run};

/// The operations in which the thread is.
const KINDS: [&str; 2] = ["collective", "recv"];

fn check(name: &str, words: &[OsString], backend: &str, command: impl Fn() -> Option<Command>) {
    for kind in KINDS {
        let Some(mut command) = command() else { return };
        // In which the ranks talk to one another when little else of Python works any more.
        let folder = Folder::new();
        command.args(words).args([kind, backend]).arg(folder.path().join(""));
        let job = run(command);
        assert_ended(&job, &format!("{name} {kind}"));
    }
}

fn assert_ended(job: &Job, name: &str) {
    assert_eq!(job.code, Some(0), "{name}: {}", job.output);
    assert_eq!(job.of(1), ["came"], "{name}: {}", job.output);
    for words in ["FATAL", "Fatal", "panicked", "core dumped", "Traceback"] {
        assert!(!job.output.contains(words), "{name}: {words}: {}", job.output);
    }
}

#[test]
fn a_program_ends_in_order_while_a_daemon_thread_is_in_an_operation() {
    let program = Program { example: "", script: "mpi/daemon_thread" };
    let words = match Language::Python.command(program) {
        Ok(words) => words,
        Err(missing) => return say_skipped(&format!("Python: {missing}")),
    };
    check("tcp", &words, "tcp", || {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "60"]).arg(built("polyrank"));
        command.args(["run", "--no-prefix", "-n", "2"]);
        Some(command)
    });
    for mpi in Mpi::ALL {
        check(&format!("{mpi:?}"), &words, "mpi", || mpi.command(2));
    }
}
