//! The way to a store's server of this very host without TCP. Knows nothing of other requests than
//! the two that ask for it.

use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket};

use super::connection::{Connection, Fault, block_by_slices, open};
use crate::store::Deadline;
use crate::store::protocol::{Encode, Kind, LOCAL_NAME, LOCAL_PREFIX, READY};

/// How long a server may take to say whether there is one.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest name that a socket may have.
const MAX_NAME_BYTES: usize = 107;

/// What the socket of a server is called.
pub(super) type LocalName = Arc<[u8]>;

/// A socket that is connected to the server of `connection`, if there is a shorter way to it, and
/// how the server calls that.
pub(super) fn find(
    connection: &mut Connection,
    deadline: &Deadline,
) -> Result<Option<(Socket, LocalName)>, Fault> {
    if !connection.is_within_host() {
        return Ok(None);
    }
    let patience = deadline.remaining().map_or(PATIENCE, |left| left.min(PATIENCE));
    let deadline = &Deadline::after(patience.max(Duration::from_millis(1)));
    connection.request.kind(Kind::Check);
    connection.request.number(1);
    connection.request.blob(&[LOCAL_NAME]);
    connection.send(&[], deadline)?;
    if connection.array(deadline)? != [READY] {
        return Ok(None);
    }
    connection.request.kind(Kind::Get);
    connection.request.blob(&[LOCAL_NAME]);
    connection.send(&[], deadline)?;
    let name = connection.blob(deadline)?;
    // A server must not lead its clients to other programs' sockets.
    if !name.starts_with(LOCAL_PREFIX.as_bytes()) || name.len() > MAX_NAME_BYTES {
        return Ok(None);
    }
    Ok(connect(&name).map(|socket| (socket, name.into())))
}

/// Whether whoever listens at the other end is of the user of this process: everybody of this host
/// can see the names of sockets, and take that of one who is gone.
pub(super) fn is_of_this_user(socket: &Socket) -> bool {
    let other = rustix::net::sockopt::socket_peercred(socket);
    other.is_ok_and(|other| other.uid == rustix::process::geteuid())
}

/// None if nobody listens there, as when both sides are in different containers.
pub(super) fn connect(name: &[u8]) -> Option<Socket> {
    let name = std::str::from_utf8(name).ok()?;
    let address = SockAddr::unix(format!("\0{name}")).ok()?;
    let socket = open(Domain::UNIX, None).ok()?;
    // A queue that is full is not waited for: TCP is there.
    socket.set_nonblocking(true).ok()?;
    socket.connect(&address).ok()?;
    block_by_slices(&socket).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::generated::error::Error;
    use crate::store::Store;
    use crate::store::tcp::connect;
    use crate::store::tcp::{TcpStore, TcpStoreOptions};

    /// What a server is asked before the first request, and what it answers.
    fn greet(stream: &mut TcpStream) {
        let mut hello = [0; 10];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(&hello[6..]).unwrap();
    }

    #[test]
    fn clients_of_the_host_leave_tcp_and_keep_their_address() {
        let server = TcpStore::new(TcpStoreOptions::new("127.0.0.1", 0).is_master(true)).unwrap();
        let deadline = Deadline::after(PATIENCE);
        let connection = connect::open("127.0.0.1", server.port(), &deadline).unwrap();
        assert_eq!(connection.local_address(), Some([127, 0, 0, 1].into()));
        assert!(!connection.is_within_host(), "it has no addresses of the network any more");
    }

    #[test]
    fn further_clients_come_by_the_name_that_is_known_as_long_as_the_server_is_there() {
        let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true);
        let server = TcpStore::new(options).unwrap();
        server.set("key", b"value").unwrap();
        let (number, port) = (server.local_number().unwrap().to_owned(), server.port());
        let found = |number: &str| TcpStore::of_local(number, ("127.0.0.1", port), PATIENCE);
        let client = found(&number).unwrap();
        assert_eq!(client.local_address(), Some([127, 0, 0, 1].into()));
        // One that it opens goes the same way, with its address.
        let again = client.reopen(PATIENCE).unwrap();
        assert_eq!(again.get("key").unwrap(), b"value");
        assert_eq!(again.local_address(), client.local_address());
        assert!(found("of nobody").is_none() && found("").is_none());
        drop(server);
        assert!(found(&number).is_none());
        let error = client.reopen(PATIENCE).err().unwrap();
        assert!(matches!(error, Error::Network { .. }), "{error}");
    }

    #[test]
    fn a_server_cannot_lead_its_clients_to_other_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for name in [&b"/run/dbus"[..], b"", b"polyrank-store-of-nobody", &[b'x'; 300]] {
            let served = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    greet(&mut stream);
                    let mut request = [0; 31];
                    stream.read_exact(&mut request).unwrap();
                    stream.write_all(&[READY]).unwrap();
                    stream.read_exact(&mut request[..23]).unwrap();
                    let mut reply = Vec::new();
                    reply.blob(&[name]);
                    stream.write_all(&reply).unwrap();
                    // The client asks here, not elsewhere.
                    stream.read_exact(&mut request[..1]).unwrap();
                    stream.write_all(&7i64.to_le_bytes()).unwrap();
                });
                let store = TcpStore::new(TcpStoreOptions::new("127.0.0.1", port)).unwrap();
                store.queue_len("q").unwrap()
            });
            assert_eq!(served, 7);
        }
    }
}
