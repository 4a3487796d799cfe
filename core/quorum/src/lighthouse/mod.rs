//! The lighthouse: replicas ask it for a quorum, and people what it sees. gRPC and HTTP on one
//! port.

mod connections;
mod metrics;
mod pages;
mod place;
mod service;
mod state;
mod status;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use place::listening_address;

use crate::access::Token;
use crate::host::{authority, reachable};
use crate::rules::QuorumOptions;
use crate::serve::{self, ConnectionLimits, Versions};
use crate::server_thread::{ServerThread, StartError, Stop};
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

/// A lighthouse that runs on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Lighthouse(ServerThread);

impl Lighthouse {
    /// Starts it; when this returns, it listens.
    ///
    /// # Errors
    /// It would be open to other hosts, the address cannot be had, or an option cannot be.
    pub fn start(options: LighthouseOptions) -> Result<Lighthouse, StartError> {
        check(&options)?;
        let thread = ServerThread::start("lighthouse", options.address, |listener, address| {
            let (tick, limits) = (options.quorum_tick, options.connections);
            let state = Arc::new(State::new(options));
            let router = pages::router(state.clone());
            tracing::info!("the lighthouse listens at {address}");
            async move {
                tokio::select! {
                    () = serve::serve(listener, router, Versions::Both, limits) => {}
                    () = state.tick_every(tick) => {}
                }
            }
        })?;
        Ok(Lighthouse(thread))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// `http://host:port`, for replicas and for people. Where it listens at all addresses, the host
    /// is the one that leads to the network.
    #[must_use]
    pub fn url(&self) -> String {
        let address = self.address();
        let host = reachable(&address.ip().to_string());
        format!("http://{}", authority(&host, address.port()))
    }

    /// What ends it while somebody waits for its end.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        self.0.stopper()
    }

    /// Waits until it ends: by its [`Stop`], or because it has failed.
    pub fn wait(mut self) {
        self.0.join();
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
