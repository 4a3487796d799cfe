//! Closing connections: with a goodbye, or immediately. Knows nothing of how they were opened.

use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use super::layout::{ASLEEP, Lane};
use super::memory::Mapping;
use super::outgoing::OutgoingLane;
use super::side_channel::SideChannel;
use super::{Link, OpenConnection, ShmTransport, sleep};
use crate::transport::peers::GOODBYE_WAIT;
use crate::transport::{Payload, Transport};
use crate::wire::frame::{Header, Kind};

/// How long it waits between two checks.
const GOODBYE_PAUSE: Duration = Duration::from_millis(1);

/// A connection that is being closed.
struct ClosingConnection {
    lane: Lane,
    outgoing: OutgoingLane,
    channels: Vec<SideChannel>,
    /// The peer's segment, if it has arrived.
    theirs: Option<Mapping>,
}

impl ShmTransport {
    /// Drops everything and closes every connection; nothing is left to do the second time.
    pub(super) fn close_all(&mut self, orderly: bool) {
        if !self.table.close() {
            return;
        }
        // In a forked child, the parent's peers may still read what the parent has lent.
        let is_inherited = self.table.is_inherited();
        let mut endings = Vec::new();
        for peer in &mut self.table.peers {
            let (lane, mut outgoing) = (peer.route.lane, std::mem::take(&mut peer.queue));
            if !is_inherited {
                outgoing.take_back(&lane, &self.ours);
            }
            outgoing.keep_started();
            let (channels, theirs) = match std::mem::replace(&mut peer.link, Link::Lost) {
                Link::Open(open) => {
                    let OpenConnection { channels, theirs, .. } = *open;
                    (channels, Some(theirs))
                }
                // The peer may have accepted it already, so it gets a goodbye, too.
                Link::Dialing(dial) => (
                    dial.into_socket().map(|it| SideChannel::own(it, 0)).into_iter().collect(),
                    None,
                ),
                Link::Idle | Link::Lost => continue,
            };
            endings.push(ClosingConnection { lane, outgoing, channels, theirs });
        }
        if is_inherited {
            return;
        }
        if orderly {
            self.say_goodbye(&mut endings);
        }
        for channel in endings.iter().flat_map(|ending| &ending.channels) {
            self.table.readiness.remove(&channel.socket);
            // A child process may hold the socket, too; the peer must see the end all the same.
            let _ = shutdown(&channel.socket, Shutdown::Both);
        }
    }

    /// Puts a goodbye into each lane, after the frame of which a part is there already.
    fn say_goodbye(&mut self, endings: &mut [ClosingConnection]) {
        let deadline = Instant::now() + GOODBYE_WAIT;
        let goodbye = Header::new(Kind::Goodbye, self.table.hello.generation);
        endings.iter_mut().for_each(|ending| ending.outgoing.push(goodbye, Payload::Empty));
        loop {
            let mut blocked = false;
            for ClosingConnection { lane, outgoing, channels, theirs } in endings.iter_mut() {
                let flushed = outgoing.flush(lane, &self.ours, &mut |_| false, |_| {});
                blocked |= flushed.is_ok() && !outgoing.is_empty();
                if let (Some(theirs), Some(channel)) = (theirs, channels.first())
                    && sleep::must_be_woken(theirs, ASLEEP)
                {
                    channel.wake();
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
