//! torchft's way to replace the members of a group: each process is told where they meet and which
//! rank it has, and they learn one another's handles there (`exchange.rs`). The rest is
//! `reconfigure`. Knows neither transports nor how members are connected.

use std::sync::OnceLock;
use std::time::Duration;

use super::exchange::Exchange;
use super::meeting::Meeting;
use super::unless_aborted::unless_aborted;
use super::{CallName, MAX_MEMBERS, Reconfiguration, Turn, digest};
use crate::backend::memberless::Memberless;
use crate::blocking::block_on;
use crate::clock::Instant;
use crate::fnv::Fnv;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;
use crate::rendezvous::StoreAddress;

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
    /// know the store by another name.
    fn number(&self, address: &StoreAddress<'_>) -> i64 {
        let mut hash = Fnv::new();
        hash.bytes(format!("{:?}/{}", self.quorum_id, address.prefix).bytes());
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
    /// afterwards, unless a page is among them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that does not exist, or an address whose prefix was
    /// used before, and [`Error::Unsupported`] for a group that cannot be reconfigured: then
    /// nothing has changed.
    ///
    /// [`Error::Network`] if the store cannot be reached, or does not answer;
    /// [`Error::RendezvousTimeout`] naming those that did not come in time;
    /// [`Error::Rendezvous`] if a rank came twice, or gave up, or world sizes differ;
    /// [`Error::RankFailed`] if a member is gone; [`Error::Aborted`] if the group was aborted
    /// meanwhile. Then the group has no members, and may be configured again, under another prefix.
    pub fn configure(&self, options: ConfigureOptions) -> Result<()> {
        block_on(self.configure_async(options))
    }

    /// As [`ProcessGroup::configure`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::configure`].
    pub async fn configure_async(&self, options: ConfigureOptions) -> Result<()> {
        #[cfg(not(target_family = "wasm"))]
        if self.configure_dummy() {
            return self.unless_left();
        }
        let address = options.check()?;
        self.unless_left()?;
        self.require_reconfigure("configure")?;
        let call = CallName::configure(&options.store_addr);
        let (uuid, began) = (options.number(&address), Instant::now());
        let turn = Turn::begin(self, uuid, &call)?;
        let former = self.inner.origins.as_ref().map(|origins| origins.digest);
        let former_rank = (self.size() > 0).then(|| self.rank());
        let (memberless, closing) = self.retire_members(&call.during);
        let timeout = options.timeout.unwrap_or_else(|| self.timeout());
        let (group, place, quorum_id) =
            (self, (options.rank, options.world_size), options.quorum_id);
        let (address, store) = (&address, OnceLock::new());
        let exchange =
            Exchange { group, call: &call, address, place, quorum_id, timeout, began, store };
        let mut unfinished = Unfinished { exchange: Some(&exchange), memberless: &memberless };
        let met = async {
            for closing in closing {
                closing.await?;
            }
            // Neither the number nor the handle serves again, however it ends.
            exchange.run(former_rank, || self.inner.site.use_up(uuid)).await
        };
        let met = unless_aborted(&memberless, met).await;
        unfinished.exchange = None;
        let met = match memberless.aborted() {
            Some(why) => Err(exchange.aborted(why).await),
            None => met,
        };
        let handles = met.inspect_err(|error| memberless.explain(&call.shown, error))?;
        let (digest, timeout, rank) = (digest(uuid, &handles), exchange.left(), options.rank);
        let meeting = Meeting { call: call.clone(), uuid, digest, handles, rank, timeout, former };
        let memberless = memberless.clone();
        Reconfiguration { turn, meeting, memberless, closing: Vec::new() }.run().await?;
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

/// A call whose members have not met; dropped as such if the program gives it up.
struct Unfinished<'a> {
    exchange: Option<&'a Exchange<'a>>,
    memberless: &'a Memberless,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange else { return };
        let message = "the call was given up".to_owned();
        self.memberless.explain(&exchange.call.shown, &Error::Rendezvous { message });
        exchange.given_up();
    }
}
