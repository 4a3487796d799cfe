//! Accepts clients, as many as the system lets the process have files open, and tells the others
//! why not. Knows nothing of requests.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::ACCEPT_PAUSE;
use super::connection;
use super::host::Host;
use crate::fork;
use crate::store::protocol::{NO_ROOM, VALIDATE_BYTES};
use crate::store::tcp::open_files;

/// How long a client that is sent away may take to say what it is.
const REFUSAL_LIMIT: Duration = Duration::from_millis(200);
/// A client's first bytes: VALIDATE and PING.
const GREETING_BYTES: usize = VALIDATE_BYTES + 5;

/// What happens to a listening socket of which other processes may have a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// It stops listening with its server. A process that was just forked to start a program has
    /// a copy until it does so, which would keep the port.
    AtEnd,
    /// It is somebody else's, who lent it.
    Never,
}

/// A socket on which a server listens.
pub(super) struct ListeningSocket {
    pub(super) socket: TcpListener,
    pub(super) shutdown: Shutdown,
}

impl ListeningSocket {
    /// The next client.
    async fn next(&self) -> io::Result<TcpStream> {
        poll_fn(|context| {
            fork::poll_unshared(|| self.socket.poll_accept(context).map_ok(|(stream, _)| stream))
        })
        .await
    }
}

impl Deref for ListeningSocket {
    type Target = TcpListener;

    fn deref(&self) -> &TcpListener {
        &self.socket
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        if self.shutdown == Shutdown::AtEnd {
            // It is closed in any case.
            let _ = SockRef::from(&self.socket).shutdown(net::Shutdown::Both);
        }
    }
}

/// Accepts clients as long as the server lives.
pub(super) async fn accept(listener: ListeningSocket, host: Rc<Host>) {
    // A file that is closed when there is no room, so that a client can be told.
    let mut spare = File::open("/dev/null").ok();
    let mut has_complained = false;
    loop {
        match listener.next().await {
            Ok(stream) => {
                // A connection without it is slower, not wrong.
                let _ = stream.set_nodelay(true);
                make_room(&stream);
                tokio::task::spawn_local(connection::serve(host.clone(), stream));
            }
            Err(error) if open_files::is_exhausted(&error) => {
                if open_files::raise(None) {
                    continue;
                }
                if !std::mem::replace(&mut has_complained, true) {
                    complain();
                }
                drop(spare.take());
                if let Ok(Ok(stream)) = tokio::time::timeout(ACCEPT_PAUSE, listener.next()).await {
                    send_away(stream).await;
                } else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                spare = File::open("/dev/null").ok();
            }
            Err(error) => {
                tracing::warn!("TCPStore cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Raises the limit of open files before it is reached, so that the rest of the process does not
/// meet it first.
fn make_room(stream: &TcpStream) {
    let limit = open_files::limit();
    let is_scarce = |limit: u64| u64::try_from(stream.as_raw_fd()).unwrap_or(0) * 4 > limit * 3;
    if let Some(limit) = limit.filter(|limit| is_scarce(*limit)) {
        open_files::raise(limit.checked_mul(4));
    }
}

fn complain() {
    let limit = open_files::limit().unwrap_or_default();
    tracing::error!(
        "TCPStore turns clients away: the process has {limit} files open, the most that it may \
         have. Raise the hard limit (ulimit -Hn) of the process that hosts the store"
    );
}

/// Tells a client that there is no room; it may come again.
async fn send_away(mut stream: TcpStream) {
    let refusal = async {
        let mut greeting = [0; GREETING_BYTES];
        // What was not read when a socket is closed would cost the client the answer.
        stream.read_exact(&mut greeting).await?;
        stream.write_all(&NO_ROOM).await
    };
    // Whether it hears it is its own affair.
    let _ = tokio::time::timeout(REFUSAL_LIMIT, refusal).await;
}
