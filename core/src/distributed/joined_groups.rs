//! Groups that stand alone: programs that were started apart, and have no default group, join one
//! of a name. Knows no backend.

use super::{InitOptions, World, form};
use crate::blocking::block_on;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;
use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};

/// The groups that this process joined and has not left.
static JOINED: ProcessMutex<Vec<World>> = ProcessMutex::new(Vec::new());

/// Joins the group `name`, whose ranks meet in the store or at the URL that `options` name, and
/// waits until all of them are there: programs in any language, started in any order, that need
/// have nothing else in common. The process has no default group for it, and may join several;
/// those in one store are told apart by their names.
///
/// A rank of another [`version`](InitOptions::version) than those that wait is refused, and they go
/// on waiting; where rank 0 serves the store, it is rank 0's version that counts. Where the place
/// of a rank is free again, because its program ended, the next group of this name has a place for
/// it.
///
/// [`destroy_process_group`](super::destroy_process_group) leaves it; all groups, if none is named.
///
/// ```no_run
/// use polyrank::distributed::{InitOptions, join_group};
///
/// let trainer = InitOptions::default().init_method("tcp://10.0.0.1:29500").rank(0).world_size(3);
/// let group = join_group("weights", trainer.version("7"))?;
/// # Ok::<(), polyrank::Error>(())
/// ```
///
/// # Errors
/// [`Error::DuplicateGroup`] if this process is in a group of this name; those of
/// [`init_process_group`](super::init_process_group).
pub fn join_group(name: &str, options: InitOptions) -> Result<ProcessGroup> {
    block_on(join_group_async(name, options))
}

/// As [`join_group`], without blocking, but for an MPI library that is initialised.
///
/// # Errors
/// As [`join_group`].
pub async fn join_group_async(name: &str, options: InitOptions) -> Result<ProcessGroup> {
    join_group_if(Ok(()), name, options).await
}

/// As [`join_group_async`], if it is `possible` for this rank; else the others learn why it is not.
pub(crate) async fn join_group_if(
    possible: Result<()>,
    name: &str,
    options: InitOptions,
) -> Result<ProcessGroup> {
    if name.is_empty() || options.enable_reconfigure {
        let message = match name.is_empty() {
            true => "join_group: the group's name must not be empty",
            false => "join_group: a group without members is made by init_process_group",
        };
        return Err(Error::InvalidArgument { message: message.to_owned() });
    }
    // That of a group that it joined, or joins: the others have this rank, or will.
    let _reserved = ReservedName::of(name)?;
    let is_free = match super::world().as_ref().is_some_and(|world| world.has_group(name)) {
        true => Err(Error::DuplicateGroup { group_name: name.to_owned() }),
        false => Ok(()),
    };
    let made = form(possible.and(is_free), &options, name, name).await?;
    let group = made.group.clone();
    group.hold_name();
    joined().push(made);
    Ok(group)
}

/// Takes a group out of those that were joined; none if it was not, or is left already.
pub(super) fn take(group: &ProcessGroup) -> Option<World> {
    let mut joined = joined();
    let found = joined.iter().position(|made| made.group.identity() == group.identity());
    let mut made = joined.remove(found?);
    // Where the server serves another group, it does not end with this one.
    let serves_on = joined.iter().any(|other| other.hosting && store_of(other) == store_of(&made));
    made.hosting &= !serves_on;
    Some(made)
}

/// Takes all groups out of those that were joined.
pub(super) fn take_all() -> Vec<World> {
    let mut left: Vec<World> = Vec::new();
    while let Some(group) = all().pop() {
        left.extend(take(&group));
    }
    left
}

/// The groups that were joined, and are not left.
pub(super) fn all() -> Vec<ProcessGroup> {
    joined().iter().map(|made| made.group.clone()).collect()
}

/// Where the ranks of a group met.
fn store_of(made: &World) -> Option<String> {
    made.claim.as_ref().map(|claim| claim.store().description())
}

/// Refuses a name that a group has which was joined, or that is being joined.
///
/// # Errors
/// [`Error::DuplicateGroup`].
pub(super) fn refuse_name(name: &str) -> Result<()> {
    ReservedName::of(name).map(drop)
}

/// The name of a group that is being joined. A second thread that joined it would be the same rank.
struct ReservedName(String);

/// The names of those, and the processes that join them.
static RESERVED: ProcessMutex<Vec<(u32, String)>> = ProcessMutex::new(Vec::new());

impl ReservedName {
    fn of(name: &str) -> Result<ReservedName> {
        let ours = crate::clock::process_id();
        let mut reserved = RESERVED.lock();
        reserved.retain(|(process_id, _)| *process_id == ours);
        let is_joined = joined().iter().any(|made| made.group.group_name() == name);
        if is_joined || reserved.iter().any(|(_, known)| known == name) {
            return Err(Error::DuplicateGroup { group_name: name.to_owned() });
        }
        reserved.push((ours, name.to_owned()));
        Ok(ReservedName(name.to_owned()))
    }
}

impl Drop for ReservedName {
    fn drop(&mut self) {
        let mut reserved = RESERVED.lock();
        reserved.retain(|(_, known)| *known != self.0);
    }
}

/// Whether a group was joined, and is not left.
pub(super) fn has(group: &ProcessGroup) -> bool {
    joined().iter().any(|made| made.group.identity() == group.identity())
}

/// What this process joined: what a parent process had before a fork is forgotten, untouched.
fn joined() -> ProcessMutexGuard<'static, Vec<World>> {
    let mut joined = JOINED.lock();
    let ours = crate::clock::process_id();
    if joined.iter().any(|made| made.process_id != ours) {
        std::mem::forget(std::mem::take(&mut *joined));
    }
    joined
}
