//! torchft's way to replace the members of a group: each process is told where they meet and which
//! rank it has, and they learn one another's handles there. The rest is `reconfigure`. Knows
//! neither transports nor how members are connected.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::handle::Handle;
use super::meeting::Meeting;
use super::unless_aborted::unless_aborted;
use super::{CallName, MAX_MEMBERS, Reconfiguration, Turn, digest, members};
use crate::backend::memberless::Memberless;
use crate::blocking::block_on;
use crate::clock::Instant;
use crate::fnv::Fnv;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;
use crate::rendezvous::{self, StoreAddress};
use crate::store::Store;

/// The name under which members meet, whatever each calls the group.
const MEETING: &str = "configure";

/// How long a process that gives up may take to tell the others.
const TELLING_LIMIT: Duration = Duration::from_millis(500);

/// The members of a group from now on, and where they meet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigureOptions {
    /// `host:port/prefix`, or `ws://host:port/prefix`: a store, with a prefix that no earlier call
    /// had.
    pub store_addr: String,
    /// This process's rank, from 0.
    pub rank: u32,
    /// The number of members.
    pub world_size: u32,
    /// What this member is called, for logs.
    pub replica_id: Option<String>,
    /// The number of the quorum. A prefix may serve once for each.
    pub quorum_id: Option<i64>,
    /// This process's rank in its replica, for logs.
    pub replica_rank: Option<u32>,
    /// The number of ranks of its replica, for logs.
    pub replica_world_size: Option<u32>,
    /// The ranks of the members in the whole job, by rank, for logs.
    pub global_ranks: Option<Vec<u32>>,
    /// Limit of the call; the group's by default, zero is none.
    pub timeout: Option<Duration>,
}

impl ConfigureOptions {
    /// Rank `rank` of `world_size` members that meet at `store_addr`.
    pub fn new(store_addr: impl Into<String>, rank: u32, world_size: u32) -> ConfigureOptions {
        ConfigureOptions {
            store_addr: store_addr.into(),
            rank,
            world_size,
            replica_id: None,
            quorum_id: None,
            replica_rank: None,
            replica_world_size: None,
            global_ranks: None,
            timeout: None,
        }
    }

    /// Where they meet, if all that is said makes sense.
    fn check(&self) -> Result<StoreAddress<'_>> {
        let ConfigureOptions { rank, world_size, global_ranks, .. } = self;
        let most = MAX_MEMBERS;
        let message = match (*world_size, global_ranks) {
            (0, _) => format!("configure needs 1 to {most} members, got a world_size of 0"),
            (size, _) if size as usize > most => {
                format!("configure needs 1 to {most} members, got a world_size of {size}")
            }
            (size, _) if *rank >= size => {
                format!("configure: rank {rank} does not exist: ranks are 0 to {}", size - 1)
            }
            (size, Some(all)) if all.len() != size as usize => format!(
                "configure needs as many global_ranks as members, got {} for {size}",
                all.len()
            ),
            _ => return StoreAddress::parse(&self.store_addr),
        };
        Err(Error::InvalidArgument { message })
    }

    /// What all members have in common that meet under this prefix, and no other call has. Each may
    /// know the host by another name.
    fn number(&self, address: &StoreAddress<'_>) -> i64 {
        let mut hash = Fnv::new();
        hash.bytes(self.quorum_id.unwrap_or(-1).to_le_bytes());
        hash.bytes(self.world_size.to_le_bytes());
        hash.bytes(address.port().to_le_bytes());
        hash.bytes(address.prefix.bytes());
        // A number that a program chooses is seldom so large.
        (hash.value() >> 1 | 1 << 62) as i64
    }
}

setters! {
    ConfigureOptions {
        replica_id: impl Into<String> => Some(replica_id.into()),
        quorum_id: i64 => Some(quorum_id),
        replica_rank: u32 => Some(replica_rank),
        replica_world_size: u32 => Some(replica_world_size),
        global_ranks: impl IntoIterator<Item = u32> => Some(global_ranks.into_iter().collect()),
        timeout: Duration => Some(timeout),
    }
}

impl ProcessGroup {
    /// Replaces the members of this group by those that call this with the same store, prefix and
    /// world size, each with its rank: torchft's `configure`. What is in flight fails before they
    /// meet, with [`Error::Reconfigured`]. The store serves while they meet, and is not needed
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that does not exist, or an address whose prefix was
    /// used before, and [`Error::Unsupported`] for a group that cannot be reconfigured: then
    /// nothing has changed.
    ///
    /// [`Error::Network`] if the store cannot be reached; [`Error::RendezvousTimeout`] naming those
    /// that did not come in time; [`Error::Rendezvous`] if a rank came twice, or world sizes
    /// differ; [`Error::RankFailed`] if a member is gone. Then the group has no members, and may be
    /// configured again, under another prefix.
    pub fn configure(&self, options: ConfigureOptions) -> Result<()> {
        block_on(self.configure_async(options))
    }

    /// As [`ProcessGroup::configure`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::configure`].
    pub async fn configure_async(&self, options: ConfigureOptions) -> Result<()> {
        let address = options.check()?;
        self.unless_left()?;
        self.require_reconfigure("configure")?;
        let call = CallName::Configure(&options.store_addr);
        let (uuid, began) = (options.number(&address), Instant::now());
        let turn = Turn::begin(self, uuid, call)?;
        let former = self.inner.origins.as_ref().map(|origins| origins.digest);
        let rank = (self.size() > 0).then(|| self.rank());
        let (memberless, closing) = self.retire_members(&call.during());
        let timeout = options.timeout.unwrap_or_else(|| self.timeout());
        let (group, place) = (self, (options.rank, options.world_size));
        let exchange = Exchange { group, address: &address, place, uuid, timeout, began };
        let (handles, rank) = match exchange.run(&memberless, rank).await {
            Ok(met) => met,
            Err(error) => {
                memberless.explain(&call.to_string(), &error);
                return Err(error);
            }
        };
        let (digest, timeout) = (digest(uuid, &handles), exchange.left());
        let meeting = Meeting { uuid, digest, handles, rank, timeout, former };
        Reconfiguration { turn, meeting, memberless, closing }.run().await?;
        let ConfigureOptions { rank, world_size, store_addr, .. } = &options;
        tracing::info!(
            group = self.group_name(),
            replica = options.replica_id.as_deref(),
            quorum = options.quorum_id,
            replica_rank = options.replica_rank,
            replica_world_size = options.replica_world_size,
            global_ranks = options.global_ranks.as_deref().map(tracing::field::debug),
            "the members met at {store_addr}: this is rank {rank} of {world_size}"
        );
        Ok(())
    }
}

/// How the members learn one another's handles.
struct Exchange<'a> {
    group: &'a ProcessGroup,
    address: &'a StoreAddress<'a>,
    /// The rank of this process, and how many they are.
    place: (u32, u32),
    uuid: i64,
    timeout: Duration,
    began: Instant,
}

impl Exchange<'_> {
    /// The members by their new ranks, and that of this process, which had the rank `former` before.
    async fn run(
        &self,
        memberless: &Arc<Memberless>,
        former: Option<u32>,
    ) -> Result<(Vec<Handle>, u32)> {
        let store = OnceLock::new();
        let met = unless_aborted(memberless, self.meet(former, &store)).await;
        if let Some(why) = memberless.aborted() {
            return Err(self.aborted(why, store.get()).await);
        }
        let (ours, texts) = met?;
        let (handles, rank) = members(&texts, true, &ours)?;
        let (expected, size) = self.place;
        if rank == expected {
            return Ok((handles, rank));
        }
        // Whoever wrote it was told the same rank and came at another time.
        let message = format!(
            "configure: the handle of this process, rank {expected} of {size}, stands at rank \
             {rank}; was the prefix of the store's address used before?"
        );
        Err(Error::Rendezvous { message })
    }

    /// Tells the others, if they can be reached at once, that this process does not come; the error.
    async fn aborted(&self, why: String, store: Option<&Arc<dyn Store>>) -> Error {
        let (rank, group) = (self.place.0, self.group.group_name().to_owned());
        if let Some(store) = store {
            store.set_timeout(TELLING_LIMIT);
            let message = format!("rank {rank} does not come: {why}");
            let _ = rendezvous::end_join(&**store, MEETING, &message).await;
        }
        let collective = "configure".to_owned();
        Error::Aborted { group, rank, why, collective, sequence: 0 }
    }

    /// This process's handle, and those of all members by rank; `opened` is where they meet.
    async fn meet(
        &self,
        former: Option<u32>,
        opened: &OnceLock<Arc<dyn Store>>,
    ) -> Result<(Handle, Vec<String>)> {
        let (rank, world_size) = self.place;
        let store = self.address.open(self.timeout).await?;
        let store = opened.get_or_init(|| store);
        let site = &self.group.inner.site;
        let ours = site.handle(self.group.group_name(), former, &**store)?;
        // Neither the number nor the handle serves again, however it ends.
        site.use_up(self.uuid);
        let key = |rank: u32| format!("polyrank/{MEETING}/handle/{rank}");
        store.set_async(&key(rank), ours.to_string().as_bytes()).await?;
        rendezvous::join_async(&**store, MEETING, rank, world_size, self.left()).await?;
        let keys: Vec<String> = (0..world_size).map(key).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let told = multi_get(&**store, &keys).await?;
        let texts = told.iter().map(|text| String::from_utf8_lossy(text).into_owned());
        Ok((ours, texts.collect()))
    }

    /// What is left of the time; zero if there is no limit.
    fn left(&self) -> Duration {
        if self.timeout.is_zero() {
            return Duration::ZERO;
        }
        let left = self.timeout.saturating_sub(self.began.elapsed());
        left.max(Duration::from_millis(1))
    }
}

/// The values of `keys`, which are there.
async fn multi_get(store: &dyn Store, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
    if store.has_extended_api() {
        return store.multi_get_async(keys).await;
    }
    let mut values = Vec::new();
    for key in keys {
        values.push(store.get_async(key).await?);
    }
    Ok(values)
}
