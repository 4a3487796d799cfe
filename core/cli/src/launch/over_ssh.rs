//! `polyrank run --hosts`: starts a launcher on each host, on others over ssh, and is one launcher
//! to the user. Knows nothing of ranks: the launchers there start and watch them, and know of each
//! other.
//!
//! ```text
//!  polyrank run --hosts a,b ──ssh──▶ polyrank run (node 0, on a) ──▶ ranks
//!                           └─ssh──▶ polyrank run (node 1, on b) ──▶ ranks
//! ```
//!
//! A launcher there reads signals from its standard input, and ends its ranks when that is closed.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use polyrank::env::variable::{self, TOPICS};
use signal_hook::consts::SIGTERM;

use super::EXIT_USAGE;
use super::arguments::hosts::Host;
use super::arguments::job::Job;
use super::arguments::parts::Part;
use super::arguments::streams::Stream;
use super::environment::JobEnvironment;
use super::events::listen_for_signals;
use super::messages::Message;
use super::output::{LineFormat, Screen, for_each_line};
use super::record::{self, Record};
use super::remote_command::{self, RemotePlace};
use super::report::{say, signal_name};
use super::supervise::state;
use crate::itself;

/// The longest line that is passed on whole: the record of a large job is one.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// How much longer than their ranks the other launchers may take to end.
const LAUNCHER_GRACE: Duration = Duration::from_secs(5);
/// The exit code of ssh for its own errors.
const EXIT_SSH: i32 = 255;

/// Runs the job on `hosts` and returns the launcher's exit code.
pub(super) fn run(job: &Job, hosts: &[Host]) -> i32 {
    if let Some(message) = refusal(job, hosts) {
        say(&message);
        return EXIT_USAGE;
    }
    let environment = match JobEnvironment::new(job) {
        Ok(environment) => environment,
        Err(error) => {
            say(&format!("no name for the job: {error}"));
            return 1;
        }
    };
    let folder = job.wdir.clone().map_or_else(std::env::current_dir, std::path::absolute);
    let folder = match folder {
        Ok(folder) => folder,
        Err(error) => {
            say(&format!("this folder has no name, so it cannot be that of other hosts: {error}"));
            return 1;
        }
    };
    let (events, inbox) = channel();
    let Some(signals) = listen_for_signals(events.clone(), Event::Signal) else { return 1 };
    let programs = job.parts.iter().map(Part::command_line).collect();
    let mut record = Record::new(environment.run_id.clone(), programs);
    record.nodes = hosts.len() as u32;
    record.max_restarts = job.max_restarts;
    let format = LineFormat { prefix: false, timestamps: false, world_size: 0, replica: None };
    let run = Run {
        job,
        hosts,
        run_id: environment.run_id,
        folder,
        screen: Arc::new(Screen::new(format)),
        events,
        launchers: Vec::new(),
        record,
        signalled: None,
        exit_code: None,
        end_at: None,
    };
    let code = run.run(&inbox);
    signals.close();
    code
}

/// What the threads report.
enum Event {
    Said(Box<Message>),
    /// A launcher's ssh ended.
    Ended(usize, ExitStatus),
    OutputClosed,
    Signal(i32),
}

/// A launcher on another host.
struct Launcher {
    /// What it reads: signals, and whether this launcher is still there.
    stdin: Option<std::process::ChildStdin>,
    pid: rustix::process::Pid,
    ended: bool,
}

struct Run<'job> {
    job: &'job Job,
    hosts: &'job [Host],
    run_id: String,
    folder: PathBuf,
    screen: Arc<Screen>,
    events: Sender<Event>,
    launchers: Vec<Launcher>,
    record: Record,
    signalled: Option<i32>,
    /// The exit code of the first launcher that failed.
    exit_code: Option<i32>,
    /// When those that are left are killed.
    end_at: Option<Instant>,
}

impl Run<'_> {
    fn run(mut self, inbox: &Receiver<Event>) -> i32 {
        self.write_record();
        self.start(0, 0);
        while self.launchers.iter().any(|launcher| !launcher.ended) {
            let next = match self.end_at {
                Some(at) => inbox.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(event) => self.handle(event),
                Err(_) => self.kill(),
            }
        }
        // What was said last may come after the end of its process.
        while let Ok(Event::Said(message)) = inbox.try_recv() {
            self.said(*message);
        }
        let code = match (self.exit_code, self.signalled) {
            (Some(code), _) => code,
            (None, _) => 0,
        };
        self.record.exit_code = Some(code);
        self.record.state = state(code, self.signalled, false);
        self.record.signal = self.signalled.map(signal_name);
        self.record.ended = Some(record::now());
        self.write_record();
        code
    }

    /// Starts the launcher of one node.
    fn start(&mut self, node_rank: usize, port: u16) {
        let host = &self.hosts[node_rank];
        let place = RemotePlace {
            host,
            node_rank,
            node_count: self.hosts.len(),
            endpoint: (self.hosts[0].name(), port),
            run_id: &self.run_id,
        };
        let itself = itself::command(&[]);
        let text = remote_command::text(self.job, &place, &itself, &self.folder, &passed_on());
        let ssh = variable::POLYRANK_SSH.value().unwrap_or_else(|| "ssh".into());
        let mut command = match host.is_here() {
            true => Command::new("/bin/sh"),
            false => Command::new(&ssh),
        };
        match host.is_here() {
            true => command.arg("-c"),
            // A question for a password would be asked once for each host, among the ranks' lines.
            false => command.args(["-o", "BatchMode=yes"]).arg(&host.target),
        };
        command.arg(text);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is passed on in words; ssh must live until the launcher there has ended.
        command.process_group(0);
        match command.spawn() {
            Ok(child) => self.follow(node_rank, child),
            Err(error) => {
                say(&format!(
                    "cannot start '{}': {error}. Install OpenSSH's client, or name another program \
                     in {}",
                    ssh.to_string_lossy(),
                    variable::POLYRANK_SSH
                ));
                self.fail(127);
            }
        }
    }

    fn follow(&mut self, node_rank: usize, mut child: Child) {
        let streams = (child.stdout.take(), child.stderr.take());
        let mut readers = Vec::new();
        if let (Some(stdout), Some(stderr)) = streams {
            readers.push(self.pass_on(Stream::Stdout, stdout));
            readers.push(self.pass_on(Stream::Stderr, stderr));
        }
        let (stdin, pid) = (child.stdin.take(), rustix::process::Pid::from_child(&child));
        let events = self.events.clone();
        thread::spawn(move || {
            let status = child.wait();
            // What it said comes before its end; a panic of a reader was said by itself.
            readers.into_iter().for_each(|reader| drop(reader.join()));
            let _ = events.send(Event::Ended(node_rank, status.unwrap_or_default()));
        });
        self.launchers.push(Launcher { stdin, pid, ended: false });
    }

    fn pass_on(&self, stream: Stream, input: impl Read + Send + 'static) -> thread::JoinHandle<()> {
        let (screen, events) = (self.screen.clone(), self.events.clone());
        thread::spawn(move || {
            let mut open = true;
            for_each_line(input, MAX_LINE_BYTES, |line| {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                if let Some(message) = Message::of_line(line) {
                    let _ = events.send(Event::Said(Box::new(message)));
                } else if open && screen.pass_on(stream, line).is_err() {
                    open = false;
                    let _ = events.send(Event::OutputClosed);
                }
            });
        })
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Said(message) => self.said(*message),
            Event::Ended(node_rank, status) => self.ended(node_rank, status),
            Event::OutputClosed => {
                self.tell(SIGTERM);
                self.fail(128 + 13);
            }
            Event::Signal(signal) if super::events::asks_to_end(signal) => {
                if self.signalled.is_none() {
                    say(&format!("{}: passed on to all hosts", signal_name(signal)));
                }
                self.signalled = self.signalled.or(Some(signal));
                self.tell(signal);
                self.wait_for_end();
            }
            Event::Signal(signal) => self.tell(signal),
        }
    }

    fn said(&mut self, message: Message) {
        match message {
            Message::Port(port) if self.launchers.len() == 1 => {
                for node_rank in 1..self.hosts.len() {
                    self.start(node_rank, port);
                }
            }
            Message::Port(_) => {}
            Message::Store(url) => {
                self.record.store = Some(url);
                self.write_record();
            }
            Message::Record(record) => self.record.merge(*record),
        }
    }

    fn ended(&mut self, node_rank: usize, status: ExitStatus) {
        self.launchers[node_rank].ended = true;
        self.launchers[node_rank].stdin = None;
        let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
        if code == EXIT_SSH && !self.hosts[node_rank].is_here() {
            let target = &self.hosts[node_rank].target;
            say(&format!(
                "ssh to {target} failed; does 'ssh {target} true' work without a password?"
            ));
        }
        if code != 0 {
            self.fail(code);
        }
    }

    fn fail(&mut self, code: i32) {
        self.exit_code = self.exit_code.or(Some(code));
        self.wait_for_end();
    }

    /// The others end by themselves, since the launchers know of each other; if not, they are told.
    fn wait_for_end(&mut self) {
        let limit = self.job.grace + LAUNCHER_GRACE;
        self.end_at = self.end_at.or(Some(Instant::now() + limit));
    }

    fn tell(&mut self, signal: i32) {
        for launcher in &mut self.launchers {
            if let Some(stdin) = &mut launcher.stdin {
                // An error means that it is gone.
                let _ = stdin.write_all(format!("{signal}\n").as_bytes());
            }
        }
    }

    /// Takes their input away, by which the launchers end their ranks, and then ssh itself.
    fn kill(&mut self) {
        self.end_at = Some(Instant::now() + LAUNCHER_GRACE);
        for launcher in self.launchers.iter_mut().filter(|launcher| !launcher.ended) {
            if launcher.stdin.take().is_none() {
                let signal = rustix::process::Signal::KILL;
                let _ = rustix::process::kill_process(launcher.pid, signal);
            }
        }
        self.exit_code = self.exit_code.or(Some(1));
    }

    fn write_record(&self) {
        let path = self.job.record.as_ref();
        let written = path.map_or(Ok(()), |path| self.record.write(path));
        written.unwrap_or_else(|message| say(&message));
    }
}

/// Why a job cannot run on these hosts.
fn refusal(job: &Job, hosts: &[Host]) -> Option<String> {
    let is_loopback = |host: &Host| {
        let name = host.name();
        name == "localhost" || name == "::1" || name.starts_with("127.")
    };
    // The others would look for the rendezvous on themselves.
    if is_loopback(&hosts[0]) && !hosts.iter().all(is_loopback) {
        return Some(format!(
            "--hosts {}: the other hosts reach the first one by this name, and it means another \
             one on each; give its name in the network",
            hosts[0].target
        ));
    }
    job.with_mpi.then(|| "--hosts is not for --with-mpi: call mpiexec itself".to_owned())
}

/// The variables of ours that the ranks have here, and would not have there.
fn passed_on() -> Vec<(OsString, OsString)> {
    let of_ranks = TOPICS.iter().filter(|topic| !topic.title.contains("command"));
    let variables = of_ranks.flat_map(|topic| topic.rows).map(|row| row.variable);
    let ours = variables.filter(|variable| {
        variable.name().starts_with("POLYRANK_") && *variable != variable::POLYRANK_RUN_ID
    });
    ours.filter_map(|variable| Some((variable.name().into(), variable.value()?))).collect()
}
