//! `ProcessGroup`: how groups are made.

use std::time::Duration;

use super::settings::{or_noted, settings_of};
#[cfg(feature = "tcp")]
use super::statistics;
use crate::backend::MessageInfo;
use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::{AnswerFuture, Invocation};
use crate::calls::object::StoreObject;
use crate::calls::parameters::process_group::*;
use crate::calls::settings::{group_hints, reconfigure_options};
use crate::generated::error::{Error, Result};
#[cfg(feature = "tcp")]
use crate::process_group::StateSyncOptions;
use crate::process_group::{
    ConfigureOptions, GroupOptions, Maker, ProcessGroup, SparseOptions, SplitOptions,
};
use crate::tensor::{Device, Tensor};

/// Joins a group over a store.
pub(crate) async fn new(mut call: Invocation) -> Result<Answer> {
    let store = store(&call, new::STORE)?;
    let (rank, size): (u32, u32) = (call.take(new::RANK)?, call.take(new::SIZE)?);
    let backend: Option<String> = call.take(new::BACKEND)?;
    let timeout: Option<Duration> = call.take(new::TIMEOUT)?;
    let name: Option<String> = call.take(new::GROUP_NAME)?;
    let mut options = GroupOptions::default();
    let mut possible = Ok(());
    let settings = or_noted(settings_of(&call, new::PG_OPTIONS), &mut possible);
    let backend = backend.or(settings.backend).map(|backend| backend.parse()).transpose();
    options.backend = or_noted(backend, &mut possible).unwrap_or_default();
    options.timeout = timeout.or(settings.timeout);
    options.backend_options = settings.backend_options;
    let name = name.or(settings.group_name).unwrap_or_else(|| "group".to_owned());
    let store = store.get().clone();
    if call.take(new::ENABLE_RECONFIGURE)? {
        possible?;
        return ProcessGroup::without_members(Some(&*store), &name, options).into_answer();
    }
    ProcessGroup::new_if(possible, store, (rank, size), &name, options).await.into_answer()
}

/// Makes a group of some of this group's ranks.
pub(crate) async fn split_group(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let ranks: Vec<u32> = call.take(split_group::RANKS)?;
    let mut possible = Ok(());
    let settings = or_noted(settings_of(&call, split_group::OPTS), &mut possible);
    let backend = settings.backend.map(|backend| backend.parse()).transpose();
    let options = SplitOptions {
        timeout: call.take::<Option<Duration>>(split_group::TIMEOUT)?.or(settings.timeout),
        backend: or_noted(backend, &mut possible),
        name: call.take::<Option<String>>(split_group::GROUP_NAME)?.or(settings.group_name),
        backend_options: settings.backend_options,
        description: call.take(split_group::GROUP_DESC)?,
        ..SplitOptions::default()
    };
    let wanted: Option<Vec<String>> = call.take(split_group::DEVICE_TYPES)?;
    let is_served = check_device_types(&group, wanted.unwrap_or_default());
    if let Err(why) = possible.and(is_served) {
        return Err(group.refuse_split(Maker::SplitGroup, &ranks, options, why).await);
    }
    group.split_group_async(&ranks, options).await.into_answer()
}

/// Refuses kinds of devices that a group of this one's ranks would not serve.
fn check_device_types(group: &ProcessGroup, wanted: Vec<String>) -> Result<()> {
    for kind in wanted {
        let message = match kind.as_str() {
            "cpu" => continue,
            "cuda" if group.get_backend(Device::Cuda(0)).is_ok() => continue,
            "cuda" => format!(
                "split_group: device_types has 'cuda', which no backend of group '{}' serves",
                group.group_name()
            ),
            _ => format!("split_group: device_types are 'cpu' and 'cuda', not '{kind}'"),
        };
        return Err(Error::InvalidArgument { message });
    }
    Ok(())
}

/// Joins this group and others into one.
pub(crate) async fn merge_remote_group(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let store = store(&call, merge_remote_group::STORE)?;
    let size: u32 = call.take(merge_remote_group::SIZE)?;
    let options = SplitOptions {
        timeout: Some(call.take(merge_remote_group::TIMEOUT)?),
        name: call.take(merge_remote_group::GROUP_NAME)?,
        description: call.take(merge_remote_group::GROUP_DESC)?,
        ..SplitOptions::default()
    };
    group.merge_remote_group_async(store.get().clone(), size, options).await.into_answer()
}

/// The device that the group is bound to, if it is.
pub(crate) fn bound_device_id(call: Invocation) -> Result<Answer> {
    call.this_group()?.bound_device_id().into_answer()
}

/// The hints that the group has.
pub(crate) fn hints(call: Invocation) -> Result<Answer> {
    let compress = call.this_group()?.hints().compress;
    Ok(Answer::Options("GroupHints", vec![("compress", compress.into_answer()?)]))
}

/// Writes what all ranks have called lately to a file.
pub(crate) async fn dump(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let path: Option<String> = call.take(dump::PATH)?;
    #[cfg(feature = "tcp")]
    {
        let path = group.dump_async(path.map(Into::into)).await?;
        path.to_string_lossy().into_owned().into_answer()
    }
    #[cfg(not(feature = "tcp"))]
    {
        let _ = (group, path);
        let who = "a page".to_owned();
        Err(Error::Unsupported { who, operation: "dump".to_owned() })
    }
}

/// What this rank has called in the group, counted.
pub(crate) fn stats(call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    #[cfg(feature = "tcp")]
    return statistics::answer(group.stats()?);
    #[cfg(not(feature = "tcp"))]
    {
        let _ = group;
        let who = "a page".to_owned();
        Err(Error::Unsupported { who, operation: "stats".to_owned() })
    }
}

/// Sets the hints of later operations.
pub(crate) fn set_hints(call: Invocation) -> Result<Answer> {
    let (name, value) = (call.parameter(set_hints::HINTS), call.value(set_hints::HINTS));
    call.this_group()?.set_hints(group_hints(call.name(), name, value)?)?;
    ().into_answer()
}

/// Replaces the members of the group, until they are there: languages that have threads of their
/// own return a work before that.
pub(crate) async fn reconfigure(call: Invocation) -> Result<Answer> {
    let (name, value) = (call.parameter(reconfigure::OPTS), call.value(reconfigure::OPTS));
    let options = reconfigure_options(call.name(), name, value)?;
    call.this_group()?.reconfigure_async(options).await.into_answer()
}

/// Replaces the members of the group by those that meet in a store, until they are there.
pub(crate) async fn configure(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let store_addr: String = call.take(configure::STORE_ADDR)?;
    let is_whole = call.overload() == 0;
    // Rank and world size are where a replica's name precedes them, or one place earlier.
    let at = if is_whole { configure::REPLICA_ID + 1 } else { configure::REPLICA_ID };
    let (rank, world_size): (u32, u32) = (call.take(at)?, call.take(at + 1)?);
    let mut options = ConfigureOptions::new(store_addr, rank, world_size);
    if is_whole {
        options.replica_id = call.take(configure::REPLICA_ID)?;
        options.quorum_id = call.take(configure::QUORUM_ID)?;
        options.replica_rank = call.take(configure::GROUP_RANK)?;
        options.replica_world_size = call.take(configure::GROUP_WORLD_SIZE)?;
        options.global_ranks = call.take(configure::GLOBAL_RANKS)?;
    }
    group.configure_async(options).await.into_answer()
}

/// Goes on without some ranks, until the others are there.
pub(crate) async fn shrink_group(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let excluded: Vec<u32> = call.take(shrink_group::RANKS_TO_EXCLUDE)?;
    let timeout: Option<Duration> = call.take(shrink_group::TIMEOUT)?;
    group.shrink_group_async(&excluded, timeout).await.into_answer()
}

/// How the group stands, by its number.
pub(crate) fn get_error(call: Invocation) -> Result<Answer> {
    (call.this_group()?.get_error() as u16).into_answer()
}

/// Whether the group has windows.
pub(crate) fn supports_window(call: Invocation) -> Result<Answer> {
    call.this_group()?.supports_window().into_answer()
}

/// Sums sparse tensors of all ranks.
pub(crate) async fn allreduce_sparse(call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    sum_of_sparse(group, call, allreduce_sparse::TIMEOUT).await
}

/// The sum of what a call was given, whose limit is at the position `timeout`: the method and the
/// free function have the other parameters alike.
pub(super) fn sum_of_sparse(
    group: ProcessGroup,
    mut call: Invocation,
    timeout: usize,
) -> AnswerFuture {
    Box::pin(async move {
        let indices: Tensor = call.take(allreduce_sparse::INDICES)?;
        let values: Tensor = call.take(allreduce_sparse::VALUES)?;
        let reduce_op = call.take(allreduce_sparse::REDUCE_OP)?;
        let mut options = SparseOptions::default().reduce_op(reduce_op);
        options.timeout = call.take(timeout)?;
        let (indices, values) = group.allreduce_sparse_async(indices, values, options).await?;
        Ok(Answer::List(vec![Answer::Tensor(indices), Answer::Tensor(values)]))
    })
}

/// Makes tensors the same on all ranks.
#[cfg(feature = "tcp")]
pub(crate) async fn sync_state(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let tensors: Vec<Tensor> = call.take(sync_state::TENSORS)?;
    let revision: i64 = call.take(sync_state::REVISION)?;
    let timeout: Option<Duration> = call.take(sync_state::TIMEOUT)?;
    let mut options = StateSyncOptions::default().revision(revision);
    options.timeout = timeout;
    let replaced = group.sync_state_async(&tensors, options).await?;
    replaced.into_iter().map(|index| index as u32).collect::<Vec<u32>>().into_answer()
}

/// Takes no part in that.
#[cfg(not(feature = "tcp"))]
pub(crate) async fn sync_state(call: Invocation) -> Result<Answer> {
    call.this_group()?.refuse_state_sync().await.into_answer()
}

/// Makes a window, and registers a tensor in it if it is given one.
pub(crate) async fn new_window(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let tensor: Result<Option<Tensor>> = call.take(new_window::TENSOR);
    group.new_window_given(tensor).await.into_answer()
}

/// Arranges the ranks in a grid.
pub(crate) async fn create_cart(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let dims: Vec<u32> = call.take(create_cart::DIMS)?;
    let periods: Vec<bool> = call.take(create_cart::PERIODS)?;
    group.create_cart_async(&dims, &periods).await.into_answer()
}

/// Makes a graph of the ranks.
pub(crate) async fn create_dist_graph_adjacent(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let sources: Vec<u32> = call.take(create_dist_graph_adjacent::SOURCES)?;
    let destinations: Vec<u32> = call.take(create_dist_graph_adjacent::DESTINATIONS)?;
    group.create_dist_graph_adjacent_async(&sources, &destinations).await.into_answer()
}

/// Waits for a message.
pub(crate) async fn probe(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let (peer, tag) = (call.take(probe::SRC_RANK)?, call.take(probe::TAG)?);
    record(group.probe_async(peer, tag).await?)
}

/// Looks for a message.
pub(crate) async fn iprobe(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let (peer, tag) = (call.take(iprobe::SRC_RANK)?, call.take(iprobe::TAG)?);
    group.iprobe_async(peer, tag).await?.map_or(Ok(Answer::Nothing), record)
}

fn record(found: MessageInfo) -> Result<Answer> {
    Ok(Answer::Record(vec![
        ("source", found.source.into_answer()?),
        ("tag", found.tag.into_answer()?),
        ("dtype", found.dtype.name().into_answer()?),
        ("bytes", Answer::Int(found.bytes as i64)),
    ]))
}

fn store(call: &Invocation, position: usize) -> Result<StoreObject> {
    call.store(position)?.ok_or_else(|| {
        let message = "'store' must be a Store".to_owned();
        Error::InvalidType { message }
    })
}
