//! The default group of a process that has no members yet. Knows no backend.

use super::{InitOptions, World};
use crate::generated::error::{Error, Result};
use crate::process_group::{ProcessGroup, Site};
use crate::rendezvous::meeting_place;

/// Where others meet this process, by the store or the URL that was given.
pub(super) fn site(options: &InitOptions) -> Result<Site> {
    if let Some(store) = &options.store {
        return Ok(Site::near(&**store));
    }
    let url = options.init_method.as_deref();
    if let Some(url) = url.filter(|url| url.starts_with("ws://") || url.starts_with("wss://")) {
        let address = url.split('?').next().unwrap_or(url);
        return Ok(Site::at(meeting_place::near(Some(url))?, Some(address.to_owned())));
    }
    Ok(Site::at(meeting_place::near(url)?, None))
}

/// Makes a world of a group without members.
pub(super) fn enter(group: ProcessGroup) -> Result<ProcessGroup> {
    let process_id = crate::clock::process_id();
    let (made, groups) = (group.clone(), vec![group.clone()]);
    match super::enter(World { process_id, hosting: false, claim: None, group: made, groups }) {
        true => Ok(group),
        false => Err(Error::AlreadyInitialized),
    }
}
