//! `ProcessGroup`: how groups are made.

use std::time::Duration;

use super::settings::settings_of;
use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::object::StoreObject;
use crate::{Error, GroupOptions, ProcessGroup, Result, SplitOptions};

/// Joins a group over a store.
pub(crate) async fn new(mut call: Invocation) -> Result<Answer> {
    let store = store(&call)?;
    let (rank, size): (u32, u32) = (call.take(1)?, call.take(2)?);
    let backend: Option<String> = call.take(3)?;
    let timeout: Option<Duration> = call.take(4)?;
    let name: Option<String> = call.take(5)?;
    let mut options = GroupOptions::default();
    if let Some(backend) = backend {
        options = options.backend(backend.parse()?);
    }
    if let Some(timeout) = timeout {
        options = options.timeout(timeout);
    }
    let name = name.unwrap_or_else(|| "group".to_owned());
    let store = store.get().clone();
    ProcessGroup::new_async(store, rank, size, &name, options).await.into_answer()
}

/// Makes a group of some of this group's ranks.
pub(crate) async fn split_group(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let ranks: Vec<u32> = call.take(0)?;
    let settings = settings_of(&call, 2)?;
    let options = SplitOptions {
        timeout: call.take::<Option<Duration>>(1)?.or(settings.timeout),
        backend: settings.backend.map(|backend| backend.parse()).transpose()?,
        name: call.take::<Option<String>>(3)?.or(settings.group_name),
        backend_options: settings.backend_options,
        description: call.take(4)?,
        ..SplitOptions::default()
    };
    group.split_group_async(&ranks, options).await.into_answer()
}

/// Joins this group and others into one.
pub(crate) async fn merge_remote_group(mut call: Invocation) -> Result<Answer> {
    let group = call.this_group()?;
    let store = store(&call)?;
    let size: u32 = call.take(1)?;
    let options = SplitOptions {
        timeout: Some(call.take(2)?),
        name: call.take(3)?,
        description: call.take(4)?,
        ..SplitOptions::default()
    };
    group.merge_remote_group_async(store.get().clone(), size, options).await.into_answer()
}

/// The device that the group is bound to, if it is.
pub(crate) async fn bound_device_id(call: Invocation) -> Result<Answer> {
    call.this_group()?.bound_device_id().into_answer()
}

/// Whether the group can change its members; no group of this version can.
pub(crate) async fn supports_reconfigure(_: Invocation) -> Result<Answer> {
    false.into_answer()
}

/// Whether the group has windows; no group of this version has.
pub(crate) async fn supports_window(_: Invocation) -> Result<Answer> {
    false.into_answer()
}

fn store(call: &Invocation) -> Result<StoreObject> {
    call.store(0)?.ok_or_else(|| {
        let message = "'store' must be a Store".to_owned();
        Error::InvalidType { message }
    })
}
