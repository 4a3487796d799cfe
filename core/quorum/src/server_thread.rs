//! A server that has a thread of its own: how it begins to listen, and how it ends. Knows nothing
//! of what it serves.

use std::future::Future;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::net::TcpListener;
use tokio::sync::Notify;

/// Why a lighthouse, or a manager, does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Everybody could ask it.
    #[error(
        "{address} can be reached from other hosts: without a token, anybody there could join, \
         delay and kill replicas\n\
         give it and its replicas a token (POLYRANK_TOKEN), or set POLYRANK_INSECURE=1 where the \
         network is trusted, as replicas of torchft need, which know no tokens"
    )]
    Open {
        /// Where it would have listened.
        address: SocketAddr,
    },
    /// An option has a value that cannot be.
    #[error("{0}")]
    Option(String),
    /// The address cannot be had.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The system gives no thread, or nothing to wait with.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Ends a server, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Notify>);

impl Stop {
    /// It ends soon.
    pub fn stop(&self) {
        self.0.notify_one();
    }
}

/// A server, until this is dropped.
#[derive(Debug)]
pub(crate) struct ServerThread {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    /// Listens at `address`, and runs what `serve` makes of that on a thread called `name`.
    ///
    /// # Errors
    /// The address cannot be had, or the system gives no thread.
    pub(crate) fn start<F: Future<Output = ()>>(
        name: &str,
        address: SocketAddr,
        serve: impl FnOnce(TcpListener, SocketAddr) -> F + Send + 'static,
    ) -> Result<ServerThread, StartError> {
        let failed = |source| StartError::Listen { address, source };
        let listener = StdListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener).map_err(failed)?
        };
        let stop = Stop::default();
        let stopped = stop.clone();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = stopped.0.notified() => {}
                    () = serve(listener, bound) => {}
                }
            });
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(ServerThread { address: bound, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What ends it.
    pub(crate) fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Waits until it ends: by its [`Stop`], or because it has failed.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the thread itself.
            drop(thread.join());
        }
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop.stop();
        self.join();
    }
}
