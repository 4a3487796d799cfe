//! What the threads of the launcher report to the one that supervises. Knows nothing of what is
//! done about it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::report::{ProcessEnd, say};
use crate::nodes::{Ending, Nodes, Roster};

/// What the other threads of the launcher report to the supervisor.
pub(super) enum Event {
    /// A rank, by its number on this host, ended.
    Ended(usize, ProcessEnd),
    /// One stream of one rank of a start has been read to its end.
    OutputEnded { restart: u32 },
    /// The launcher's own output was closed.
    OutputClosed,
    /// The launcher got a signal.
    Signal(i32),
    /// The job ends, though nothing of this replica has failed.
    JobEnds,
    /// The launchers of all nodes have met, or not.
    Met(Box<Result<(Nodes, Roster), String>>),
    /// The ranks of a start have ended on all nodes.
    EndedEverywhere { restart: u32, ending: Ending },
}

/// The next event, if it comes before `deadline`.
pub(super) fn receive<E>(
    inbox: &Receiver<E>,
    deadline: Option<Instant>,
) -> Result<E, RecvTimeoutError> {
    match deadline {
        Some(deadline) => inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// Turns signals to the launcher into events, until the handle is closed; none, and says why, if
/// that cannot be.
pub(super) fn listen_for_signals<E: Send + 'static>(
    events: Sender<E>,
    event: impl Fn(i32) -> E + Send + 'static,
) -> Option<Handle> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2]);
    let mut signals =
        signals.inspect_err(|error| say(&format!("cannot listen for signals: {error}"))).ok()?;
    let handle = signals.handle();
    thread::spawn(move || {
        for signal in signals.forever() {
            if events.send(event(signal)).is_err() {
                return;
            }
        }
    });
    Some(handle)
}

/// Whether a signal asks the launcher to end; the others are for the ranks.
pub(super) fn asks_to_end(signal: i32) -> bool {
    signal != SIGUSR1 && signal != SIGUSR2
}
