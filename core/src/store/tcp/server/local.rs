//! The server's socket for clients of its own host, which costs half of what TCP costs. It is a
//! Unix socket whose name is not a file's, so that nothing is left when the process is killed; the
//! name is drawn by lot and told over TCP alone, so that nobody else can have taken it. Knows
//! nothing of requests.

use std::future::poll_fn;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::rc::Rc;

use super::ACCEPT_PAUSE;
use super::connection;
use super::host::Host;
use super::socket::{From, To};
use crate::fork;
use crate::store::protocol::LOCAL_PREFIX;

/// A socket that listens, and its name; none where the system has no such sockets.
pub(super) fn listen() -> Option<(UnixListener, Vec<u8>)> {
    let lot = u128::from_le_bytes(crate::random::bytes().ok()?);
    let name = format!("{LOCAL_PREFIX}{lot:032x}").into_bytes();
    let bound = SocketAddr::from_abstract_name(&name).and_then(|address| {
        let listener = fork::unshared(|| UnixListener::bind_addr(&address))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    match bound {
        Ok(listener) => Some((listener, name)),
        Err(error) => {
            tracing::debug!("TCPStore serves its own host over TCP: {error}");
            None
        }
    }
}

/// Accepts clients as long as the server lives.
pub(super) async fn accept(listener: UnixListener, host: Rc<Host>) {
    let listener = match tokio::net::UnixListener::from_std(listener) {
        Ok(listener) => listener,
        // Clients that do not get through stay with TCP.
        Err(error) => return tracing::debug!("TCPStore's local socket: {error}"),
    };
    loop {
        let accepted = poll_fn(|context| {
            fork::poll_unshared(|| listener.poll_accept(context).map_ok(|(stream, _)| stream))
        });
        match accepted.await {
            Ok(stream) => {
                let (from, to) = stream.into_split();
                tokio::task::spawn_local(connection::serve_local(
                    host.clone(),
                    From::Local(from),
                    To::Local(to),
                ));
            }
            Err(error) => {
                tracing::debug!("TCPStore cannot accept a local connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
