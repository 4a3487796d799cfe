//! `polyrank run --replicas`: the ranks of a job several times, each time as a replica with a store
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
//! Each supervisor is on a thread of its own, which starts its ranks: the kernel ends them when
//! that thread is gone. It does for its replica what it does for a job.

mod jobs;
mod outcome;
mod place;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use self::jobs::ReplicaJob;
use self::outcome::Outcome;
use self::place::Place;
use super::arguments::job::{Job, Replicas};
use super::arguments::parts::Part;
use super::events::{Event as ReplicaEvent, asks_to_end, listen_for_signals};
use super::record::{self, Record};
use super::report::{say, say_of_replica, signal_name};
use super::supervise::{Finished, Supervisor, state, write_record};
use super::{EXIT_USAGE, binding};
use crate::nodes::{EndOfAll, ReplicaNode};

/// What the other threads of the launcher say.
enum Event {
    Signal(i32),
    /// This host has a place in the job, or has none, in words.
    Placed(Box<Result<Place, String>>),
    /// What is known of a replica has changed.
    Noted(Box<Record>),
    Ended(Box<Finished>),
    /// The job has ended on all nodes.
    EndOfAll(EndOfAll),
    /// The other nodes need this one no longer.
    AllLeft,
}

/// Runs the job on this host and returns the launcher's exit code.
pub(super) fn run(job: &Job, replicas: &Replicas) -> i32 {
    let deadline = job.timeout.map(|limit| Instant::now() + limit);
    let (events, inbox) = channel();
    // This comes before anything is started, so that no signal after that is missed.
    let Some(signals) = listen_for_signals(events.clone(), Event::Signal) else { return 1 };
    let place = match Place::find(job, replicas, deadline, (&events, &inbox)) {
        Ok(place) => place,
        Err(reason) => return reason.exit_code,
    };
    let ranks = job.local_world_size();
    let cores = match binding::of_ranks(job.binding, place.here * ranks) {
        Ok(cores) => cores,
        Err(message) => {
            say(&message);
            return EXIT_USAGE;
        }
    };
    if let Some(node) = &place.node {
        let tells = events.clone();
        node.watch(say, move |end| drop(tells.send(Event::EndOfAll(end))));
    }
    let programs = job.parts.iter().map(Part::command_line).collect();
    let mut record = Record::new(place.run_id.clone(), programs);
    record.max_restarts = job.max_restarts;
    record.nodes = job.node_count;
    record.world_size = place.count * ranks;
    record.lighthouse = Some(place.lighthouse.clone());
    let jobs = jobs::of_place(job, &place, deadline);
    let cores = cores.chunks(ranks as usize).map(<[_]>::to_vec);
    let code = thread::scope(|scope| {
        let supervisors = jobs.into_iter().zip(cores).map(|(job, cores)| {
            let (sender, inbox) = channel();
            let (tells, own) = (events.clone(), sender.clone());
            scope.spawn(move || supervise(&job, cores, (own, inbox), &tells));
            sender
        });
        let supervisors = supervisors.collect();
        let outcome = Outcome::new(place.here, replicas.min);
        let node = place.node.clone();
        Run { job, supervisors, record, outcome, node, events: events.clone() }.watch(&inbox)
    });
    signals.close();
    code
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
    let finished = match Supervisor::new(&job.job, cores, channel, job.deadline, &noted) {
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
    /// This launcher among those of other nodes.
    node: Option<Arc<ReplicaNode>>,
    events: Sender<Event>,
}

impl Run<'_> {
    /// Handles events until every replica has ended, and those of other nodes which need this one;
    /// the exit code.
    fn watch(mut self, inbox: &Receiver<Event>) -> i32 {
        let mut left = self.supervisors.len();
        let mut others_need_it = self.node.is_some();
        while left > 0 || others_need_it {
            // Not an error while this has a sender.
            let Ok(event) = inbox.recv() else { break };
            match event {
                Event::Signal(signal) => {
                    self.signal(signal);
                    others_need_it &= left > 0 || !asks_to_end(signal);
                }
                Event::Noted(record) => self.note(*record),
                Event::Ended(finished) => {
                    left -= 1;
                    self.ended(&finished);
                    self.note(finished.record);
                    if left == 0 {
                        self.leave();
                    }
                }
                Event::EndOfAll(end) => self.end_of_all(&end),
                Event::AllLeft => others_need_it = false,
                Event::Placed(_) => {}
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

    fn ended(&mut self, finished: &Finished) {
        let node = self.node.clone();
        let elsewhere = |left| node.as_ref().map_or(0, |node| node.tell_left(left));
        if let Some(why) = self.outcome.ended(finished, elsewhere) {
            self.tell_all(|| ReplicaEvent::JobEnds);
            if let Some(node) = &self.node {
                node.end_all(&why, self.outcome.exit_code());
            }
        }
    }

    /// Tells the other nodes that the replicas here have ended.
    fn leave(&self) {
        let Some(node) = self.node.clone() else { return };
        // Those of a node that was told to leave are gone.
        let left = if self.outcome.signalled.is_some() { 0 } else { self.outcome.well() };
        let limit = self.outcome.is_over().then(|| self.job.grace + node.silence_limit());
        let until = limit.map(|limit| Instant::now() + limit);
        let events = self.events.clone();
        thread::spawn(move || {
            node.leave(left, until);
            let _ = events.send(Event::AllLeft);
        });
    }

    fn end_of_all(&mut self, end: &EndOfAll) {
        let is_own = self.node.as_ref().is_some_and(|node| node.place == end.node);
        if self.outcome.ends(end.exit_code) && !is_own {
            say(&format!("{}; stopping the replicas here", end.what));
            self.tell_all(|| ReplicaEvent::JobEnds);
        }
    }

    /// Passes a signal on to the supervisors, which pass it on to their ranks. The other nodes go
    /// on, unless they need what this one serves.
    fn signal(&mut self, signal: i32) {
        if asks_to_end(signal) {
            self.outcome.signalled = self.outcome.signalled.or(Some(signal));
            if let Some(node) = self.node.as_ref().filter(|node| node.serves()) {
                let name = signal_name(signal);
                let what = format!("the launcher that serves the rendezvous got {name}");
                node.end_all(&what, 128 + signal);
            }
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
