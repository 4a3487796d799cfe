//! What happens at the ranks of a team, as events: a thread reads each connection, another waits
//! for each process. Knows nothing of what the answers mean.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::bench::messages::{Answer, MAX_LINE_BYTES};
use crate::launch::process::wait_for_end;
use crate::launch::report::ProcessEnd;

/// Something that happened. Ranks and processes are known by number.
#[derive(Debug)]
pub(super) enum Event {
    /// A rank opened its connection.
    Joined(usize, TcpStream),
    Answer(usize, Answer),
    /// A rank's connection ended, or carries what is not an answer.
    Broken(usize, String),
    /// A process ended.
    Ended(usize, ProcessEnd),
}

/// Lets ranks in for as long as it lives.
pub(super) struct AcceptGuard {
    closed: Arc<AtomicBool>,
}

impl AcceptGuard {
    /// Reads every connection to `listener`, each until its end.
    ///
    /// # Errors
    /// The listener does not do what is asked.
    pub(super) fn open(
        listener: TcpListener,
        token: String,
        ranks: usize,
        events: Sender<Event>,
    ) -> io::Result<AcceptGuard> {
        listener.set_nonblocking(true)?;
        let closed = Arc::new(AtomicBool::new(false));
        let is_closed = closed.clone();
        thread::spawn(move || {
            let look = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            while !is_closed.load(Ordering::Relaxed) {
                // Whatever comes of it, the next look tells.
                let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&look));
                while let Ok((stream, _)) = listener.accept() {
                    if stream.set_nonblocking(false).is_ok() {
                        read(stream, token.clone(), ranks, events.clone());
                    }
                }
            }
        });
        Ok(AcceptGuard { closed })
    }
}

impl Drop for AcceptGuard {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

/// Reads a connection until its end. One that does not open with a rank and `token` is not from a
/// rank of this benchmark, and is ignored.
fn read(stream: TcpStream, token: String, ranks: usize, events: Sender<Event>) {
    thread::spawn(move || {
        let Ok(writer) = stream.try_clone() else { return };
        let mut reader = BufReader::new(stream);
        let rank = match next(&mut reader) {
            Ok(Answer::Hello { rank, token: theirs }) if theirs == token => rank as usize,
            _ => return,
        };
        if rank >= ranks || events.send(Event::Joined(rank, writer)).is_err() {
            return;
        }
        loop {
            let event = match next(&mut reader) {
                Ok(answer) => Event::Answer(rank, answer),
                Err(why) => Event::Broken(rank, why),
            };
            let is_last = matches!(event, Event::Broken(..));
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    });
}

/// Tells when the process ends.
pub(super) fn watch(member: usize, pid: Pid, events: Sender<Event>) {
    thread::spawn(move || {
        // Nobody may be interested any more.
        let _ = events.send(Event::Ended(member, wait_for_end(pid)));
    });
}

fn next(reader: &mut BufReader<TcpStream>) -> Result<Answer, String> {
    let mut line = Vec::new();
    let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
    match read {
        Ok(0) => Err("the connection ended".to_owned()),
        Ok(_) => serde_json::from_slice(&line).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
