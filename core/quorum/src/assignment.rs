//! What a quorum is to one rank of one replica group: its number, where the ranks meet, and who
//! heals whom. Pure; all managers come to the same.

use crate::proto::{ManagerQuorumResponse, Quorum, QuorumMember};

/// What `quorum` is to the rank `group_rank` of `replica_id`; none if that is not in it.
///
/// Members that are behind the largest step take the state of one that is not. Before the first
/// step all but one do, if `init_sync` says so. Sources are assigned in turn, from another one on
/// for each rank of a group, so that not all take from the same.
#[must_use]
pub fn assignment(
    replica_id: &str,
    group_rank: i64,
    quorum: &Quorum,
    init_sync: bool,
) -> Option<ManagerQuorumResponse> {
    let mut members: Vec<&QuorumMember> = quorum.participants.iter().collect();
    members.sort_by(|left, right| left.replica_id.cmp(&right.replica_id));
    let replica_rank = members.iter().position(|member| member.replica_id == replica_id)?;
    let group_rank = usize::try_from(group_rank).ok()?;
    let max_step = members.iter().map(|member| member.step).max()?;
    let first: Vec<&QuorumMember> =
        members.iter().copied().filter(|member| member.step == max_step).collect();
    let primary = first[group_rank % first.len()];
    let takes_state = |member: &QuorumMember| {
        let is_fresh = init_sync && max_step == 0 && member.replica_id != primary.replica_id;
        member.step != max_step || is_fresh
    };
    let (takers, sources): (Vec<usize>, Vec<usize>) =
        (0..members.len()).partition(|rank| takes_state(members[*rank]));
    // The primary is always a source.
    let pairs = takers.iter().enumerate().map(|(turn, taker)| {
        let source = sources[(turn + group_rank) % sources.len()];
        (*taker, source)
    });
    let pairs: Vec<(usize, usize)> = pairs.collect();
    let source = pairs.iter().find(|(taker, _)| *taker == replica_rank).map(|(_, source)| *source);
    let mine = pairs.iter().filter(|(_, source)| *source == replica_rank);
    let max_rank = first.iter().position(|member| member.replica_id == replica_id);
    Some(ManagerQuorumResponse {
        quorum_id: quorum.quorum_id,
        recover_src_manager_address: source
            .map(|source| members[source].address.clone())
            .unwrap_or_default(),
        recover_src_replica_rank: source.map(number),
        recover_dst_replica_ranks: mine.map(|(taker, _)| number(*taker)).collect(),
        store_address: primary.store_address.clone(),
        max_step,
        max_replica_rank: max_rank.map(number),
        max_world_size: number(first.len()),
        replica_rank: number(replica_rank),
        replica_world_size: number(members.len()),
        heal: source.is_some(),
        commit_failures: members.iter().map(|member| member.commit_failures).max().unwrap_or(0),
        replica_ids: members.iter().map(|member| member.replica_id.clone()).collect(),
    })
}

fn number(count: usize) -> i64 {
    // There are never so many members.
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn quorum(steps: &[i64]) -> Quorum {
        let member = |(number, step): (usize, &i64)| QuorumMember {
            replica_id: format!("replica-{number}"),
            address: format!("manager-{number}"),
            store_address: format!("store-{number}"),
            step: *step,
            ..QuorumMember::default()
        };
        let participants = steps.iter().enumerate().map(member).collect();
        Quorum { quorum_id: 1, participants, created: None }
    }

    fn of(number: usize, group_rank: i64, quorum: &Quorum) -> ManagerQuorumResponse {
        assignment(&format!("replica-{number}"), group_rank, quorum, true).unwrap()
    }

    #[test]
    fn before_the_first_step_all_take_the_state_of_one_which_differs_by_rank() {
        let quorum = quorum(&[0, 0, 0]);
        assert_eq!(of(0, 0, &quorum).recover_dst_replica_ranks, [1, 2]);
        let taker = of(1, 0, &quorum);
        assert_eq!((taker.heal, taker.recover_src_replica_rank), (true, Some(0)));
        assert_eq!(taker.recover_src_manager_address, "manager-0");
        assert_eq!(taker.store_address, "store-0");
        // Of the second ranks, replica 1 is the primary.
        assert!(!of(1, 1, &quorum).heal);
        assert_eq!(of(1, 1, &quorum).recover_dst_replica_ranks, [0, 2]);
        assert!(!assignment("replica-1", 0, &quorum, false).unwrap().heal);
    }

    #[test]
    fn those_behind_take_from_different_sources_in_turn() {
        let quorum = quorum(&[0, 1, 0, 1, 0]);
        let sources = |group_rank| {
            [0, 2, 4].map(|taker| of(taker, group_rank, &quorum).recover_src_replica_rank.unwrap())
        };
        assert_eq!(sources(0), [1, 3, 1]);
        assert_eq!(sources(1), [3, 1, 3]);
        let source = of(1, 0, &quorum);
        assert_eq!(source.recover_dst_replica_ranks, [0, 4]);
        assert_eq!((source.max_replica_rank, source.max_world_size), (Some(0), 2));
        assert_eq!(of(0, 0, &quorum).max_replica_rank, None);
        assert_eq!(of(0, 1, &quorum).store_address, "store-3");
        assert!(assignment("stranger", 0, &quorum, true).is_none());
        assert!(assignment("replica-0", -1, &quorum, true).is_none());
    }
}
