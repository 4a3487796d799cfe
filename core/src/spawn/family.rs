//! The processes that `spawn` started: waits for all of them, and ends the others when one fails.
//! Knows not what they run.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::HOST;
use super::child::{Place, RankOfSpawn, key_of};
use super::error::SpawnError;
use crate::env::variable::{self, Variable};
use crate::store::{Store, TcpStore};

/// How long the others may take to end when one has failed, after SIGTERM.
const GRACE: Duration = Duration::from_secs(30);

/// All processes of one call. Those that still run are killed when it is dropped.
pub(super) struct Family<'store> {
    store: &'store TcpStore,
    /// In the order of their ranks.
    processes: Vec<Process>,
    sender: Sender<u32>,
    /// The ranks that have ended, as they end.
    ends: Receiver<u32>,
}

struct Process {
    child: Child,
    /// How it ended, once it has.
    status: Option<ExitStatus>,
    was_stopped: bool,
}

impl<'store> Family<'store> {
    pub(super) fn new(store: &'store TcpStore) -> Family<'store> {
        let (sender, ends) = channel();
        Family { store, processes: Vec::new(), sender, ends }
    }

    /// Starts this program as the next rank.
    pub(super) fn start(&mut self, rank: u32, size: u32, place: &Place) -> Result<(), SpawnError> {
        let started = command(rank, size, place, self.store.port()).and_then(|mut it| it.spawn());
        let child = started.map_err(|source| SpawnError::Start { rank, source })?;
        let (pid, sender) = (Pid::from_child(&child), self.sender.clone());
        self.processes.push(Process { child, status: None, was_stopped: false });
        let wait = move || {
            wait_for_end(pid);
            // Nobody waits for it any more where another could not be started.
            let _ = sender.send(rank);
        };
        let thread = std::thread::Builder::new().name("polyrank-spawn".into()).spawn(wait);
        thread.map(drop).map_err(|source| SpawnError::Start { rank, source })
    }

    /// Waits until all have ended; when one has failed the others are ended.
    pub(super) fn wait(mut self) -> Result<(), SpawnError> {
        let mut seen = None;
        while seen.is_none() && self.is_running() {
            let Ok(rank) = self.ends.recv() else { break };
            seen = self.reap(rank).then_some(rank);
        }
        let Some(seen) = seen else { return Ok(()) };
        self.stop();
        Err(self.error(self.cause(seen)))
    }

    fn is_running(&self) -> bool {
        self.processes.iter().any(|process| process.status.is_none())
    }

    /// Takes note that a rank has ended; whether it has failed.
    fn reap(&mut self, rank: u32) -> bool {
        let process = &mut self.processes[rank as usize];
        // Where somebody else has waited for it, nobody knows how it ended.
        process.status = Some(process.child.wait().unwrap_or(ExitStatus::from_raw(0)));
        self.has_failed(rank)
    }

    fn has_failed(&self, rank: u32) -> bool {
        let status = self.processes[rank as usize].status;
        !status.is_some_and(|status| status.success()) || self.told(rank, "called").is_none()
    }

    /// Ends all that still run.
    fn stop(&mut self) {
        for process in self.processes.iter_mut().filter(|it| it.status.is_none()) {
            // What has ended by now did so of itself.
            if let Ok(Some(status)) = process.child.try_wait() {
                process.status = Some(status);
                continue;
            }
            process.was_stopped = true;
            // One that has ended meanwhile has its number until it is reaped.
            let _ = kill_process(Pid::from_child(&process.child), Signal::TERM);
        }
        let until = Instant::now() + GRACE;
        while self.is_running() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(rank) = self.ends.recv_timeout(left) else { break };
            self.reap(rank);
        }
        self.kill();
    }

    fn kill(&mut self) {
        for process in self.processes.iter_mut().filter(|process| process.status.is_none()) {
            let _ = process.child.kill();
            process.status = Some(process.child.wait().unwrap_or(ExitStatus::from_raw(0)));
        }
    }

    /// The rank that failed first: others may have failed as they were left alone. What a signal
    /// has ended could not say when.
    fn cause(&self, seen: u32) -> u32 {
        let order = |rank: &u32| self.tale(*rank).map_or(0, |tale| tale.order);
        let ranks = 0..self.processes.len() as u32;
        let failed = ranks.filter(|rank| self.has_failed(*rank) && !self.was_ended_by_us(*rank));
        failed.min_by_key(order).unwrap_or(seen)
    }

    /// Whether it ended as it was told to: by the signal, or by itself without a word.
    fn was_ended_by_us(&self, rank: u32) -> bool {
        let Process { status, was_stopped, .. } = self.processes[rank as usize];
        let signal = status.and_then(|status| status.signal());
        let ours = [Signal::TERM, Signal::KILL].map(Signal::as_raw);
        let by_another = signal.is_some_and(|signal| !ours.contains(&signal));
        was_stopped && !by_another && self.tale(rank).is_none()
    }

    /// What a rank told of its end.
    fn tale(&self, rank: u32) -> Option<Tale> {
        self.told(rank, "failed").or_else(|| self.told(rank, "panicked"))
    }

    fn told(&self, rank: u32, what: &str) -> Option<Tale> {
        let key = key_of(rank, what);
        let is_there = self.store.check(&[&key]).is_ok_and(|is_there| is_there);
        let value = is_there.then(|| self.store.get(&key).ok())??;
        let text = String::from_utf8_lossy(&value).into_owned();
        let (order, message) = text.split_once('\n')?;
        let panicked = what == "panicked";
        Some(Tale { order: order.parse().ok()?, message: message.to_owned(), panicked })
    }

    /// Why this one failed.
    fn error(&self, rank: u32) -> SpawnError {
        let Process { child, status, .. } = &self.processes[rank as usize];
        let pid = child.id();
        if let Some(Tale { message, panicked, .. }) = self.tale(rank) {
            return match panicked {
                true => SpawnError::Panicked { rank, pid, message },
                false => SpawnError::Failed { rank, pid, message },
            };
        }
        match (status.and_then(|it| it.signal()), status.and_then(|it| it.code())) {
            (Some(signal), _) => SpawnError::Killed { rank, pid, signal, name: name_of(signal) },
            (None, Some(0) | None) => SpawnError::NotCalled { rank, pid },
            (None, Some(code)) => SpawnError::Exited { rank, pid, code },
        }
    }
}

impl Drop for Family<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a rank told, and its place in the order in which they did.
struct Tale {
    order: u64,
    message: String,
    panicked: bool,
}

/// This program, once more, as a rank.
fn command(rank: u32, size: u32, place: &Place, port: u16) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut words = std::env::args_os();
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command.args(words).stdin(Stdio::null());
    let variables: [(Variable, String); 8] = [
        (variable::RANK, rank.to_string()),
        (variable::LOCAL_RANK, rank.to_string()),
        (variable::WORLD_SIZE, size.to_string()),
        (variable::LOCAL_WORLD_SIZE, size.to_string()),
        (variable::MASTER_ADDR, HOST.to_owned()),
        (variable::MASTER_PORT, port.to_string()),
        (variable::TORCHELASTIC_USE_AGENT_STORE, "True".to_owned()),
        (variable::POLYRANK_SPAWN, RankOfSpawn::variable(place, rank, port)),
    ];
    command.envs(variables.map(|(variable, value)| (variable.name(), value)));
    Ok(command)
}

/// Waits until the process has ended, and leaves it to be reaped.
fn wait_for_end(pid: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), options), Ok(None) | Err(Errno::INTR)) {}
}

fn name_of(signal: i32) -> String {
    let known = [
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::HUP, "SIGHUP"),
        (Signal::ILL, "SIGILL"),
        (Signal::INT, "SIGINT"),
        (Signal::KILL, "SIGKILL"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::TERM, "SIGTERM"),
    ];
    let name = known.into_iter().find(|(known, _)| known.as_raw() == signal);
    name.map_or_else(|| format!("signal {signal}"), |(_, name)| name.to_owned())
}
