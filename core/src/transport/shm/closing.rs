//! How connections end: with a goodbye, or at once. Knows nothing of how they came to stand.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use super::layout::Lane;
use super::memory::Mapping;
use super::outgoing::Outgoing;
use super::{Link, Open, ShmTransport, wake};
use crate::transport::{Payload, Transport};
use crate::wire::frame::{Header, Kind};

/// How long an orderly close waits for room for its goodbyes; below a second.
const GOODBYE_WAIT: Duration = Duration::from_millis(500);
/// How long it waits until it looks again.
const GOODBYE_PAUSE: Duration = Duration::from_millis(1);

/// A connection that is to end.
struct Ending {
    lane: Lane,
    outgoing: Outgoing,
    sockets: Vec<OwnedFd>,
    /// The peer's segment, if it came.
    theirs: Option<Mapping>,
}

impl ShmTransport {
    /// Drops everything and closes every connection; nothing is left to do the second time.
    pub(super) fn close_all(&mut self, orderly: bool) {
        if self.listener.take().is_none() {
            return;
        }
        self.strangers.clear();
        self.notices.clear();
        self.active.clear();
        let mut endings = Vec::new();
        for peer in &mut self.peers {
            let (lane, mut outgoing) = (peer.lane, std::mem::take(&mut peer.outgoing));
            outgoing.keep_started();
            let (sockets, theirs) = match std::mem::replace(&mut peer.link, Link::Lost) {
                Link::Open(open) => {
                    let Open { sockets, theirs, .. } = *open;
                    (sockets, Some(theirs))
                }
                // The peer may have accepted it already, so it has a right to a goodbye too.
                Link::Dialing(dial) => (dial.into_socket().into_iter().collect(), None),
                Link::Idle | Link::Lost => continue,
            };
            endings.push(Ending { lane, outgoing, sockets, theirs });
        }
        if self.process_id != std::process::id() {
            // The parent process goes on with these connections.
            return;
        }
        if orderly {
            self.say_goodbye(&mut endings);
        }
        for socket in endings.iter().flat_map(|ending| &ending.sockets) {
            // A child process may hold the socket too; the end must come all the same.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }

    /// Puts a goodbye into each lane, behind the frame of which a part is there already.
    fn say_goodbye(&mut self, endings: &mut [Ending]) {
        let deadline = Instant::now() + GOODBYE_WAIT;
        let goodbye = Header::new(Kind::Goodbye, self.hello.generation);
        endings.iter_mut().for_each(|ending| ending.outgoing.push(goodbye, Payload::Empty));
        loop {
            let mut blocked = false;
            for Ending { lane, outgoing, sockets, theirs } in endings.iter_mut() {
                let flushed = outgoing.flush(lane, &self.ours, |_| {});
                blocked |= flushed.is_ok() && !outgoing.is_empty();
                if let (Some(theirs), Some(socket)) = (theirs, sockets.first()) {
                    wake(theirs, socket);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if !blocked || left.is_zero() {
                return;
            }
            // A peer that is late with reading takes longer than this.
            std::thread::sleep(left.min(GOODBYE_PAUSE));
        }
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        self.close(false);
    }
}
