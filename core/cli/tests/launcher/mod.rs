//! Starts `polyrank run` for tests, and reads what it says. Knows nothing of what is tested.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

pub(crate) mod hosts;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};

pub(crate) fn polyrank(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
    command.arg("run").args(words).stdin(Stdio::null());
    for name in ["OMP_NUM_THREADS", "PYTHONUNBUFFERED", "POLYRANK_PYTHON", "POLYRANK_NODE"] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn run(words: &[&str]) -> Output {
    polyrank(words).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn sorted_lines(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(bytes).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// What a file of a folder has, by the end of its path.
pub(crate) fn file_below(folder: &Path, end: &str) -> String {
    let mut found = Vec::new();
    collect(folder, &mut found);
    let mut matching = found.iter().filter(|path| path.ends_with(end));
    let path = matching.next().unwrap_or_else(|| panic!("no {end} among {found:?}"));
    assert!(matching.next().is_none(), "several {end} among {found:?}");
    std::fs::read_to_string(path).unwrap()
}

/// All files below a folder.
pub(crate) fn collect(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, found),
            false => found.push(path),
        }
    }
}

/// A port that is given to nobody who asks for any, and at which a launcher may listen: a socket is
/// bound to it as a launcher binds one for rank 0.
pub(crate) struct HeldPort {
    pub(crate) number: u16,
    _socket: Socket,
}

impl HeldPort {
    pub(crate) fn new() -> HeldPort {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let number = socket.local_addr().unwrap().as_socket().unwrap().port();
        HeldPort { number, _socket: socket }
    }
}

/// Whether the process is gone or a zombie that nobody has reaped yet.
pub(crate) fn is_dead(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')),
        Err(_) => true,
    }
}

pub(crate) fn wait_until_dead(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_dead(pid) {
        assert!(Instant::now() < deadline, "process {pid} still lives");
        std::thread::yield_now();
    }
}

/// A launcher whose ranks run.
pub(crate) struct Running {
    pub(crate) launcher: Child,
    pub(crate) output: BufReader<ChildStdout>,
    /// The first line of a rank.
    pub(crate) first: String,
}

impl Running {
    /// Starts the launcher and reads its output up to the first line that a rank writes.
    pub(crate) fn start(words: &[&str]) -> Running {
        Running::of(polyrank(words))
    }

    pub(crate) fn of(mut command: Command) -> Running {
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(launcher.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        Running { launcher, output, first }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.launcher), signal).unwrap();
    }

    /// Waits for the end: the exit code, and what was written on stdout and stderr since.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let mut output = String::new();
        self.output.read_to_string(&mut output).unwrap();
        let mut errors = String::new();
        self.launcher.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.launcher.wait().unwrap().code(), output, errors)
    }
}
