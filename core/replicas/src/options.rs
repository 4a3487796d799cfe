//! How a manager is started: what the program says, and what the environment does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polyrank::ProcessGroup;
use polyrank::env::variable::{self, Variable};
use polyrank_quorum::Token;
use polyrank_quorum::host::authority;
use polyrank_quorum::manager::OnKill;

use crate::error::ManagerError;
use crate::transport::StateTransport;

/// How many replicas participate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorldSizeMode {
    /// All that are there; averages are those of as many.
    #[default]
    Dynamic,
    /// `min_replica_size` of them; the others are spares, which contribute nothing, and take the
    /// place of one that fails.
    FixedWithSpares,
}

/// How a [`Manager`](crate::Manager) is started. `TORCHFT_*_SEC` of the environment go before what
/// is said here of timeouts.
#[derive(Clone)]
#[non_exhaustive]
pub struct ManagerOptions {
    /// `http://host:port` of the lighthouse; by default what `TORCHFT_LIGHTHOUSE` says. Only rank 0
    /// of a replica group needs it. One of torchft that is started anew counts its quorums from 0
    /// again: a step is lost for each number that a replica has had before.
    pub lighthouse: Option<String>,
    /// `host:port` of the store of the replica group, a `TCPStore`, which somebody serves; by
    /// default rank 0 does at `MASTER_ADDR` and `MASTER_PORT`, unless
    /// `TORCHELASTIC_USE_AGENT_STORE` says that the launcher does. A replica of one rank that is
    /// given none serves a store of its own.
    pub store_address: Option<String>,
    /// What the replica is called; a part that no other start has is appended.
    pub replica_id: String,
    /// The rank in the replica group; by default `RANK`, or 0.
    pub group_rank: Option<u32>,
    /// The number of ranks of the replica group; by default `WORLD_SIZE`, or 1.
    pub group_world_size: Option<u32>,
    /// Fewer replicas commit nothing.
    pub min_replica_size: u32,
    /// Limit of an operation, and of making the group; 60 s.
    pub timeout: Duration,
    /// Limit of a state's way to a replica that is behind; `timeout` by default. Replicas that
    /// neither give nor take one, if there are more than eight that are not behind, wait for the
    /// others in their operations meanwhile, for `timeout`.
    pub state_timeout: Option<Duration>,
    /// How long a quorum is waited for; 60 s.
    pub quorum_timeout: Duration,
    /// How long the lighthouse, the manager and the store are waited for; 60 s.
    pub connect_timeout: Duration,
    /// Whether the quorum comes while the program computes. If not, `start_quorum` waits for it,
    /// and who takes a state participates in the same step.
    pub use_async_quorum: bool,
    /// How many replicas participate.
    pub world_size_mode: WorldSizeMode,
    /// Whether all replicas begin with the state of one. If not, they must be alike by themselves.
    pub init_sync: bool,
    /// So many steps in a row may be lost; one more, and `should_commit` fails. None: any number.
    pub max_retries: Option<u32>,
    /// How often a quorum that failed is asked for again, before it is an error.
    pub quorum_retries: u32,
    /// The name or address under which others reach this host. `127.0.0.1`, the default, is right
    /// only if all replicas are on one host; `POLYRANK_MANAGER_HOST`, which `polyrank run` sets for
    /// replicas on several, goes before it.
    pub hostname: String,
    /// The port of the manager; by default what `TORCHFT_MANAGER_PORT` says, or any that is free.
    pub port: Option<u16>,
    /// How often the lighthouse is told that the replica is alive; 100 ms.
    pub heartbeat_interval: Duration,
    /// What the lighthouse was started with; by default what `POLYRANK_TOKEN` says. It travels in
    /// plain text: to the lighthouse, to the manager that the store of the replica group names,
    /// and, if a transport needs metadata, to the managers of the quorum.
    pub token: Option<Token>,
    /// What the lighthouse shows of the replica, as JSON; may be empty.
    pub data: String,
    /// The group whose members are replaced; by default one of its own over TCP and shared memory.
    pub group: Option<ProcessGroup>,
    /// How states travel; by default over the group.
    pub transport: Option<Arc<dyn StateTransport>>,
    /// What happens if the lighthouse's page ends this replica; by default the process ends with 1.
    pub on_kill: OnKill,
    /// Whether `store_address` is what the environment says.
    pub(crate) has_store_of_environment: bool,
}

impl fmt::Debug for ManagerOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ManagerOptions { lighthouse, store_address, replica_id, group_rank, .. } = self;
        let mut shown = formatter.debug_struct("ManagerOptions");
        shown.field("lighthouse", lighthouse).field("store_address", store_address);
        shown.field("replica_id", replica_id).field("group_rank", group_rank);
        shown.field("min_replica_size", &self.min_replica_size).finish_non_exhaustive()
    }
}

/// What is right for replicas of one host.
const USUAL_HOSTNAME: &str = "127.0.0.1";

macro_rules! setters {
    ($($name:ident: $type:ty => $value:expr,)+) => {$(
        #[doc = concat!("Sets [`ManagerOptions::", stringify!($name), "`].")]
        #[must_use]
        pub fn $name(mut self, $name: $type) -> ManagerOptions {
            self.$name = $value;
            self
        }
    )+};
}

impl ManagerOptions {
    /// Steps are committed with at least `min_replica_size` replicas; the rest as torchft has it.
    #[must_use]
    pub fn new(min_replica_size: u32) -> ManagerOptions {
        let minute = Duration::from_secs(60);
        ManagerOptions {
            lighthouse: None,
            store_address: None,
            replica_id: String::new(),
            group_rank: None,
            group_world_size: None,
            min_replica_size,
            timeout: minute,
            state_timeout: None,
            quorum_timeout: minute,
            connect_timeout: minute,
            use_async_quorum: true,
            world_size_mode: WorldSizeMode::Dynamic,
            init_sync: true,
            max_retries: None,
            quorum_retries: 0,
            hostname: USUAL_HOSTNAME.to_owned(),
            port: None,
            heartbeat_interval: Duration::from_millis(100),
            token: None,
            data: String::new(),
            group: None,
            transport: None,
            on_kill: Arc::new(|_| std::process::exit(1)),
            has_store_of_environment: false,
        }
    }

    setters! {
        lighthouse: impl Into<String> => Some(lighthouse.into()),
        store_address: impl Into<String> => Some(store_address.into()),
        replica_id: impl Into<String> => replica_id.into(),
        group_rank: u32 => Some(group_rank),
        group_world_size: u32 => Some(group_world_size),
        min_replica_size: u32 => min_replica_size,
        timeout: Duration => timeout,
        state_timeout: Duration => Some(state_timeout),
        quorum_timeout: Duration => quorum_timeout,
        connect_timeout: Duration => connect_timeout,
        use_async_quorum: bool => use_async_quorum,
        world_size_mode: WorldSizeMode => world_size_mode,
        init_sync: bool => init_sync,
        max_retries: u32 => Some(max_retries),
        quorum_retries: u32 => quorum_retries,
        hostname: impl Into<String> => hostname.into(),
        port: u16 => Some(port),
        heartbeat_interval: Duration => heartbeat_interval,
        token: Token => Some(token),
        data: impl Into<String> => data.into(),
        group: ProcessGroup => Some(group),
        transport: Arc<dyn StateTransport> => Some(transport),
        on_kill: OnKill => on_kill,
    }

    /// What holds, with what the environment says.
    ///
    /// # Errors
    /// Something cannot be.
    pub(crate) fn resolve(mut self) -> Result<ManagerOptions, ManagerError> {
        self.timeout = seconds(variable::TORCHFT_TIMEOUT_SEC, self.timeout)?;
        self.quorum_timeout = seconds(variable::TORCHFT_QUORUM_TIMEOUT_SEC, self.quorum_timeout)?;
        self.connect_timeout =
            seconds(variable::TORCHFT_CONNECT_TIMEOUT_SEC, self.connect_timeout)?;
        if let Some(retries) = number(variable::TORCHFT_QUORUM_RETRIES)? {
            self.quorum_retries = retries;
        }
        self.lighthouse = self.lighthouse.or_else(|| variable::TORCHFT_LIGHTHOUSE.text());
        if let (USUAL_HOSTNAME, Some(host)) =
            (self.hostname.as_str(), variable::POLYRANK_MANAGER_HOST.text())
        {
            self.hostname = host;
        }
        if self.port.is_none() {
            self.port = number(variable::TORCHFT_MANAGER_PORT)?;
        }
        self.group_rank = Some(either(self.group_rank, variable::RANK)?.unwrap_or(0));
        self.group_world_size =
            Some(either(self.group_world_size, variable::WORLD_SIZE)?.unwrap_or(1));
        // A rank alone meets nobody: what the environment names may be the store of a whole job.
        if self.store_address.is_none() && self.world_size() > 1 {
            let address = variable::MASTER_ADDR.text().zip(variable::MASTER_PORT.text());
            self.has_store_of_environment = address.is_some();
            self.store_address = address.map(|(host, port)| authority(&host, port));
        }
        if let (None, Some(text)) = (&self.token, variable::POLYRANK_TOKEN.text()) {
            let token = Token::new(&text);
            let name = variable::POLYRANK_TOKEN;
            let token = token.map_err(|why| ManagerError::Option(format!("{name}: {why}")))?;
            self.token = Some(token);
        }
        for limit in [&mut self.timeout, &mut self.quorum_timeout, &mut self.connect_timeout] {
            *limit = bounded(*limit);
        }
        self.state_timeout = self.state_timeout.map(bounded);
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), ManagerError> {
        let (rank, size) = (self.rank(), self.world_size());
        let message = if rank >= size {
            format!("group_rank is {rank}: a replica group of {size} has the ranks below that")
        } else if self.min_replica_size == 0 {
            "min_replica_size must be more than 0".to_owned()
        } else if self.timeout.is_zero()
            || self.quorum_timeout.is_zero()
            || self.state_timeout.is_some_and(|limit| limit.is_zero())
        {
            "timeout, quorum_timeout and state_timeout must be more than 0".to_owned()
        } else if size > 1 && self.store_address.is_none() {
            format!(
                "a replica group of {size} ranks needs a store in which they meet: store_address, \
                 or MASTER_ADDR and MASTER_PORT"
            )
        } else if rank == 0 && self.lighthouse.is_none() {
            "where is the lighthouse? Say it by lighthouse, or TORCHFT_LIGHTHOUSE; \
             `polyrank lighthouse` starts one"
                .to_owned()
        } else {
            return Ok(());
        };
        Err(ManagerError::Option(message))
    }

    /// How long a rank may need from `start_quorum` to its vote, besides what it computes: it may
    /// be alone in noticing late that a replica is gone.
    pub(crate) fn step_limit(&self) -> Duration {
        let quorums = self.quorum_timeout.saturating_mul(self.quorum_retries.saturating_add(1));
        let others = self.timeout.saturating_mul(2).saturating_add(self.state_limit());
        bounded(quorums.saturating_add(others))
    }

    /// How long a state may be under way.
    pub(crate) fn state_limit(&self) -> Duration {
        self.state_timeout.unwrap_or(self.timeout)
    }

    /// The rank in the replica group, once it is known.
    pub(crate) fn rank(&self) -> u32 {
        self.group_rank.unwrap_or(0)
    }

    /// The number of ranks of the replica group, once it is known.
    pub(crate) fn world_size(&self) -> u32 {
        self.group_world_size.unwrap_or(1)
    }
}

/// As long as a call may be said to last; more is a year.
pub(crate) fn bounded(limit: Duration) -> Duration {
    limit.min(Duration::from_secs(365 * 24 * 3600))
}

fn either(given: Option<u32>, variable: Variable) -> Result<Option<u32>, ManagerError> {
    if given.is_some() { Ok(given) } else { number(variable) }
}

fn number<T: std::str::FromStr>(variable: Variable) -> Result<Option<T>, ManagerError> {
    let Some(text) = variable.text() else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| {
        ManagerError::Option(format!("{variable} is {text:?}; a number in its range is expected"))
    })
}

fn seconds(variable: Variable, otherwise: Duration) -> Result<Duration, ManagerError> {
    let Some(seconds) = number::<f64>(variable)? else { return Ok(otherwise) };
    Duration::try_from_secs_f64(seconds)
        .map_err(|why| ManagerError::Option(format!("{variable} is {seconds}: {why}")))
}
