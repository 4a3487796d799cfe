//! Runs a launcher of MPI jobs to its end, and tells a launcher that hangs from ranks that do.
//! Knows no tests, and not what ranks report.
//!
//! Open MPI 4.1's mpirun, with the libpmix of Debian 12, now and then waits for itself when ranks
//! have ended without `MPI_Finalize`: all ranks are gone, its main thread is in
//! `PMIx_server_finalize`, and the thread that it waits for waits for a lock. It was seen once in a
//! hundred jobs on a busy machine. That says nothing of the ranks, so such a job is run again. A
//! rank that hangs is alive, and never counts as this.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::folder::Folder;

/// How often it is looked whether the launcher has ended.
const TICK: Duration = Duration::from_millis(20);
/// How often it is looked whether ranks live.
const LOOK: Duration = Duration::from_secs(1);
/// How long a launcher may take to start its ranks, on a busy machine.
const START: Duration = Duration::from_secs(30);
/// How long it may live without ranks.
const CLEANING: Duration = Duration::from_secs(10);
/// How often a job is run at most.
const TRIES: usize = 3;
/// Launchers tell ranks their number by one of these.
const RANK_VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK="];

/// How a launcher ended.
pub struct LaunchEnd {
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// What it and its ranks printed.
    pub stdout: String,
    /// What it and its ranks printed there.
    pub stderr: String,
}

/// Runs `command`, which launches ranks, with its temporary files in `folder`.
pub fn to_its_end(command: &mut Command, folder: &Folder) -> LaunchEnd {
    command.env("TMPDIR", folder.path()).stdin(Stdio::null());
    for _ in 0..TRIES {
        let output = |name| folder.path().join(name);
        let file = |name| File::create(output(name)).expect("the folder can be written");
        command.stdout(file("stdout")).stderr(file("stderr"));
        let launcher = command.spawn().expect("the launcher starts");
        if let Some(code) = end_of(launcher, &folder.path().to_string_lossy()) {
            let text = |name| fs::read(output(name)).expect("the output can be read");
            let text = |name| String::from_utf8_lossy(&text(name)).into_owned();
            return LaunchEnd { code, stdout: text("stdout"), stderr: text("stderr") };
        }
        eprintln!("the launcher hangs, although all its ranks have ended: {command:?}; again");
        for entry in fs::read_dir(folder.path()).expect("the folder is there").flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }
    panic!("the launcher hung {TRIES} times after all its ranks had ended: {command:?}");
}

/// The exit code of the launcher; none if it was killed, as it did not end after its ranks had.
fn end_of(mut launcher: Child, folder: &str) -> Option<Option<i32>> {
    let started = Instant::now();
    let mut looked = started;
    let mut last_alive = started;
    loop {
        if let Some(status) = launcher.try_wait().expect("it is ours") {
            return Some(status.code());
        }
        std::thread::sleep(TICK);
        if looked.elapsed() < LOOK {
            continue;
        }
        looked = Instant::now();
        if started.elapsed() < START || has_ranks(folder) {
            last_alive = looked;
        }
        if last_alive.elapsed() > CLEANING {
            end(&mut launcher);
            return None;
        }
    }
}

/// Asks the command to end, which is `timeout` and ends the launcher then, or ends it alone.
fn end(command: &mut Child) {
    let _ = Command::new("kill").arg(command.id().to_string()).status();
    let asked = Instant::now();
    while command.try_wait().expect("it is ours").is_none() {
        if asked.elapsed() > CLEANING {
            command.kill().expect("it is ours");
        }
        std::thread::sleep(TICK);
    }
}

/// Whether a rank lives that was told to put its temporary files in `folder`.
fn has_ranks(folder: &str) -> bool {
    let is_rank = |environment: Vec<u8>| {
        let environment = String::from_utf8_lossy(&environment);
        let has = |begins: &str| environment.split('\0').any(|it| it.starts_with(begins));
        has(&format!("TMPDIR={folder}")) && RANK_VARIABLES.into_iter().any(has)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    // A process that has ended, or is another user's, has no environment to be read.
    processes.filter_map(|process| fs::read(process.path().join("environ")).ok()).any(is_rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_told_from_launchers() {
        let folder = Folder::new();
        let path = folder.path().to_string_lossy().into_owned();
        let start = |variables: &[(&str, &str)]| {
            let mut command = Command::new("sleep");
            command.arg("600").envs(variables.iter().copied());
            let started = command.spawn().expect("there is a sleep");
            // It goes on before the system has laid out its environment.
            let environment = format!("/proc/{}/environ", started.id());
            while fs::read(&environment).is_ok_and(|text| text.is_empty()) {
                std::thread::yield_now();
            }
            started
        };
        let mut launcher = start(&[("TMPDIR", &path)]);
        let mut other = start(&[("PMI_RANK", "0"), ("TMPDIR", "/elsewhere")]);
        assert!(!has_ranks(&path));
        let mut rank = start(&[("PMI_RANK", "0"), ("TMPDIR", &path)]);
        assert!(has_ranks(&path));
        end(&mut rank);
        assert!(!has_ranks(&path));
        end(&mut launcher);
        end(&mut other);
    }

    #[test]
    fn what_is_printed_and_the_code_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo here; echo there >&2; exit 3"]);
        let end = to_its_end(&mut command, &Folder::new());
        assert_eq!((end.code, &*end.stdout, &*end.stderr), (Some(3), "here\n", "there\n"));
    }
}
