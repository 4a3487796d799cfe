//! `polyrank run --replicas`: the ranks of a job several times, each time as a replica, with a store
//! of its own, and one lighthouse for all. A replica that fails is started again alone. Knows
//! nothing of what the lighthouse decides.
//!
//! ```text
//!  polyrank run ──┬── supervisor of replica 0 ──▶ its ranks ──┐
//!    lighthouse   ├── supervisor of replica 1 ──▶ its ranks ──┤ TORCHFT_LIGHTHOUSE
//!        ▲        └── supervisor of replica 2 ──▶ its ranks ──┤
//!        └────────────────────────────────────────────────────┘
//! ```
//!
//! Each supervisor is on a thread of its own, which starts its ranks: the kernel ends them when that
//! thread is gone. It does for its replica what it does for a job.

mod jobs;
mod outcome;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use polyrank_quorum::Lighthouse;

use self::jobs::ReplicaJob;
use self::outcome::Outcome;
use super::arguments::job::{Job, Replicas};
use super::arguments::parts::Part;
use super::environment;
use super::events::{Event as ReplicaEvent, asks_to_end, listen_for_signals};
use super::record::{self, Record};
use super::report::{say, say_of_replica, signal_name};
use super::supervise::{Finished, Supervisor, state, write_record};
use super::{EXIT_USAGE, binding};
use crate::lighthouse;

/// What the supervisor of a replica says.
enum Event {
    Signal(i32),
    /// What is known of a replica has changed.
    Noted(Box<Record>),
    Ended(Box<Finished>),
}

/// Runs the job on this host and returns the launcher's exit code.
pub(super) fn run(job: &Job, replicas: &Replicas) -> i32 {
    let ranks = job.local_world_size() as usize;
    let cores = match binding::of_ranks(job.binding, replicas.count * job.local_world_size()) {
        Ok(cores) => cores,
        Err(message) => {
            say(&message);
            return EXIT_USAGE;
        }
    };
    let (events, inbox) = channel();
    // This comes before anything is started, so that no signal after that is missed.
    let signals = match listen_for_signals(events.clone(), Event::Signal) {
        Ok(handle) => handle,
        Err(error) => {
            say(&format!("cannot listen for signals: {error}"));
            return 1;
        }
    };
    let (_lighthouse, url) = match lighthouse_of(replicas) {
        Ok(lighthouse) => lighthouse,
        Err(message) => {
            say(&message);
            return 1;
        }
    };
    let run_id = environment::run_id(job);
    let programs = job.parts.iter().map(Part::command_line).collect();
    let mut record = Record::new(run_id.clone(), programs);
    record.max_restarts = job.max_restarts;
    record.world_size = replicas.count * job.local_world_size();
    record.lighthouse = Some(url.clone());
    let jobs = jobs::of_replicas(job, replicas, &run_id, &url);
    let cores = cores.chunks(ranks).map(<[_]>::to_vec);
    let code = thread::scope(|scope| {
        let jobs = jobs.into_iter().zip(cores);
        let supervisors = jobs.map(|(job, cores)| {
            let (sender, inbox) = channel();
            let (tells, own) = (events.clone(), sender.clone());
            scope.spawn(move || supervise(&job, cores, (own, inbox), &tells));
            sender
        });
        let supervisors = supervisors.collect();
        Run { job, supervisors, record, outcome: Outcome::new(replicas) }.watch(&inbox)
    });
    signals.close();
    code
}

/// The lighthouse, if this launcher serves it, and where it is.
fn lighthouse_of(replicas: &Replicas) -> Result<(Option<Lighthouse>, String), String> {
    if let Some(url) = &replicas.lighthouse {
        return Ok((None, url.clone()));
    }
    let served = lighthouse::of_job(replicas.min)
        .map_err(|error| format!("the lighthouse of the replicas cannot be served: {error}"))?;
    let url = served.url();
    say(&format!("the lighthouse of the replicas is at {url}"));
    Ok((Some(served), url))
}

/// Runs one replica, and tells how it ended.
fn supervise(
    job: &ReplicaJob,
    cores: Vec<Vec<usize>>,
    channel: (Sender<ReplicaEvent>, Receiver<ReplicaEvent>),
    tells: &Sender<Event>,
) {
    say_of_replica(job.number);
    let noted = |record: &Record| {
        let _ = tells.send(Event::Noted(Box::new(record.clone())));
    };
    let deadline = job.job.timeout.map(|limit| job.began + limit);
    let finished = match Supervisor::new(&job.job, cores, channel, deadline, &noted) {
        Ok(supervisor) => supervisor.run(),
        Err(message) => {
            say(&message);
            Finished::not_started(&job.job)
        }
    };
    let _ = tells.send(Event::Ended(Box::new(finished)));
}

/// The job, while it runs.
struct Run<'job> {
    job: &'job Job,
    supervisors: Vec<Sender<ReplicaEvent>>,
    record: Record,
    outcome: Outcome,
}

impl Run<'_> {
    /// Handles events until every replica has ended; the exit code.
    fn watch(mut self, inbox: &Receiver<Event>) -> i32 {
        let mut left = self.supervisors.len();
        while left > 0 {
            // Not an error while a supervisor, which has a sender, has not ended.
            let Ok(event) = inbox.recv() else { break };
            match event {
                Event::Signal(signal) => self.signal(signal),
                Event::Noted(record) => self.note(*record),
                Event::Ended(finished) => {
                    left -= 1;
                    let finished = *finished;
                    if self.outcome.ended(&finished) {
                        self.tell_all(|| ReplicaEvent::JobEnds);
                    }
                    self.note(finished.record);
                }
            }
        }
        let code = self.outcome.exit_code();
        if let Some(text) = self.outcome.report() {
            say(&text);
        }
        self.record.exit_code = Some(code);
        self.record.state = state(code, self.outcome.signalled, self.outcome.timed_out);
        self.record.signal = self.outcome.signalled.map(signal_name);
        self.record.ended = Some(record::now());
        write_record(self.job, &self.record);
        code
    }

    /// Passes a signal on to the supervisors, which pass it on to their ranks.
    fn signal(&mut self, signal: i32) {
        if asks_to_end(signal) {
            self.outcome.signalled = self.outcome.signalled.or(Some(signal));
        }
        self.tell_all(|| ReplicaEvent::Signal(signal));
    }

    fn tell_all(&self, event: impl Fn() -> ReplicaEvent) {
        for supervisor in &self.supervisors {
            // An error means that it has ended.
            let _ = supervisor.send(event());
        }
    }

    fn note(&mut self, record: Record) {
        let known = self.record.replicas.iter_mut().find(|known| known.replica == record.replica);
        match known {
            Some(known) => *known = record,
            None => self.record.replicas.push(record),
        }
        self.record.replicas.sort_by_key(|record| record.replica);
        self.record.restarts = self.record.replicas.iter().map(|record| record.restarts).sum();
        write_record(self.job, &self.record);
    }
}
