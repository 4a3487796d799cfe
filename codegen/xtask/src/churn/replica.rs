//! The processes of a run: the lighthouse, and replicas that print lines and take orders. Knows not
//! what the lines mean.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::Arguments;
use crate::python;
use crate::workspace::Workspace;

/// How soon the lighthouse notices that a replica was killed, s.
const SILENCE_S: &str = "1";
/// How long replicas that ask wait for those that are alive and do not, s.
const JOIN_S: &str = "2";

/// What a replica has said; none: it says nothing more.
pub(super) struct Line {
    /// Which process.
    pub(super) id: u32,
    pub(super) text: Option<String>,
    pub(super) at: Instant,
}

/// How replicas are started.
#[derive(Clone)]
pub(super) struct Programs {
    workspace: Workspace,
    folder: PathBuf,
    /// The language of each number.
    languages: Vec<&'static str>,
    pace_ms: u64,
}

impl Programs {
    pub(super) fn new(workspace: &Workspace, folder: &Path, given: &Arguments) -> Programs {
        let counts = [("python", given.python), ("rust", given.rust), ("node", given.node)];
        let each = counts.iter().flat_map(|(name, count)| (0..*count).map(|_| *name));
        let (workspace, folder) = (workspace.clone(), folder.to_owned());
        Programs { workspace, folder, languages: each.collect(), pace_ms: given.pace_ms }
    }

    /// The same, whose steps take no longer than they have to.
    pub(super) fn unpaced(&self) -> Programs {
        Programs { pace_ms: 0, ..self.clone() }
    }

    pub(super) fn numbers(&self) -> std::ops::Range<usize> {
        0..self.languages.len()
    }

    /// Starts the replica of this number.
    ///
    /// # Errors
    /// The program or its log is missing.
    pub(super) fn start(&self, number: usize, lighthouse: &Lighthouse) -> Result<Replica> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let id = STARTED.fetch_add(1, Ordering::Relaxed);
        let language = self.languages[number];
        let name = format!("{language}-{number}");
        let mut command = self.command(language);
        command.args([&lighthouse.address, &name, &number.to_string()]);
        command.args([self.pace_ms.to_string(), lighthouse.steps.to_string()]);
        let log = self.folder.join(format!("{}-{name}-{id}.log", lighthouse.run));
        let errors = File::create(&log).with_context(|| format!("{}", log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let output = child.stdout.take().ok_or_else(|| anyhow!("{name} has no output"))?;
        let (sender, mut copy) =
            (lighthouse.lines.clone(), File::options().append(true).open(&log)?);
        std::thread::spawn(move || {
            let send = |text: Option<String>| {
                let line = Line { id, text, at: Instant::now() };
                // Nobody listens any more once the run is over.
                sender.send(line).is_ok()
            };
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                // The log is for people: a disk that is full does not stop training.
                let _ = writeln!(copy, "{text}");
                if !send(Some(text)) {
                    return;
                }
            }
            send(None);
        });
        let orders = child.stdin.take();
        let (hold, free_since) = (Hold::None, Instant::now());
        Ok(Replica { id, number, name, log, child, orders, hold, free_since })
    }

    fn command(&self, language: &str) -> Command {
        let script = |ending: &str| self.workspace.path(&format!("tests/demo/learner.{ending}"));
        match language {
            "python" => {
                let mut command = self.workspace.command(self.workspace.python());
                command.arg(script("py")).env("PYTHONPATH", python::search_path(&self.workspace));
                command
            }
            "node" => {
                let mut command = self.workspace.command("node");
                command.arg(script("mjs"));
                command
            }
            _ => self.workspace.command(self.workspace.target("debug/examples/learner")),
        }
    }
}

/// The process that says who trains together.
pub(super) struct Lighthouse {
    child: Child,
    address: String,
    /// What the run is called.
    run: String,
    /// After how many steps replicas end by themselves.
    steps: i64,
    lines: Sender<Line>,
}

impl Lighthouse {
    pub(super) fn start(
        programs: &Programs,
        run: &str,
        steps: i64,
        lines: Sender<Line>,
    ) -> Result<Lighthouse> {
        let mut command = programs.workspace.command(programs.workspace.target("debug/polyrank"));
        command.args(["lighthouse", "--port", "0", "--min-replicas", "1"]);
        command.args(["--heartbeat-timeout", SILENCE_S, "--join-timeout", JOIN_S]);
        let log = programs.folder.join(format!("{run}-lighthouse.log"));
        let errors = File::create(&log).with_context(|| format!("{}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().context("cannot start the lighthouse")?;
        let output = child.stdout.take().ok_or_else(|| anyhow!("the lighthouse has no output"))?;
        let mut said = BufReader::new(output).lines().map_while(Result::ok);
        let address =
            said.find_map(|line| Some(line.trim().strip_prefix("replicas:")?.trim().to_owned()));
        // It goes on writing.
        std::thread::spawn(move || said.for_each(drop));
        let Some(address) = address else {
            bail!("the lighthouse does not serve; what it wrote is in {}", log.display())
        };
        Ok(Lighthouse { child, address, run: run.to_owned(), steps, lines })
    }
}

impl Drop for Lighthouse {
    fn drop(&mut self) {
        // It may be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What keeps a replica from its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    None,
    Slow,
    Stopped,
}

/// A replica that was started. Dropping it kills it.
pub(super) struct Replica {
    /// Which process; each has its own.
    pub(super) id: u32,
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) log: PathBuf,
    child: Child,
    orders: Option<ChildStdin>,
    hold: Hold,
    /// Since when nothing keeps it from its steps, unless something does.
    pub(super) free_since: Instant,
}

impl Replica {
    /// Stops it, or has its steps take so many milliseconds more.
    ///
    /// # Errors
    /// The process is gone.
    pub(super) fn hold(&mut self, slower: Option<u64>) -> Result<()> {
        match slower {
            Some(slower) => {
                self.hold = Hold::Slow;
                self.order(&format!("slow {slower}"));
                Ok(())
            }
            None => {
                self.hold = Hold::Stopped;
                self.signal(Signal::STOP)
            }
        }
    }

    /// Lets it go on as before.
    ///
    /// # Errors
    /// The process is gone.
    pub(super) fn release(&mut self) -> Result<()> {
        if self.hold == Hold::Stopped {
            self.signal(Signal::CONT)?;
        } else {
            self.order("slow 0");
        }
        self.hold = Hold::None;
        self.free_since = Instant::now();
        Ok(())
    }

    pub(super) fn is_held(&self) -> bool {
        self.hold != Hold::None
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.hold == Hold::Stopped
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("{}: {signal:?}", self.name))
    }

    /// A line for its input.
    pub(super) fn order(&mut self, line: &str) {
        // Who is gone needs no orders, and is noticed elsewhere.
        let _ = self.orders.as_mut().map(|input| writeln!(input, "{line}"));
    }

    /// Waits for its good end.
    ///
    /// # Errors
    /// It does not come, or is a bad one.
    pub(super) fn finish(&mut self, patience: Duration) -> Result<()> {
        self.orders = None;
        let status = self.wait(patience)?;
        let log = self.log.display();
        ensure!(status.success(), "{} ended with {status}; what it wrote is in {log}", self.name);
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not come.
    pub(super) fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            let log = self.log.display();
            ensure!(Instant::now() < deadline, "{} does not end; its log: {log}", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It may be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
