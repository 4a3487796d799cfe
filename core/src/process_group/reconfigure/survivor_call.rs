//! One call of all ranks that are left of a group. Knows not what they call it for, and nothing of
//! how members meet.
//!
//! Each gives its part in a store, and waits until the others have, or are known to be gone. The
//! first that sees how the call ends writes that, once, and all return it: also those that come
//! later, or were taken for gone. So a call ends in the same way on all ranks, well or badly, and
//! the next of one is the next of all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;
use crate::process_group::liveness::Look;
use crate::rendezvous::{self, meeting_place};
use crate::store::{PrefixStore, Store};

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
struct Refuge {
    store: Arc<dyn Store>,
    /// The keys of this call.
    keys: Arc<dyn Store>,
    prefix: String,
}

impl SurvivorCall<'_> {
    /// Gives this rank's part, and returns what `settle` makes of the parts of all that gave one,
    /// by rank; with the number of the call, the same on all ranks.
    pub(super) async fn run(
        &self,
        part: &[u8],
        settle: impl Fn(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<(Vec<u8>, u64)> {
        let began = Instant::now();
        let members = &**self.group.inner;
        let count = members.survivor_calls.count.fetch_add(1, Ordering::Relaxed);
        let host = self.host();
        let refuge = self.open(count).await.map_err(|error| self.explained(error, host))?;
        let ended = self.meet(&refuge, began, part, settle).await;
        let ended = ended.map_err(|error| self.explained(error, host))?;
        if self.goes_on {
            self.tidy(&refuge, ended.first() == Some(&DONE)).await;
        }
        let digest = members.origins.as_ref().map_or(0, |origins| origins.digest);
        self.result(ended).map(|settled| (settled, digest.wrapping_add(count)))
    }

    /// The rank that hosts the store in which they meet, if one does.
    fn host(&self) -> Option<u32> {
        let members = &**self.group.inner;
        let of_root = || members.liveness.as_ref()?.host;
        let in_group = |host: u32| members.members.iter().position(|&member| member == host);
        self.elsewhere.or_else(|| in_group(of_root()?).map(|rank| rank as u32))
    }

    async fn open(&self, count: u64) -> Result<Refuge> {
        let members = &**self.group.inner;
        let elsewhere = self.elsewhere.zip(members.origins.as_ref());
        let (store, prefix) = match elsewhere {
            None => {
                let store = members.store.underlying()?.reopen_async(self.timeout).await?;
                (store, format!("alive/calls/{count}"))
            }
            Some((rank, origins)) => {
                let place = &origins.places[rank as usize];
                let hosted = self.group.inner.site.hosted().filter(|it| it.url == *place);
                let store = match hosted {
                    Some(hosted) => hosted.store.clone_store_async().await?,
                    None => meeting_place::open(place, self.timeout).await?,
                };
                (store, format!("{PREFIX}{:016x}/{count}", origins.digest))
            }
        };
        let keys = Arc::new(PrefixStore::new(prefix.clone(), store.clone()));
        Ok(Refuge { store, keys, prefix })
    }

    /// Waits for the others, and returns how the call ended.
    async fn meet(
        &self,
        refuge: &Refuge,
        began: Instant,
        part: &[u8],
        settle: impl Fn(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>> {
        let keys = &*refuge.keys;
        let called = keys.compare_set_async(CALLED, b"", self.what.as_bytes()).await?;
        if called != self.what.as_bytes() {
            let why = self.difference(&called);
            let ended = self.end(keys, DIFFERS, &why).await?;
            // What the others called may have ended well, without this rank.
            let is_over = ended.first() == Some(&DONE);
            return Ok(if is_over { [&[DIFFERS][..], &why].concat() } else { ended });
        }
        keys.set_async(&key(self.group.rank()), part).await?;
        let mut look = None;
        loop {
            let left = self.timeout.saturating_sub(began.elapsed());
            let late = !self.timeout.is_zero() && left.is_zero();
            let limit = if self.timeout.is_zero() { LOOK_AFTER } else { left.min(LOOK_AFTER) };
            let missing = await_keys(keys, &self.ranks, limit).await?;
            if keys.check_async(&[END]).await? {
                return keys.get_async(END).await;
            }
            let mut awaited = Vec::new();
            for &rank in &missing {
                match self.is_gone(rank, &mut look).await {
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

    /// How the call ended: in this way, unless somebody has said another before.
    async fn end(&self, keys: &dyn Store, kind: u8, text: &[u8]) -> Result<Vec<u8>> {
        let ours = [&[kind], text].concat();
        keys.compare_set_async(END, b"", &ours).await
    }

    fn difference(&self, called: &[u8]) -> Vec<u8> {
        let (rank, what) = (self.group.rank(), &self.what);
        let called = String::from_utf8_lossy(called);
        format!("rank {rank} calls {what}, where the one that came first calls {called}").into()
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
            *look = liveness.look(self.timeout).await;
        }
        if let Some(look) = look
            && look.is_gone(members.members[rank as usize]).await
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
        let (group, name) = (self.group.group_name(), self.name);
        let (kind, text) = ended.split_first().unwrap_or((&DIFFERS, b"nothing that is known"));
        let said = String::from_utf8_lossy(text);
        Err(match *kind {
            DONE => return Ok(text.to_vec()),
            GONE => self.gone(said.parse().unwrap_or_default(), "it is gone, or left the group"),
            LATE => {
                let ranks: Vec<u32> = said.split(',').filter_map(|it| it.parse().ok()).collect();
                let (ours, ms) = (self.group.rank(), self.timeout.as_millis());
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
            collective: self.name.to_owned(),
            sequence: 0,
        }
    }

    /// What `error`, which the store in which they meet had, says of this call.
    fn explained(&self, error: Error, host: Option<u32>) -> Error {
        const ADVICE: &str = "exchange what get_reconfigure_handle() gives by another way, and \
                              call reconfigure()";
        let (group, name) = (self.group.group_name(), self.name);
        let what = match &error {
            Error::Network { message } => format!("is gone ({message})"),
            Error::StoreTimeout { .. } => {
                format!("did not answer within {} ms", self.timeout.as_millis())
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

    /// Removes what earlier calls of all left in the store: with one that ended well, all that live
    /// have read how those ended.
    async fn tidy(&self, refuge: &Refuge, is_done: bool) {
        let over = {
            let kept = &self.group.inner.survivor_calls.kept;
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let over = if is_done { std::mem::take(&mut *kept) } else { Vec::new() };
            kept.push(refuge.prefix.clone());
            over
        };
        for prefix in over {
            for key in [key(self.group.rank()), CALLED.to_owned(), END.to_owned()] {
                // It stays, then.
                let _ = refuge.store.delete_key_async(&format!("{prefix}/{key}")).await;
            }
        }
    }
}

fn key(rank: u32) -> String {
    format!("part/{rank}")
}

/// Waits a moment for the parts of `ranks`; the ranks of which there is none.
async fn await_keys(store: &dyn Store, ranks: &[u32], limit: Duration) -> Result<Vec<u32>> {
    let keys: Vec<String> = ranks.iter().map(|&rank| key(rank)).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    // Zero would be no limit.
    match store.wait_async(&keys, Some(limit.max(Duration::from_millis(1)))).await {
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
