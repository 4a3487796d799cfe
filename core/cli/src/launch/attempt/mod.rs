//! One start of the ranks of this host, from the first to the last: what to do when one fails,
//! when a signal arrives, when another node fails. Knows nothing of what the ranks do.

mod ending;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use polyrank::env::variable::{self, Variable};
use rustix::process::Signal;

use super::arguments::job::Job;
use super::arguments::parts::Part;
use super::arguments::streams::Stream;
use super::environment::{JobEnvironment, Place};
use super::error_file;
use super::events::{Event, asks_to_end, receive};
use super::guard::Guard;
use super::listeners::{self, Listeners};
use super::logs::Logs;
use super::output::{Destination, LastLines, OutputError, Screen, forward};
use super::process::{Process, wait_for_end};
use super::record;
use super::report::{ProcessEnd, of_same_replica, say, signal_name};
use super::stopped::RankProcesses;
use super::written::WrittenFiles;
use crate::affinity::started_on;
use crate::nodes::{Ending, Nodes};

/// How long the launcher waits for output after the last rank has ended: a process that left its
/// rank's group may hold the pipe open for ever.
const OUTPUT_GRACE: Duration = Duration::from_secs(2);
/// The exit code that a shell reports for a program that was killed because its output was closed.
pub(super) const EXIT_OUTPUT_CLOSED: i32 = 128 + 13;
/// The exit code of timeout(1).
pub(super) const EXIT_TIMEOUT: i32 = 124;

/// Signals that come within so long are one request: timeout(1) sends its own to the command and
/// then to the whole process group.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// What a start of the ranks needs to know.
pub(super) struct Setting<'job> {
    pub(super) job: &'job Job,
    pub(super) environment: &'job JobEnvironment,
    pub(super) place: &'job Place,
    pub(super) restart: u32,
    /// How many of the starts before were because of nodes that came or went.
    pub(super) changes: u32,
    pub(super) logs: &'job Logs,
    pub(super) screen: Arc<Screen>,
    /// The cores of each rank.
    pub(super) cores: &'job [Vec<usize>],
    /// When the job must have ended.
    pub(super) deadline: Option<Instant>,
    /// The launchers of the other nodes, if they know of each other.
    pub(super) nodes: Option<&'job Nodes>,
    /// The folders in which ranks write what is read of them, by the variables that name them.
    pub(super) folders: &'job [(Variable, PathBuf)],
    pub(super) events: Sender<Event>,
    pub(super) host: &'job str,
    pub(super) processes: RankProcesses,
}

/// How a start of the ranks ended.
pub(super) struct Outcome {
    pub(super) exit_code: i32,
    /// Whether another start may help.
    pub(super) may_restart: bool,
    pub(super) signalled: Option<i32>,
    pub(super) timed_out: bool,
    /// Whether nobody reads the output any more.
    pub(super) output_closed: bool,
    /// Whether the launcher of another node is gone.
    pub(super) lost: bool,
    /// How it ended for all nodes.
    pub(super) everywhere: Option<Ending>,
    pub(super) record: record::Attempt,
}

impl Outcome {
    /// Whether it ended because nodes came or went.
    pub(super) fn change(&self) -> bool {
        matches!(self.everywhere, Some(Ending::Changed { .. }))
    }
}

/// A program that could not be started.
struct StartFailure {
    message: String,
    exit_code: i32,
}

/// One rank of this host.
struct Rank {
    rank: u32,
    process: Process,
    last_lines: LastLines,
    error_file: PathBuf,
    ending: Option<ProcessEnd>,
    record: record::Rank,
}

/// The rank that failed before all others.
struct FirstFailure {
    local_rank: usize,
    ending: ProcessEnd,
    after: Duration,
    time: String,
}

/// A start of the ranks that has begun.
pub(super) struct Attempt<'job> {
    setting: Setting<'job>,
    ranks: Vec<Rank>,
    /// Kills the ranks if the launcher is killed; none if it could not be started.
    guard: Option<Guard>,
    started: Instant,
    started_at: String,
    start_failure: Option<i32>,
    first_failure: Option<FirstFailure>,
    /// How it ended for all nodes.
    everywhere: Option<Ending>,
    /// The signal that asked the launcher to stop.
    signalled: Option<i32>,
    /// From when on another one is another request.
    patient_until: Instant,
    timed_out: bool,
    output_closed: bool,
    /// Whether the job ends without a failure here.
    job_ends: bool,
    open_streams: usize,
    /// Whether the other nodes know how it ended here.
    reported: bool,
    stopping: bool,
    /// When the ranks that were asked to stop are killed.
    kill_at: Option<Instant>,
    /// The ranks that did not stop when asked.
    killed: Vec<u32>,
}

impl<'job> Attempt<'job> {
    /// Starts the ranks.
    pub(super) fn start(setting: Setting<'job>) -> Attempt<'job> {
        let mut attempt = Attempt {
            setting,
            ranks: Vec::new(),
            guard: start_guard(),
            started: Instant::now(),
            started_at: record::now(),
            patient_until: Instant::now(),
            start_failure: None,
            first_failure: None,
            everywhere: None,
            signalled: None,
            timed_out: false,
            output_closed: false,
            job_ends: false,
            open_streams: 0,
            reported: false,
            stopping: false,
            kill_at: None,
            killed: Vec::new(),
        };
        if let Err(failure) = attempt.start_ranks() {
            say(&failure.message);
            attempt.start_failure = Some(failure.exit_code);
            attempt.report_failure(failure.message, failure.exit_code, false);
            attempt.stop(Signal::TERM);
        }
        attempt
    }

    /// What is known so far.
    pub(super) fn record(&self) -> record::Attempt {
        record::Attempt {
            restart: self.setting.restart,
            started: self.started_at.clone(),
            ended: None,
            first_failure: None,
            ranks: self.ranks.iter().map(|rank| rank.record.clone()).collect(),
        }
    }

    /// Handles events until every rank has ended, here and on the other nodes.
    pub(super) fn watch(&mut self, inbox: &Receiver<Event>) {
        loop {
            let alive = self.alive().count();
            if alive == 0 {
                if self.setting.nodes.is_none() || self.everywhere.is_some() {
                    return;
                }
                self.report(&Ending::Done);
            }
            let deadline = self.setting.deadline.filter(|_| !self.timed_out);
            let next = self.kill_at.into_iter().chain(deadline).min();
            match receive(inbox, next) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => self.time_is_up(),
                // Not while `self` holds a sender.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Cleans up after the ranks, reports, and says how it ended.
    pub(super) fn finish(mut self, inbox: &Receiver<Event>) -> Outcome {
        let mut record = self.record();
        let endings: Vec<ProcessEnd> = self.ranks.iter().filter_map(|rank| rank.ending).collect();
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        let mut lines = Vec::new();
        let mut replies = Vec::new();
        for rank in self.ranks.drain(..) {
            rank.process.reap();
            lines.push(rank.last_lines);
            replies.push(error_file::read(&rank.error_file));
        }
        self.drain_output(inbox);
        if !self.killed.is_empty() {
            let ranks = list(&self.killed);
            say(&format!("ranks that did not stop and were killed: {ranks}"));
        }
        record.ended = Some(record::now());
        record.first_failure = self.first_failure(&record.ranks, &lines, &replies);
        let all_well = endings.iter().all(|ending| ending.is_success());
        Outcome {
            exit_code: self.exit_code(all_well),
            may_restart: self.may_restart(),
            signalled: self.signalled,
            timed_out: self.timed_out,
            output_closed: self.output_closed,
            lost: matches!(self.everywhere, Some(Ending::Lost { .. })),
            everywhere: self.everywhere,
            record,
        }
    }

    fn start_ranks(&mut self) -> Result<(), StartFailure> {
        for part in &self.setting.job.parts {
            for _ in 0..part.rank_count {
                self.start_rank(part)?;
            }
        }
        Ok(())
    }

    fn start_rank(&mut self, part: &Part) -> Result<(), StartFailure> {
        let Setting { job, environment, place, restart, logs, .. } = self.setting;
        let local_rank = self.ranks.len();
        let rank = place.first_rank + local_rank as u32;
        let program = part.command_line();
        let failed = |error: std::io::Error| StartFailure {
            message: format!("cannot start rank {rank} ({program}): {error}"),
            exit_code: match error.kind() {
                std::io::ErrorKind::NotFound => 127,
                _ => 126,
            },
        };
        let files = logs.of_rank(&job.output, restart, local_rank as u32).map_err(|error| {
            StartFailure { message: format!("the logs of rank {rank}: {error}"), exit_code: 1 }
        })?;
        let numbers = (restart - self.setting.changes, local_rank as u32);
        let mut variables = environment.variables(job, place, numbers, &files.error_file);
        let folders = self.setting.folders.iter();
        variables.extend(folders.map(|(name, folder)| (name.name().into(), folder.into())));
        let extra = OsString::from(format!("--local-rank={local_rank}"));
        let extra = job.pass_local_rank.then_some(extra.as_os_str());
        // A rank in its own process group would be stopped if it read from the terminal.
        let is_first = rank == 0 && job.agent.is_none() && job.replica.is_none();
        let read_stdin = is_first && !std::io::stdin().is_terminal();
        let start = || Process::start_in(job.wdir.as_deref(), part, extra, &variables, read_stdin);
        let mut process = started_on(&self.setting.cores[local_rank], start).map_err(failed)?;
        if let Some(error) = self.guard.as_mut().and_then(|guard| guard.add(process.pid()).err()) {
            say_unguarded(&error);
            self.guard = None;
        }
        let last_lines = LastLines::default();
        if let Some((stdout, stderr)) = process.take_output() {
            let streams = [(Stream::Stdout, files.stdout), (Stream::Stderr, files.stderr)];
            let [out, err] = streams.map(|(stream, file)| {
                let shown = job.output.is_shown(local_rank as u32, stream);
                Destination { rank, stream, shown, file, last: last_lines.clone() }
            });
            self.read(stdout, out);
            self.read(stderr, err);
        }
        let (events, pid) = (self.setting.events.clone(), process.pid());
        self.setting.processes.note(rank, pid);
        thread::spawn(move || {
            let _ = events.send(Event::Ended(local_rank, wait_for_end(pid)));
        });
        let record = record::Rank {
            rank,
            local_rank: local_rank as u32,
            host: self.setting.host.to_owned(),
            pid: pid.as_raw_nonzero().get(),
            program,
            started: record::now(),
            ended: None,
            exit_code: None,
            signal: None,
        };
        let error_file = files.error_file;
        self.ranks.push(Rank { rank, process, last_lines, error_file, ending: None, record });
        Ok(())
    }

    fn read(&mut self, input: impl std::io::Read + Send + 'static, to: Destination) {
        let (events, screen) = (self.setting.events.clone(), self.setting.screen.clone());
        let (restart, rank) = (self.setting.restart, to.rank);
        self.open_streams += 1;
        thread::spawn(of_same_replica(move || {
            forward(input, &screen, to, |error| match error {
                OutputError::Closed => {
                    let _ = events.send(Event::OutputClosed);
                }
                OutputError::File(error) => {
                    say(&format!("rank {rank}: its log ends here, it cannot be written: {error}"));
                }
            });
            let _ = events.send(Event::OutputEnded { restart });
        }));
    }

    fn alive(&self) -> impl Iterator<Item = &Rank> {
        self.ranks.iter().filter(|rank| rank.ending.is_none())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ended(local_rank, ending) => self.ended(local_rank, ending),
            Event::OutputEnded { restart } => self.output_ended(restart),
            Event::OutputClosed => {
                self.output_closed = true;
                self.report_failure("nobody reads the output".into(), EXIT_OUTPUT_CLOSED, false);
                self.stop(Signal::TERM);
            }
            Event::Signal(signal) => self.signal(signal),
            Event::JobEnds => {
                self.job_ends = true;
                self.stop(Signal::TERM);
            }
            Event::EndedEverywhere { restart, ending } if restart == self.setting.restart => {
                self.ended_everywhere(ending);
            }
            Event::EndedEverywhere { .. } | Event::Met(_) => {}
        }
    }

    fn ended(&mut self, local_rank: usize, ending: ProcessEnd) {
        self.ranks[local_rank].ending = Some(ending);
        self.ranks[local_rank].record.end(ending);
        self.setting.processes.forget(self.ranks[local_rank].rank);
        // A rank that was asked to stop did not fail.
        if ending.is_success() || self.stopping || self.first_failure.is_some() {
            return;
        }
        let (after, time) = (self.started.elapsed(), record::now());
        self.first_failure = Some(FirstFailure { local_rank, ending, after, time });
        let rank = self.ranks[local_rank].rank;
        let what = format!("rank {rank} failed: {ending}");
        if self.setting.job.keep_going {
            if self.alive().count() > 0 {
                say(&format!("{what}; the others go on"));
            }
            return;
        }
        let others = self.alive().count();
        if others > 0 {
            say(&format!("{what}; stopping the other {others}"));
        }
        self.report_failure(what, ending.exit_code(), true);
        self.stop(Signal::TERM);
    }

    fn ended_everywhere(&mut self, ending: Ending) {
        let here = self.alive().count();
        match &ending {
            Ending::Failed { node_rank, host, what, .. }
                if *node_rank != self.setting.place.node_rank && self.signalled.is_none() =>
            {
                say(&format!("node {node_rank} ({host}): {what}; {}", stopping(here)));
            }
            Ending::Lost { what } => say(&format!("{what}; {}", stopping(here))),
            Ending::Changed { what, .. } if self.signalled.is_none() => {
                say(&format!("{what}; {}", stopping(here)));
            }
            Ending::Done | Ending::Failed { .. } | Ending::Changed { .. } => {}
        }
        if ending != Ending::Done {
            let signal = ending.signal().and_then(Signal::from_named_raw);
            self.stop(signal.unwrap_or(Signal::TERM));
        }
        self.everywhere = Some(ending);
    }

    fn signal(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        if !asks_to_end(number) {
            self.ask_all(signal);
        } else if self.signalled.is_none() {
            self.signalled = Some(number);
            self.patient_until = Instant::now() + SAME_REQUEST;
            let waiting = self.alive().count();
            let ranks = if waiting == 1 { "rank" } else { "ranks" };
            let name = signal_name(number);
            say(&format!("{name}: passed on to {waiting} {ranks}"));
            let what = format!("its launcher got {name}");
            match self.setting.nodes.filter(|nodes| nodes.may_go()) {
                Some(nodes) => self.report(&nodes.going(self.setting.host, &what)),
                None => self.report_failure(what, 128 + number, false),
            }
            // Another node may have passed it on already, and twice means at once to some.
            let is_known = self.everywhere.as_ref().and_then(Ending::signal) == Some(number);
            self.stopping &= is_known;
            self.stop(signal);
        } else if Instant::now() >= self.patient_until {
            // A user who interrupts twice does not want to wait.
            self.kill();
        }
    }

    /// Passes on a signal that is for the ranks. It would end those that have no handler for it.
    fn ask_all(&self, signal: Signal) {
        let ranks = self.alive().map(|rank| rank.rank);
        let files = (signal == Signal::USR1).then(|| WrittenFiles::now(self.traces(), ranks));
        let listeners = Listeners::now(signal);
        let (asked, spared): (Vec<_>, Vec<_>) =
            self.alive().partition(|rank| rank.process.ask(&listeners, signal));
        let [asked, spared] = [asked, spared].map(|ranks| numbers(&ranks));
        say(&listeners::answer(signal, asked.len(), &spared));
        if let Some(files) = files.filter(|_| !asked.is_empty()) {
            files.say_when_written(asked);
        }
    }

    /// Where ranks write what they have called on SIGUSR1, as far as this launcher knows.
    fn traces(&self) -> PathBuf {
        let name = variable::POLYRANK_TRACE_DIR;
        let of_job = self.setting.job.variables.iter().find(|(own, _)| own == name.name());
        let given = of_job.map(|(_, value)| value.clone()).or_else(|| name.value());
        let given = given.filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let folder = given.unwrap_or_else(|| self.setting.logs.traces(self.setting.restart));
        self.setting.job.wdir.as_ref().map_or(folder.clone(), |wdir| wdir.join(folder))
    }

    fn time_is_up(&mut self) {
        let now = Instant::now();
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill();
        }
        let is_late = self.setting.deadline.is_some_and(|deadline| deadline <= now);
        if is_late && !self.timed_out {
            self.timed_out = true;
            let ranks: Vec<u32> = self.alive().map(|rank| rank.rank).collect();
            let limit = self.setting.job.timeout.unwrap_or_default().as_secs_f64();
            let which = match ranks.is_empty() {
                true => "none of this host, and some of others".to_owned(),
                false => list(&ranks),
            };
            say(&format!(
                "the job is stopped after --timeout {limit}; ranks that still ran: {which}"
            ));
            self.report_failure(format!("its --timeout {limit} is over"), EXIT_TIMEOUT, false);
            self.stop(Signal::TERM);
        }
    }

    /// Tells the other nodes how it ended here, once.
    fn report(&mut self, ending: &Ending) {
        if let Some(nodes) = self.setting.nodes.filter(|_| !self.reported) {
            self.reported = true;
            nodes.report(self.setting.restart, ending);
        }
    }

    fn report_failure(&mut self, what: String, exit_code: i32, may_restart: bool) {
        let (node_rank, host) = (self.setting.place.node_rank, self.setting.host.to_owned());
        let signal = self.signalled;
        self.report(&Ending::Failed { node_rank, host, what, exit_code, may_restart, signal });
    }

    /// Asks the ranks to stop, once, and sets the time that they have for that.
    fn stop(&mut self, signal: Signal) {
        if !self.stopping {
            self.stopping = true;
            self.kill_at = Some(Instant::now() + self.setting.job.grace);
            self.send_to_all(signal);
        }
    }

    fn kill(&mut self) {
        self.kill_at = None;
        self.killed = self.alive().map(|rank| rank.rank).collect();
        self.send_to_all(Signal::KILL);
    }

    fn send_to_all(&self, signal: Signal) {
        for rank in &self.ranks {
            rank.process.signal(signal);
        }
    }

    fn output_ended(&mut self, restart: u32) {
        if restart == self.setting.restart {
            self.open_streams -= 1;
        }
    }

    fn drain_output(&mut self, inbox: &Receiver<Event>) {
        let deadline = Instant::now() + OUTPUT_GRACE;
        while self.open_streams > 0 {
            match receive(inbox, Some(deadline)) {
                Ok(Event::OutputEnded { restart }) => self.output_ended(restart),
                Ok(Event::Signal(signal)) if asks_to_end(signal) => {
                    self.signalled = self.signalled.or(Some(signal));
                }
                Ok(Event::JobEnds) => self.job_ends = true,
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
}

fn stopping(ranks: usize) -> String {
    match ranks {
        0 => "no rank runs here any more".to_owned(),
        1 => "stopping the rank here".to_owned(),
        more => format!("stopping the {more} ranks here"),
    }
}

fn numbers(ranks: &[&Rank]) -> Vec<u32> {
    ranks.iter().map(|rank| rank.rank).collect()
}

fn list(ranks: &[u32]) -> String {
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn start_guard() -> Option<Guard> {
    Guard::start().inspect_err(say_unguarded).ok()
}

fn say_unguarded(error: &std::io::Error) {
    say(&format!("what the ranks start outlives this launcher if it is killed: /bin/sh: {error}"));
}
