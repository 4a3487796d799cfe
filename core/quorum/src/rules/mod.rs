//! Who trains together: the rules of torchft's lighthouse, as a state machine without clock,
//! network or threads. Moments are durations since the lighthouse began.
//!
//! 1. Alive is who was heard of within the heartbeat timeout; a quorum is made of those alive that
//!    ask for one, sorted by id.
//! 2. If one of them asks for `shrink_only`, nobody gets in who was not in the last quorum.
//! 3. If all members of the last quorum ask, there is one at once, with the newcomers that ask.
//! 4. Otherwise, not before `min_replicas` ask,
//! 5. nor before more than half of those alive ask: two halves of a job never train apart.
//! 6. For those alive that do not ask, the others wait `join_timeout`, counted from the first.
//! 7. The id grows if the members are others than before, or one of them has lost a step.
//! 8. Who is not in the quorum goes on waiting.

mod reason;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use reason::Reason;

use crate::proto::{Quorum, QuorumMember};

/// Bytes of members that may ask at a time. Clients of gRPC take answers of 4 MiB.
pub const MAX_QUORUM_BYTES: usize = 3 << 20;
/// After how many heartbeat timeouts a replica that is silent is forgotten.
const FORGOTTEN_AFTER: u32 = 12;

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
    joined: BTreeMap<String, Joined>,
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
        let others = self.joined.values().map(|it| &it.member);
        let others = others.filter(|other| other.replica_id != member.replica_id);
        let bytes = others.chain([&member]).map(prost::Message::encoded_len).sum();
        if bytes > MAX_QUORUM_BYTES {
            return Err(Refusal::TooManyBytes { bytes });
        }
        self.heartbeat(&member.replica_id, now, options)?;
        self.joined.insert(member.replica_id.clone(), Joined { since: now, member });
        Ok(())
    }

    /// A replica asks no longer: its call is over without an answer.
    pub fn leave(&mut self, replica_id: &str) {
        self.joined.remove(replica_id);
    }

    /// Whether a replica that was heard of at this moment counts as alive.
    #[must_use]
    pub fn is_alive(heard: Duration, now: Duration, options: &QuorumOptions) -> bool {
        now.saturating_sub(heard) < options.heartbeat_timeout
    }

    /// Whether there is a quorum, and why not.
    #[must_use]
    pub fn decide(&self, now: Duration, options: &QuorumOptions) -> Decision {
        let is_alive = |heard: &Duration| Replicas::is_alive(*heard, now, options);
        let alive = self.heartbeats.iter().filter(|(_, heard)| is_alive(heard));
        let alive: BTreeSet<&str> = alive.map(|(id, _)| id.as_str()).collect();
        let present = self.joined.iter().filter(|(id, _)| alive.contains(id.as_str()));
        let present: BTreeMap<&str, &Joined> = present.map(|(id, it)| (id.as_str(), it)).collect();
        if present.is_empty() {
            return Decision::Waiting(Reason::NobodyAsks { silent: self.silent(&alive) });
        }
        let last = self.last.as_ref().map(|quorum| &quorum.participants);
        let was_member =
            |id: &str| last.is_some_and(|it| it.iter().any(|one| one.replica_id == id));
        let shrinks = last.is_some() && present.values().any(|it| it.member.shrink_only);
        let members = present.iter().filter(|(id, _)| !shrinks || was_member(id));
        let members: Vec<_> = members.map(|(_, it)| it.member.clone()).collect();
        if members.is_empty() {
            return Decision::Waiting(Reason::NobodyFromTheLast { joined: present.len() });
        }
        let is_complete =
            last.is_some_and(|it| it.iter().all(|one| present.contains_key(&*one.replica_id)));
        match self.obstacle(&present, &alive, now, options) {
            Some(reason) if !is_complete => Decision::Waiting(reason),
            _ => Decision::Ready(members),
        }
    }

    /// What rules 4 to 6 have against a quorum of those present.
    fn obstacle(
        &self,
        present: &BTreeMap<&str, &Joined>,
        alive: &BTreeSet<&str>,
        now: Duration,
        options: &QuorumOptions,
    ) -> Option<Reason> {
        let joined = present.len();
        let absent = alive.iter().filter(|id| !present.contains_key(*id));
        let absent: Vec<String> = absent.map(|id| (*id).to_owned()).collect();
        if joined < options.min_replicas {
            let (needed, silent) = (options.min_replicas, self.silent(alive));
            return Some(Reason::TooFew { joined, needed, absent, silent });
        }
        if joined <= alive.len() / 2 {
            return Some(Reason::NoMajority { joined, alive: alive.len(), absent });
        }
        let first = present.values().map(|it| it.since).min()?;
        let left = first.saturating_add(options.join_timeout).saturating_sub(now);
        (!absent.is_empty() && !left.is_zero()).then_some(Reason::Stragglers { absent, left })
    }

    /// Who asks and does not count as alive.
    fn silent(&self, alive: &BTreeSet<&str>) -> Vec<String> {
        let silent = self.joined.keys().filter(|id| !alive.contains(id.as_str()));
        silent.cloned().collect()
    }

    /// Makes the quorum that the rules allow: those in it ask no longer, the others as from now.
    /// `created` is since 1970.
    pub fn settle(
        &mut self,
        now: Duration,
        created: Duration,
        options: &QuorumOptions,
    ) -> Option<Quorum> {
        self.forget_silent(now, options.heartbeat_timeout.saturating_mul(FORGOTTEN_AFTER));
        let Decision::Ready(participants) = self.decide(now, options) else { return None };
        let ids = |members: &[QuorumMember]| -> Vec<String> {
            members.iter().map(|member| member.replica_id.clone()).collect()
        };
        let is_same =
            self.last.as_ref().is_some_and(|it| ids(&it.participants) == ids(&participants));
        if !is_same || participants.iter().any(|member| member.commit_failures > 0) {
            self.quorum_id = self.quorum_id.saturating_add(1);
        }
        for member in &participants {
            self.joined.remove(&member.replica_id);
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
        Some(quorum)
    }

    /// Forgets who has been silent for so long. Who asks is kept: its call is still there.
    fn forget_silent(&mut self, now: Duration, limit: Duration) {
        let joined = &self.joined;
        self.heartbeats
            .retain(|id, heard| now.saturating_sub(*heard) < limit || joined.contains_key(id));
    }
}
