//! One call of all ranks that are left of a group. Knows not what they call it for, and nothing of
//! how members meet.
//!
//! Each gives its part in a store, and waits until the others have, or are known to be gone. The
//! first that sees how the call ends writes that, once, and all return it: also those that come
//! later, or were taken for gone. So a call ends in the same way on all ranks, well or badly, and
//! the next of one is the next of all: a rank that a call leaves out passes over it, once that has
//! failed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;
use crate::process_group::liveness::Look;
use crate::rendezvous::{self, meeting_place};
use crate::store::{PrefixStore, Store};
use crate::work::comm_name::titled;

/// How long a rank waits for the others before it looks whether they are gone.
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// Where it stands what all call.
const CALLED: &str = "called";
/// Where it stands how the call ended.
const END: &str = "end";
/// What the keys begin with in the store of a member.
pub(super) const PREFIX: &str = "polyrank-survivors/";

/// What the text begins with of a call that ended well.
const DONE: u8 = b'=';
/// Of one that needs a rank which is gone.
const GONE: u8 = b'g';
/// Of one to which ranks did not come in time.
const LATE: u8 = b'l';
/// Of one in which a rank called something else.
const DIFFERS: u8 = b'd';

/// The calls of the ranks that are left of a group, by one of them.
#[derive(Default)]
pub(in crate::process_group) struct SurvivorCalls {
    count: AtomicU64,
    /// What the keys begin with of those of all ranks that have ended, but whose keys are still
    /// there, since others may look for them.
    kept: Mutex<Vec<String>>,
}

/// What all that take part say alike.
pub(super) struct SurvivorCall<'a> {
    pub(super) group: &'a ProcessGroup,
    /// The method.
    pub(super) name: &'static str,
    /// What is called, with all that the ranks must agree on.
    pub(super) what: String,
    /// Who takes part.
    pub(super) ranks: Vec<u32>,
    /// Whether all ranks take part, and it ends well without those that are gone.
    pub(super) goes_on: bool,
    /// The member in whose store they meet, if not in that of the group.
    pub(super) elsewhere: Option<u32>,
    pub(super) timeout: Duration,
}

/// Where those meet that take part.
struct MeetingStore {
    store: Arc<dyn Store>,
    /// What the keys of their calls begin with there.
    prefix: String,
    /// If members are looked for in the same store.
    look: Option<Look>,
}

impl SurvivorCall<'_> {
    /// Gives this rank's part, and returns what `settle` makes of the parts of all that gave one,
    /// by rank; with the number of the call, the same on all ranks.
    pub(super) async fn run(
        &self,
        part: &[u8],
        settle: impl Fn(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<(Vec<u8>, u64)> {
        self.group.explained_by_members(self.name, self.run_among(part, settle)).await
    }

    /// As [`SurvivorCall::run`], as long as the members stay.
    async fn run_among(
        &self,
        part: &[u8],
        settle: impl Fn(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<(Vec<u8>, u64)> {
        let began = Instant::now();
        let members = &**self.group.inner;
        let host = self.host();
        let explained = |error| self.explained(error, host);
        let mut place = self.open().await.map_err(explained)?;
        loop {
            let count = members.survivor_calls.count.fetch_add(1, Ordering::Relaxed);
            let prefix = format!("{}{count}", place.prefix);
            let keys = PrefixStore::new(prefix.clone(), place.store.clone());
            let met = self.meet(&keys, &mut place.look, began, (part, &settle)).await;
            let Some(ended) = met.map_err(explained)? else { continue };
            self.tidy(&*place.store, prefix, ended.first() == Some(&DONE)).await;
            let digest = members.origins.as_ref().map_or(0, |origins| origins.digest);
            return self.result(ended).map(|settled| (settled, digest.wrapping_add(count)));
        }
    }

    /// The rank that hosts the store in which they meet, if one does.
    fn host(&self) -> Option<u32> {
        let members = &**self.group.inner;
        let of_root = || members.liveness.as_ref()?.host;
        let in_group = |host: u32| members.members.iter().position(|&member| member == host);
        self.elsewhere.or_else(|| in_group(of_root()?).map(|rank| rank as u32))
    }

    async fn open(&self) -> Result<MeetingStore> {
        let members = &**self.group.inner;
        if let Some((rank, origins)) = self.elsewhere.zip(members.origins.as_ref()) {
            let place = &origins.places[rank as usize];
            let hosted = self.group.inner.site.hosted().filter(|it| it.url == *place);
            let store = match hosted {
                Some(hosted) => hosted.store.clone_store_async().await?,
                None => meeting_place::open(place, self.timeout).await?,
            };
            let prefix = format!("{PREFIX}{:016x}/", origins.digest);
            return Ok(MeetingStore { store, prefix, look: None });
        }
        let (store, look) = match &members.liveness {
            Some(liveness) => {
                let look = liveness.look(self.timeout).await?;
                (look.store.clone(), Some(look))
            }
            // Nobody else is a member, and nobody comes.
            None => (members.store.underlying()?.reopen_async(self.timeout).await?, None),
        };
        let prefix = match members.store_prefix.as_str() {
            "" => "calls/".to_owned(),
            prefix => format!("calls/{prefix}/"),
        };
        Ok(MeetingStore { store, prefix, look })
    }

    /// Waits for the others, and returns how the call ended; `None` if it was one of others, which
    /// did not go on without this rank.
    async fn meet(
        &self,
        keys: &dyn Store,
        look: &mut Option<Look>,
        began: Instant,
        (part, settle): (&[u8], &impl Fn(&[Vec<u8>]) -> Vec<u8>),
    ) -> Result<Option<Vec<u8>>> {
        let ours = self.called();
        let called = keys.compare_set_async(CALLED, b"", ours.as_bytes()).await?;
        if called != ours.as_bytes() {
            return self.meet_others(keys, &called, began).await;
        }
        keys.set_async(&key(self.group.rank()), part).await?;
        loop {
            let (limit, late) = self.next_look(began);
            let missing = await_keys(keys, &self.ranks, limit).await?;
            if keys.check_async(&[END]).await? {
                return keys.get_async(END).await.map(Some);
            }
            let mut awaited = Vec::new();
            for &rank in &missing {
                match self.is_gone(rank, look).await {
                    true if self.goes_on => {}
                    true => return self.end(keys, GONE, rank.to_string().as_bytes()).await,
                    false => awaited.push(rank),
                }
            }
            if awaited.is_empty() {
                let came = self.ranks.iter().filter(|rank| !missing.contains(rank));
                let came: Vec<String> = came.map(|&rank| key(rank)).collect();
                let came: Vec<&str> = came.iter().map(String::as_str).collect();
                let parts = keys.multi_get_async(&came).await?;
                return self.end(keys, DONE, &settle(&parts)).await;
            }
            if late {
                let ranks: Vec<String> = awaited.iter().map(u32::to_string).collect();
                return self.end(keys, LATE, ranks.join(",").as_bytes()).await;
            }
        }
    }

    /// As [`SurvivorCall::meet`], where those that came first have called something else. If it is
    /// without this rank, it is not disturbed.
    async fn meet_others(
        &self,
        keys: &dyn Store,
        called: &[u8],
        began: Instant,
    ) -> Result<Option<Vec<u8>>> {
        let called = String::from_utf8_lossy(called);
        let (ranks, what) = called.split_once(' ').unwrap_or(("", &called));
        let rank = self.group.rank();
        let difference =
            format!("rank {rank} calls {}, where the one that came first calls {what}", self.what);
        let is_member = ranks.split(',').any(|member| member.parse() == Ok(rank));
        if is_member {
            let ended = self.end(keys, DIFFERS, difference.as_bytes()).await?;
            // What the others called may have ended well, without this rank.
            let is_over = ended.as_ref().is_some_and(|ended| ended.first() == Some(&DONE));
            return Ok(if is_over { differs(&difference) } else { ended });
        }
        loop {
            let (limit, late) = self.next_look(began);
            match keys.wait_async(&[END], Some(limit)).await {
                Err(Error::StoreTimeout { .. }) if !late => continue,
                Err(Error::StoreTimeout { .. }) => return Ok(differs(&difference)),
                waited => waited?,
            }
            let ended = keys.get_async(END).await?;
            return Ok(match ended.first() {
                Some(&DONE) => differs(&difference),
                Some(&DIFFERS) => Some(ended),
                _ => None,
            });
        }
    }

    /// How long to wait until the next look at who is gone, and whether it is the last one.
    fn next_look(&self, began: Instant) -> (Duration, bool) {
        let left = self.timeout.saturating_sub(began.elapsed());
        match self.timeout.is_zero() {
            true => (LOOK_AFTER, false),
            // Zero would be no limit.
            false => (left.clamp(Duration::from_millis(1), LOOK_AFTER), left.is_zero()),
        }
    }

    /// What all that take part say alike, and who they are.
    fn called(&self) -> String {
        let ranks: Vec<String> = self.ranks.iter().map(u32::to_string).collect();
        format!("{} {}", ranks.join(","), self.what)
    }

    /// How the call ended: in this way, unless somebody has said another before.
    async fn end(&self, keys: &dyn Store, kind: u8, text: &[u8]) -> Result<Option<Vec<u8>>> {
        let ours = [&[kind], text].concat();
        keys.compare_set_async(END, b"", &ours).await.map(Some)
    }

    /// Whether it is certain that a rank's process is gone, or has left the group.
    async fn is_gone(&self, rank: u32, look: &mut Option<Look>) -> bool {
        let members = &**self.group.inner;
        if members.cpu.has_left(rank) {
            return true;
        }
        if look.is_none()
            && let Some(liveness) = &members.liveness
        {
            *look = liveness.look(self.timeout).await.ok();
        }
        if let Some(look) = look
            && look.is_gone(&members.store_prefix, members.members[rank as usize]).await
        {
            return true;
        }
        // A rank that lives closes its connections, too, when the group broke, which this rank may
        // have heard of later. The server that a rank hosts knows which processes have ended.
        let is_certain = members.liveness.as_ref().is_some_and(|it| it.host.is_some());
        if !(look.is_some() && is_certain) && members.cpu.has_died(rank) {
            return true;
        }
        match &members.origins {
            Some(origins) => meeting_place::is_gone(&origins.places[rank as usize]).await,
            None => false,
        }
    }

    fn result(&self, ended: Vec<u8>) -> Result<Vec<u8>> {
        let (group, name) = (self.group.group_name(), titled(self.name));
        let (kind, text) = ended.split_first().unwrap_or((&DIFFERS, b"nothing that is known"));
        let said = String::from_utf8_lossy(text);
        Err(match *kind {
            DONE => return Ok(text.to_vec()),
            GONE => self.gone(said.parse().unwrap_or_default(), "it is gone, or left the group"),
            LATE => {
                let ranks: Vec<u32> = said.split(',').filter_map(|it| it.parse().ok()).collect();
                let (ours, ms) = (self.group.rank(), self.timeout.as_millis() as u64);
                let message = match ranks.contains(&ours) {
                    true => format!(
                        "{name} of group '{group}': rank {ours} came when the others had given up"
                    ),
                    false => format!(
                        "{name} of group '{group}': ranks {ranks:?} live and did not come within \
                         {ms} ms, or within the limit of another rank"
                    ),
                };
                rendezvous::timed_out(ours, ranks, message)
            }
            _ => Error::InvalidArgument {
                message: format!("{name} of group '{group}': ranks call different things: {said}"),
            },
        })
    }

    fn gone(&self, rank: u32, why: &str) -> Error {
        Error::RankFailed {
            group: self.group.group_name().to_owned(),
            rank,
            why: why.to_owned(),
            collective: titled(self.name),
            sequence: 0,
        }
    }

    /// What `error`, which the store in which they meet had, says of this call.
    fn explained(&self, error: Error, host: Option<u32>) -> Error {
        const ADVICE: &str = "exchange what get_reconfigure_handle() gives by another way, and \
                              call reconfigure()";
        let (group, name) = (self.group.group_name(), titled(self.name));
        let what = match &error {
            Error::Network { message } => format!("is gone ({message})"),
            Error::StoreTimeout { .. } => {
                format!("did not answer within {} ms", self.timeout.as_millis() as u64)
            }
            _ => return error,
        };
        let is_gone = matches!(error, Error::Network { .. });
        match host.filter(|_| is_gone) {
            Some(rank) => {
                let why = "it hosted the store in which those that are left meet, which is gone";
                self.gone(rank, &format!("{why}; {ADVICE}"))
            }
            None => {
                let hosted = host.map(|rank| format!(", which rank {rank} hosts,"));
                let message = format!(
                    "{name} of group '{group}': the store in which those that are left meet{} \
                     {what}; {ADVICE}",
                    hosted.unwrap_or_default()
                );
                match host {
                    Some(rank) => rendezvous::timed_out(rank, vec![rank], message),
                    None => Error::Network { message },
                }
            }
        }
    }

    /// Removes what earlier calls of all left in the store: with one that ended well, and that all
    /// ranks are called to, all that live have read how those ended.
    async fn tidy(&self, store: &dyn Store, prefix: String, is_done: bool) {
        let over = {
            let kept = &self.group.inner.survivor_calls.kept;
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let over = match is_done && self.goes_on {
                true => std::mem::take(&mut *kept),
                false => Vec::new(),
            };
            if self.elsewhere.is_none() {
                kept.push(prefix);
            }
            over
        };
        for prefix in over {
            for key in [key(self.group.rank()), CALLED.to_owned(), END.to_owned()] {
                // It stays, then.
                let _ = store.delete_key_async(&format!("{prefix}/{key}")).await;
            }
        }
    }
}

/// The end of a call of others, who say something else.
fn differs(why: &str) -> Option<Vec<u8>> {
    Some([&[DIFFERS], why.as_bytes()].concat())
}

fn key(rank: u32) -> String {
    format!("part/{rank}")
}

/// Waits a moment for the parts of `ranks`; the ranks of which there is none.
async fn await_keys(store: &dyn Store, ranks: &[u32], limit: Duration) -> Result<Vec<u32>> {
    let keys: Vec<String> = ranks.iter().map(|&rank| key(rank)).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    match store.wait_async(&keys, Some(limit)).await {
        Ok(()) => return Ok(Vec::new()),
        Err(Error::StoreTimeout { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut missing = Vec::new();
    for (rank, key) in ranks.iter().zip(keys) {
        if !store.check_async(&[key]).await? {
            missing.push(*rank);
        }
    }
    Ok(missing)
}
