//! What a lighthouse sees at a moment, for people and programs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::state::State;
use crate::proto::QuorumMember;
use crate::rules::{Decision, Replicas};

/// What `/status` says.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    /// Of the last quorum; 0 before the first.
    pub(super) quorum_id: i64,
    pub(super) quorum_age_seconds: Option<f64>,
    /// Of the last quorum, in its order.
    pub(super) participants: Vec<Participant>,
    /// The largest of the participants.
    pub(super) max_step: Option<i64>,
    /// Why there is no new one.
    pub(super) reason: String,
    /// The same as a word.
    pub(super) reason_kind: &'static str,
    /// All that are known.
    pub(super) replicas: Vec<Replica>,
    options: Options,
    uptime_seconds: f64,
    version: &'static str,
}

/// A member of the last quorum.
#[derive(Debug, Serialize)]
pub(super) struct Participant {
    pub(super) replica_id: String,
    address: String,
    store_address: String,
    pub(super) step: i64,
    world_size: u64,
    commit_failures: i64,
}

/// A replica that was heard of.
#[derive(Debug, Serialize)]
pub(super) struct Replica {
    pub(super) replica_id: String,
    /// None of who was in the last quorum and has been silent for so long that it is forgotten.
    pub(super) heartbeat_age_seconds: Option<f64>,
    pub(super) is_alive: bool,
    pub(super) is_in_quorum: bool,
    /// How long it has asked for a quorum.
    pub(super) waits_seconds: Option<f64>,
    /// What it said last of itself.
    pub(super) step: Option<i64>,
    world_size: Option<u64>,
    /// Whether it asks that nobody new gets in.
    shrink_only: bool,
    commit_failures: Option<i64>,
    address: Option<String>,
}

/// What the rules depend on.
#[derive(Debug, Serialize)]
struct Options {
    min_replicas: usize,
    join_timeout_seconds: f64,
    heartbeat_timeout_seconds: f64,
    quorum_tick_seconds: f64,
    max_replicas: usize,
}

/// What the lighthouse sees now.
pub(super) fn of(state: &State) -> Status {
    let options = &state.options;
    let known = state.lock();
    let now = state.now();
    let (reason_kind, reason) = match known.replicas.decide(now, &options.quorum) {
        Decision::Ready(_) => ("ready", "a quorum is about to be made".to_owned()),
        Decision::Waiting(reason) => (reason.kind(), reason.to_string()),
    };
    let last = known.replicas.last().map(|quorum| quorum.participants.as_slice());
    let members = last.unwrap_or_default();
    Status {
        quorum_id: known.replicas.quorum_id(),
        quorum_age_seconds: known.last_quorum.map(|at| now.saturating_sub(at).as_secs_f64()),
        participants: members.iter().map(participant).collect(),
        max_step: members.iter().map(|member| member.step).max(),
        reason,
        reason_kind,
        replicas: replicas(&known.replicas, members, now, state),
        options: Options {
            min_replicas: options.quorum.min_replicas,
            join_timeout_seconds: options.quorum.join_timeout.as_secs_f64(),
            heartbeat_timeout_seconds: options.quorum.heartbeat_timeout.as_secs_f64(),
            quorum_tick_seconds: options.quorum_tick.as_secs_f64(),
            max_replicas: options.quorum.max_replicas,
        },
        uptime_seconds: now.as_secs_f64(),
        version: env!("CARGO_PKG_VERSION"),
    }
}

fn participant(member: &QuorumMember) -> Participant {
    Participant {
        replica_id: member.replica_id.clone(),
        address: member.address.clone(),
        store_address: member.store_address.clone(),
        step: member.step,
        world_size: member.world_size,
        commit_failures: member.commit_failures,
    }
}

fn replicas(
    known: &Replicas,
    members: &[QuorumMember],
    now: Duration,
    state: &State,
) -> Vec<Replica> {
    let members: BTreeMap<&str, &QuorumMember> =
        members.iter().map(|member| (member.replica_id.as_str(), member)).collect();
    // Who was in the last quorum is shown even when it was silent for so long that it is forgotten.
    let heard = known.heartbeats().keys().map(String::as_str);
    let ids: BTreeSet<&str> = heard.chain(members.keys().copied()).collect();
    let row = |id: &str| {
        let joined = known.joined().get(id);
        let said = joined.map(|it| &it.member).or_else(|| members.get(id).copied());
        let heard = known.heartbeats().get(id).copied();
        Replica {
            replica_id: id.to_owned(),
            heartbeat_age_seconds: heard.map(|at| now.saturating_sub(at).as_secs_f64()),
            is_alive: known.is_alive(id, now, &state.options.quorum),
            is_in_quorum: members.contains_key(id),
            waits_seconds: joined.map(|it| now.saturating_sub(it.since).as_secs_f64()),
            step: said.map(|member| member.step),
            world_size: said.map(|member| member.world_size),
            shrink_only: joined.is_some_and(|it| it.member.shrink_only),
            commit_failures: said.map(|member| member.commit_failures),
            address: said.map(|member| member.address.clone()),
        }
    };
    ids.into_iter().map(row).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::lighthouse::LighthouseOptions;

    #[test]
    fn who_was_in_the_last_quorum_and_is_forgotten_has_no_age() {
        let state = State::new(LighthouseOptions::default());
        let quorum = &state.options.quorum;
        let member = QuorumMember { replica_id: "a".to_owned(), ..QuorumMember::default() };
        {
            let replicas = &mut state.lock().replicas;
            replicas.join(member, Duration::ZERO, quorum).unwrap();
            replicas.settle(Duration::ZERO, Duration::ZERO, quorum).unwrap();
            replicas.settle(Duration::from_secs(3600), Duration::ZERO, quorum).unwrap_err();
        }
        let replica = &of(&state).replicas[0];
        assert_eq!((replica.is_in_quorum, replica.heartbeat_age_seconds), (true, None));
    }

    #[test]
    fn durations_without_end_are_no_panic() {
        let mut options = LighthouseOptions::default();
        options.quorum.join_timeout = Duration::MAX;
        options.quorum.heartbeat_timeout = Duration::MAX;
        let state = State::new(options);
        let quorum = &state.options.quorum;
        let member = QuorumMember { replica_id: "a".to_owned(), ..QuorumMember::default() };
        let now = Duration::from_secs(1);
        let replicas = &mut state.lock().replicas;
        for other in ["b", "c"] {
            replicas.heartbeat(other, now, quorum).unwrap();
        }
        replicas.join(member.clone(), now, quorum).unwrap();
        replicas.join(QuorumMember { replica_id: "b".to_owned(), ..member }, now, quorum).unwrap();
        assert!(replicas.settle(now, now, quorum).is_err());
    }
}
