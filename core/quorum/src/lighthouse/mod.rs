//! The lighthouse: replicas ask it for a quorum, and people what it sees. gRPC and HTTP on one
//! port.

mod metrics;
mod pages;
mod service;
mod state;
mod status;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;

use crate::access::Token;
use crate::rules::QuorumOptions;
use crate::serve::{self, ConnectionLimits, Versions};
use state::State;

/// The port of `torchft_lighthouse`.
pub const DEFAULT_PORT: u16 = 29510;

/// How a lighthouse is started.
#[derive(Clone, Debug)]
pub struct LighthouseOptions {
    /// Where it listens; port 0 is any that is free.
    pub address: SocketAddr,
    /// What its rules depend on.
    pub quorum: QuorumOptions,
    /// How often the rules are asked when nobody joins.
    pub quorum_tick: Duration,
    /// What clients must know.
    pub token: Option<Token>,
    /// Whether it may be reached from other hosts without a token.
    pub allows_strangers: bool,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
    /// The id before that of its first quorum; without one, the seconds since 1970, so that a
    /// lighthouse that is started anew does not make quorums of ids that there were.
    pub quorum_ids_after: Option<i64>,
}

impl Default for LighthouseOptions {
    /// For this host alone, on torchft's port.
    fn default() -> LighthouseOptions {
        LighthouseOptions {
            address: SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)),
            quorum: QuorumOptions::default(),
            quorum_tick: Duration::from_millis(100),
            token: None,
            allows_strangers: false,
            connections: ConnectionLimits::default(),
            quorum_ids_after: None,
        }
    }
}

/// Why a lighthouse does not start.
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

/// A lighthouse that runs on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Lighthouse {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// Ends a lighthouse, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Notify>);

impl Stop {
    /// It ends soon.
    pub fn stop(&self) {
        self.0.notify_one();
    }
}

impl Lighthouse {
    /// Starts it; when this returns, it listens.
    ///
    /// # Errors
    /// It would be open to other hosts, the address cannot be had, or an option cannot be.
    pub fn start(options: LighthouseOptions) -> Result<Lighthouse, StartError> {
        check(&options)?;
        let failed = |source| StartError::Listen { address: options.address, source };
        let listener = TcpListener::bind(options.address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(failed)?
        };
        let stop = Stop::default();
        let stopped = stop.clone();
        let (tick, limits) = (options.quorum_tick, options.connections);
        let state = Arc::new(State::new(options));
        let router = pages::router(state.clone());
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = stopped.0.notified() => {}
                    () = serve::serve(listener, router, Versions::Both, limits) => {}
                    () = state.tick_every(tick) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("lighthouse".to_owned()).spawn(run)?;
        tracing::info!("the lighthouse listens at {address}");
        Ok(Lighthouse { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What ends it while somebody waits for its end.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Waits until it ends: by its [`Stop`], or because it has failed.
    pub fn wait(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the thread itself.
            drop(thread.join());
        }
    }
}

impl Drop for Lighthouse {
    fn drop(&mut self) {
        self.stop.stop();
        self.join();
    }
}

fn check(options: &LighthouseOptions) -> Result<(), StartError> {
    let LighthouseOptions { address, quorum, quorum_tick, token, allows_strangers, .. } = options;
    let positive = [
        ("min_replicas", quorum.min_replicas == 0),
        ("max_replicas", quorum.max_replicas == 0),
        ("heartbeat_timeout", quorum.heartbeat_timeout.is_zero()),
        ("quorum_tick", quorum_tick.is_zero()),
        ("connections.all", options.connections.all == 0),
        ("connections.of_one_address", options.connections.of_one_address == 0),
        ("connections.first_request", options.connections.first_request.is_zero()),
    ];
    if let Some((name, _)) = positive.iter().find(|(_, is_zero)| *is_zero) {
        return Err(StartError::Option(format!("{name} must be more than 0")));
    }
    let (min, max) = (quorum.min_replicas, quorum.max_replicas);
    if min > max {
        let message = format!("min_replicas is {min}, more than the {max} replicas there may be");
        return Err(StartError::Option(message));
    }
    if !address.ip().to_canonical().is_loopback() && token.is_none() && !allows_strangers {
        return Err(StartError::Open { address: *address });
    }
    Ok(())
}
