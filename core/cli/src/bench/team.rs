//! The ranks of one contender: started, told what to do, watched, ended. Knows nothing of times or
//! tables.

mod connections;
mod start;
mod starts_file;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::find::ContenderPrograms;
use super::library::Contender;
use super::local_names::LocalNames;
use super::messages::{Answer, Command};
use super::operation::Operation;
use super::peer_settings::Placement;
use super::start_timing::StartTiming;
use crate::launch::output::LastLines;
use crate::launch::process::Process;
use crate::launch::report::ProcessEnd;
use connections::Event;
use start::StartStage;

/// How often a wait looks whether the user wants to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long ranks have at least to leave their group, before they are told to end, and before they
/// are killed.
const LEAVE_GRACE: Duration = Duration::from_secs(5);
/// How long the ends of ranks may take to be seen after the first that failed, and the output of
/// one that ended to be read: a process that it left behind may hold it open.
const LAST_OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Why a team cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TeamError {
    /// The user wants to end.
    Interrupted,
    /// What went wrong, with the last words of the ranks.
    Failed(String),
}

/// What every team of a run shares.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// How long one command may take, and joining the group.
    pub(super) limit: Duration,
    /// Set when the user wants to end.
    pub(super) interrupted: Arc<AtomicBool>,
    /// Where the script of Python's ranks lies.
    pub(super) script: std::path::PathBuf,
    /// How programs of PyTorch look up names.
    pub(super) names: LocalNames,
    /// The cores of the ranks, in turn; none: the system chooses.
    pub(super) pinned_cores: Vec<usize>,
    /// How many bytes after a cache line's beginning tensors begin.
    pub(super) offset_bytes: usize,
}

impl Limits {
    /// What `ranks` ranks run on.
    pub(super) fn placement(&self, ranks: u32) -> Placement {
        let mut pinned = self.pinned_cores.clone();
        pinned.truncate(ranks as usize);
        pinned.sort_unstable();
        pinned.dedup();
        let cores = match pinned.len() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cores => cores,
        };
        Placement { ranks, cores, is_pinned: !pinned.is_empty() }
    }
}

/// The ranks of one contender.
pub(super) struct Team {
    pub(super) name: String,
    /// What the ranks say of their library, all together.
    pub(super) versions: BTreeMap<String, String>,
    /// Operations that it is not asked for.
    pub(super) unsupported: Vec<Operation>,
    /// Whether some of its ranks share a core.
    pub(super) is_crowded: bool,
    /// How its ranks start together, once that is measured.
    pub(super) start_timing: StartTiming,
    connections: Vec<TcpStream>,
    processes: Vec<Member>,
    inbox: Receiver<Event>,
    terms: Limits,
}

/// One started process: a rank, or a launcher of ranks.
struct Member {
    process: Option<Process>,
    last_lines: LastLines,
    /// Open while the output is read.
    reading: Receiver<Infallible>,
    ending: Option<ProcessEnd>,
}

impl Member {
    /// The last lines, all of them if the process has ended.
    fn last_words(&self) -> Vec<String> {
        if self.ending.is_some() {
            // Nothing is ever sent: this waits for the readers' end.
            let _ = self.reading.recv_timeout(LAST_OUTPUT_GRACE);
        }
        self.last_lines.lines()
    }
}

impl Team {
    /// Starts `ranks` ranks and waits until they are a group.
    ///
    /// # Errors
    /// A program that does not start, a rank that fails, or one that does not arrive in time.
    pub(super) fn start(
        contender: &Contender,
        found: &ContenderPrograms,
        ranks: u32,
        terms: &Limits,
    ) -> Result<Team, TeamError> {
        start::start(contender, found, ranks, StartStage::Joined, terms)
    }

    /// Starts `ranks` ranks and waits until all have loaded their library; they join when they are
    /// told.
    ///
    /// # Errors
    /// As [`Team::start`].
    pub(super) fn load(
        contender: &Contender,
        found: &ContenderPrograms,
        ranks: u32,
        terms: &Limits,
    ) -> Result<Team, TeamError> {
        start::start(contender, found, ranks, StartStage::Loaded, terms)
    }

    /// How many ranks it has.
    pub(super) fn ranks(&self) -> u32 {
        self.connections.len() as u32
    }

    /// Tells every rank the same and waits for all answers, by rank.
    ///
    /// # Errors
    /// A rank that fails, ends, or does not answer in time.
    pub(super) fn tell(&mut self, command: &Command) -> Result<Vec<Answer>, TeamError> {
        self.send(0..self.connections.len(), command)?;
        self.answers()
    }

    /// Tells some ranks, and does not wait.
    ///
    /// # Errors
    /// A rank that is gone.
    pub(super) fn send(&mut self, ranks: Range<usize>, command: &Command) -> Result<(), TeamError> {
        let mut line = serde_json::to_vec(command)
            .map_err(|error| self.failed(&format!("a command cannot be written: {error}")))?;
        line.push(b'\n');
        for rank in ranks {
            let sent = self.connections[rank].write_all(&line);
            sent.map_err(|error| self.gone(rank, &error.to_string()))?;
        }
        Ok(())
    }

    /// Waits for an answer of every rank.
    ///
    /// # Errors
    /// A rank that fails, ends, or does not answer in time.
    pub(super) fn answers(&mut self) -> Result<Vec<Answer>, TeamError> {
        let mut answers = vec![None; self.connections.len()];
        let deadline = Instant::now() + self.terms.limit;
        while answers.iter().any(Option::is_none) {
            match self.receive(deadline)? {
                Event::Answer(rank, Answer::Failed { why }) => {
                    return Err(self.rank_failed(rank, &why));
                }
                Event::Answer(rank, answer) => answers[rank] = Some(answer),
                Event::Joined(..) => {}
                Event::Broken(rank, why) => return Err(self.gone(rank, &why)),
                Event::Ended(member, ending) => return Err(self.ended(member, ending)),
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Lets the ranks leave their group and waits for their end.
    ///
    /// # Errors
    /// Ranks that end with an error: what they did before may be wrong.
    pub(super) fn end(mut self) -> Result<(), TeamError> {
        self.close_connections();
        // Many ranks that unload a large library on few cores take longer than one that hangs may.
        let deadline = Instant::now() + self.terms.limit.max(LEAVE_GRACE);
        while self.processes.iter().any(|member| member.ending.is_none()) {
            match self.receive(deadline) {
                Ok(_) => {}
                Err(TeamError::Interrupted) => return Err(TeamError::Interrupted),
                Err(TeamError::Failed(_)) => break,
            }
        }
        for member in 0..self.processes.len() {
            match self.processes[member].ending {
                Some(ending) if ending.is_success() => {}
                Some(ending) => return Err(self.ended(member, ending)),
                None => return Err(self.failed("its ranks did not end when they were let go")),
            }
        }
        Ok(())
    }

    /// The next event. The ends of processes are noted.
    fn receive(&mut self, deadline: Instant) -> Result<Event, TeamError> {
        loop {
            if self.terms.interrupted.load(Ordering::Relaxed) {
                return Err(TeamError::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = self.terms.limit.as_secs();
                return Err(self.failed(&format!("no answer within {seconds} s")));
            }
            match self.inbox.recv_timeout(left.min(CHECK_INTERVAL)) {
                Ok(event) => {
                    if let Event::Ended(member, ending) = event {
                        self.processes[member].ending = Some(ending);
                    }
                    return Ok(event);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.failed("its ranks are gone"));
                }
            }
        }
    }

    /// A connection that broke says less than how the process ended, which follows soon.
    fn gone(&mut self, rank: usize, why: &str) -> TeamError {
        let deadline = Instant::now() + LAST_OUTPUT_GRACE;
        while let Ok(event) = self.receive(deadline) {
            if let Event::Answer(rank, Answer::Failed { why }) = event {
                return self.rank_failed(rank, &why);
            }
            if let Event::Ended(member, ending) = event {
                return self.ended(member, ending);
            }
        }
        self.failed(&format!("rank {rank} is gone: {why}"))
    }

    /// A rank says why it failed, which may be that another ended: that one's words are needed.
    fn rank_failed(&mut self, rank: usize, why: &str) -> TeamError {
        self.wait_for_ends(Instant::now() + LAST_OUTPUT_GRACE);
        self.failed(&format!("rank {rank}: {why}"))
    }

    fn ended(&mut self, member: usize, ending: ProcessEnd) -> TeamError {
        self.wait_for_ends(Instant::now() + LAST_OUTPUT_GRACE);
        match self.processes.len() {
            1 => self.failed(&format!("its launcher ended: {ending}")),
            _ => self.failed(&format!("rank {member} ended: {ending}")),
        }
    }

    /// `what`, with the last words of the ranks that said something.
    fn failed(&self, what: &str) -> TeamError {
        let mut text = format!("{}: {what}", self.name);
        for (number, member) in self.processes.iter().enumerate() {
            for line in member.last_words() {
                text.push_str(&format!("\n    {number} | {line}"));
            }
        }
        TeamError::Failed(text)
    }

    fn close_connections(&self) {
        for connection in &self.connections {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Notes the ends of processes until all have ended or it is time.
    fn wait_for_ends(&mut self, deadline: Instant) {
        while self.processes.iter().any(|member| member.ending.is_none()) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(Event::Ended(member, ending)) => self.processes[member].ending = Some(ending),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn signal(&self, signal: Signal) {
        for member in self.processes.iter().filter(|member| member.ending.is_none()) {
            member.process.iter().for_each(|process| process.signal(signal));
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.close_connections();
        // A launcher must learn of it to end its ranks.
        self.signal(Signal::TERM);
        self.wait_for_ends(Instant::now() + LEAVE_GRACE);
        self.signal(Signal::KILL);
        for member in &mut self.processes {
            member.process.take().into_iter().for_each(Process::reap);
        }
    }
}
