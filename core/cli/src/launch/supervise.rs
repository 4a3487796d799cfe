//! Watches the ranks of a job from the first to the last: what to do when one fails or when a
//! signal arrives. Knows nothing of what the ranks do.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::arguments::{Job, Part};
use super::environment::JobEnvironment;
use super::guard::Guard;
use super::output::{LastLines, Screen, Stream, forward};
use super::process::{Process, wait_for_end};
use super::report::{self, ProcessEnd, say, signal_name};

/// How long the launcher waits for output after the last rank has ended: a process that left its
/// rank's group may hold the pipe open for ever.
const OUTPUT_GRACE: Duration = Duration::from_secs(2);
/// The exit code that a shell reports for a program that was killed because its output was closed.
const EXIT_OUTPUT_CLOSED: i32 = 128 + 13;

/// What the other threads of the launcher report to the supervisor.
enum Event {
    /// A rank, by its number on this host, ended.
    Ended(usize, ProcessEnd),
    /// One stream of one rank has been read to its end.
    OutputEnded,
    /// The launcher's own output was closed.
    OutputClosed,
    /// The launcher got a signal.
    Signal(i32),
}

/// Runs the job on this host and returns the launcher's exit code.
pub(super) fn run(job: &Job) -> i32 {
    let meeting = match JobEnvironment::new(job) {
        Ok(meeting) => meeting,
        Err(error) => {
            say(&format!("no free port for rank 0: {error}"));
            return 1;
        }
    };
    let (events, inbox) = channel();
    let signals = match listen_for_signals(events.clone()) {
        Ok(handle) => handle,
        Err(error) => {
            say(&format!("cannot listen for signals: {error}"));
            return 1;
        }
    };
    if job.node_rank == 0 {
        for (rank, url) in meeting.external_urls(job) {
            say(&format!("rank {rank} joins from elsewhere: {url}"));
        }
    }
    let mut supervisor = Supervisor::new(job, events);
    let code = match supervisor.start(&meeting) {
        Ok(()) => {
            supervisor.watch(&inbox);
            supervisor.finish(&inbox)
        }
        Err(failure) => {
            say(&failure.message);
            supervisor.stop(Signal::TERM);
            supervisor.watch(&inbox);
            supervisor.finish(&inbox);
            failure.exit_code
        }
    };
    signals.close();
    code
}

/// A program that could not be started.
struct StartFailure {
    message: String,
    exit_code: i32,
}

/// One rank of this host.
struct Rank {
    rank: u32,
    program: String,
    process: Process,
    last_lines: LastLines,
    ending: Option<ProcessEnd>,
}

/// The rank that failed before all others.
struct FirstFailure {
    local_rank: usize,
    ending: ProcessEnd,
    after: Duration,
}

struct Supervisor<'job> {
    job: &'job Job,
    events: Sender<Event>,
    screen: Arc<Screen>,
    ranks: Vec<Rank>,
    /// Kills the ranks if the launcher is killed; none if it could not be started.
    guard: Option<Guard>,
    started: Instant,
    first_failure: Option<FirstFailure>,
    /// The signal that asked the launcher to stop.
    signalled: Option<i32>,
    output_closed: bool,
    open_streams: usize,
    stopping: bool,
    /// When the ranks that were asked to stop are killed.
    kill_at: Option<Instant>,
    /// The ranks that did not stop when asked.
    killed: Vec<u32>,
}

impl<'job> Supervisor<'job> {
    fn new(job: &'job Job, events: Sender<Event>) -> Supervisor<'job> {
        Supervisor {
            job,
            events,
            screen: Arc::new(Screen::new(job.prefix)),
            ranks: Vec::new(),
            guard: start_guard(),
            started: Instant::now(),
            first_failure: None,
            signalled: None,
            output_closed: false,
            open_streams: 0,
            stopping: false,
            kill_at: None,
            killed: Vec::new(),
        }
    }

    fn start(&mut self, meeting: &JobEnvironment) -> Result<(), StartFailure> {
        for part in &self.job.parts {
            for _ in 0..part.rank_count {
                self.start_rank(part, meeting)?;
            }
        }
        Ok(())
    }

    fn start_rank(&mut self, part: &Part, meeting: &JobEnvironment) -> Result<(), StartFailure> {
        let local_rank = self.ranks.len();
        let variables = meeting.variables(self.job, local_rank as u32);
        let rank = self.job.node_rank * self.job.local_world_size() + local_rank as u32;
        let extra = OsString::from(format!("--local-rank={local_rank}"));
        let extra = self.job.pass_local_rank.then_some(extra.as_os_str());
        // A rank in its own process group would be stopped if it read from the terminal.
        let read_stdin = rank == 0 && !std::io::stdin().is_terminal();
        let program = command_line(part);
        let mut process =
            Process::start(part, extra, &variables, read_stdin).map_err(|error| StartFailure {
                message: format!("cannot start rank {rank} ({program}): {error}"),
                exit_code: match error.kind() {
                    std::io::ErrorKind::NotFound => 127,
                    _ => 126,
                },
            })?;
        if let Some(error) = self.guard.as_mut().and_then(|guard| guard.add(process.pid()).err()) {
            say_unguarded(&error);
            self.guard = None;
        }
        let last_lines = LastLines::default();
        if let Some((stdout, stderr)) = process.take_output() {
            self.read(rank, Stream::Stdout, stdout, &last_lines);
            self.read(rank, Stream::Stderr, stderr, &last_lines);
        }
        let (events, pid) = (self.events.clone(), process.pid());
        thread::spawn(move || {
            let _ = events.send(Event::Ended(local_rank, wait_for_end(pid)));
        });
        self.ranks.push(Rank { rank, program, process, last_lines, ending: None });
        Ok(())
    }

    fn read(
        &mut self,
        rank: u32,
        stream: Stream,
        input: impl std::io::Read + Send + 'static,
        last_lines: &LastLines,
    ) {
        let (events, screen) = (self.events.clone(), self.screen.clone());
        let last_lines = last_lines.clone();
        self.open_streams += 1;
        thread::spawn(move || {
            forward(input, &screen, rank, stream, &last_lines, || {
                let _ = events.send(Event::OutputClosed);
            });
            let _ = events.send(Event::OutputEnded);
        });
    }

    /// Handles events until every rank has ended.
    fn watch(&mut self, inbox: &Receiver<Event>) {
        while self.ranks.iter().any(|rank| rank.ending.is_none()) {
            match receive(inbox, self.kill_at) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => self.kill(),
                // Not while `self` holds a sender.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ended(local_rank, ending) => self.ended(local_rank, ending),
            Event::OutputEnded => self.open_streams -= 1,
            Event::OutputClosed => {
                self.output_closed = true;
                self.stop(Signal::TERM);
            }
            Event::Signal(signal) => self.signal(signal),
        }
    }

    fn ended(&mut self, local_rank: usize, ending: ProcessEnd) {
        self.ranks[local_rank].ending = Some(ending);
        // A rank that was asked to stop did not fail.
        if ending.is_success() || self.stopping || self.first_failure.is_some() {
            return;
        }
        let after = self.started.elapsed();
        self.first_failure = Some(FirstFailure { local_rank, ending, after });
        let rank = self.ranks[local_rank].rank;
        let others = self.ranks.iter().filter(|rank| rank.ending.is_none()).count();
        match (self.job.keep_going, others) {
            (_, 0) => {}
            (true, _) => say(&format!("rank {rank} failed: {ending}; the others go on")),
            (false, others) => {
                say(&format!("rank {rank} failed: {ending}; stopping the other {others}"));
                self.stop(Signal::TERM);
            }
        }
    }

    fn signal(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        if number == SIGUSR1 || number == SIGUSR2 {
            self.send_to_all(signal);
        } else if self.signalled.is_none() {
            self.signalled = Some(number);
            let waiting = self.ranks.iter().filter(|rank| rank.ending.is_none()).count();
            let ranks = if waiting == 1 { "rank" } else { "ranks" };
            say(&format!("{}: passed on to {waiting} {ranks}", signal_name(number)));
            self.stopping = false;
            self.stop(signal);
        } else {
            // A user who interrupts twice does not want to wait.
            self.kill();
        }
    }

    /// Asks the ranks to stop, once, and sets the time that they have for that.
    fn stop(&mut self, signal: Signal) {
        if !self.stopping {
            self.stopping = true;
            self.kill_at = Some(Instant::now() + self.job.grace);
            self.send_to_all(signal);
        }
    }

    fn kill(&mut self) {
        self.kill_at = None;
        let alive = self.ranks.iter().filter(|rank| rank.ending.is_none());
        self.killed = alive.map(|rank| rank.rank).collect();
        self.send_to_all(Signal::KILL);
    }

    fn send_to_all(&self, signal: Signal) {
        for rank in &self.ranks {
            rank.process.signal(signal);
        }
    }

    /// Cleans up after the ranks, reports, and returns the exit code.
    fn finish(&mut self, inbox: &Receiver<Event>) -> i32 {
        let endings: Vec<ProcessEnd> = self.ranks.iter().filter_map(|rank| rank.ending).collect();
        let (mut programs, mut last_lines) = (Vec::new(), Vec::new());
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        for rank in self.ranks.drain(..) {
            rank.process.reap();
            programs.push((rank.rank, rank.program));
            last_lines.push(rank.last_lines);
        }
        let deadline = Instant::now() + OUTPUT_GRACE;
        while self.open_streams > 0 {
            match receive(inbox, Some(deadline)) {
                Ok(Event::OutputEnded) => self.open_streams -= 1,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        if !self.killed.is_empty() {
            let ranks: Vec<String> = self.killed.iter().map(u32::to_string).collect();
            say(&format!("ranks that did not stop and were killed: {}", ranks.join(", ")));
        }
        if let Some(FirstFailure { local_rank, ending, after }) = self.first_failure {
            let (rank, program) = &programs[local_rank];
            let lines = last_lines[local_rank].lines();
            say(&report::first_failure(*rank, ending, program, after, &lines));
            return ending.exit_code();
        }
        if endings.iter().all(|ending| ending.is_success()) {
            return 0;
        }
        match self.signalled {
            Some(signal) => 128 + signal,
            None if self.output_closed => EXIT_OUTPUT_CLOSED,
            None => 1,
        }
    }
}

fn start_guard() -> Option<Guard> {
    Guard::start().inspect_err(say_unguarded).ok()
}

fn say_unguarded(error: &std::io::Error) {
    say(&format!("what the ranks start outlives this launcher if it is killed: /bin/sh: {error}"));
}

fn receive(inbox: &Receiver<Event>, deadline: Option<Instant>) -> Result<Event, RecvTimeoutError> {
    match deadline {
        Some(deadline) => inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// Turns signals to the launcher into events, until the handle is closed.
fn listen_for_signals(events: Sender<Event>) -> std::io::Result<Handle> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
    let handle = signals.handle();
    thread::spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(handle)
}

/// The program and its arguments as a person would type them.
fn command_line(part: &Part) -> String {
    let words = std::iter::once(&part.program).chain(&part.arguments);
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
