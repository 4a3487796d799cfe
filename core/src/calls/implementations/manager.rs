//! `Manager`: every call but its operations on tensors, and what takes functions.

use std::sync::Arc;
use std::time::Duration;

use crate::calls::Members;
use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::object::{Object, StoreObject};
use crate::calls::parameters::manager::*;
use crate::calls::replicas::{
    ReplicaManager, ReplicaManagerObject, ReplicaManagerOptions, ReplicaState,
};
use crate::generated::error::{Error, Result};

/// Starts one.
pub(crate) async fn new(mut call: Invocation) -> Result<Answer> {
    let group = call.object(new::PG).map(Object::group).transpose()?.cloned();
    let world_size_mode: String = call.take(new::WORLD_SIZE_MODE)?;
    let options = ReplicaManagerOptions {
        min_replica_size: call.take(new::MIN_REPLICA_SIZE)?,
        lighthouse_addr: call.take(new::LIGHTHOUSE_ADDR)?,
        replica_id: call.take(new::REPLICA_ID)?,
        rank: call.take(new::RANK)?,
        world_size: call.take(new::WORLD_SIZE)?,
        store_addr: call.take(new::STORE_ADDR)?,
        timeout: call.take(new::TIMEOUT)?,
        quorum_timeout: call.take(new::QUORUM_TIMEOUT)?,
        connect_timeout: call.take(new::CONNECT_TIMEOUT)?,
        use_async_quorum: call.take(new::USE_ASYNC_QUORUM)?,
        has_spares: world_size_mode == "FIXED_WITH_SPARES",
        init_sync: call.take(new::INIT_SYNC)?,
        max_retries: call.take(new::MAX_RETRIES)?,
        quorum_retries: call.take(new::QUORUM_RETRIES)?,
        hostname: call.take(new::HOSTNAME)?,
        port: call.take(new::PORT)?,
        heartbeat_interval: call.take(new::HEARTBEAT_INTERVAL)?,
        token: call.take(new::TOKEN)?,
        data: call.take(new::DATA)?,
        group,
    };
    Object::Manager(ReplicaManagerObject::start(options)?).into_answer()
}

/// A part of the state is the value of a store that is written in the language.
pub(crate) fn register_state_store(mut call: Invocation) -> Result<Answer> {
    let key: String = call.take(register_state_store::KEY)?;
    let store = call.store(register_state_store::STATE)?.ok_or_else(Object::not_a_handle)?;
    let state = StoredState { key: key.clone(), store };
    manager(&call)?.register_state(&key, Arc::new(state)).into_answer()
}

/// A part of the state as the value of a store.
struct StoredState {
    key: String,
    store: StoreObject,
}

impl ReplicaState for StoredState {
    fn save(&self) -> std::result::Result<Vec<u8>, String> {
        self.store.get().get(&self.key).map_err(|error| error.to_string())
    }

    fn load(&self, bytes: &[u8]) -> std::result::Result<(), String> {
        self.store.get().set(&self.key, bytes).map_err(|error| error.to_string())
    }
}

/// A step begins.
pub(crate) async fn start_quorum(mut call: Invocation) -> Result<Answer> {
    let allow_heal = call.take(start_quorum::ALLOW_HEAL)?;
    let shrink_only = call.take(start_quorum::SHRINK_ONLY)?;
    let timeout: Option<Duration> = call.take(start_quorum::TIMEOUT)?;
    manager(&call)?.start_quorum(allow_heal, shrink_only, timeout).into_answer()
}

/// Waits for the quorum.
pub(crate) async fn wait_quorum(call: Invocation) -> Result<Answer> {
    manager(&call)?.wait_quorum().into_answer()
}

/// Whether the step is committed.
pub(crate) async fn should_commit(mut call: Invocation) -> Result<Answer> {
    let timeout: Option<Duration> = call.take(should_commit::TIMEOUT)?;
    manager(&call)?.should_commit(timeout).into_answer()
}

/// The step cannot be committed.
pub(crate) fn report_error(mut call: Invocation) -> Result<Answer> {
    let error: String = call.take(report_error::ERROR)?;
    manager(&call)?.report_error(error);
    ().into_answer()
}

/// Why it cannot.
pub(crate) fn errored(call: Invocation) -> Result<Answer> {
    manager(&call)?.errored().into_answer()
}

/// How many replicas participate.
pub(crate) async fn num_participants(call: Invocation) -> Result<Answer> {
    manager(&call)?.num_participants().into_answer()
}

/// The number of this one among them.
pub(crate) async fn participating_rank(call: Invocation) -> Result<Answer> {
    manager(&call)?.participating_rank().into_answer()
}

/// Whether this rank counts.
pub(crate) async fn is_participating(call: Invocation) -> Result<Answer> {
    manager(&call)?.is_participating().into_answer()
}

/// Steps that were committed.
pub(crate) fn current_step(call: Invocation) -> Result<Answer> {
    manager(&call)?.progress().0.into_answer()
}

/// Batches that were in them.
pub(crate) fn batches_committed(call: Invocation) -> Result<Answer> {
    manager(&call)?.progress().1.into_answer()
}

/// How far training is.
pub(crate) fn state_dict(call: Invocation) -> Result<Answer> {
    let (step, batches) = manager(&call)?.progress();
    let members = vec![("step", Answer::Int(step)), ("batches_committed", Answer::Int(batches))];
    Ok(Answer::Record(members))
}

/// Goes on from there.
pub(crate) async fn load_state_dict(mut call: Invocation) -> Result<Answer> {
    let state = call.take(load_state_dict::STATE_DICT)?;
    let read = || {
        let mut members = Members::of("ManagerState", state)?;
        Ok((members.take("step")?, members.take("batches_committed")?))
    };
    let wrong = |what: String| Error::InvalidArgument {
        message: format!("load_state_dict(): 'state_dict' must be a {what}"),
    };
    let (step, batches_committed) = read().map_err(wrong)?;
    manager(&call)?.set_progress(step, batches_committed);
    ().into_answer()
}

/// What the replica is called.
pub(crate) fn replica_id(call: Invocation) -> Result<Answer> {
    manager(&call)?.replica_id().into_answer()
}

/// The ids of all.
pub(crate) async fn replicas(call: Invocation) -> Result<Answer> {
    manager(&call)?.replicas().into_answer()
}

/// The group of ranks of this number.
pub(crate) fn group(call: Invocation) -> Result<Answer> {
    manager(&call)?.group().clone().into_answer()
}

/// Leaves in order.
pub(crate) async fn shutdown(call: Invocation) -> Result<Answer> {
    manager(&call)?.shutdown().into_answer()
}

fn manager(call: &Invocation) -> Result<Arc<dyn ReplicaManager>> {
    call.this_manager()
}
