//! A job on this host: its ranks are started, and started again where that is wanted, in step with
//! the launchers of the other nodes. Knows nothing of what the ranks do.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Instant;

use polyrank::env::variable;
use signal_hook::consts::SIGTERM;

use super::arguments::job::Job;
use super::arguments::parts::Part;
use super::attempt::{Attempt, EXIT_TIMEOUT, Outcome, Setting};
use super::environment::{JobEnvironment, Place};
use super::events::{Event, asks_to_end, listen_for_signals, receive};
use super::logs::Logs;
use super::messages::Message;
use super::output::{LineFormat, Screen};
use super::record::{self, Record};
use super::report::{say, say_as, signal_name};
use super::stopped::RankProcesses;
use super::{EXIT_USAGE, binding};
use crate::metrics::MetricsServer;
use crate::nodes::{NodeOptions, Nodes, Offer, Roster};
use crate::stalls::StallWatch;

/// Runs the job on this host and returns the launcher's exit code.
pub(super) fn run(job: &Job) -> i32 {
    if let Some(host) = &job.agent {
        say_as(host);
    }
    let cores = match binding::of_ranks(job.binding, job.local_world_size()) {
        Ok(cores) => cores,
        Err(message) => {
            say(&message);
            return EXIT_USAGE;
        }
    };
    let (events, inbox) = channel();
    let Some(signals) = listen_for_signals(events.clone(), Event::Signal) else { return 1 };
    if job.agent.is_some() {
        follow_launcher(events.clone());
    }
    let deadline = job.timeout.map(|limit| Instant::now() + limit);
    let noted = |record: &Record| write_record(job, record);
    let supervisor = match Supervisor::new(job, cores, (events, inbox), deadline, &noted) {
        Ok(supervisor) => supervisor,
        Err(message) => {
            say(&message);
            return 1;
        }
    };
    let finished = supervisor.run();
    if job.agent.is_some() {
        tell(&Message::Record(Box::new(finished.record)));
    }
    signals.close();
    finished.exit_code
}

/// How a job, or a replica of it, ended.
pub(super) struct Finished {
    pub(super) exit_code: i32,
    pub(super) timed_out: bool,
    pub(super) output_closed: bool,
    pub(super) record: Record,
}

impl Finished {
    /// One whose ranks could not be started.
    pub(super) fn not_started(job: &Job) -> Finished {
        let mut record = Record::new(job.run_id.clone().unwrap_or_default(), Vec::new());
        record.replica = job.replica.map(|replica| replica.number);
        record.state = state(1, None, false);
        record.exit_code = Some(1);
        Finished { exit_code: 1, timed_out: false, output_closed: false, record }
    }
}

/// What starts the ranks of this host, or of one replica, and starts them again.
pub(super) struct Supervisor<'job> {
    job: &'job Job,
    environment: JobEnvironment,
    /// The cores of each rank.
    cores: Vec<Vec<usize>>,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    record: Record,
    host: String,
    /// The launchers of the other nodes, if they know of each other.
    nodes: Option<Nodes>,
    /// What serves the ranks' statistics, if they are served.
    metrics: Option<MetricsServer>,
    deadline: Option<Instant>,
    /// Is called with what is known of the job when that has changed.
    noted: &'job dyn Fn(&Record),
}

/// Why the ranks are not started.
struct NotStarted {
    exit_code: i32,
    signal: Option<i32>,
}

impl<'job> Supervisor<'job> {
    /// What a start of the ranks needs.
    ///
    /// # Errors
    /// In words: what cannot be had.
    pub(super) fn new(
        job: &'job Job,
        cores: Vec<Vec<usize>>,
        (events, inbox): (Sender<Event>, Receiver<Event>),
        deadline: Option<Instant>,
        noted: &'job dyn Fn(&Record),
    ) -> Result<Supervisor<'job>, String> {
        let environment = JobEnvironment::new(job)
            .map_err(|error| format!("no free port for rank 0: {error}"))?;
        let metrics = job.metrics.map(MetricsServer::start).transpose()?;
        let programs = job.parts.iter().map(Part::command_line).collect();
        let mut record = Record::new(environment.run_id.clone(), programs);
        record.max_restarts = job.max_restarts;
        record.replica = job.replica.map(|replica| replica.number);
        Ok(Supervisor {
            job,
            environment,
            cores,
            events,
            inbox,
            record,
            host: job.agent.clone().unwrap_or_else(record::host),
            nodes: None,
            metrics,
            deadline,
            noted,
        })
    }

    /// Starts the ranks, again and again as far as that is wanted, and waits for their end.
    pub(super) fn run(mut self) -> Finished {
        let (mut restart, mut changes) = (0, 0);
        let mut logs = None;
        let mut others_are_there = true;
        let (mut timed_out, mut output_closed) = (false, false);
        let code = loop {
            let place = match self.meet(&mut restart, &mut changes) {
                Ok(place) => place,
                Err(reason) => {
                    self.record.state = state(reason.exit_code, reason.signal, false);
                    self.record.signal = reason.signal.map(signal_name);
                    break reason.exit_code;
                }
            };
            let logs = match self.logs(&mut logs, &place) {
                Ok(logs) => logs,
                Err(message) => {
                    say(&format!("no folder for logs: {message}"));
                    break 1;
                }
            };
            let outcome = self.attempt((restart, changes), &place, logs);
            others_are_there = !outcome.lost;
            (timed_out, output_closed) = (outcome.timed_out, outcome.output_closed);
            let change = outcome.change();
            if let (Some(nodes), Some(ending)) = (&mut self.nodes, &outcome.everywhere) {
                nodes.ended(ending);
            }
            // One that goes is not waited for.
            others_are_there &= !(change && outcome.signalled.is_some());
            let used = restart - changes;
            if !outcome.may_restart || !change && used >= self.job.max_restarts {
                self.record.state = state(outcome.exit_code, outcome.signalled, outcome.timed_out);
                self.record.signal = outcome.signalled.map(signal_name);
                break outcome.exit_code;
            }
            restart += 1;
            if change {
                changes += 1;
                say("all ranks are started again, on the nodes that are there");
                continue;
            }
            let restart = used + 1;
            let max = self.job.max_restarts;
            let others = if self.job.replica.is_some() { "; other replicas go on" } else { "" };
            say(&format!("all ranks are started again: restart {restart} of {max}{others}"));
        };
        if let Some(nodes) = self.nodes.as_ref().filter(|_| others_are_there) {
            nodes.leave();
        }
        self.record.exit_code = Some(code);
        self.record.ended = Some(record::now());
        if self.record.state == "running" {
            self.record.state = state(code, None, false);
        }
        (self.noted)(&self.record);
        Finished { exit_code: code, timed_out, output_closed, record: self.record }
    }

    /// Finds this host's place for a start of the ranks, together with the other nodes.
    fn meet(&mut self, restart: &mut u32, changes: &mut u32) -> Result<Place, NotStarted> {
        let Some(options) = self.job.meeting.clone() else {
            return Ok(Place::of_node(self.job, &self.environment));
        };
        let roster = self.roster(options, (*restart, *changes))?;
        (*restart, *changes) = (roster.restart, roster.changes);
        self.environment.run_id.clone_from(&roster.run_id);
        self.record.run_id.clone_from(&roster.run_id);
        if let Some(nodes) = &self.nodes {
            let (events, restart) = (self.events.clone(), roster.restart);
            nodes.watch(&roster, move |ending| {
                let _ = events.send(Event::EndedEverywhere { restart, ending });
            });
        }
        Ok(Place::in_roster(self.job, &roster))
    }

    /// Meets the other launchers on a thread of its own, since a signal may come before they do.
    fn roster(
        &mut self,
        options: NodeOptions,
        (restart, changes): (u32, u32),
    ) -> Result<Roster, NotStarted> {
        let offer = Offer {
            host: self.host.clone(),
            local_world_size: self.job.local_world_size(),
            role: self.job.role.clone(),
            master_port: self.environment.master_port,
            ..Offer::default()
        };
        let is_named = self.environment.is_named || restart > 0;
        let name = self.environment.run_id.clone();
        let (nodes, events, is_agent) =
            (self.nodes.take(), self.events.clone(), self.job.agent.is_some());
        thread::spawn(move || {
            let meet = || {
                let mut nodes = match nodes {
                    Some(nodes) => nodes,
                    None => Nodes::open(options)?,
                };
                if is_agent && nodes.serves() && restart == 0 {
                    tell(&Message::Port(nodes.port()));
                }
                let names = (is_named.then_some(name.as_str()), name.as_str());
                let roster = nodes.meet((restart, changes), offer, names, say)?;
                Ok((nodes, roster))
            };
            let _ = events.send(Event::Met(Box::new(meet())));
        });
        loop {
            match receive(&self.inbox, self.deadline) {
                Ok(Event::Met(met)) => match *met {
                    Ok((nodes, roster)) => {
                        self.nodes = Some(nodes);
                        return Ok(roster);
                    }
                    Err(message) => {
                        say(&message);
                        return Err(NotStarted { exit_code: 1, signal: None });
                    }
                },
                Ok(Event::Signal(signal)) if asks_to_end(signal) => {
                    let name = signal_name(signal);
                    say(&format!("{name} while the launchers of the other nodes were waited for"));
                    return Err(NotStarted { exit_code: 128 + signal, signal: Some(signal) });
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    say("--timeout is over, and not all nodes have come");
                    return Err(NotStarted { exit_code: EXIT_TIMEOUT, signal: None });
                }
                // Not while `self` holds a sender.
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(NotStarted { exit_code: 1, signal: None });
                }
            }
        }
    }

    /// The job's files; made, and spoken of, at the first start.
    fn logs<'logs>(
        &mut self,
        logs: &'logs mut Option<Logs>,
        place: &Place,
    ) -> Result<&'logs Logs, String> {
        if logs.is_none() {
            let made = Logs::new(&self.job.output, &self.environment.run_id)?;
            if let Some(folder) = made.folder() {
                say(&format!("logs are in {}", folder.display()));
                self.record.logs = Some(folder.to_string_lossy().into_owned());
            }
            if place.node_rank == 0 {
                for (rank, url) in self.environment.external_urls(place) {
                    say(&format!("rank {rank} joins from elsewhere: {url}"));
                }
            }
            *logs = Some(made);
        }
        logs.as_ref().ok_or_else(|| "there is none".to_owned())
    }

    /// Starts the ranks, and waits for their end.
    fn attempt(&mut self, (restart, changes): (u32, u32), place: &Place, logs: &Logs) -> Outcome {
        let format = LineFormat {
            prefix: self.job.output.prefix,
            timestamps: self.job.output.timestamps,
            world_size: place.world_size,
            replica: self.job.replica,
        };
        let mut folders = vec![(variable::POLYRANK_SIGNAL_DIR, logs.traces(restart))];
        if let Some(metrics) = &self.metrics {
            metrics.forget();
            folders.push((variable::POLYRANK_METRICS_DIR, metrics.folder().to_owned()));
        }
        let nodes = self.nodes.as_ref().map(|nodes| nodes.stalls(restart, place.node_rank));
        let store = place.store_url();
        if self.job.agent.is_some() && place.node_rank == 0 {
            tell(&Message::Store(store.clone()));
        }
        let processes = RankProcesses::default();
        let folder = logs.stalls(restart);
        let stalls = StallWatch::start(folder, nodes, store.clone(), processes.clone());
        self.record.store = Some(store);
        self.record.world_size = place.world_size;
        self.record.nodes = place.node_count;
        match &stalls {
            Ok(stalls) => folders.push((variable::POLYRANK_STALL_DIR, stalls.folder().to_owned())),
            Err(why) => say(&format!("stalls are told by each rank only: {why}")),
        }
        let mut attempt = Attempt::start(Setting {
            job: self.job,
            environment: &self.environment,
            place,
            restart,
            changes,
            logs,
            screen: Arc::new(Screen::new(format)),
            cores: &self.cores,
            deadline: self.deadline,
            nodes: self.nodes.as_ref(),
            folders: &folders,
            events: self.events.clone(),
            host: &self.host,
            processes,
        });
        self.record.restarts = restart - changes;
        self.record.attempts.push(attempt.record());
        (self.noted)(&self.record);
        attempt.watch(&self.inbox);
        let outcome = attempt.finish(&self.inbox);
        self.record.attempts.pop();
        self.record.attempts.push(outcome.record.clone());
        outcome
    }
}

pub(super) fn write_record(job: &Job, record: &Record) {
    let written = job.record.as_ref().map_or(Ok(()), |path| record.write(path));
    written.unwrap_or_else(|message| say(&message));
}

/// How a job ended, in the words of its record.
pub(super) fn state(exit_code: i32, signal: Option<i32>, timed_out: bool) -> String {
    let state = match (exit_code, signal) {
        _ if timed_out || exit_code == EXIT_TIMEOUT => "timed out",
        (0, _) => "succeeded",
        (_, Some(_)) => "interrupted",
        _ => "failed",
    };
    state.to_owned()
}

/// Passes on what the launcher at the other end of standard input says: numbers of signals. If it
/// is gone, the job is to end.
fn follow_launcher(events: Sender<Event>) {
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if let Ok(signal) = line.trim().parse() {
                let _ = events.send(Event::Signal(signal));
            }
        }
        let _ = events.send(Event::Signal(SIGTERM));
    });
}

/// Says something to the launcher that started this one.
fn tell(message: &Message) {
    // An error means that it is gone, which standard input shows.
    let _ = std::io::stdout().lock().write_all(message.line().as_bytes());
}
