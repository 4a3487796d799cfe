//! The IDL's `Manager` and `LighthouseServer`, for the crate that has them: it lies above this one.
//! Knows no protocol.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::resolve::unsupported;
use crate::clock;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::process_group::{ProcessGroup, next_identity};
use crate::tensor::Tensor;
use crate::work::Work;

/// What the constructor of the IDL's `Manager` takes, by the names that it has there.
#[derive(Debug)]
#[allow(missing_docs, reason = "the IDL says what they are")]
pub struct ReplicaManagerOptions {
    pub min_replica_size: u32,
    pub lighthouse_addr: Option<String>,
    pub replica_id: String,
    pub rank: Option<u32>,
    pub world_size: Option<u32>,
    pub store_addr: Option<String>,
    pub timeout: Duration,
    pub quorum_timeout: Duration,
    pub connect_timeout: Duration,
    pub use_async_quorum: bool,
    pub has_spares: bool,
    pub init_sync: bool,
    pub max_retries: Option<u32>,
    pub quorum_retries: u32,
    pub hostname: String,
    pub port: Option<u16>,
    pub heartbeat_interval: Duration,
    pub token: Option<String>,
    pub data: String,
    pub group: Option<ProcessGroup>,
}

/// What the IDL's `Manager` does; see there.
#[allow(missing_docs, reason = "the IDL says what they do")]
#[allow(clippy::missing_errors_doc, reason = "the IDL says what they raise")]
pub trait ReplicaManager: fmt::Debug + Send + Sync {
    fn register_state(&self, key: &str, functions: Arc<dyn ReplicaState>) -> Result<()>;
    fn start_quorum(
        &self,
        allow_heal: bool,
        shrink_only: bool,
        timeout: Option<Duration>,
    ) -> Result<()>;
    fn wait_quorum(&self) -> Result<()>;
    /// The reduction of these tensors, in place; one operation. It never ends with an error.
    fn allreduce(&self, tensors: Vec<Tensor>, op: ReduceOp, is_coalesced: bool) -> Result<Work>;
    fn should_commit(&self, timeout: Option<Duration>) -> Result<bool>;
    fn report_error(&self, error: String);
    fn errored(&self) -> Option<String>;
    fn num_participants(&self) -> u32;
    fn participating_rank(&self) -> Option<u32>;
    fn is_participating(&self) -> bool;
    /// Steps that were committed, and batches of all replicas in them.
    fn progress(&self) -> (i64, i64);
    fn set_progress(&self, step: i64, batches_committed: i64);
    fn replica_id(&self) -> String;
    fn replicas(&self) -> Vec<String>;
    fn group(&self) -> &ProcessGroup;
    /// A handle on it whose operations are the manager's.
    fn managed_group(&self) -> ProcessGroup;
    fn shutdown(&self) -> Result<()>;
}

/// A part of a replica's state, as two functions of the program: as bytes, whose form is the
/// language's. Why one of them fails is said in words.
#[allow(clippy::missing_errors_doc, reason = "in one sentence for both")]
pub trait ReplicaState: Send + Sync {
    /// Its bytes.
    fn save(&self) -> Result<Vec<u8>, String>;
    /// Becomes what the bytes of another replica say.
    fn load(&self, bytes: &[u8]) -> Result<(), String>;
}

/// What the constructor of the IDL's `LighthouseServer` takes, by the names that it has there.
#[derive(Debug)]
#[allow(missing_docs, reason = "the IDL says what they are")]
pub struct LighthouseServerOptions {
    pub min_replicas: u32,
    pub bind: String,
    pub join_timeout: Duration,
    pub quorum_tick: Duration,
    pub heartbeat_timeout: Duration,
    pub token: Option<String>,
}

/// What the IDL's `LighthouseServer` does; see there.
#[allow(missing_docs, reason = "the IDL says what they do")]
pub trait LighthouseServer: fmt::Debug + Send + Sync {
    fn address(&self) -> String;
    fn shutdown(&self);
}

/// What starts managers and lighthouses.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ReplicaFactories {
    pub manager: fn(ReplicaManagerOptions) -> Result<Arc<dyn ReplicaManager>>,
    pub lighthouse: fn(LighthouseServerOptions) -> Result<Arc<dyn LighthouseServer>>,
}

static FACTORIES: OnceLock<ReplicaFactories> = OnceLock::new();

/// Has calls of languages start managers and lighthouses with these. The first ones count.
pub fn set_replica_factories(factories: ReplicaFactories) {
    // There is one crate that has them.
    let _ = FACTORIES.set(factories);
}

fn factories() -> Result<&'static ReplicaFactories> {
    FACTORIES.get().ok_or_else(|| unsupported("replicas".to_owned()))
}

/// What a language holds a handle on. A clone is the same.
pub struct ReplicaObject<T: ?Sized> {
    identity: u64,
    /// The process that made it: forked children have none of its threads.
    process: u32,
    inner: Arc<T>,
}

/// A manager.
pub type ReplicaManagerObject = ReplicaObject<dyn ReplicaManager>;
/// A lighthouse.
pub type LighthouseObject = ReplicaObject<dyn LighthouseServer>;

impl<T: ?Sized> ReplicaObject<T> {
    fn new(inner: Arc<T>) -> ReplicaObject<T> {
        ReplicaObject { identity: next_identity(), process: clock::process_id(), inner }
    }

    /// A number that no other object of this process ever has.
    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    /// The object.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in a forked child, in which nobody would answer.
    pub fn get(&self) -> Result<&Arc<T>> {
        if self.process == clock::process_id() {
            return Ok(&self.inner);
        }
        let who = "a forked child".to_owned();
        Err(Error::Unsupported { who, operation: "using the replica of its parent".to_owned() })
    }
}

impl ReplicaManagerObject {
    pub(super) fn start(options: ReplicaManagerOptions) -> Result<ReplicaManagerObject> {
        Ok(ReplicaObject::new((factories()?.manager)(options)?))
    }
}

impl LighthouseObject {
    pub(super) fn start(options: LighthouseServerOptions) -> Result<LighthouseObject> {
        Ok(ReplicaObject::new((factories()?.lighthouse)(options)?))
    }
}

impl<T: ?Sized> Clone for ReplicaObject<T> {
    fn clone(&self) -> ReplicaObject<T> {
        ReplicaObject { inner: self.inner.clone(), ..*self }
    }
}

impl<T: ?Sized> Drop for ReplicaObject<T> {
    fn drop(&mut self) {
        if self.process != clock::process_id() {
            // Its end would wait for threads that are the parent's.
            std::mem::forget(self.inner.clone());
        }
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for ReplicaObject<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(formatter)
    }
}
