//! How a client reaches a TCPStore server: with patience, at each address of its host, and without
//! TCP where both are on one host. Knows no request.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, TcpKeepalive};

use super::connection::{
    Connection, Fault, Opened, block_by_slices, open as open_socket, poll_for,
};
#[cfg(target_os = "linux")]
use super::local;
use crate::stall_report::{ReportedWait, StallReport};
use crate::store::deadline::{Deadline, SLICE, WaitError};
use crate::store::url::authority;

/// Longest attempt to reach one address before the next is tried.
const ATTEMPT: Duration = Duration::from_secs(3);
/// Longest attempt by the socket of a host of which the name is known.
#[cfg(target_os = "linux")]
const LOCAL_ATTEMPT: Duration = Duration::from_millis(100);
/// What is wrong with a server that takes a connection and says nothing, and why that may be.
const SILENT: (&str, &str) = (
    "a connection is accepted there, and nobody answers",
    "Is rank 0, or whoever else serves it, stopped or cut off?",
);
/// Why there may be no server.
const ABSENT: &str = "Has rank 0, or whoever else serves it, not come to the rendezvous, or ended?";
/// First pause between rounds of attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause, for a server that thousands may look for at the same time over a network.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause for a server of this host: clients that come before it must not lose time, and
/// an attempt costs 50 µs.
const MAX_LOCAL_PAUSE: Duration = Duration::from_millis(20);

/// Connects and validates; tries again until `deadline`.
pub(super) fn open(host: &str, port: u16, deadline: &Deadline) -> Opened {
    let mut pause = FIRST_PAUSE;
    let mut obstacle = ("no answer".to_owned(), ABSENT);
    let (mut wait, store) =
        (ReportedWait::new(), format!("the store at {}", authority(host, port)));
    loop {
        // Who accepts connections and never answers takes as long as an attempt may.
        let mut is_silent = false;
        let mut meanwhile = || {
            is_silent = true;
            report(&mut wait, &store, SILENT);
        };
        obstacle = match attempt(host, port, deadline, Some(&mut meanwhile)) {
            Ok(connection) => {
                wait.end(&client_of(&store));
                return Ok(connection);
            }
            Err(Fault::Expired(WaitError::Interrupted)) => {
                return Err(WaitError::Interrupted.into());
            }
            Err(Fault::Expired(WaitError::TimedOut)) if is_silent => {
                (SILENT.0.to_owned(), SILENT.1)
            }
            // The attempt that the deadline cut off knows less than one before it.
            Err(Fault::Expired(WaitError::TimedOut)) => obstacle,
            Err(Fault::Closed(why) | Fault::Malformed(why)) => (why, ABSENT),
            Err(fault @ Fault::NoFiles) => return Err(fault),
        };
        report(&mut wait, &store, (&obstacle.0, obstacle.1));
        match deadline.sleep(jittered(pause)) {
            Ok(()) => pause = (pause * 3 / 2).min(max_pause(host, port)),
            Err(WaitError::TimedOut) => {
                let (waited_ms, why) = (deadline.limit_ms(), obstacle.0);
                return Err(Fault::Closed(format!(
                    "The client socket has timed out after {waited_ms}ms while trying to \
                     connect to ({host}, {port}): {why}"
                )));
            }
            Err(why) => return Err(why.into()),
        }
    }
}

/// Says that a `store` cannot be reached, why, and what may be the matter, if it has been waited
/// for long.
fn report(wait: &mut ReportedWait, store: &str, (why, cause): (&str, &str)) {
    if wait.is_due() {
        let waited = wait.waited();
        let text = format!("{store} cannot be reached ({why}); waited for {waited}. {cause}");
        let report = StallReport { subject: client_of(store), ..StallReport::default() };
        wait.say(&text, StallReport { text: text.clone(), ..report });
    }
}

fn client_of(store: &str) -> String {
    format!("a client of {store}")
}

/// Connects and validates; tries again only where nothing says that the server is gone.
pub(super) fn open_known(host: &str, port: u16, deadline: &Deadline) -> Opened {
    loop {
        match attempt(host, port, deadline, None) {
            // A silent host is asked again.
            Err(Fault::Expired(WaitError::TimedOut))
                if deadline.remaining().is_none_or(|left| !left.is_zero()) => {}
            attempted => return attempted,
        }
    }
}

/// Connects and validates, trying every address of `host` once. As long as a server does not answer
/// that accepts connections, `meanwhile` is called now and then, or it is said.
pub(super) fn attempt(
    host: &str,
    port: u16,
    deadline: &Deadline,
    mut meanwhile: Option<&mut dyn FnMut()>,
) -> Opened {
    let server = authority(host, port);
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| Fault::Closed(format!("cannot resolve host name: {error}")))?;
    let mut last = Fault::Closed("the host name has no address".into());
    for address in addresses {
        let connected = connect(address, deadline).map_err(|fault| match fault {
            Fault::Closed(why) => Fault::Closed(format!("{address}: {why}")),
            other => other,
        });
        let meanwhile = meanwhile.as_mut().map(|it| &mut **it as &mut dyn FnMut());
        let validate = |socket| Connection::validate(socket, &server, deadline, meanwhile);
        match connected.and_then(validate) {
            Err(fault @ (Fault::Expired(WaitError::Interrupted) | Fault::NoFiles)) => {
                return Err(fault);
            }
            Err(fault) => last = fault,
            Ok(connection) => return nearest(connection, &server, deadline),
        }
    }
    Err(last)
}

/// The same server over a socket of this host, if it is on this host and has one.
#[cfg(target_os = "linux")]
fn nearest(mut connection: Connection, server: &str, deadline: &Deadline) -> Opened {
    let found = local::find(&mut connection, deadline)?;
    let Some((socket, name)) = found else { return Ok(connection) };
    match Connection::validate(socket, server, deadline, None) {
        Ok(mut nearer) => {
            nearer.local_address = connection.local_address;
            nearer.local_name = Some(name);
            Ok(nearer)
        }
        Err(fault @ Fault::Expired(_)) => Err(fault),
        Err(_) => Ok(connection),
    }
}

#[cfg(not(target_os = "linux"))]
fn nearest(connection: Connection, _: &str, _: &Deadline) -> Result<Connection, Fault> {
    Ok(connection)
}

/// The server of this host that was at `host` and `port` before, and has a socket of this name;
/// none if it does not answer there at once: whoever asks for it then goes the usual way.
#[cfg(target_os = "linux")]
pub(super) fn open_local(
    name: &local::LocalName,
    (host, port): (&str, u16),
    deadline: &Deadline,
) -> Option<Connection> {
    let limit = deadline.remaining().map_or(LOCAL_ATTEMPT, |left| left.min(LOCAL_ATTEMPT));
    let limit = Deadline::after(limit.max(Duration::from_millis(1)));
    let socket = local::connect(name).filter(local::is_of_this_user)?;
    let validated = Connection::validate(socket, &authority(host, port), &limit, None);
    let mut connection = validated.ok()?;
    connection.local_name = Some(name.clone());
    Some(connection)
}

/// Connects to one address, without blocking for longer than a slice at a time.
fn connect(address: SocketAddr, deadline: &Deadline) -> Result<Socket, Fault> {
    let io = |error: io::Error| Fault::Closed(error.to_string());
    let socket = open_socket(Domain::for_address(address), Some(Protocol::TCP))?;
    socket.set_nonblocking(true).map_err(io)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if in_progress(&error) => {
            let attempt = Deadline::after(ATTEMPT);
            loop {
                let slice = deadline.slice(SLICE)?.min(attempt.slice(SLICE)?);
                if poll_for(&socket, PollFlags::OUT, slice)? {
                    break;
                }
            }
            if let Some(error) = socket.take_error().map_err(io)? {
                return Err(io(error));
            }
        }
        Err(error) => return Err(io(error)),
    }
    // A port of the ephemeral range may be given to this very socket, which then meets itself
    // and would keep the server from listening.
    let (local, peer) = (socket.local_addr().map_err(io)?, socket.peer_addr().map_err(io)?);
    if local.as_socket() == peer.as_socket() {
        return Err(Fault::Closed("nobody listens".into()));
    }
    socket.set_tcp_nodelay(true).map_err(io)?;
    block_by_slices(&socket).map_err(io)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive).map_err(io)?;
    Ok(socket)
}

fn in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error())
}

/// The longest pause between attempts to reach this server.
fn max_pause(host: &str, port: u16) -> Duration {
    let is_here = (host, port).to_socket_addrs().is_ok_and(|addresses| {
        let mut addresses = addresses.peekable();
        addresses.peek().is_some() && addresses.all(|address| address.ip().is_loopback())
    });
    if is_here { MAX_LOCAL_PAUSE } else { MAX_PAUSE }
}

/// `pause` times a half to one, so that many clients do not come back at the same moment.
fn jittered(pause: Duration) -> Duration {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    let mixed = nanos.wrapping_mul(0x9E37_79B9).rotate_left(16) ^ std::process::id();
    pause.mul_f64(0.5 + f64::from(mixed % 1024) / 2048.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_this_host_is_looked_for_more_often() {
        assert_eq!(max_pause("127.0.0.1", 1), MAX_LOCAL_PAUSE);
        assert_eq!(max_pause("::1", 1), MAX_LOCAL_PAUSE);
        assert_eq!(max_pause("192.0.2.1", 1), MAX_PAUSE);
    }
}
