//! The servers that are measured, each a process of its own. Knows nothing of requests.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::thread;

use rustix::process::Signal;

use super::load::ServerAddress;
use crate::bench::local_names::LocalNames;
use crate::itself;
use crate::launch::output::{LastLines, keep};
use crate::launch::process::end_with_launcher;
use polyrank::env::variable;

/// A server that listens, at one of its doors.
pub(super) struct Server {
    pub(super) name: String,
    pub(super) door: ServerAddress,
    process: Rc<Process>,
}

/// A process that ends when its last owner drops it.
struct Process(Child);

/// PyTorch's server, as its users have it; it ends when nobody holds its standard input any more.
const TORCH: &str = "\
import resource, sys, torch
from torch.distributed import TCPStore
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
store = TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False, use_libuv=True)
print('torch', torch.__version__)
print(f'tcp://127.0.0.1:{store.port}', flush=True)
sys.stdin.read()
";

/// How much is shown of the output of a server that never listened.
const LAST_LINES: usize = 5;

/// Why there is no server.
pub(super) enum MissingServer {
    /// Its program, or something that it needs, is not installed.
    Absence(String),
    /// It ended before it listened.
    Failure(String),
}

impl Server {
    /// A polyrank store.
    pub(super) fn polyrank() -> Result<Server, String> {
        let words = itself::command(&["store", "--host", "127.0.0.1", "--port", "0"]);
        Server::start("polyrank", &[], words)
            .map_err(|(MissingServer::Absence(why) | MissingServer::Failure(why))| why)
    }

    /// PyTorch's store, which looks up the names of its clients by `names`.
    pub(super) fn torch(
        python: Option<&Path>,
        names: &LocalNames,
    ) -> Result<Server, MissingServer> {
        let named = python.map(|path| path.as_os_str().to_owned());
        let python = named
            .or_else(|| variable::POLYRANK_BENCH_GLOO.value())
            .unwrap_or_else(|| "python3".into());
        let words = vec![python, "-c".into(), TORCH.into()];
        Server::start("torch", &names.prefix, words).map_err(|missing| {
            let why = match missing {
                MissingServer::Failure(why) if !why.contains("No module named 'torch'") => {
                    return MissingServer::Failure(why);
                }
                MissingServer::Absence(why) | MissingServer::Failure(why) => why,
            };
            MissingServer::Absence(format!(
                "{why}; python3 -m venv torch && torch/bin/pip install torch numpy, then --python \
                 torch/bin/python"
            ))
        })
    }

    /// The same server, reached as by its own clients on this host, if they use another way.
    pub(super) fn nearest(&self) -> std::io::Result<Option<Server>> {
        let door = self.door.nearest()?;
        let name = format!("{} local", self.name);
        Ok(door.map(|door| Server { name, door, process: self.process.clone() }))
    }

    /// Starts a program that prints `tcp://…:PORT` when it listens, behind the words of `prefix`.
    fn start(
        name: &str,
        prefix: &[OsString],
        words: Vec<OsString>,
    ) -> Result<Server, MissingServer> {
        let program = words.first().cloned().unwrap_or_default();
        let failed = |why: String| format!("{name} ({}): {why}", program.to_string_lossy());
        if !prefix.is_empty() {
            // The prefix would be found where the program is not.
            is_there(&program)
                .map_err(|error| MissingServer::Absence(failed(error.to_string())))?;
        }
        let mut words = prefix.iter().cloned().chain(words);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // However this process ends, its servers end with it.
        end_with_launcher(&mut command, Signal::KILL);
        let spawned = command.spawn();
        let mut child =
            spawned.map_err(|error| MissingServer::Absence(failed(error.to_string())))?;
        let said = child.stdout.take().map(BufReader::new);
        // PyTorch's server writes two lines for every client that goes away.
        let complaints = LastLines::default();
        let reading = child.stderr.take().map(|stderr| {
            let complaints = complaints.clone();
            thread::spawn(move || keep(stderr, &complaints))
        });
        let (mut name, process) = (name.to_owned(), Rc::new(Process(child)));
        for line in said.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            if let Some(version) = line.strip_prefix("torch ") {
                name = format!("torch {version}");
            }
            let port = line.trim().strip_prefix("tcp://").and_then(|url| url.rsplit_once(':'));
            if let Some(port) = port.and_then(|(_, port)| port.parse().ok()) {
                return Ok(Server { name, door: ServerAddress::Tcp(port), process });
            }
        }
        // What it wrote is read to its end, which comes with its own.
        drop(process);
        reading.map(thread::JoinHandle::join);
        let complaints = complaints.lines();
        let last = complaints.len().saturating_sub(LAST_LINES);
        let last: String = complaints[last..].iter().map(|line| format!("\n    {line}")).collect();
        Err(MissingServer::Failure(failed(format!("it ended before it listened:{last}"))))
    }

    /// The memory that the process has; none where the system does not say.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        let path = format!("/proc/{}/status", self.process.0.id());
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().split(' ').next()?.parse::<u64>().ok().map(|kib| kib << 10)
    }
}

/// Whether a program can be started at all.
fn is_there(program: &OsString) -> std::io::Result<()> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(drop)
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
