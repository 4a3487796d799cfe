//! The IDL's `Manager` and `LighthouseServer`, for languages that call them. Knows no language.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polyrank::calls::replicas::{
    LighthouseServer, LighthouseServerOptions, ReplicaFactories, ReplicaManager,
    ReplicaManagerOptions, ReplicaState, set_replica_factories,
};
use polyrank::env::variable;
use polyrank::{Error, ProcessGroup, ReduceOp, Result, Tensor, Work};

use crate::error::ManagerError;
use crate::manager::{Manager, StartQuorum};
use crate::options::{ManagerOptions, WorldSizeMode};
use crate::shared::ManagerState;
use crate::state::StateError;
use polyrank_quorum::lighthouse::listening_address;
use polyrank_quorum::{Lighthouse, LighthouseOptions, QuorumOptions, StartError, Token};

/// Has the bindings' `Manager` and `LighthouseServer` be those of this crate.
pub fn install() {
    set_replica_factories(ReplicaFactories {
        manager: |options| {
            let options = options_of(options).map_err(Error::from)?;
            Ok(Arc::new(Manager::new(options).map_err(Error::from)?))
        },
        lighthouse: |options| Ok(Arc::new(ServedLighthouse::start(options)?)),
    });
}

/// A lighthouse, until it is ended.
struct ServedLighthouse {
    url: String,
    lighthouse: Mutex<Option<Lighthouse>>,
}

impl ServedLighthouse {
    fn start(given: LighthouseServerOptions) -> Result<ServedLighthouse> {
        let invalid = |message| Error::InvalidArgument { message };
        let token = given.token.or_else(|| variable::POLYRANK_TOKEN.text());
        let token = token.map(|text| Token::new(&text)).transpose();
        let options = LighthouseOptions {
            address: listening_address(&given.bind, None)
                .map_err(|why| invalid(format!("'bind' {why}")))?,
            quorum: QuorumOptions {
                min_replicas: given.min_replicas as usize,
                join_timeout: given.join_timeout,
                heartbeat_timeout: given.heartbeat_timeout,
                ..QuorumOptions::default()
            },
            quorum_tick: given.quorum_tick,
            token: token.map_err(|why| invalid(format!("'token': {why}")))?,
            allows_strangers: variable::POLYRANK_INSECURE.text().is_some_and(|text| text == "1"),
            ..LighthouseOptions::default()
        };
        let lighthouse = Lighthouse::start(options).map_err(|error| match error {
            StartError::Open { .. } | StartError::Option(_) => invalid(error.to_string()),
            error => Error::Network { message: error.to_string() },
        })?;
        Ok(ServedLighthouse { url: lighthouse.url(), lighthouse: Mutex::new(Some(lighthouse)) })
    }
}

impl fmt::Debug for ServedLighthouse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LighthouseServer({})", self.url)
    }
}

impl LighthouseServer for ServedLighthouse {
    fn address(&self) -> String {
        self.url.clone()
    }

    fn shutdown(&self) {
        drop(self.lighthouse.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn options_of(given: ReplicaManagerOptions) -> std::result::Result<ManagerOptions, ManagerError> {
    let token = given.token.map(|text| Token::new(&text)).transpose();
    let token = token.map_err(|why| ManagerError::Option(format!("token: {why}")))?;
    Ok(ManagerOptions {
        lighthouse: given.lighthouse_addr,
        store_address: given.store_addr,
        replica_id: given.replica_id,
        group_rank: given.rank,
        group_world_size: given.world_size,
        timeout: given.timeout,
        quorum_timeout: given.quorum_timeout,
        connect_timeout: given.connect_timeout,
        use_async_quorum: given.use_async_quorum,
        world_size_mode: match given.has_spares {
            true => WorldSizeMode::FixedWithSpares,
            false => WorldSizeMode::Dynamic,
        },
        init_sync: given.init_sync,
        max_retries: given.max_retries,
        quorum_retries: given.quorum_retries,
        hostname: given.hostname,
        port: given.port,
        heartbeat_interval: given.heartbeat_interval,
        token,
        data: given.data,
        group: given.group,
        ..ManagerOptions::new(given.min_replica_size)
    })
}

impl ReplicaManager for Manager {
    fn register_state(&self, key: &str, functions: Arc<dyn ReplicaState>) -> Result<()> {
        let (saving, loading) = (functions.clone(), functions);
        let save = move || saving.save().map_err(StateError::new);
        let load = move |bytes: &[u8]| loading.load(bytes).map_err(StateError::new);
        Ok(Manager::register_state(self, key, save, load)?)
    }

    fn start_quorum(
        &self,
        allow_heal: bool,
        shrink_only: bool,
        timeout: Option<Duration>,
    ) -> Result<()> {
        Ok(Manager::start_quorum(self, StartQuorum { allow_heal, shrink_only, timeout })?)
    }

    fn wait_quorum(&self) -> Result<()> {
        Ok(Manager::wait_quorum(self)?)
    }

    fn allreduce(&self, tensors: Vec<Tensor>, op: ReduceOp, is_coalesced: bool) -> Result<Work> {
        Ok(self.shared.allreduce_work(tensors, op, is_coalesced)?)
    }

    fn should_commit(&self, timeout: Option<Duration>) -> Result<bool> {
        Ok(Manager::should_commit(self, timeout)?)
    }

    fn report_error(&self, error: String) {
        Manager::report_error(self, error);
    }

    fn errored(&self) -> Option<String> {
        Manager::errored(self).map(|error| error.to_string())
    }

    fn num_participants(&self) -> u32 {
        Manager::num_participants(self)
    }

    fn participating_rank(&self) -> Option<u32> {
        Manager::participating_rank(self)
    }

    fn is_participating(&self) -> bool {
        Manager::is_participating(self)
    }

    fn progress(&self) -> (i64, i64) {
        let ManagerState { step, batches_committed } = self.state();
        (step, batches_committed)
    }

    fn set_progress(&self, step: i64, batches_committed: i64) {
        self.load_state(ManagerState { step, batches_committed });
    }

    fn replica_id(&self) -> String {
        Manager::replica_id(self).to_owned()
    }

    fn replicas(&self) -> Vec<String> {
        Manager::replicas(self)
    }

    fn managed_group(&self) -> ProcessGroup {
        Manager::managed_group(self)
    }

    fn group(&self) -> &ProcessGroup {
        Manager::group(self)
    }

    fn shutdown(&self) -> Result<()> {
        // There is no other quorum that a loop could ask for.
        let failed = |error: ManagerError| Error::ManagerFailed { message: error.to_string() };
        Manager::shutdown(self).map_err(failed)
    }
}

/// As the IDL has them: what a loop may repeat, what it cannot, and what is wrong with a call.
impl From<ManagerError> for Error {
    fn from(error: ManagerError) -> Error {
        let message = error.to_string();
        match error {
            ManagerError::Call(cause) => *cause,
            ManagerError::Start { cause, .. }
                if matches!(
                    *cause,
                    polyrank_quorum::ManagerError::Start(StartError::Option(_))
                ) =>
            {
                Error::InvalidArgument { message }
            }
            ManagerError::Option(_)
            | ManagerError::Order(_)
            | ManagerError::AverageOfIntegers { .. } => Error::InvalidArgument { message },
            error if error.is_retryable() => Error::Quorum { message },
            _ => Error::ManagerFailed { message },
        }
    }
}
