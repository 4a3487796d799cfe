//! The manager of a replica group: asks the lighthouse for all its ranks, when all of them have
//! asked, and says whether all want to commit a step. The service of torchft's managers.
//!
//! Where torchft's own compares no steps, this one tells all ranks who is at which; and a call of
//! the lighthouse that fails is told to all, while torchft's leaves them waiting.

mod rank_connections;
mod round;
mod service;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};
use tonic::service::Routes;

use crate::access::Token;
use crate::client::{ClientOptions, LighthouseClient, QuorumError};
use crate::host::{authority, bare, is_loopback};
use crate::member;
use crate::proto::manager_service_server::ManagerServiceServer;
use crate::serve::{self, ConnectionLimits, Versions};
use crate::server_thread::{ServerThread, StartError};
use rank_connections::RankConnections;
use service::Service;

/// How long a heartbeat may take: less than the 5 s after which a lighthouse thinks that a replica
/// is dead, so that there is time for another by a new connection.
const HEARTBEAT_LIMIT: Duration = Duration::from_secs(2);

/// What is called when the replica is told to end, with the reason.
pub type OnKill = Arc<dyn Fn(&str) + Send + Sync>;

/// How a manager is started.
#[derive(Clone)]
pub struct ManagerOptions {
    /// Unique among the replicas of the job, also after a new start.
    pub replica_id: String,
    /// `http://host:port` of the lighthouse.
    pub lighthouse: String,
    /// Where it listens; port 0 is any that is free.
    pub bind: SocketAddr,
    /// The name or address under which others reach it.
    pub hostname: String,
    /// The store in which ranks may meet.
    pub store_address: String,
    /// Ranks of the replica group.
    pub world_size: usize,
    /// What the lighthouse shows of it, as JSON; may be empty.
    pub data: String,
    /// How often the lighthouse is told that the replica is alive.
    pub heartbeat_interval: Duration,
    /// How long a lighthouse that is not there is waited for.
    pub connect_timeout: Duration,
    /// What the lighthouse was started with, and what the ranks must know.
    pub token: Option<Token>,
    /// Whether it may be reached from other hosts without a token.
    pub allows_strangers: bool,
    /// What `Kill` does; usually it ends the process with 1.
    pub on_kill: OnKill,
}

impl fmt::Debug for ManagerOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ManagerOptions { replica_id, lighthouse, bind, world_size, .. } = self;
        let mut shown = formatter.debug_struct("ManagerOptions");
        shown.field("replica_id", replica_id).field("lighthouse", lighthouse);
        shown.field("bind", bind).field("world_size", world_size).finish_non_exhaustive()
    }
}

impl ManagerOptions {
    /// For a replica of one rank on this host, with what torchft's managers have otherwise.
    #[must_use]
    pub fn new(replica_id: &str, lighthouse: &str) -> ManagerOptions {
        ManagerOptions {
            replica_id: replica_id.to_owned(),
            lighthouse: lighthouse.to_owned(),
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            hostname: "127.0.0.1".to_owned(),
            store_address: String::new(),
            world_size: 1,
            data: String::new(),
            heartbeat_interval: Duration::from_millis(100),
            connect_timeout: Duration::from_secs(60),
            token: None,
            allows_strangers: false,
            on_kill: Arc::new(|_| std::process::exit(1)),
        }
    }
}

/// Why a manager does not start.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// It cannot listen, or an option cannot be.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The lighthouse is not there.
    #[error("the lighthouse: {0}")]
    Lighthouse(#[from] QuorumError),
}

/// A manager that runs on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct ManagerServer {
    address: String,
    silence: Arc<Notify>,
    ranks: Arc<RankConnections>,
    _thread: ServerThread,
}

impl ManagerServer {
    /// Starts it; when this returns, it listens, and has reached the lighthouse.
    ///
    /// # Errors
    /// It would be open to other hosts, cannot listen, or the lighthouse is not there.
    pub fn start(options: ManagerOptions) -> Result<ManagerServer, ManagerError> {
        check(&options)?;
        let hostname = options.hostname.clone();
        let (started, outcome) = std::sync::mpsc::channel();
        let silence = Arc::new(Notify::new());
        let ranks = Arc::new(RankConnections::default());
        let channels = Channels { started, silence: silence.clone(), ranks: ranks.clone() };
        let thread = ServerThread::start("manager", options.bind, move |listener, bound| {
            let address = format!("http://{}", authority(&options.hostname, bound.port()));
            run(options, listener, address, channels)
        })?;
        match outcome.recv() {
            Ok(outcome) => outcome?,
            Err(_) => {
                let why = "the manager's thread has panicked".to_owned();
                return Err(StartError::Option(why).into());
            }
        }
        let address = format!("http://{}", authority(&hostname, thread.address().port()));
        Ok(ManagerServer { address, silence, ranks, _thread: thread })
    }

    /// Tells the lighthouse no longer that the replica is alive: the others go on without it at
    /// once. Ranks of the replica are answered as before.
    pub fn fall_silent(&self) {
        self.silence.notify_one();
    }

    /// Whether ranks of the replica that have asked for a quorum are there, besides `own`.
    #[must_use]
    pub fn has_other_ranks(&self, own: i64) -> bool {
        self.ranks.has_others(own)
    }

    /// Where others reach it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

fn check(options: &ManagerOptions) -> Result<(), StartError> {
    member::check_id(&options.replica_id).map_err(StartError::Option)?;
    if options.world_size == 0 || options.heartbeat_interval.is_zero() {
        let message = "world_size and heartbeat_interval must be more than 0";
        return Err(StartError::Option(message.to_owned()));
    }
    if !options.data.is_empty() && serde_json::from_str::<IgnoredAny>(&options.data).is_err() {
        let message = format!("data must be JSON, got {:?}", options.data);
        return Err(StartError::Option(message));
    }
    let is_local = options.bind.ip().to_canonical().is_loopback();
    if !is_local && options.token.is_none() && !options.allows_strangers {
        return Err(StartError::Open { address: options.bind });
    }
    let hostname = bare(&options.hostname);
    if !is_local && is_loopback(hostname) {
        let message = format!(
            "the manager listens at {} for other hosts, which do not find it at {hostname}: \
             hostname must be the name or address of this host",
            options.bind
        );
        return Err(StartError::Option(message));
    }
    Ok(())
}

/// What the manager and its thread tell one another.
struct Channels {
    started: std::sync::mpsc::Sender<Result<(), QuorumError>>,
    silence: Arc<Notify>,
    ranks: Arc<RankConnections>,
}

async fn run(options: ManagerOptions, listener: TcpListener, address: String, channels: Channels) {
    let Channels { started, silence, ranks } = channels;
    let (lighthouse, beats) = match connections(&options).await {
        Ok(connections) => connections,
        Err(error) => return drop(started.send(Err(error))),
    };
    let (id, every) = (options.replica_id.clone(), options.heartbeat_interval);
    let service = Service::new(options, lighthouse.clone(), address, ranks);
    let service = ManagerServiceServer::new(service).max_decoding_message_size(member::MAX_REQUEST);
    let router = Routes::new(service).prepare().into_axum_router();
    // Nobody waits for it any longer if this fails.
    drop(started.send(Ok(())));
    // A page of a browser speaks HTTP/1 here, and could tell the replica to end.
    let serve = serve::serve(listener, router, Versions::Http2, ConnectionLimits::default());
    tokio::join!(serve, async {
        tokio::select! {
            () = heartbeats(beats, lighthouse, (id, every)) => {}
            () = silence.notified() => {}
        }
    });
}

/// One to ask the lighthouse for quorums, and one for heartbeats: with the end of that connection
/// the replica has ended for the lighthouse.
async fn connections(
    options: &ManagerOptions,
) -> Result<(LighthouseClient, LighthouseClient), QuorumError> {
    let connect = || {
        let (connect_timeout, token) = (options.connect_timeout, options.token.clone());
        LighthouseClient::connect(&options.lighthouse, ClientOptions { connect_timeout, token })
    };
    Ok((connect().await?, connect().await?))
}

/// Tells the lighthouse again and again that the replica is alive, after a failure by a new
/// connection; so is it asked for `quorums` then.
async fn heartbeats(
    lighthouse: LighthouseClient,
    quorums: LighthouseClient,
    (replica_id, every): (String, Duration),
) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_heard = true;
    loop {
        ticks.tick().await;
        let outcome = lighthouse.heartbeat(&replica_id, HEARTBEAT_LIMIT).await;
        match &outcome {
            Err(error) if was_heard => {
                quorums.renew();
                tracing::warn!("{replica_id}: the lighthouse: {error}");
            }
            Ok(()) if !was_heard => tracing::info!("{replica_id}: the lighthouse is back"),
            _ => {}
        }
        was_heard = outcome.is_ok();
    }
}
