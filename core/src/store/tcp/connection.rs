//! A client's connection to a TCPStore server: sending, receiving under a deadline. Knows the
//! handshake, no other request.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use socket2::{Domain, Protocol, Socket, Type};

use super::adaptive_poll::AdaptivePoll;
use super::open_files;
use crate::fork;
use crate::store::deadline::{Deadline, SLICE, WaitError};
use crate::store::interrupt;
use crate::store::protocol::{Encode, Kind, MAGIC, NO_ROOM};
use crate::store::silence::Silence;

/// Bytes read at once; larger values are read straight to where they go.
const INPUT_BYTES: usize = 16 << 10;
/// A value whose length is only announced gets this much memory, and more as it arrives.
const FIRST_RESERVE_BYTES: usize = 1 << 20;
/// Longest value accepted: values grow by APPEND beyond what one request may carry.
const MAX_REPLY_BYTES: u64 = 1 << 36;
/// How long a server may take to answer the handshake before the attempt is given up.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Why an exchange ended early.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server closed the connection, or the network broke it.
    Closed(String),
    /// The deadline passed, or the thread was interrupted.
    Expired(WaitError),
    /// The server's bytes are not the protocol's.
    Malformed(String),
    /// This process may open no more files. Waiting does not help.
    NoFiles,
}

/// What is done now and then while nothing comes from the server at an address.
pub(super) type Meanwhile<'a> = &'a mut dyn FnMut(&str);

/// A connection, or why there is none.
pub(super) type Opened = Result<Connection, Fault>;

impl From<WaitError> for Fault {
    fn from(why: WaitError) -> Self {
        Self::Expired(why)
    }
}

/// What a server owes that has not yet confirmed a cancellation.
#[derive(Clone, Copy, Debug)]
pub(super) enum OwedReplies {
    /// The confirmation, perhaps after the end of the wait.
    Cancellation,
    /// That, after the answer of a GET that was sent together with the wait.
    CancellationOfGet,
}

/// A validated connection.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    /// The number of forks before it was made.
    forks: u32,
    /// Where the server listens, as `host:port`.
    server: String,
    poll_policy: AdaptivePoll,
    /// This end's address, if the system knows it.
    pub(super) local_address: Option<IpAddr>,
    /// What the server calls its socket for this host, if it is that one.
    #[cfg(target_os = "linux")]
    pub(super) local_name: Option<super::local::LocalName>,
    input: Box<[u8]>,
    /// The part of `input` that was received and not yet taken.
    unread: std::ops::Range<usize>,
    /// What the server owes of an exchange that this side gave up.
    pub(super) owed: Option<OwedReplies>,
    /// The request being written; kept for its memory.
    pub(super) request: Vec<u8>,
}

impl Connection {
    /// The address of this host's interface that leads to the server, if the system knows it.
    pub(super) fn local_address(&self) -> Option<IpAddr> {
        self.local_address
    }

    /// Whether it is that of a parent process, to which it was left.
    pub(super) fn is_inherited(&self) -> bool {
        self.forks != fork::forks()
    }

    /// Whether both ends are on this host.
    #[cfg(target_os = "linux")]
    pub(super) fn is_within_host(&self) -> bool {
        let address = |end: io::Result<socket2::SockAddr>| {
            end.ok().and_then(|end| end.as_socket()).map(|end| end.ip().to_canonical())
        };
        let local = address(self.socket.local_addr());
        local.is_some() && local == address(self.socket.peer_addr())
    }

    /// A connection over `socket`, whose server, at `host:port`, is asked whether it is one. As
    /// long as it does not answer, `meanwhile` is called now and then, or it is said.
    pub(super) fn validate(
        socket: Socket,
        server: &str,
        deadline: &Deadline,
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Result<Self, Fault> {
        let local = socket.local_addr().ok().and_then(|address| address.as_socket());
        let mut connection = Self {
            local_address: local.map(|address| address.ip()),
            #[cfg(target_os = "linux")]
            local_name: None,
            socket,
            forks: fork::forks(),
            server: server.to_owned(),
            poll_policy: AdaptivePoll::default(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            unread: 0..0,
            owed: None,
            request: Vec::with_capacity(256),
        };
        let nonce = std::process::id().to_le_bytes();
        connection.request.kind(Kind::Validate);
        connection.request.extend_from_slice(&MAGIC.to_le_bytes());
        connection.request.kind(Kind::Ping);
        connection.request.extend_from_slice(&nonce);
        let limit = deadline.remaining().map_or(HANDSHAKE, |left| left.min(HANDSHAKE));
        let limit = Deadline::after(limit.max(Duration::from_millis(1)));
        connection.send(&[], &limit)?;
        if let Some(meanwhile) = meanwhile {
            while !poll_for(&connection.socket, PollFlags::IN, limit.slice(SLICE)?)? {
                meanwhile();
            }
        }
        let echo: [u8; 4] = connection.array(&limit)?;
        if echo == NO_ROOM {
            return Err(Fault::Closed(
                "the server has no room for more clients: the process that hosts it has as many \
                 files open as the system lets it (ulimit -Hn)"
                    .into(),
            ));
        }
        if echo != nonce {
            return Err(Fault::Malformed(
                "Ping failed, invalid value returned from server: is it a TCPStore?".into(),
            ));
        }
        Ok(connection)
    }

    /// Sends `self.request` and `value` after it, and empties the former.
    pub(super) fn send(&mut self, value: &[u8], deadline: &Deadline) -> Result<(), Fault> {
        let mut sent = 0;
        let total = self.request.len() + value.len();
        let mut silence = None;
        while sent < total {
            let head = &self.request[sent.min(self.request.len())..];
            let tail = &value[sent.saturating_sub(self.request.len())..];
            // One piece is cheaper to send than two, and most requests are one.
            let result = if tail.is_empty() {
                send(&self.socket, head, SendFlags::NOSIGNAL)
            } else {
                let parts = [IoSlice::new(head), IoSlice::new(tail)];
                let mut ancillary = SendAncillaryBuffer::default();
                sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)
            };
            match result {
                Ok(bytes) => (sent, silence) = (sent + bytes, None),
                // The socket's own limit of one slice has passed.
                Err(Errno::AGAIN) => {
                    deadline.slice(SLICE)?;
                    look(&mut silence, &self.server);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(Fault::Closed(error.to_string())),
            }
        }
        self.request.clear();
        if self.request.capacity() > INPUT_BYTES {
            self.request.shrink_to(INPUT_BYTES);
        }
        Ok(())
    }

    /// Sends no more, and waits until the server has run what was sent: it hangs up then. What it
    /// answers is not read.
    pub(super) fn finish(&mut self, deadline: &Deadline) -> Result<(), Fault> {
        // A connection that is broken is finished, too.
        let _ = self.socket.shutdown(Shutdown::Write);
        self.unread = 0..0;
        let mut silence = None;
        loop {
            let server = (&self.socket, &*self.server);
            let say: Meanwhile<'_> = &mut |server| look(&mut silence, server);
            match receive(server, &mut self.poll_policy, &mut self.input, deadline, say) {
                Ok(_) => {}
                Err(Fault::Closed(_)) => return Ok(()),
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Waits until the next `bytes` bytes are there to be taken, few enough for `input`.
    pub(super) fn await_bytes(&mut self, bytes: usize, deadline: &Deadline) -> Result<(), Fault> {
        while self.unread.len() < bytes {
            self.fill(deadline)?;
        }
        Ok(())
    }

    /// As [`Connection::await_bytes`], of a server that may take as long to answer as it likes:
    /// `meanwhile` is called now and then.
    pub(super) fn await_bytes_patiently(
        &mut self,
        bytes: usize,
        deadline: &Deadline,
        meanwhile: Meanwhile<'_>,
    ) -> Result<(), Fault> {
        while self.unread.len() < bytes {
            self.fill_meanwhile(deadline, &mut *meanwhile)?;
        }
        Ok(())
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, deadline: &Deadline) -> Result<[u8; N], Fault> {
        self.await_bytes(N, deadline)?;
        let mut taken = [0; N];
        taken.copy_from_slice(&self.input[self.unread.start..self.unread.start + N]);
        self.unread.start += N;
        Ok(taken)
    }

    /// The next number.
    pub(super) fn number(&mut self, deadline: &Deadline) -> Result<i64, Fault> {
        Ok(i64::from_le_bytes(self.array(deadline)?))
    }

    /// The next length and its bytes.
    pub(super) fn blob(&mut self, deadline: &Deadline) -> Result<Vec<u8>, Fault> {
        let bytes = u64::from_le_bytes(self.array(deadline)?);
        self.bytes(bytes, deadline)
    }

    /// The next `bytes` bytes.
    pub(super) fn bytes(&mut self, bytes: u64, deadline: &Deadline) -> Result<Vec<u8>, Fault> {
        if bytes > MAX_REPLY_BYTES {
            return Err(Fault::Malformed(format!("the server announced {bytes} bytes")));
        }
        let bytes = bytes as usize;
        let mut taken = Vec::with_capacity(bytes.min(FIRST_RESERVE_BYTES));
        let buffered = bytes.min(self.unread.len());
        taken.extend_from_slice(&self.input[self.unread.start..self.unread.start + buffered]);
        self.unread.start += buffered;
        while taken.len() < bytes {
            let missing = bytes - taken.len();
            if missing <= INPUT_BYTES {
                self.fill(deadline)?;
                let here = missing.min(self.unread.len());
                taken.extend_from_slice(&self.input[..here]);
                self.unread.start = here;
            } else {
                let at = taken.len();
                taken.resize(at + missing.min(FIRST_RESERVE_BYTES), 0);
                let (policy, mut silence) = (&mut self.poll_policy, None);
                let server = (&self.socket, &*self.server);
                let say: Meanwhile<'_> = &mut |server| look(&mut silence, server);
                let received = receive(server, policy, &mut taken[at..], deadline, say)?;
                taken.truncate(at + received);
            }
        }
        Ok(taken)
    }

    /// Receives at least one more byte into `input`. It is said if the server is silent.
    fn fill(&mut self, deadline: &Deadline) -> Result<(), Fault> {
        let mut silence = None;
        self.fill_meanwhile(deadline, &mut |server| look(&mut silence, server))
    }

    /// Receives at least one more byte into `input`.
    fn fill_meanwhile(
        &mut self,
        deadline: &Deadline,
        meanwhile: Meanwhile<'_>,
    ) -> Result<(), Fault> {
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.end == self.input.len() {
            self.input.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        let end = self.unread.end;
        let (policy, server) = (&mut self.poll_policy, (&self.socket, &*self.server));
        self.unread.end += receive(server, policy, &mut self.input[end..], deadline, meanwhile)?;
        Ok(())
    }
}

/// Says that the server does not answer, if it has not for long.
fn look(silence: &mut Option<Silence>, server: &str) {
    silence.get_or_insert_with(|| Silence::of(server)).look();
}

/// Receives at least one byte from the server at this address.
fn receive(
    (socket, server): (&Socket, &str),
    poll_policy: &mut AdaptivePoll,
    buffer: &mut [u8],
    deadline: &Deadline,
    meanwhile: Meanwhile<'_>,
) -> Result<usize, Fault> {
    let failed = |error: Errno| Fault::Closed(format!("Failed to recv: {error}"));
    if let Some(result) = poll_policy.receive(socket, buffer) {
        return received(result.map_err(failed)?);
    }
    loop {
        // Not in `recv`: a thread that sleeps there is woken by room for its next request, too,
        // which a socket of this host tells of as soon as the server has taken the last one.
        let limit = deadline.remaining().map_or(SLICE, |left| left.min(SLICE));
        if poll_for_input(socket, deadline, limit)? {
            match recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((bytes, _)) => return received(bytes),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(failed(error)),
            }
        } else {
            meanwhile(server);
        }
        deadline.slice(SLICE)?;
    }
}

fn received(bytes: usize) -> Result<usize, Fault> {
    if bytes > 0 {
        return Ok(bytes);
    }
    Err(Fault::Closed(
        "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown \
         or crash?"
            .into(),
    ))
}

/// As [`poll_for`] bytes that come, also until the thread is interrupted, where `deadline` heeds
/// that: it says so then.
fn poll_for_input(socket: &Socket, deadline: &Deadline, limit: Duration) -> Result<bool, Fault> {
    let interrupts = if deadline.heeds_interrupts() { interrupt::interests() } else { Vec::new() };
    if interrupts.is_empty() {
        return poll_for(socket, PollFlags::IN, limit);
    }
    let mut all = vec![PollFd::new(socket, PollFlags::IN)];
    all.extend(interrupts.iter().map(|interest| PollFd::new(&interest.fd, PollFlags::IN)));
    Ok(poll_all(&mut all, limit)? && !all[0].revents().is_empty())
}

/// Waits until the socket is ready for `what`; false when `limit` passed first.
pub(super) fn poll_for(
    socket: impl rustix::fd::AsFd,
    what: PollFlags,
    limit: Duration,
) -> Result<bool, Fault> {
    poll_all(&mut [PollFd::new(&socket, what)], limit)
}

/// Waits until one of `all` is ready; false when `limit` passed first.
fn poll_all(all: &mut [PollFd<'_>], limit: Duration) -> Result<bool, Fault> {
    // Never shorter than asked, or the caller would spin over the last fraction.
    let limit = limit.max(Duration::from_micros(1));
    let limit =
        Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    match poll(all, Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(Fault::Closed(error.to_string())),
    }
}

/// A stream socket, if need be with a higher limit of open files.
pub(super) fn open(domain: Domain, protocol: Option<Protocol>) -> Result<Socket, Fault> {
    let make = || fork::unshared(|| Socket::new(domain, Type::STREAM, protocol));
    let made = match make() {
        Err(error) if open_files::is_exhausted(&error) => {
            if !open_files::raise(open_files::limit().and_then(|limit| limit.checked_mul(2))) {
                return Err(Fault::NoFiles);
            }
            make()
        }
        made => made,
    };
    made.map_err(|error| Fault::Closed(error.to_string()))
}

/// Lets calls of `socket` block, for a slice at a time.
pub(super) fn block_by_slices(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(SLICE))?;
    socket.set_write_timeout(Some(SLICE))
}
