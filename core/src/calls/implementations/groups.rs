//! The free functions that make and leave groups, and those through which ranks meet.

use std::time::Duration;

use super::settings::{device_of, or_noted, settings_of};
use crate::calls::answer::{Answer, IntoAnswer, Member};
use crate::calls::invocation::Invocation;
use crate::calls::object::{Object, StoreObject};
use crate::calls::parameters::distributed::*;
use crate::distributed::{self, InitOptions, NewGroupOptions};
use crate::generated::error::Result;
use crate::process_group::{DEFAULT_TIMEOUT, Maker, SplitOptions};
use crate::rendezvous::{StoreAddress, StoreClient};

/// Makes the default group.
pub(crate) async fn init_process_group(mut call: Invocation) -> Result<Answer> {
    let mut options = InitOptions {
        backend: call.take(init_process_group::BACKEND)?,
        init_method: call.take(init_process_group::INIT_METHOD)?,
        timeout: call.take(init_process_group::TIMEOUT)?,
        store: call.store(init_process_group::STORE)?.map(|store| store.get().clone()),
        ..InitOptions::default()
    };
    let (world_size, rank): (i32, i32) =
        (call.take(init_process_group::WORLD_SIZE)?, call.take(init_process_group::RANK)?);
    // -1, as in c10d: from the URL or the environment.
    options.world_size = u32::try_from(world_size).ok();
    options.rank = u32::try_from(rank).ok();
    let name: String = call.take(init_process_group::GROUP_NAME)?;
    let mut possible = Ok(());
    let settings = or_noted(settings_of(&call, init_process_group::PG_OPTIONS), &mut possible);
    options.group_name = Some(name).filter(|name| !name.is_empty()).or(settings.group_name);
    options.backend = options.backend.or(settings.backend);
    options.timeout = options.timeout.or(settings.timeout);
    options.backend_options = settings.backend_options;
    let device = device_of(&call, init_process_group::DEVICE_ID);
    options.device = or_noted(device, &mut possible);
    options.enable_reconfigure = call.take(init_process_group::ENABLE_RECONFIGURE)?;
    distributed::init_process_group_if(possible, options).await.map(drop).into_answer()
}

/// Joins a group that stands alone.
pub(crate) async fn join_group(mut call: Invocation) -> Result<Answer> {
    let name: String = call.take(join_group::GROUP_NAME)?;
    let mut possible = Ok(());
    let settings = or_noted(settings_of(&call, join_group::PG_OPTIONS), &mut possible);
    let (world_size, rank): (i32, i32) =
        (call.take(join_group::WORLD_SIZE)?, call.take(join_group::RANK)?);
    let options = InitOptions {
        backend: call.take::<Option<String>>(join_group::BACKEND)?.or(settings.backend),
        init_method: call.take(join_group::INIT_METHOD)?,
        timeout: call.take::<Option<Duration>>(join_group::TIMEOUT)?.or(settings.timeout),
        store: call.store(join_group::STORE)?.map(|store| store.get().clone()),
        world_size: u32::try_from(world_size).ok(),
        rank: u32::try_from(rank).ok(),
        backend_options: settings.backend_options,
        device: or_noted(device_of(&call, join_group::DEVICE_ID), &mut possible),
        version: call.take(join_group::VERSION)?,
        ..InitOptions::default()
    };
    distributed::join_group_if(possible, &name, options).await.into_answer()
}

/// Leaves a group, or all of them.
pub(crate) async fn destroy_process_group(call: Invocation) -> Result<Answer> {
    if call.is_outside(destroy_process_group::GROUP) {
        return ().into_answer();
    }
    let group = call.object(destroy_process_group::GROUP).map(Object::group).transpose()?;
    distributed::destroy_process_group_async(group).await.into_answer()
}

/// Aborts a group, or all of them, and forgets what it aborted.
pub(crate) async fn abort_process_group(call: Invocation) -> Result<Answer> {
    let group = call.object(abort_process_group::GROUP).map(Object::group).transpose()?;
    distributed::abort_process_group_async(group).await.into_answer()
}

/// Makes a group of some ranks.
pub(crate) async fn new_group(mut call: Invocation) -> Result<Answer> {
    let mut possible = Ok(());
    let settings = or_noted(settings_of(&call, new_group::PG_OPTIONS), &mut possible);
    let sort_ranks: bool = call.take(new_group::SORT_RANKS)?;
    let options = NewGroupOptions {
        ranks: call.take(new_group::RANKS)?,
        timeout: call.take::<Option<Duration>>(new_group::TIMEOUT)?.or(settings.timeout),
        backend: call.take::<Option<String>>(new_group::BACKEND)?.or(settings.backend),
        group_name: settings.group_name,
        backend_options: settings.backend_options,
        device: or_noted(device_of(&call, new_group::DEVICE_ID), &mut possible),
        description: call.take(new_group::GROUP_DESC)?,
        keep_order: !sort_ranks,
        enable_reconfigure: call.take(new_group::ENABLE_RECONFIGURE)?,
    };
    distributed::new_group_if(possible, options).await.map(Member).into_answer()
}

/// Splits a group: the group of the list that has this rank.
pub(crate) async fn split_group(mut call: Invocation) -> Result<Answer> {
    let parent = call.group(split_group::PARENT_PG)?;
    let lists: Option<Vec<Vec<u32>>> = call.take(split_group::SPLIT_RANKS)?;
    let mut possible = Ok(());
    let settings = or_noted(settings_of(&call, split_group::PG_OPTIONS), &mut possible);
    let backend = settings.backend.map(|backend| backend.parse()).transpose();
    let options = SplitOptions {
        backend: or_noted(backend, &mut possible),
        timeout: call.take::<Option<Duration>>(split_group::TIMEOUT)?.or(settings.timeout),
        name: settings.group_name,
        backend_options: settings.backend_options,
        description: call.take(split_group::GROUP_DESC)?,
        ..SplitOptions::default()
    };
    let lists = lists.unwrap_or_else(|| vec![(0..parent.size()).collect()]);
    let Some(ranks) = lists.into_iter().find(|ranks| ranks.contains(&parent.rank())) else {
        possible?;
        parent.stay_out_of_split(&options)?;
        return Member(None).into_answer();
    };
    if let Err(why) = possible {
        return Err(parent.refuse_split(Maker::SplitGroup, &ranks, options, why).await);
    }
    parent.split_group_async(&ranks, options).await.map(Member).into_answer()
}

/// Meets the other ranks at a URL: the store, the rank and the world size.
pub(crate) async fn rendezvous(mut call: Invocation) -> Result<Answer> {
    let url: String = call.take(rendezvous::URL)?;
    let (rank, size): (i32, i32) =
        (call.take(rendezvous::RANK)?, call.take(rendezvous::WORLD_SIZE)?);
    let timeout: Option<Duration> = call.take(rendezvous::TIMEOUT)?;
    let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
    let (rank, size) = (u32::try_from(rank).ok(), u32::try_from(size).ok());
    let met = crate::rendezvous::rendezvous_async(&url, rank, size, timeout).await?;
    Ok(Answer::Record(vec![
        ("store", StoreObject::any(met.store).into_answer()?),
        ("rank", met.rank.into_answer()?),
        ("world_size", met.world_size.into_answer()?),
    ]))
}

/// A client of the store at an address.
pub(crate) async fn create_store_client(mut call: Invocation) -> Result<Answer> {
    let address: String = call.take(create_store_client::STORE_ADDR)?;
    let timeout: Duration = call.take(create_store_client::TIMEOUT)?;
    let address = StoreAddress::parse(&address)?;
    let client = match address.connect(timeout).await? {
        #[cfg(feature = "tcp")]
        StoreClient::Tcp(store) => StoreObject::from(store),
        StoreClient::WebSocket { store, url } => StoreObject::web_socket(store, url),
    };
    match address.prefix {
        "" => client.into_answer(),
        prefix => StoreObject::under(prefix, Object::Store(client))?.into_answer(),
    }
}
