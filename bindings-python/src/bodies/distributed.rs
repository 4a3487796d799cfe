//! The free functions over the default group.

use std::time::Duration;

use polyrank::backend::{Direction, Waiting};
use polyrank::distributed::{self, InitOptions, NewGroupOptions};
use polyrank::process_group::MessageRequest;
use polyrank::store::PrefixStore;
use polyrank::{Error, ProcessGroup, SplitOptions};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

pub(crate) use super::objects::*;
use super::point_to_point;
pub(crate) use super::rendezvous::*;
use super::settings::{device_of, settings_of};
use crate::classes::{CurrentProcessGroup, P2POp, ProcessGroup as PyProcessGroup};
use crate::convert::{Call, Member, blocking, detached, device_tensor, give, raise, releasing};
use crate::current;
use crate::waiting::wait;

type Answer<'py> = PyResult<Bound<'py, PyAny>>;

/// The group that parameter `index` was given, or the default group.
pub(super) fn group_of(py: Python<'_>, call: &Call<'_>, index: usize) -> PyResult<ProcessGroup> {
    if call.is_outside(index) {
        let message = "this process is not a member of it".to_owned();
        return Err(raise(py, &Error::InvalidGroup { message }));
    }
    let given = call.instance::<PyProcessGroup>(index)?;
    let given = given.as_ref().map(|group| &group.get().inner);
    distributed::group_or_default(given).map_err(|error| raise(py, &error))
}

/// The other rank of a message, in the group: parameter `global` is a global rank, `in_group` a
/// rank in the group, and at most one of them is given.
pub(super) fn peer_of(
    py: Python<'_>,
    call: &mut Call<'_>,
    group: &ProcessGroup,
    name: &str,
    global: usize,
    in_group: usize,
) -> PyResult<Option<u32>> {
    let (global, in_group): (Option<u32>, Option<u32>) = (call.take(global)?, call.take(in_group)?);
    match (global, in_group) {
        (Some(_), Some(_)) => {
            let message = format!("Can't specify both {name} and group_{name}");
            Err(raise(py, &Error::InvalidArgument { message }))
        }
        (Some(global), None) => {
            group.group_rank(global).map(Some).map_err(|error| raise(py, &error))
        }
        (None, in_group) => Ok(in_group),
    }
}

/// Whether this package can be used here.
pub(crate) fn is_available<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
    give(py, true)
}

/// Whether a launcher started this process.
pub(crate) fn is_torchelastic_launched<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
    let has = |name| std::env::var_os(name).is_some();
    give(py, has("POLYRANK_RUN_ID") || has("TORCHELASTIC_RUN_ID"))
}

/// Makes the default group.
pub(crate) fn init_process_group<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let mut options = InitOptions::default();
    options.backend = call.take(0)?;
    options.init_method = call.take(1)?;
    options.timeout = call.take(2)?;
    let (world_size, rank): (i32, i32) = (call.take(3)?, call.take(4)?);
    // -1, as in c10d: from the URL or the environment.
    options.world_size = u32::try_from(world_size).ok();
    options.rank = u32::try_from(rank).ok();
    options.store = call.store(5)?;
    let name: String = call.take(6)?;
    let settings = settings_of(py, &call, 7)?;
    options.group_name = Some(name).filter(|name| !name.is_empty()).or(settings.group_name);
    options.backend = options.backend.or(settings.backend);
    options.timeout = options.timeout.or(settings.timeout);
    options.backend_options = settings.backend_options;
    options.device = device_of(py, &call, 8)?;
    detached(py, || distributed::init_process_group(options).map(drop))?;
    give(py, ())
}

/// Whether the default group exists.
pub(crate) fn is_initialized<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
    give(py, distributed::is_initialized())
}

/// Leaves a group, or all of them.
pub(crate) fn destroy_process_group<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_outside(0) {
        return give(py, ());
    }
    let group = call.instance::<PyProcessGroup>(0)?.map(|group| group.get().inner.clone());
    blocking(py, || distributed::destroy_process_group(group.as_ref()))
}

/// Aborts a group, or all of them.
pub(crate) fn abort_process_group<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    let group = call.instance::<PyProcessGroup>(0)?.map(|group| group.get().inner.clone());
    blocking(py, || distributed::abort_process_group(group.as_ref()))
}

/// The default group.
pub(crate) fn default_group<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
    give(py, distributed::default_group())
}

/// The group of the innermost `process_group` block, else the default group.
pub(crate) fn current_process_group<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
    match current::current(py)? {
        Some(group) => Ok(group),
        None => give(py, distributed::default_group()),
    }
}

/// Makes a group the current one for a block.
pub(crate) fn process_group<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    match call.instance::<PyProcessGroup>(0)? {
        Some(group) => Ok(Bound::new(py, CurrentProcessGroup::new(group.unbind()))?.into_any()),
        None => group_of(py, &call, 0).and_then(|group| give(py, group)),
    }
}

/// Makes a group of some ranks.
pub(crate) fn new_group<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let mut options = NewGroupOptions::default();
    options.ranks = call.take(0)?;
    let settings = settings_of(py, &call, 3)?;
    options.timeout = call.take::<Option<Duration>>(1)?.or(settings.timeout);
    options.backend = call.take::<Option<String>>(2)?.or(settings.backend);
    options.group_name = settings.group_name;
    options.backend_options = settings.backend_options;
    options.device = device_of(py, &call, 6)?;
    options.description = call.take(5)?;
    let sort_ranks: bool = call.take(7)?;
    options.keep_order = !sort_ranks;
    blocking(py, || distributed::new_group(options).map(Member))
}

/// Splits a group: the group of the list that has this rank.
pub(crate) fn split_group<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let parent = group_of(py, &call, 0)?;
    let lists: Option<Vec<Vec<u32>>> = call.take(1)?;
    let mut options = SplitOptions::default();
    let settings = settings_of(py, &call, 3)?;
    let backend = settings.backend.map(|backend| backend.parse()).transpose();
    options.backend = backend.map_err(|error| raise(py, &error))?;
    options.timeout = call.take::<Option<Duration>>(2)?.or(settings.timeout);
    options.name = settings.group_name;
    options.backend_options = settings.backend_options;
    options.description = call.take(4)?;
    let lists = lists.unwrap_or_else(|| vec![(0..parent.size()).collect()]);
    let Some(ranks) = lists.into_iter().find(|ranks| ranks.contains(&parent.rank())) else {
        return blocking(py, || parent.stay_out_of_split(&options).map(|()| Member(None)));
    };
    blocking(py, || parent.split_group(&ranks, options).map(Member))
}

/// This process's rank in a group.
pub(crate) fn get_rank<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_outside(0) {
        return give(py, -1);
    }
    give(py, group_of(py, &call, 0)?.rank())
}

/// The number of ranks of a group.
pub(crate) fn get_world_size<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_outside(0) {
        return give(py, -1);
    }
    give(py, group_of(py, &call, 0)?.size())
}

/// This process's rank among those on its host, as the launcher said.
pub(crate) fn get_node_local_rank<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let fallback: Option<i32> = call.take(0)?;
    let said = std::env::var("LOCAL_RANK").ok().and_then(|text| text.parse::<i32>().ok());
    match said.or(fallback) {
        Some(rank) => give(py, rank),
        None => {
            let message = "LOCAL_RANK is not in the environment. Consider passing fallback_rank \
                           to allow get_node_local_rank to work outside of a launcher"
                .to_owned();
            Err(raise(py, &Error::Rendezvous { message }))
        }
    }
}

/// The number of groups that this process made and has not destroyed.
pub(crate) fn get_pg_count<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
    give(py, distributed::get_pg_count())
}

/// The name of a group's backend.
pub(crate) fn get_backend<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    give(py, group_of(py, &call, 0)?.backend_name())
}

/// Which backend serves which device.
pub(crate) fn get_backend_config<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    give(py, group_of(py, &call, 0)?.backend_config())
}

/// The rank in a group of a global rank.
pub(crate) fn get_group_rank<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let group = group_of(py, &call, 0)?;
    let global: u32 = call.take(1)?;
    give(py, group.group_rank(global))
}

/// The global rank of a rank in a group.
pub(crate) fn get_global_rank<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let group = group_of(py, &call, 0)?;
    let in_group: u32 = call.take(1)?;
    give(py, group.global_rank(in_group))
}

/// The global ranks of a group's members.
pub(crate) fn get_process_group_ranks<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    give(py, group_of(py, &call, 0)?.ranks())
}

/// Sets the limit of a group's later operations.
pub(crate) fn set_timeout<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let timeout: Duration = call.take(0)?;
    group_of(py, &call, 1)?.set_timeout(timeout);
    give(py, ())
}

/// A client of the store at `host:port/prefix`.
pub(crate) fn create_store_client<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let address: String = call.take(0)?;
    let timeout: Duration = call.take(1)?;
    let (endpoint, prefix) = address.split_once('/').unwrap_or((&address, ""));
    let parsed = endpoint.rsplit_once(':').and_then(|(host, port)| {
        Some((host.trim_matches(['[', ']']).to_owned(), port.parse::<u16>().ok()?))
    });
    let Some((host, port)) = parsed else {
        let message = format!("'{address}' is no store address: expected host:port/prefix");
        return Err(raise(py, &Error::InvalidArgument { message }));
    };
    let options =
        polyrank::store::TcpStoreOptions::new(host, port).timeout(timeout).wait_for_workers(false);
    let client = detached(py, || polyrank::store::TcpStore::new(options))?;
    let prefixed = PrefixStore::new(prefix, std::sync::Arc::new(client));
    let store: std::sync::Arc<dyn polyrank::store::Store> = std::sync::Arc::new(prefixed);
    give(py, store)
}

/// Whether this build has a backend and its library can be loaded here.
pub(crate) fn is_backend_available<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let backend: String = call.take(0)?;
    give(py, distributed::is_backend_available(&backend))
}

/// Why a backend cannot be used here; empty if it can.
pub(crate) fn backend_unavailable_reason<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let backend: String = call.take(0)?;
    give(py, distributed::backend_unavailable_reason(&backend).unwrap_or_default())
}

macro_rules! is_available {
    ($($function:ident: $backend:literal),*) => {$(
        /// Whether the backend is available.
        pub(crate) fn $function<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
            give(py, distributed::is_backend_available($backend))
        }
    )*};
}

is_available! {
    is_gloo_available: "tcp", is_nccl_available: "nccl", is_mpi_available: "mpi",
    is_ucc_available: "ucc", is_xccl_available: "xccl"
}

/// The name of the backend that serves a kind of device.
pub(crate) fn get_default_backend_for_device<'py>(
    py: Python<'py>,
    mut call: Call<'py>,
) -> Answer<'py> {
    let device: String = call.take(0)?;
    let kind = device.split(':').next().unwrap_or_default();
    match kind {
        "cpu" => give(py, "tcp"),
        "cuda" => give(py, "nccl"),
        _ => {
            let message = format!("no backend serves devices of kind '{kind}'; known: cpu, cuda");
            Err(raise(py, &Error::InvalidArgument { message }))
        }
    }
}

/// Waits until all ranks came, and says which did not.
pub(crate) fn monitored_barrier<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(0)? {
        return give(py, ());
    }
    let group = group_of(py, &call, 0)?;
    let (timeout, wait_all_ranks): (Option<Duration>, bool) = (call.take(1)?, call.take(2)?);
    blocking(py, || group.monitored_barrier(timeout, wait_all_ranks))
}

/// Sends a tensor, and waits until it may be changed again.
pub(crate) fn send<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(2)? {
        return give(py, ());
    }
    releasing(py, || {
        let work = start_send(py, call, Waiting::Soon)?;
        wait(py, &work.inner, None)
    })?;
    give(py, ())
}

/// Receives a tensor; the sender's global rank.
pub(crate) fn recv<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(2)? {
        return give(py, -1);
    }
    let group = group_of(py, &call, 2)?;
    let sender = releasing(py, || {
        let work = start_recv(py, call, Waiting::Soon)?;
        wait(py, &work.inner, None)?;
        Ok::<_, PyErr>(work.inner.source_rank())
    })?;
    match sender {
        Some(sender) => give(py, group.global_rank(sender)),
        None => give(py, -1),
    }
}

/// Sends a tensor, without waiting.
pub(crate) fn isend<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(2)? {
        return give(py, ());
    }
    releasing(py, || start_send(py, call, Waiting::Later)?.into_object(py))
}

/// Receives a tensor, without waiting.
pub(crate) fn irecv<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    if call.is_left_out(2)? {
        return give(py, ());
    }
    releasing(py, || start_recv(py, call, Waiting::Later)?.into_object(py))
}

fn start_send<'py>(
    py: Python<'py>,
    mut call: Call<'py>,
    waiting: Waiting,
) -> PyResult<crate::classes::Work> {
    let group = group_of(py, &call, 2)?;
    let tag: u32 = call.take(3)?;
    let peer = peer_of(py, &mut call, &group, "dst", 1, 4)?.ok_or_else(|| {
        let message = "send: one of 'dst' and 'group_dst' must be given".to_owned();
        raise(py, &Error::InvalidArgument { message })
    })?;
    point_to_point::send(py, &group, &call, (peer, tag), waiting)
}

fn start_recv<'py>(
    py: Python<'py>,
    mut call: Call<'py>,
    waiting: Waiting,
) -> PyResult<crate::classes::Work> {
    let group = group_of(py, &call, 2)?;
    let tag: u32 = call.take(3)?;
    let peer = peer_of(py, &mut call, &group, "src", 1, 4)?;
    point_to_point::recv(py, &group, &call, (peer, tag), waiting)
}

/// Issues sends and receives together.
pub(crate) fn batch_isend_irecv<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    let operations = call.instances::<P2POp>(0)?;
    if let Some(works) = on_device(py, &operations)? {
        return Ok(PyList::new(py, works)?.into_any());
    }
    let works = PyList::empty(py);
    for operation in operations {
        let operation = operation.get();
        let tensors = PyList::new(py, [operation.tensor.bind(py)])?;
        let (peer, tag) = (operation.peer, operation.tag);
        let arguments = (tensors, peer, tag).into_pyobject(py)?;
        let work = issue(py, operation, &arguments)?;
        works.append(work)?;
    }
    Ok(works.into_any())
}

/// Issues messages of one group whose tensors are on devices: there they are one operation. `None`
/// for any others.
fn on_device<'py>(
    py: Python<'py>,
    operations: &[Bound<'py, P2POp>],
) -> PyResult<Option<Vec<crate::classes::Work>>> {
    let Some(first) = operations.first() else { return Ok(None) };
    let group = &first.get().group;
    let mut messages = Vec::with_capacity(operations.len());
    for operation in operations {
        let operation = operation.get();
        let tensor = device_tensor(operation.tensor.bind(py))?;
        let same_group = operation.group.identity() == group.identity();
        let Some(tensor) = tensor.filter(|_| same_group) else { return Ok(None) };
        let direction = if operation.is_send { Direction::Send } else { Direction::Receive };
        messages.push(MessageRequest {
            direction,
            tensor,
            peer: operation.peer,
            tag: operation.tag,
        });
    }
    let issued = detached(py, || group.issue_messages(messages, None, Waiting::Later))?;
    let works = issued.into_iter().zip(operations).map(|(work, operation)| {
        let operation = operation.get();
        let outputs = match operation.is_send {
            true => Vec::new(),
            false => vec![operation.tensor.clone_ref(py)],
        };
        let sent = operation.is_send.then(|| operation.tensor.bind(py).get_type().unbind());
        crate::classes::Work::new(work, outputs, group.timeout()).reading(sent)
    });
    Ok(Some(works.collect()))
}

fn issue<'py>(
    py: Python<'py>,
    operation: &P2POp,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let name = if operation.is_send { "send" } else { "recv" };
    let group = Bound::new(py, PyProcessGroup { inner: operation.group.clone() })?;
    group.call_method1(name, arguments)
}
