//! From a URL to a store that all ranks share, and the ranks' meeting in it.
//! Knows nothing of process groups or transports.

mod agreement;
mod claim;
mod generation;
pub(crate) mod incarnation;
mod join;
#[cfg(feature = "tcp")]
pub(crate) mod kept_place;
#[cfg(feature = "tcp")]
mod late;
pub(crate) mod meeting_place;
mod missing;
mod presence;
mod present;
mod refusal;
mod shortage;
mod store_client;
#[cfg(all(test, feature = "tcp"))]
mod tests;
mod verdict;
mod websocket;

use std::sync::Arc;
use std::time::Duration;

use crate::blocking::{block_on, unblock};
#[cfg(feature = "tcp")]
use crate::env::Environment;
use crate::generated::error::{Error, Result};
use crate::process_mutex::ProcessMutex;
use crate::sorted::SortedMap;
use crate::store::PrefixStore;
use crate::store::Store;
use crate::store::url::Url;
#[cfg(feature = "tcp")]
use crate::store::{TcpStore, TcpStoreOptions};
pub(crate) use agreement::agree;
pub(crate) use claim::RankClaim;
pub(crate) use join::{
    GoneRanks, JoinObserver, PendingLook, absent, await_joined, end_join, fail_joined,
    find_store_free, has_come, join_observed, keys_of_group, leave_at_once,
};
pub use join::{join, join_async, leave, leave_async};
pub(crate) use missing::timed_out;
pub(crate) use refusal::refuse;
pub(crate) use shortage::{explained, is_shortage};
pub use store_client::create_store_client;
pub(crate) use store_client::{StoreAddress, StoreClient};
pub(crate) use websocket::open_web_socket_store;
pub use websocket::{OpeningStore, StoreOpener, install_store_opener};

/// Where ranks meet, and who this one is.
#[non_exhaustive]
pub struct Rendezvous {
    /// The store that all ranks share.
    pub store: Arc<dyn Store>,
    /// This rank.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// Whether the store ends with this process.
    pub hosting: bool,
    /// Whether the store ends with rank 0.
    pub ends_with_rank_0: bool,
    /// The run that this rank belongs to, if that has a name: ranks of another run are refused.
    pub run_id: Option<String>,
    /// The version of what the program says to the others, if it gave one: ranks of another one are
    /// refused.
    pub(crate) version: Option<String>,
    /// How often the launcher had started its ranks again when it started this one, if it says so:
    /// ranks of an earlier restart are refused.
    pub(crate) restart_count: Option<u32>,
    /// Whether the store is the launcher's, and so outlives the ranks.
    pub(crate) is_of_launcher: bool,
}

impl Rendezvous {
    /// A rendezvous in a store that the caller has.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if `rank` is not below `world_size`.
    pub fn new(store: Arc<dyn Store>, rank: u32, world_size: u32) -> Result<Self> {
        check_rank(rank, world_size)?;
        Ok(Self {
            store,
            rank,
            world_size,
            hosting: false,
            ends_with_rank_0: false,
            run_id: None,
            version: None,
            restart_count: None,
            is_of_launcher: false,
        })
    }

    /// With the run and the restart that the environment names, as far as they are not known.
    pub(crate) fn with_environment(mut self) -> Self {
        self.run_id = self.run_id.take().or_else(crate::env::run_id);
        self.restart_count = self.restart_count.or_else(crate::env::restart_count);
        self
    }

    /// With keys of its own for ranks that the launcher has started again, where the store is the
    /// launcher's.
    fn of_restart(mut self) -> Self {
        if let Some(restart) = self.restart_count.filter(|_| self.is_of_launcher) {
            let prefix = format!("polyrank/attempt_{restart}");
            self.store = Arc::new(PrefixStore::new(prefix, self.store));
        }
        self
    }
}

impl std::fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rendezvous")
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .field("hosting", &self.hosting)
            .finish_non_exhaustive()
    }
}

/// What a caller of [`rendezvous`] said.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RendezvousRequest<'a> {
    /// The URL.
    pub url: &'a str,
    /// The rank, if it was given beside the URL.
    pub rank: Option<u32>,
    /// The number of ranks, if it was given beside the URL.
    pub world_size: Option<u32>,
    /// Limit of everything that waits; zero is none.
    pub timeout: Duration,
}

/// What runs the URLs of one scheme.
pub type RendezvousHandler = Arc<dyn Fn(RendezvousRequest<'_>) -> Result<Rendezvous> + Send + Sync>;

/// The schemes that are built in.
const BUILT_IN: [&str; 5] = ["env", "tcp", "file", "ws", "wss"];

/// The schemes that are not built in.
static HANDLERS: ProcessMutex<SortedMap<String, RendezvousHandler>> =
    ProcessMutex::new(SortedMap::new());

/// Finds the store that `url` names.
///
/// * `env://`: `MASTER_ADDR`, `MASTER_PORT`, `RANK`, `WORLD_SIZE` of the environment, unless the
///   query or the arguments say otherwise. Rank 0 hosts the store.
/// * `tcp://host:port?rank=0&world_size=2`: rank 0 hosts the store.
/// * `file:///path?rank=0&world_size=2`: a file that all ranks reach. One that an earlier run left
///   behind is started anew if all its processes are gone, and is an error otherwise.
/// * `ws://host:port?rank=0&world_size=2`, `wss://…`: a store server that browsers reach too.
///   A native rank 0 hosts it if the URL is `ws://`, names its own host, and no server is there
///   yet. `&room=name` keeps the keys of several groups in one server apart;
///   `&reconnect_grace_ms=60000` is how long the others wait for a rank that lost its WebSocket.
/// * what [`register_rendezvous_handler`] has added.
///
/// `run_id=` in the query of any of them names the run that the rank belongs to; the default is
/// `POLYRANK_RUN_ID`, `TORCHELASTIC_RUN_ID` or Slurm's job and step, the first that is set. Ranks
/// of two runs do not form a group; one that knows no name belongs to any.
///
/// A browser reaches the store through `ws://` and `wss://` only.
///
/// The ranks have not met yet: [`join`] does that.
///
/// # Errors
/// [`Error::Rendezvous`] if the URL or a variable is missing or wrong, or the file is another
/// run's; [`Error::Network`] if the store cannot be hosted or reached within `timeout`.
pub fn rendezvous(
    url: &str,
    rank: Option<u32>,
    world_size: Option<u32>,
    timeout: Duration,
) -> Result<Rendezvous> {
    block_on(rendezvous_async(url, rank, world_size, timeout))
}

/// As [`rendezvous`], without blocking: what blocks, handlers too, runs on another thread.
///
/// # Errors
/// As [`rendezvous`].
pub async fn rendezvous_async(
    url: &str,
    rank: Option<u32>,
    world_size: Option<u32>,
    timeout: Duration,
) -> Result<Rendezvous> {
    Ok(find_store(url, rank, world_size, timeout).await?.of_restart())
}

/// As [`rendezvous_async`], where ranks tell restarts of the launcher apart by themselves: all of
/// them meet in one part of the store.
pub(crate) async fn find_store(
    url: &str,
    rank: Option<u32>,
    world_size: Option<u32>,
    timeout: Duration,
) -> Result<Rendezvous> {
    let parsed = parse(url)?;
    let mut met = if matches!(parsed.scheme, "ws" | "wss") {
        let request = RendezvousRequest { url, rank, world_size, timeout };
        websocket::meet(&parsed, request).await?
    } else {
        let url = url.to_owned();
        unblock(move || find(RendezvousRequest { url: &url, rank, world_size, timeout })).await?
    };
    if met.run_id.is_none() {
        met.run_id = parsed.decoded_parameter("run_id").filter(|id| !id.is_empty());
    }
    Ok(met.with_environment())
}

fn parse(url: &str) -> Result<Url<'_>> {
    Url::parse(url).ok_or_else(|| failed(format!("No rendezvous handler for {url}")))
}

/// The rendezvous at a URL of any scheme but those of WebSockets. Blocks.
fn find(request: RendezvousRequest<'_>) -> Result<Rendezvous> {
    let parsed = parse(request.url)?;
    match parsed.scheme {
        #[cfg(feature = "tcp")]
        "env" => from_environment(&parsed, request, &Environment::read()?),
        #[cfg(feature = "tcp")]
        "tcp" => from_tcp(&parsed, request, &Environment::read()?),
        #[cfg(not(target_family = "wasm"))]
        "file" => from_file(&parsed, request),
        #[cfg(target_family = "wasm")]
        scheme @ ("env" | "tcp" | "file") => Err(Error::Unsupported {
            who: "a browser".into(),
            operation: format!("{scheme}:// rendezvous; use ws:// or wss://, or give a store"),
        }),
        scheme => {
            let handlers = HANDLERS.lock();
            let handler = handlers.get(scheme).cloned();
            // The handler may register others.
            drop(handlers);
            let handler =
                handler.ok_or_else(|| failed(format!("No rendezvous handler for {scheme}://")))?;
            let met = handler(request)?;
            check_rank(met.rank, met.world_size)?;
            Ok(met)
        }
    }
}

/// Makes [`rendezvous`] give URLs that begin with `scheme` and "://" to `handler`.
///
/// # Errors
/// [`Error::Rendezvous`] if the scheme has a handler.
pub fn register_rendezvous_handler(scheme: &str, handler: RendezvousHandler) -> Result<()> {
    let mut handlers = HANDLERS.lock();
    if BUILT_IN.contains(&scheme) || handlers.contains_key(scheme) {
        return Err(failed(format!("Rendezvous handler for {scheme}:// already registered")));
    }
    handlers.insert(scheme.to_owned(), handler);
    Ok(())
}

/// Rank and world size: from the query or from the arguments, not from both.
fn who(url: &Url<'_>, request: RendezvousRequest<'_>) -> Result<(Option<u32>, Option<u32>)> {
    let in_url = (url.parameter("rank"), url.parameter("world_size"));
    let given = request.rank.is_some() || request.world_size.is_some();
    if given && (in_url.0.is_some() || in_url.1.is_some()) {
        let url = request.url;
        return Err(Error::InvalidArgument {
            message: format!(
                "The url: {url} has node-specific arguments(rank, world_size) already."
            ),
        });
    }
    let number = |name: &str, text: Option<&str>| match text.map(str::parse::<u32>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        // c10d's spelling of "not known".
        Some(Err(_)) if text == Some("-1") => Ok(None),
        Some(Err(_)) => Err(rejected(
            url.scheme,
            &format!("{name} '{}' is not a number", text.unwrap_or_default()),
        )),
    };
    let rank = number("rank", in_url.0)?.or(request.rank);
    let world_size = number("world size", in_url.1)?.or(request.world_size);
    Ok((rank, world_size))
}

#[cfg(feature = "tcp")]
fn from_environment(
    url: &Url<'_>,
    request: RendezvousRequest<'_>,
    environment: &Environment,
) -> Result<Rendezvous> {
    let advice = match environment.has_mpi_launcher {
        true => {
            ". An MPI launcher started this process: the backend \"mpi\" learns from it where the \
             ranks meet; for another one, set MASTER_ADDR to the host of rank 0"
        }
        false => "",
    };
    let missing = |name: &str| {
        let what = format!("environment variable {name} expected, but not set{advice}");
        rejected("env", &what)
    };
    let (rank, world_size) = who(url, request)?;
    let rank = rank.or(environment.rank).ok_or_else(|| missing("RANK"))?;
    let world_size = world_size.or(environment.world_size).ok_or_else(|| missing("WORLD_SIZE"))?;
    let host = environment.master_addr.as_deref().ok_or_else(|| missing("MASTER_ADDR"))?;
    let port = environment.master_port.ok_or_else(|| missing("MASTER_PORT"))?;
    meet_at((host, port), (rank, world_size), request.timeout, environment)
}

#[cfg(feature = "tcp")]
fn from_tcp(
    url: &Url<'_>,
    request: RendezvousRequest<'_>,
    environment: &Environment,
) -> Result<Rendezvous> {
    let (host, port) = url.host_and_port();
    let port = port.ok_or_else(|| rejected("tcp", "port number missing"))?;
    let port = port
        .parse()
        .map_err(|_| rejected("tcp", &format!("port '{port}' is not a number up to 65535")))?;
    if host.is_empty() {
        return Err(rejected("tcp", "host missing"));
    }
    let (rank, world_size) = who(url, request)?;
    let rank = rank.ok_or_else(|| rejected("tcp", "rank parameter missing"))?;
    let world_size = world_size.ok_or_else(|| rejected("tcp", "world size parameter missing"))?;
    meet_at((host, port), (rank, world_size), request.timeout, environment)
}

/// The store at `host` and `port`: the launcher's if it hosts one there, else rank 0's.
#[cfg(feature = "tcp")]
fn meet_at(
    (host, port): (&str, u16),
    (rank, world_size): (u32, u32),
    timeout: Duration,
    environment: &Environment,
) -> Result<Rendezvous> {
    check_rank(rank, world_size)?;
    let launchers = environment.use_agent_store
        && environment.master_addr.as_deref() == Some(host)
        && environment.master_port == Some(port);
    let hosting = rank == 0 && !launchers;
    // Every rank is counted as PyTorch's are, in case one of them hosts and waits for that. Ours
    // does not wait: `join` does, and says who is missing.
    let options = TcpStoreOptions::new(host, port)
        .world_size(world_size)
        .is_master(hosting)
        .multi_tenant(true)
        .timeout(timeout);
    let advise = |error| match explained(error) {
        Error::Network { message } if hosting => Error::Network {
            message: format!("rank 0 of {world_size} cannot host the store: {message}"),
        },
        error if launchers || is_shortage(&error) => error,
        Error::Network { message } => Error::Network {
            message: format!("found no store of rank 0 of {world_size} to join: {message}"),
        },
        error => error,
    };
    let store = Arc::new(TcpStore::without_waiting(options).map_err(advise)?);
    let mut met = Rendezvous::new(store, rank, world_size)?;
    (met.hosting, met.ends_with_rank_0, met.is_of_launcher) = (hosting, !launchers, launchers);
    met.restart_count = environment.restart_count;
    Ok(met)
}

#[cfg(not(target_family = "wasm"))]
fn from_file(url: &Url<'_>, request: RendezvousRequest<'_>) -> Result<Rendezvous> {
    if url.path.trim_start_matches('/').is_empty() {
        return Err(rejected("file", "path missing"));
    }
    let (rank, world_size) = who(url, request)?;
    let rank = rank.ok_or_else(|| rejected("file", "rank parameter missing"))?;
    let world_size = world_size.ok_or_else(|| rejected("file", "world size parameter missing"))?;
    check_rank(rank, world_size)?;
    // `file:///d:/…` names a drive, and `file://////machine/share/…` a share.
    let path = if cfg!(windows) {
        let rest = &url.path[1..];
        if rest.as_bytes().get(1) == Some(&b':') { rest } else { rest.trim_start_matches('/') }
    } else {
        url.path
    };
    let store = crate::store::membership::join(path.as_ref(), rank, world_size, request.timeout)?;
    Rendezvous::new(Arc::new(store), rank, world_size)
}

/// Most ranks of a group: each publishes a card that all others read.
const MAX_WORLD_SIZE: u32 = 1 << 20;

fn check_rank(rank: u32, world_size: u32) -> Result<()> {
    if world_size == 0 {
        return Err(failed("world size 0 is not a number of ranks; expected 1 or more".into()));
    }
    if world_size > MAX_WORLD_SIZE {
        return Err(failed(format!(
            "world size {world_size} is more than {MAX_WORLD_SIZE}, the most that is supported"
        )));
    }
    if rank < world_size {
        return Ok(());
    }
    Err(failed(format!("rank {rank} is out of range for world size {world_size}")))
}

fn rejected(scheme: &str, why: &str) -> Error {
    failed(format!("Error initializing polyrank using {scheme}:// rendezvous: {why}"))
}

fn failed(message: String) -> Error {
    Error::Rendezvous { message }
}
