//! Closing connections: with a goodbye, or immediately. Knows nothing of how they were opened.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use rustix::time::Timespec;

use super::{Link, TcpTransport, sending};
use crate::transport::peers::GOODBYE_WAIT;
use crate::transport::stream::Outbox;
use crate::transport::{Payload, Transport};
use crate::wire::frame::{Header, Kind};

/// Most buffers full of bytes that are read and dropped when a connection is closed.
const DRAINED_BUFFERS: usize = 64;

impl TcpTransport {
    /// Drops everything and closes every connection; nothing is left to do the second time.
    pub(super) fn close_all(&mut self, orderly: bool) {
        if !self.table.close() {
            return;
        }
        self.web = None;
        let mut open = Vec::new();
        for peer in &mut self.table.peers {
            let mut outbox = std::mem::take(&mut peer.queue);
            outbox.keep_started();
            match std::mem::replace(&mut peer.link, Link::Lost) {
                Link::Open(connection) => open.push((connection.socket, outbox)),
                // The peer may have accepted it already, so it gets a goodbye, too.
                Link::Dialing(dial) => {
                    open.extend(dial.into_socket().map(|socket| (socket, outbox)))
                }
                Link::Idle | Link::Lost => {}
            }
        }
        if self.table.is_inherited() {
            return;
        }
        if orderly {
            self.say_goodbye(&mut open);
        }
        for (socket, _) in open {
            // Unread bytes would turn the end into a reset, which can overtake the goodbye.
            for _ in 0..DRAINED_BUFFERS {
                match recv(&socket, self.reader.buffer(), RecvFlags::empty()) {
                    Ok((bytes, _)) if bytes > 0 => {}
                    _ => break,
                }
            }
            self.table.readiness.remove(&socket);
            // A child process may hold the socket, too; the peer must see the end all the same.
            let _ = shutdown(&socket, Shutdown::Both);
        }
    }

    /// Sends a goodbye over each connection, after the frame of which a part has left already.
    fn say_goodbye(&mut self, open: &mut [(OwnedFd, Outbox)]) {
        let deadline = Instant::now() + GOODBYE_WAIT;
        let goodbye = Header::new(Kind::Goodbye, self.table.hello.generation);
        open.iter_mut().for_each(|(_, outbox)| outbox.push(goodbye, Payload::Empty));
        loop {
            let mut blocked = Vec::new();
            for (socket, outbox) in open.iter_mut() {
                let flushed = sending::flush(outbox, &*socket, &mut self.gathered, |_| {});
                if flushed.is_ok_and(|flushed| flushed.blocked) {
                    blocked.push(PollFd::new(&*socket, PollFlags::OUT));
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if blocked.is_empty() || left.is_zero() {
                return;
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            // The next round finds out what it means.
            let _ = poll(&mut blocked, Some(&timeout));
        }
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        self.close(false);
    }
}
