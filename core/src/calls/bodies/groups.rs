//! The free functions that make and leave groups, and those through which ranks meet.

use std::time::Duration;

use super::settings::{device_of, settings_of};
use crate::blocking::Way;
use crate::calls::answer::{Answer, IntoAnswer, Member};
use crate::calls::invocation::Invocation;
use crate::calls::object::{Object, StoreObject};
use crate::distributed::{self, InitOptions, NewGroupOptions};
use crate::rendezvous;
use crate::{DEFAULT_TIMEOUT, Result, SplitOptions};

/// Makes the default group.
pub(crate) async fn init_process_group(mut call: Invocation) -> Result<Answer> {
    let mut options = InitOptions {
        backend: call.take(0)?,
        init_method: call.take(1)?,
        timeout: call.take(2)?,
        store: call.store(5)?.map(|store| store.get().clone()),
        ..InitOptions::default()
    };
    let (world_size, rank): (i32, i32) = (call.take(3)?, call.take(4)?);
    // -1, as in c10d: from the URL or the environment.
    options.world_size = u32::try_from(world_size).ok();
    options.rank = u32::try_from(rank).ok();
    let name: String = call.take(6)?;
    let settings = settings_of(&call, 7)?;
    options.group_name = Some(name).filter(|name| !name.is_empty()).or(settings.group_name);
    options.backend = options.backend.or(settings.backend);
    options.timeout = options.timeout.or(settings.timeout);
    options.backend_options = settings.backend_options;
    options.device = device_of(&call, 8)?;
    distributed::init_process_group_in(Way::NATURAL, options).await.map(drop).into_answer()
}

/// Leaves a group, or all of them.
pub(crate) async fn destroy_process_group(call: Invocation) -> Result<Answer> {
    if call.is_outside(0) {
        return ().into_answer();
    }
    let group = call.object(0).map(Object::group).transpose()?;
    distributed::destroy_process_group_in(Way::NATURAL, group).await.into_answer()
}

/// Aborts a group, or all of them.
pub(crate) async fn abort_process_group(call: Invocation) -> Result<Answer> {
    let group = call.object(0).map(Object::group).transpose()?;
    distributed::abort_process_group(group).into_answer()
}

/// Makes a group of some ranks.
pub(crate) async fn new_group(mut call: Invocation) -> Result<Answer> {
    let settings = settings_of(&call, 3)?;
    let sort_ranks: bool = call.take(7)?;
    let options = NewGroupOptions {
        ranks: call.take(0)?,
        timeout: call.take::<Option<Duration>>(1)?.or(settings.timeout),
        backend: call.take::<Option<String>>(2)?.or(settings.backend),
        group_name: settings.group_name,
        backend_options: settings.backend_options,
        device: device_of(&call, 6)?,
        description: call.take(5)?,
        keep_order: !sort_ranks,
    };
    distributed::new_group_async(options).await.map(Member).into_answer()
}

/// Splits a group: the group of the list that has this rank.
pub(crate) async fn split_group(mut call: Invocation) -> Result<Answer> {
    let parent = call.group(0)?;
    let lists: Option<Vec<Vec<u32>>> = call.take(1)?;
    let settings = settings_of(&call, 3)?;
    let options = SplitOptions {
        backend: settings.backend.map(|backend| backend.parse()).transpose()?,
        timeout: call.take::<Option<Duration>>(2)?.or(settings.timeout),
        name: settings.group_name,
        backend_options: settings.backend_options,
        description: call.take(4)?,
        ..SplitOptions::default()
    };
    let lists = lists.unwrap_or_else(|| vec![(0..parent.size()).collect()]);
    let Some(ranks) = lists.into_iter().find(|ranks| ranks.contains(&parent.rank())) else {
        parent.stay_out_of_split(&options)?;
        return Member(None).into_answer();
    };
    parent.split_group_async(&ranks, options).await.map(Member).into_answer()
}

/// Meets the other ranks at a URL: the store, the rank and the world size.
pub(crate) async fn rendezvous(mut call: Invocation) -> Result<Answer> {
    let url: String = call.take(0)?;
    let (rank, size): (i32, i32) = (call.take(1)?, call.take(2)?);
    let timeout: Option<Duration> = call.take(3)?;
    let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
    let (rank, size) = (u32::try_from(rank).ok(), u32::try_from(size).ok());
    let met = rendezvous::rendezvous_async(&url, rank, size, timeout).await?;
    Ok(Answer::Record(vec![
        ("store", StoreObject::any(met.store).into_answer()?),
        ("rank", met.rank.into_answer()?),
        ("world_size", met.world_size.into_answer()?),
    ]))
}

/// A client of the store at `host:port/prefix`.
#[cfg(feature = "tcp")]
pub(crate) async fn create_store_client(mut call: Invocation) -> Result<Answer> {
    use crate::Error;
    use crate::store::{TcpStore, TcpStoreOptions};
    let address: String = call.take(0)?;
    let timeout: Duration = call.take(1)?;
    let (endpoint, prefix) = address.split_once('/').unwrap_or((&address, ""));
    let parsed = endpoint.rsplit_once(':').and_then(|(host, port)| {
        Some((host.trim_matches(['[', ']']).to_owned(), port.parse::<u16>().ok()?))
    });
    let Some((host, port)) = parsed else {
        let message = format!("'{address}' is no store address: expected host:port/prefix");
        return Err(Error::InvalidArgument { message });
    };
    let options = TcpStoreOptions::new(host, port).timeout(timeout).wait_for_workers(false);
    let client = Object::Store(StoreObject::from(TcpStore::new(options)?));
    StoreObject::under(prefix, client)?.into_answer()
}

/// There are no sockets here.
#[cfg(not(feature = "tcp"))]
pub(crate) async fn create_store_client(_: Invocation) -> Result<Answer> {
    let (who, operation) = ("a browser".to_owned(), "create_store_client".to_owned());
    Err(crate::Error::Unsupported { who, operation })
}
