//! Who trains together: the rules of torchft's lighthouse, as a state machine without clock,
//! network or threads. Moments are durations since the lighthouse began.
//!
//! 1. Alive is who was heard of within the heartbeat timeout, and has not lost its connection since
//!    then; a quorum is made of those alive that ask for one, sorted by id.
//! 2. If one of them asks for `shrink_only`, nobody gets in who was not in the last quorum.
//! 3. If all members of the last quorum ask, there is one at once, with the newcomers that ask.
//! 4. Otherwise, not before `min_replicas` ask,
//! 5. nor before more than half of those alive ask: two halves of a job never train apart.
//! 6. For those alive that do not ask, the others wait `join_timeout`, counted from the first.
//! 7. The id grows if the members are others than before, or one of them has lost a step.
//! 8. Who is not in the quorum goes on waiting.

mod census;
mod reason;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message as _;

use census::{Census, Obstacle};
pub use reason::Reason;

use crate::proto::{Quorum, QuorumMember};

/// Bytes of members that may ask at a time. Clients of gRPC take answers of 4 MiB.
pub const MAX_QUORUM_BYTES: usize = 3 << 20;
/// After how many heartbeat timeouts a replica that is silent is forgotten.
const FORGOTTEN_AFTER: u32 = 12;

/// How long a replica whose connection has ended counts as alive still, at least: it is dead,
/// unless it connects again. Where its heartbeats come more seldom, it has twice the time between
/// two.
pub const RECONNECTION: Duration = Duration::from_millis(200);

/// What the rules depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumOptions {
    /// Fewest replicas of a quorum, unless all of the last one ask again.
    pub min_replicas: usize,
    /// How long those that ask wait for those that are alive and do not.
    pub join_timeout: Duration,
    /// How long a replica counts as alive after it was heard of.
    pub heartbeat_timeout: Duration,
    /// Most replicas that are known at a time.
    pub max_replicas: usize,
}

impl Default for QuorumOptions {
    /// One replica is enough. What `torchft_lighthouse` has, except for the `join_timeout`: its
    /// 60 s are the limit of its managers' calls, too, which would be over before those that are
    /// alive have been waited for.
    fn default() -> QuorumOptions {
        QuorumOptions {
            min_replicas: 1,
            join_timeout: Duration::from_secs(30),
            heartbeat_timeout: Duration::from_secs(5),
            max_replicas: 4096,
        }
    }
}

/// A replica that asks for a quorum.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// Since when.
    pub since: Duration,
    /// What it says of itself.
    pub member: QuorumMember,
}

/// What the rules say at a moment.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// These are a quorum.
    Ready(Vec<QuorumMember>),
    /// There is none yet.
    Waiting(Reason),
}

/// Why somebody is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are as many as may be.
    #[error("the lighthouse knows {limit} replicas already, which is its limit")]
    TooManyReplicas {
        /// How many may be.
        limit: usize,
    },
    /// Together they say more than an answer may hold.
    #[error(
        "what the replicas say of themselves would be {bytes} bytes, of at most \
         {MAX_QUORUM_BYTES}: their `data` is too long"
    )]
    TooManyBytes {
        /// How much it would be.
        bytes: usize,
    },
}

/// The replicas that the lighthouse knows, and the last quorum.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    heartbeats: BTreeMap<String, Duration>,
    /// The time between the last two heartbeats of each.
    intervals: BTreeMap<String, Duration>,
    /// When those count as dead whose connection has ended, and that were not heard of since.
    disconnected: BTreeMap<String, Duration>,
    joined: BTreeMap<String, Joined>,
    /// What those that ask say of themselves.
    joined_bytes: usize,
    last: Option<Quorum>,
    quorum_id: i64,
}

impl Replicas {
    /// None yet; the first quorum has the id after this one.
    #[must_use]
    pub fn counting_from(quorum_id: i64) -> Replicas {
        Replicas { quorum_id, ..Replicas::default() }
    }

    /// When each replica was last heard of.
    #[must_use]
    pub fn heartbeats(&self) -> &BTreeMap<String, Duration> {
        &self.heartbeats
    }

    /// Those that ask for a quorum.
    #[must_use]
    pub fn joined(&self) -> &BTreeMap<String, Joined> {
        &self.joined
    }

    /// The last quorum.
    #[must_use]
    pub fn last(&self) -> Option<&Quorum> {
        self.last.as_ref()
    }

    /// The id of the last quorum; 0 before the first.
    #[must_use]
    pub fn quorum_id(&self) -> i64 {
        self.last.as_ref().map_or(0, |quorum| quorum.quorum_id)
    }

    /// A replica was heard of.
    ///
    /// # Errors
    /// It is a new one, and there are too many.
    pub fn heartbeat(
        &mut self,
        replica_id: &str,
        now: Duration,
        options: &QuorumOptions,
    ) -> Result<(), Refusal> {
        if let Some(heard) = self.heartbeats.get(replica_id) {
            self.intervals.insert(replica_id.to_owned(), now.saturating_sub(*heard));
        }
        self.hear(replica_id, now, options)
    }

    /// A replica is there.
    fn hear(
        &mut self,
        replica_id: &str,
        now: Duration,
        options: &QuorumOptions,
    ) -> Result<(), Refusal> {
        self.disconnected.remove(replica_id);
        if let Some(heard) = self.heartbeats.get_mut(replica_id) {
            *heard = now;
            return Ok(());
        }
        if self.heartbeats.len() >= options.max_replicas {
            self.forget_silent(now, options.heartbeat_timeout);
        }
        if self.heartbeats.len() >= options.max_replicas {
            return Err(Refusal::TooManyReplicas { limit: options.max_replicas });
        }
        self.heartbeats.insert(replica_id.to_owned(), now);
        Ok(())
    }

    /// The connection has ended by which a replica's heartbeats came, as that of a process that was
    /// killed does at once. Returns when it counts as dead, unless it is heard of before.
    pub fn disconnect(&mut self, replica_id: &str, now: Duration) -> Option<Duration> {
        self.heartbeats.get(replica_id)?;
        let interval = self.intervals.get(replica_id).copied().unwrap_or_default();
        let dead_at = now.saturating_add(RECONNECTION.max(interval.saturating_mul(2)));
        self.disconnected.insert(replica_id.to_owned(), dead_at);
        Some(dead_at)
    }

    /// A replica asks for a quorum, which is a heartbeat, too. Asking again replaces what it said.
    ///
    /// # Errors
    /// There are too many, or they say too much.
    pub fn join(
        &mut self,
        member: QuorumMember,
        now: Duration,
        options: &QuorumOptions,
    ) -> Result<(), Refusal> {
        let before = self.joined.get(&member.replica_id).map_or(0, |it| it.member.encoded_len());
        let bytes = self.joined_bytes - before + member.encoded_len();
        if bytes > MAX_QUORUM_BYTES {
            return Err(Refusal::TooManyBytes { bytes });
        }
        // It may come at any time between two heartbeats.
        self.hear(&member.replica_id, now, options)?;
        self.joined_bytes = bytes;
        self.joined.insert(member.replica_id.clone(), Joined { since: now, member });
        Ok(())
    }

    /// A replica asks no longer: its call is over without an answer.
    pub fn leave(&mut self, replica_id: &str) {
        if let Some(Joined { member, .. }) = self.joined.remove(replica_id) {
            self.joined_bytes -= member.encoded_len();
        }
    }

    /// Whether the replica of this id counts as alive.
    #[must_use]
    pub fn is_alive(&self, id: &str, now: Duration, options: &QuorumOptions) -> bool {
        self.heartbeats.get(id).is_some_and(|heard| self.has_pulse(id, *heard, now, options))
    }

    /// As [`Replicas::is_alive`], of a replica that was heard of at this moment.
    fn has_pulse(&self, id: &str, heard: Duration, now: Duration, options: &QuorumOptions) -> bool {
        let is_silent = now.saturating_sub(heard) >= options.heartbeat_timeout;
        !is_silent && self.disconnected.get(id).is_none_or(|dead_at| now < *dead_at)
    }

    /// Whether the rules allow a quorum. It costs less than [`Replicas::decide`].
    #[must_use]
    pub fn is_ready(&self, now: Duration, options: &QuorumOptions) -> bool {
        self.census(now, options).obstacle(now, options).is_none()
    }

    /// Whether there is a quorum, and why not.
    #[must_use]
    pub fn decide(&self, now: Duration, options: &QuorumOptions) -> Decision {
        let census = self.census(now, options);
        let Some(obstacle) = census.obstacle(now, options) else {
            let present = self.present(now, options);
            let members = present.filter(|it| !census.shrinks || self.was_member(&it.member));
            return Decision::Ready(members.map(|it| it.member.clone()).collect());
        };
        let (joined, alive) = (census.present, census.alive);
        let absent = || self.absent(now, options);
        let silent = || self.silent(now, options);
        Decision::Waiting(match obstacle {
            Obstacle::NobodyAsks => Reason::NobodyAsks { silent: silent() },
            Obstacle::NobodyFromTheLast => Reason::NobodyFromTheLast { joined },
            Obstacle::TooFew => {
                let needed = options.min_replicas;
                Reason::TooFew { joined, needed, absent: absent(), silent: silent() }
            }
            Obstacle::NoMajority => Reason::NoMajority { joined, alive, absent: absent() },
            Obstacle::Stragglers { left } => Reason::Stragglers { absent: absent(), left },
        })
    }

    /// Counts who is there.
    fn census(&self, now: Duration, options: &QuorumOptions) -> Census {
        let last = self.last.as_ref().map(|quorum| quorum.participants.len());
        let mut census = Census { last, ..Census::default() };
        // Whoever asks has been heard of, and both are sorted by id.
        let mut joined = self.joined.iter().peekable();
        for (id, heard) in &self.heartbeats {
            let asks = joined.next_if(|(asking, _)| *asking == id);
            if !self.has_pulse(id, *heard, now, options) {
                continue;
            }
            census.alive += 1;
            let Some((_, Joined { since, member })) = asks else { continue };
            census.present += 1;
            census.from_last += usize::from(self.was_member(member));
            census.shrinks |= member.shrink_only && census.last.is_some();
            census.first = Some(census.first.map_or(*since, |first| first.min(*since)));
        }
        census
    }

    /// Those alive that ask, by id.
    fn present(&self, now: Duration, options: &QuorumOptions) -> impl Iterator<Item = &Joined> {
        let joined = self.joined.iter();
        joined.filter(move |(id, _)| self.is_alive(id, now, options)).map(|(_, it)| it)
    }

    /// Those alive that do not ask.
    fn absent(&self, now: Duration, options: &QuorumOptions) -> Vec<String> {
        let absent = self.heartbeats.iter().filter(|(id, heard)| {
            self.has_pulse(id, **heard, now, options) && !self.joined.contains_key(*id)
        });
        absent.map(|(id, _)| id.clone()).collect()
    }

    /// Who asks and does not count as alive.
    fn silent(&self, now: Duration, options: &QuorumOptions) -> Vec<String> {
        self.joined.keys().filter(|id| !self.is_alive(id, now, options)).cloned().collect()
    }

    /// Whether it is in the last quorum, whose members are sorted by id.
    fn was_member(&self, member: &QuorumMember) -> bool {
        let last = self.last.as_ref().map_or(&[][..], |quorum| &quorum.participants);
        last.binary_search_by(|one| one.replica_id.cmp(&member.replica_id)).is_ok()
    }

    /// Makes the quorum that the rules allow: those in it ask no longer, the others as from now.
    /// `created` is since 1970.
    ///
    /// # Errors
    /// Why there is none.
    pub fn settle(
        &mut self,
        now: Duration,
        created: Duration,
        options: &QuorumOptions,
    ) -> Result<Quorum, Reason> {
        self.forget_silent(now, options.heartbeat_timeout.saturating_mul(FORGOTTEN_AFTER));
        let participants = match self.decide(now, options) {
            Decision::Ready(participants) => participants,
            Decision::Waiting(reason) => return Err(reason),
        };
        let ids = |members: &[QuorumMember]| -> Vec<String> {
            members.iter().map(|member| member.replica_id.clone()).collect()
        };
        let is_same =
            self.last.as_ref().is_some_and(|it| ids(&it.participants) == ids(&participants));
        if !is_same || participants.iter().any(|member| member.commit_failures > 0) {
            self.quorum_id = self.quorum_id.saturating_add(1);
        }
        for member in &participants {
            self.leave(&member.replica_id);
        }
        for waiting in self.joined.values_mut() {
            waiting.since = now;
        }
        let created = prost_types::Timestamp {
            seconds: i64::try_from(created.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(created.subsec_nanos()).unwrap_or(0),
        };
        let quorum = Quorum { quorum_id: self.quorum_id, participants, created: Some(created) };
        self.last = Some(quorum.clone());
        Ok(quorum)
    }

    /// Forgets who has been silent for so long. Who asks is kept: its call is still there.
    fn forget_silent(&mut self, now: Duration, limit: Duration) {
        let joined = &self.joined;
        self.heartbeats
            .retain(|id, heard| now.saturating_sub(*heard) < limit || joined.contains_key(id));
        self.intervals.retain(|id, _| self.heartbeats.contains_key(id));
        self.disconnected.retain(|id, _| self.heartbeats.contains_key(id));
    }
}
