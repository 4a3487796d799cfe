//! Groups whose members change. The [`ProcessGroup`] stays the same object: behind it, the members
//! are replaced (`memberships.rs`), with rank, size, store, connections and shared memory.
//!
//! ```text
//!  rank 0 of 3   rank 1   rank 2      a newcomer, without members
//!       │        (dead)      │                  │        each gives its handle to the others,
//!       │                    │                  │        by whatever way they have
//!       └── reconfigure(7, [h0, h2, hn]) ───────┘
//!  1  what is in flight fails, with `Reconfigured`; connections are closed
//!  2  all go to the store of the eldest of them
//!  3  there they meet under (uuid, handles), as the ranks of any group do
//!  4  the backend connects them anew, with a generation of its own
//! ```
//!
//! * **Where they meet.** A process hosts a small store for each of its groups that is asked for
//!   its handle, and the handle names its address. So no store of an earlier group is needed, whose
//!   host may be dead: of n members, the eldest's store serves the new group until the next call.
//!   A browser's tab hosts nothing: if one is among the members, all meet in the WebSocket store
//!   that its handle names.
//! * **Who hosts.** Positions in an ordered list are ranks; of unordered handles, those that were
//!   members of a group keep their order, and newcomers follow (`handle.rs`). The first in that
//!   order is the eldest, and hosts, whatever its new rank is: members that have the same handles
//!   in two orders meet all the same, and find it at once.
//! * **Who does not come.** While members wait, each looks whether the others' processes still
//!   listen (`observer.rs`): one that was killed ends the wait of all at once, with `RankFailed`. A
//!   host that is gone is found in the same way, by those that come to it. One that lives and does
//!   not call ends it when the time is up, with `RendezvousTimeout`; both name the new rank. One
//!   that comes and fails tells the others why. A call that failed leaves the group without
//!   members; it can be called again.
//! * **What may be mixed up.** The number (`uuid`) and the handles, of which this process's own
//!   changes with every call, name the meeting; the same number for disjoint sets of members makes
//!   two groups. Members that come to one host with different lists are told so. The generation,
//!   which every frame has, comes of both.
//!
//! Knows neither transports nor how a backend connects.

mod agreement;
mod configure;
mod exchange;
mod handle;
mod meeting;
mod observer;
mod site;
mod survivor_call;
mod survivors;
mod unless_aborted;

use std::sync::Arc;
use std::time::Duration;

pub use self::configure::ConfigureOptions;
use self::handle::Handle;
use self::meeting::Meeting;
pub(super) use self::meeting::Origins;
use self::site::Refused;
pub(crate) use self::site::Site;
pub(super) use self::survivor_call::SurvivorCalls;
use super::{Inner, ProcessGroup};
use crate::backend::memberless::Memberless;
use crate::backend::registry::BackendName;
use crate::backend::{Backend, EndFuture, IssuedOperation};
use crate::blocking::block_on;
use crate::completion::Completion;
use crate::fnv::Fnv;
use crate::generated::error::{Error, Result};
use crate::process_group::hints::GroupHints;
use crate::store::GroupStore;
use crate::work::Work;

/// Most members; each handle is looked at by all.
const MAX_MEMBERS: usize = 1 << 16;

/// The members of a group from now on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReconfigureOptions {
    /// A number that no earlier call of any member had.
    pub uuid: i64,
    /// What [`ProcessGroup::get_reconfigure_handle`] gave the members.
    pub handles: Vec<String>,
    /// Whether positions in `handles` are ranks, as by default; otherwise the ranks are chosen, the
    /// same on all members, in whatever order each has the handles.
    pub ordered: bool,
    /// Limit of the call; the group's by default, zero is none.
    pub timeout: Option<Duration>,
    /// Hints of the group from then on, as [`ProcessGroup::set_hints`] sets them; those that it has
    /// by default.
    pub hints: Option<GroupHints>,
}

impl ReconfigureOptions {
    /// The members with these handles, of which the positions are the ranks.
    pub fn new(uuid: i64, handles: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let handles = handles.into_iter().map(Into::into).collect();
        ReconfigureOptions { uuid, handles, ordered: true, timeout: None, hints: None }
    }
}

setters! {
    ReconfigureOptions {
        ordered: bool => ordered,
        timeout: Duration => Some(timeout),
        hints: GroupHints => Some(hints),
    }
}

impl ProcessGroup {
    /// Whether the members of the group can be replaced: its backend is `tcp` or `websocket`, and
    /// no other serves a device.
    pub fn supports_reconfigure(&self) -> bool {
        self.inner.cuda.is_none()
            && self.inner.spec.devices.len() <= 1
            && self.inner.cpu_backend().registration().reconfigures
    }

    /// This process's handle, which all members need for [`ProcessGroup::reconfigure`]: who it is,
    /// and where it can be met. It changes with every call of that.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the group cannot be reconfigured; [`Error::Network`] if this
    /// process cannot listen.
    pub fn get_reconfigure_handle(&self) -> Result<String> {
        self.own_handle().map(|handle| handle.to_string())
    }

    fn own_handle(&self) -> Result<Handle> {
        self.unless_left()?;
        self.require_reconfigure("reconfigure")?;
        let rank = (self.size() > 0).then(|| self.rank());
        self.inner.site.handle(self.group_name(), rank, &*self.inner.store)
    }

    fn require_reconfigure(&self, operation: &str) -> Result<()> {
        if self.supports_reconfigure() {
            return Ok(());
        }
        let who = format!("group '{}' of {}", self.group_name(), self.backend_config());
        Err(Error::Unsupported { who, operation: operation.to_owned() })
    }

    /// Replaces the members of this group. All new members call it, with the same options; those
    /// that are left out do not. What is in flight fails before this returns, and so does what is
    /// called before the work is done.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a number that was used before, for handles that are none, or
    /// given twice, or do not have this process's present one among them, and
    /// [`Error::InvalidGroup`] if the group was destroyed: then nothing has changed.
    ///
    /// The work ends with [`Error::RankFailed`] if a member is gone, and with
    /// [`Error::RendezvousTimeout`] naming those that did not come in time. Then the group has no
    /// members, and may be reconfigured again.
    pub fn reconfigure(&self, options: ReconfigureOptions) -> Result<Work> {
        let call = self.begin_reconfigure(options)?;
        let completion = Arc::new(Completion::new());
        let issued = IssuedOperation { sequence: 0, completion: completion.clone() };
        let backend: Arc<dyn Backend> = call.memberless.clone();
        let work = Work::new(self.label("reconfigure"), vec![(issued, backend)], Vec::new());
        on_thread(move || completion.complete(block_on(call.run())))?;
        Ok(work)
    }

    /// As [`ProcessGroup::reconfigure`], until the members are there.
    ///
    /// # Errors
    /// As [`ProcessGroup::reconfigure`] and its work.
    pub async fn reconfigure_async(&self, options: ReconfigureOptions) -> Result<()> {
        self.begin_reconfigure(options)?.run().await
    }

    /// Checks a call, and ends the former membership.
    fn begin_reconfigure(&self, options: ReconfigureOptions) -> Result<Reconfiguration> {
        let ours = self.own_handle()?;
        let ReconfigureOptions { uuid, handles, ordered, timeout, hints } = options;
        let hints = hints.map(|hints| hints.checked("reconfigure")).transpose()?;
        let (handles, rank) = members("reconfigure", &handles, ordered, &ours)?;
        let call = CallName::reconfigure(uuid);
        let turn = Turn::begin(self, uuid, &call)?;
        let timeout = timeout.unwrap_or_else(|| self.timeout());
        let digest = digest(uuid, &handles);
        let former = self.inner.origins.as_ref().map(|origins| origins.digest);
        let during = call.during.clone();
        let meeting = Meeting { call, uuid, digest, handles, rank, timeout, former };
        hints.into_iter().for_each(|hints| self.inner.hints.set(hints));
        let (memberless, closing) = self.retire_members(&during);
        turn.group.inner.site.use_up(uuid);
        Ok(Reconfiguration { turn, meeting, memberless, closing })
    }

    /// Leaves the group without members. What is in flight fails before this returns; to close
    /// everything takes longer.
    fn retire_members(&self, why: &str) -> (Arc<Memberless>, Vec<EndFuture>) {
        let former: Vec<_> = self.inner.backends().cloned().collect();
        let memberless = self.leave_members(why);
        (memberless, former.into_iter().map(|backend| backend.retire()).collect())
    }

    /// Leaves the group without members.
    fn leave_members(&self, why: &str) -> Arc<Memberless> {
        let former = &**self.inner;
        let memberless =
            Arc::new(Memberless::new(former.cpu_backend().as_str(), &former.name, why));
        self.inner.replace(Inner { cpu: memberless.clone(), ..former.successor() });
        if former.store_prefix.is_empty() {
            // Groups that were split off compare by themselves from now on.
            former.open_comparisons.end();
        }
        former.close_stores_as(GroupStore::close_as_former);
        if let Some(origins) = &former.origins {
            origins.store.close();
        }
        memberless
    }
}

/// Runs what waits for others.
fn on_thread(run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name("polyrank-members".to_owned());
    thread.spawn(run).map(drop).map_err(|error| Error::Network {
        message: format!("cannot start the thread that joins the members: {error}"),
    })
}

/// By what the program knows a call.
#[derive(Clone, Debug)]
struct CallName {
    function: &'static str,
    /// What no other call of the group has: "uuid 7".
    number: String,
    /// "reconfigure (uuid 7)"
    shown: String,
    /// When the group has no members: "while it is reconfigured (uuid 7)".
    during: String,
    /// What the next call needs.
    advice: &'static str,
}

impl CallName {
    fn reconfigure(uuid: i64) -> CallName {
        CallName {
            function: "reconfigure",
            number: format!("uuid {uuid}"),
            shown: format!("reconfigure (uuid {uuid})"),
            during: format!("while it is reconfigured (uuid {uuid})"),
            advice: "every call needs a number that no earlier one of any member had",
        }
    }

    /// That of `configure`, of members that meet at this address.
    fn configure(address: &str) -> CallName {
        CallName {
            function: "configure",
            number: format!("the address '{address}'"),
            shown: format!("configure ({address})"),
            during: format!("while its members meet at {address}"),
            advice: "every call needs a prefix that no earlier one of any member had",
        }
    }

    fn refused(&self, why: &Refused) -> Error {
        let CallName { function, number, advice, .. } = self;
        let message = match why {
            Refused::Busy => format!("{function}: an earlier call of this group is under way"),
            Refused::Used(count) => format!(
                "{function}: {number} was used before, by call {count} of this group; {advice}"
            ),
        };
        Error::InvalidArgument { message }
    }
}

impl std::fmt::Display for CallName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

/// A call that is under way; no other begins before it is dropped.
struct Turn {
    group: ProcessGroup,
}

impl Turn {
    fn begin(group: &ProcessGroup, uuid: i64, call: &CallName) -> Result<Turn> {
        let site = &group.inner.site;
        let begun = site.begin(uuid).map_err(|busy| call.refused(&busy));
        begun.map(|()| Turn { group: group.clone() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.group.inner.site.end();
    }
}

/// A call after its checks.
struct Reconfiguration {
    turn: Turn,
    meeting: Meeting,
    memberless: Arc<Memberless>,
    /// What closes the connections of the former members.
    closing: Vec<EndFuture>,
}

impl Reconfiguration {
    async fn run(self) -> Result<()> {
        let Reconfiguration { turn, meeting, memberless, closing } = self;
        let group = &turn.group;
        for closing in closing {
            closing.await?;
        }
        let joined = meeting.join(group, &memberless).await;
        let ended = match joined {
            Ok(inner) => {
                let cpu = inner.cpu.clone();
                let replaced = memberless.hand_over(cpu.clone(), || group.inner.replace(inner));
                replaced.map_err(|why| {
                    // They are there, and nobody wants them.
                    cpu.abort(&why);
                    meeting.aborted(group, why)
                })
            }
            Err(error) => match memberless.aborted() {
                Some(why) => Err(meeting.aborted(group, why)),
                None => Err(error),
            },
        };
        match &ended {
            Ok(()) => group.renew_hooks(),
            Err(error) => {
                memberless.explain(&meeting.call.shown, error);
            }
        }
        ended
    }
}

/// The members by their new ranks, and the rank of this process.
fn members(
    function: &str,
    texts: &[String],
    ordered: bool,
    ours: &Handle,
) -> Result<(Vec<Handle>, u32)> {
    let invalid = |message: String| Err(Error::InvalidArgument { message });
    if texts.is_empty() || texts.len() > MAX_MEMBERS {
        let count = texts.len();
        return invalid(format!("{function} needs 1 to {MAX_MEMBERS} handles, got {count}"));
    }
    let mut handles =
        texts.iter().map(|text| Handle::parse(text)).collect::<Result<Vec<Handle>>>()?;
    if !ordered {
        handles.sort_by(Handle::seniority);
    }
    let mut nonces: Vec<u64> = handles.iter().map(|handle| handle.nonce).collect();
    nonces.sort_unstable();
    if nonces.windows(2).any(|pair| pair[0] == pair[1]) {
        return invalid(format!("{function}: a member is given twice among the handles"));
    }
    match handles.iter().position(|handle| handle.nonce == ours.nonce) {
        Some(rank) if handles[rank] == *ours => Ok((handles, rank as u32)),
        Some(rank) => invalid(format!(
            "{function}: the handle of this process, at position {rank}, is '{}', which it had \
             before an earlier call; it is '{ours}' now",
            handles[rank]
        )),
        None => invalid(format!(
            "{function}: this process is not among the {} new members: its handle, '{ours}', is \
             not given",
            handles.len()
        )),
    }
}

/// What tells one meeting from another.
fn digest(uuid: i64, handles: &[Handle]) -> u64 {
    let mut hash = Fnv::new();
    hash.bytes(uuid.to_le_bytes());
    for handle in handles {
        hash.bytes(handle.to_string().bytes());
        hash.bytes([0]);
    }
    hash.value()
}

impl Inner {
    /// The name of the backend that serves the host.
    fn cpu_backend(&self) -> BackendName {
        self.spec.backend_for("cpu").unwrap_or_else(BackendName::tcp)
    }
}
