//! The free functions over the default group, but for those that make groups or carry objects.

use std::time::Duration;

pub(crate) use super::device_mesh::{current_device_mesh, extend_device_mesh, init_device_mesh};
pub(crate) use super::groups::*;
pub(crate) use super::objects::*;
use super::process_group::sum_of_sparse;
use super::settings::{device_named, device_of};
pub(crate) use super::topology::compute_dims;
use crate::backend::CudaMemory;
use crate::calls::Value;
use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::parameters::distributed::*;
use crate::distributed::{self, DebugLevel};
#[cfg(not(feature = "tcp"))]
use crate::generated::error::Error;
use crate::generated::error::Result;
use crate::process_group::DEFAULT_TIMEOUT;

/// Limit of operations of a group that was given none.
pub(crate) fn default_pg_timeout(_: Invocation) -> Result<Answer> {
    DEFAULT_TIMEOUT.into_answer()
}

/// Whether this package can be used here.
pub(crate) fn is_available(_: Invocation) -> Result<Answer> {
    distributed::is_available().into_answer()
}

/// Whether a launcher started this process.
pub(crate) fn is_torchelastic_launched(_: Invocation) -> Result<Answer> {
    distributed::is_torchelastic_launched().into_answer()
}

/// Whether the default group exists.
pub(crate) fn is_initialized(_: Invocation) -> Result<Answer> {
    distributed::is_initialized().into_answer()
}

/// The default group.
pub(crate) fn default_group(_: Invocation) -> Result<Answer> {
    distributed::default_group().into_answer()
}

/// The default group: what is current besides is for each language to know.
pub(crate) fn current_process_group(_: Invocation) -> Result<Answer> {
    distributed::default_group().into_answer()
}

/// This process's rank in a group.
pub(crate) fn get_rank(call: Invocation) -> Result<Answer> {
    if call.is_outside(get_rank::GROUP) {
        return (-1).into_answer();
    }
    call.group(get_rank::GROUP)?.rank().into_answer()
}

/// The number of ranks of a group.
pub(crate) fn get_world_size(call: Invocation) -> Result<Answer> {
    if call.is_outside(get_world_size::GROUP) {
        return (-1).into_answer();
    }
    call.group(get_world_size::GROUP)?.size().into_answer()
}

/// This process's rank among those on its host, as the launcher said.
pub(crate) fn get_node_local_rank(mut call: Invocation) -> Result<Answer> {
    let fallback: Option<i32> = call.take(get_node_local_rank::FALLBACK_RANK)?;
    distributed::get_node_local_rank(fallback).into_answer()
}

/// The number of groups that this process made and has not destroyed.
pub(crate) fn get_pg_count(_: Invocation) -> Result<Answer> {
    distributed::get_pg_count().into_answer()
}

/// The name of a group's backend.
pub(crate) fn get_backend(call: Invocation) -> Result<Answer> {
    call.group(get_backend::GROUP)?.backend_name().into_answer()
}

/// Which backend serves which device.
pub(crate) fn get_backend_config(call: Invocation) -> Result<Answer> {
    call.group(get_backend_config::GROUP)?.backend_config().into_answer()
}

/// The rank in a group of a global rank.
pub(crate) fn get_group_rank(mut call: Invocation) -> Result<Answer> {
    let global: u32 = call.take(get_group_rank::GLOBAL_RANK)?;
    call.group(get_group_rank::GROUP)?.group_rank(global).into_answer()
}

/// The global rank of a rank in a group.
pub(crate) fn get_global_rank(mut call: Invocation) -> Result<Answer> {
    let in_group: u32 = call.take(get_global_rank::GROUP_RANK)?;
    call.group(get_global_rank::GROUP)?.global_rank(in_group).into_answer()
}

/// The global ranks of a group's members.
pub(crate) fn get_process_group_ranks(call: Invocation) -> Result<Answer> {
    call.group(get_process_group_ranks::GROUP)?.ranks().into_answer()
}

/// Sets the limit of a group's later operations.
pub(crate) fn set_timeout(mut call: Invocation) -> Result<Answer> {
    let timeout: Duration = call.take(set_timeout::TIMEOUT)?;
    call.group(set_timeout::GROUP)?.set_timeout(timeout)?;
    ().into_answer()
}

/// Whether this build has a backend and its library can be loaded here.
pub(crate) fn is_backend_available(mut call: Invocation) -> Result<Answer> {
    let backend: String = call.take(is_backend_available::BACKEND)?;
    distributed::is_backend_available(&backend).into_answer()
}

/// Why a backend cannot be used here; empty if it can.
pub(crate) fn backend_unavailable_reason(mut call: Invocation) -> Result<Answer> {
    let backend: String = call.take(backend_unavailable_reason::BACKEND)?;
    distributed::backend_unavailable_reason(&backend).unwrap_or_default().into_answer()
}

macro_rules! is_available {
    ($($function:ident)*) => {$(
        /// Whether the backend is available.
        pub(crate) fn $function(_: Invocation) -> Result<Answer> {
            distributed::$function().into_answer()
        }
    )*};
}

is_available! {
    is_gloo_available is_nccl_available is_mpi_available is_ucc_available is_xccl_available
}

/// What this build has, and what of it can be used here.
pub(crate) fn build_info(_: Invocation) -> Result<Answer> {
    let info = distributed::build_info();
    let texts = |all: Vec<&'static str>| all.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let backends = info.backends.into_iter().map(|backend| {
        Ok(Answer::Record(vec![
            ("name", backend.name.into_answer()?),
            ("devices", texts(backend.devices).into_answer()?),
            ("unavailable", backend.unavailable.into_answer()?),
            ("library", backend.library.into_answer()?),
            ("takes_cuda_memory", takes_cuda_memory(backend.takes_cuda_memory)),
        ]))
    });
    let backends: Vec<Answer> = backends.collect::<Result<_>>()?;
    Ok(Answer::Record(vec![
        ("version", info.version.into_answer()?),
        ("target", info.target.into_answer()?),
        ("features", texts(info.features).into_answer()?),
        ("backends", backends.into_answer()?),
    ]))
}

/// Statistics of all groups of this process as text.
pub(crate) fn metrics(_: Invocation) -> Result<Answer> {
    #[cfg(feature = "tcp")]
    return distributed::metrics().into_answer();
    #[cfg(not(feature = "tcp"))]
    {
        let who = "a page".to_owned();
        Err(Error::Unsupported { who, operation: "metrics".to_owned() })
    }
}

/// A backend to use here, and why.
pub(crate) fn recommend_backend(_: Invocation) -> Result<Answer> {
    let recommended = distributed::recommend_backend();
    Ok(Answer::Record(vec![
        ("backend", recommended.backend.to_string().into_answer()?),
        ("reason", recommended.reason.into_answer()?),
    ]))
}

/// How much is compared.
pub(crate) fn get_debug_level(_: Invocation) -> Result<Answer> {
    (distributed::get_debug_level()? as u32).into_answer()
}

/// Sets how much groups compare that are made from now on.
pub(crate) fn set_debug_level(mut call: Invocation) -> Result<Answer> {
    let level: String = call.take(set_debug_level::LEVEL)?;
    // Other names are refused before.
    let level = DebugLevel::named(&level).unwrap_or(DebugLevel::Off);
    distributed::set_debug_level(level);
    ().into_answer()
}

/// Sets what the environment says now.
pub(crate) fn set_debug_level_from_env(_: Invocation) -> Result<Answer> {
    distributed::set_debug_level_from_env()?.into_answer()
}

/// The name of the backend that serves a kind of device.
pub(crate) fn get_default_backend_for_device(call: Invocation) -> Result<Answer> {
    let device = device_of(&call, get_default_backend_for_device::DEVICE)?;
    let none = || device_named(&call.language().sort(&Value::None));
    let device = device.map_or_else(none, Ok)?;
    distributed::get_default_backend_for_device(device).into_answer()
}

/// Waits until all ranks came, and says which did not.
pub(crate) async fn monitored_barrier(mut call: Invocation) -> Result<Answer> {
    if call.is_outside(monitored_barrier::GROUP) {
        return ().into_answer();
    }
    let group = call.group(monitored_barrier::GROUP)?;
    let (timeout, wait_all_ranks): (Option<Duration>, bool) =
        (call.take(monitored_barrier::TIMEOUT)?, call.take(monitored_barrier::WAIT_ALL_RANKS)?);
    group.monitored_barrier_async(timeout, wait_all_ranks).await.into_answer()
}

/// Waits at a breakpoint, at which the language has held its rank.
pub(crate) async fn breakpoint(mut call: Invocation) -> Result<Answer> {
    if call.is_outside(breakpoint::GROUP) {
        return ().into_answer();
    }
    let (group, rank) = (call.group(breakpoint::GROUP)?, call.take(breakpoint::RANK)?);
    let limit: Option<Duration> = call.take(breakpoint::TIMEOUT_S)?;
    distributed::Breakpoint::new(Some(group), rank, limit)?.pass().await.into_answer()
}

/// Sums sparse tensors of all ranks.
pub(crate) async fn all_reduce_sparse(call: Invocation) -> Result<Answer> {
    if call.is_outside(all_reduce_sparse::GROUP) {
        return ().into_answer();
    }
    let group = call.group(all_reduce_sparse::GROUP)?;
    sum_of_sparse(group, call, all_reduce_sparse::TIMEOUT).await
}

fn takes_cuda_memory(answer: CudaMemory) -> Answer {
    match answer {
        CudaMemory::Taken => Answer::Bool(true),
        CudaMemory::NotTaken => Answer::Bool(false),
        CudaMemory::Unknown => Answer::Nothing,
    }
}
