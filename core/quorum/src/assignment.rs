//! What a quorum is to one rank of one replica group: its number, where the ranks meet, and who
//! heals whom. Pure; all managers come to the same.

use crate::proto::{ManagerQuorumResponse, Quorum, QuorumMember};

/// From so many at most a rank takes parts of its state: more only have more ranks save theirs.
pub const MAX_SOURCES: usize = 8;

/// What `quorum` is to the rank `group_rank` of `replica_id`; none if that is not in it.
///
/// Members that are behind the largest step take the state of one that is not; so do those that
/// have committed it in another quorum than most: a replica may have been alone with that, and the
/// others have done the step again. Before the first step all but one do, if `init_sync` says so.
/// Sources are assigned in turn, from another one on for each rank of a group, so that not all take
/// from the same. Parts of the state may come from those that follow it among the sources, of which
/// there are at most [`MAX_SOURCES`].
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
    let first = leading(&members, max_step);
    let primary = first[group_rank % first.len()];
    let takes_state = |member: &QuorumMember| {
        let is_fresh = init_sync && max_step == 0 && member.replica_id != primary.replica_id;
        is_fresh || !first.iter().any(|one| one.replica_id == member.replica_id)
    };
    let (takers, sources): (Vec<usize>, Vec<usize>) =
        (0..members.len()).partition(|rank| takes_state(members[*rank]));
    // The primary is always a source.
    let of_turn = |turn: usize| {
        let from_its_own = sources.iter().cycle().skip((turn + group_rank) % sources.len());
        from_its_own.take(sources.len().min(MAX_SOURCES)).copied().collect::<Vec<usize>>()
    };
    let plan = takers.iter().enumerate().map(|(turn, taker)| (*taker, of_turn(turn)));
    let plan: Vec<(usize, Vec<usize>)> = plan.collect();
    let parts_of = plan.iter().find(|(taker, _)| *taker == replica_rank);
    let parts_of = parts_of.map(|(_, sources)| sources.as_slice()).unwrap_or_default();
    let source = parts_of.first().copied();
    let mine = plan.iter().filter(|(_, sources)| sources.first() == Some(&replica_rank));
    let parts_to = plan.iter().filter(|(_, sources)| sources.contains(&replica_rank));
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
        parts_src_replica_ranks: parts_of.iter().copied().map(number).collect(),
        parts_dst_replica_ranks: parts_to.map(|(taker, _)| number(*taker)).collect(),
    })
}

/// Of those with the largest step, those that have committed it in the same quorum as most of them
/// or, if several quorums have as many, as the first one of these. All, where one does not say.
fn leading<'a>(members: &[&'a QuorumMember], max_step: i64) -> Vec<&'a QuorumMember> {
    let of_step = || members.iter().copied().filter(|member| member.step == max_step);
    if of_step().any(|member| member.committed_in == 0) {
        return of_step().collect();
    }
    let alike = |member: &QuorumMember| -> Vec<&'a QuorumMember> {
        of_step().filter(|other| other.committed_in == member.committed_in).collect()
    };
    let mut found = Vec::new();
    for member in of_step() {
        let those = alike(member);
        if those.len() > found.len() {
            found = those;
        }
    }
    found
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
            replica_id: format!("replica-{number:02}"),
            address: format!("manager-{number}"),
            store_address: format!("store-{number}"),
            step: *step,
            ..QuorumMember::default()
        };
        let participants = steps.iter().enumerate().map(member).collect();
        Quorum { quorum_id: 1, participants, created: None }
    }

    fn of(number: usize, group_rank: i64, quorum: &Quorum) -> ManagerQuorumResponse {
        assignment(&format!("replica-{number:02}"), group_rank, quorum, true).unwrap()
    }

    #[test]
    fn before_the_first_step_all_take_the_state_of_one_which_differs_by_rank() {
        let quorum = quorum(&[0, 0, 0]);
        assert_eq!(of(0, 0, &quorum).recover_dst_replica_ranks, [1, 2]);
        let taker = of(1, 0, &quorum);
        assert_eq!((taker.heal, taker.recover_src_replica_rank), (true, Some(0)));
        assert_eq!(taker.recover_src_manager_address, "manager-0");
        assert_eq!(taker.store_address, "store-0");
        // The states of the others are not right.
        assert_eq!(taker.parts_src_replica_ranks, [0]);
        assert_eq!(of(0, 0, &quorum).parts_dst_replica_ranks, [1, 2]);
        assert!(of(1, 0, &quorum).parts_dst_replica_ranks.is_empty());
        // Of the second ranks, replica 1 is the primary.
        assert!(!of(1, 1, &quorum).heal);
        assert_eq!(of(1, 1, &quorum).recover_dst_replica_ranks, [0, 2]);
        assert!(!assignment("replica-01", 0, &quorum, false).unwrap().heal);
    }

    #[test]
    fn who_committed_the_step_in_another_quorum_than_most_takes_their_state() {
        let of_quorums = |committed_in: &[i64]| {
            let mut quorum = quorum(&vec![5; committed_in.len()]);
            let members = quorum.participants.iter_mut().zip(committed_in);
            members.for_each(|(member, id)| member.committed_in = *id);
            quorum
        };
        let takers = |committed_in: &[i64]| -> Vec<usize> {
            let quorum = of_quorums(committed_in);
            (0..committed_in.len()).filter(|number| of(*number, 0, &quorum).heal).collect()
        };
        assert!(takers(&[7, 7, 7]).is_empty());
        assert_eq!(takers(&[7, 8, 8]), [0]);
        assert_eq!(takers(&[7, 8]), [1]);
        assert_eq!(takers(&[9, 8, 8, 7, 7]), [0, 3, 4]);
        // One has read a checkpoint, or is torchft's.
        assert!(takers(&[7, 0, 8]).is_empty());
        let quorum = of_quorums(&[7, 8, 8]);
        let taker = of(0, 0, &quorum);
        assert_eq!((taker.recover_src_replica_rank, taker.max_replica_rank), (Some(1), None));
        assert_eq!((taker.max_step, taker.max_world_size), (5, 2));
        assert_eq!(of(1, 0, &quorum).recover_dst_replica_ranks, [0]);
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
        assert!(assignment("replica-00", -1, &quorum, true).is_none());
    }

    #[test]
    fn parts_come_from_all_that_are_not_behind_their_own_source_first() {
        let quorum = quorum(&[0, 1, 0, 1, 0]);
        let sources = |taker| of(taker, 0, &quorum).parts_src_replica_ranks;
        assert_eq!([sources(0), sources(2), sources(4)], [[1, 3], [3, 1], [1, 3]]);
        for source in [1, 3] {
            let answer = of(source, 0, &quorum);
            assert_eq!(answer.parts_dst_replica_ranks, [0, 2, 4]);
            assert!(answer.parts_src_replica_ranks.is_empty());
        }
        assert!(of(0, 0, &quorum).parts_dst_replica_ranks.is_empty());
    }

    #[test]
    fn who_takes_parts_and_who_gives_them_know_of_one_another_in_large_quorums_too() {
        let steps: Vec<i64> = (0..23).map(|number| number % 2).collect();
        let quorum = quorum(&steps);
        for group_rank in 0..3 {
            let all: Vec<_> = (0..23).map(|number| of(number, group_rank, &quorum)).collect();
            for (taker, answer) in all.iter().enumerate() {
                let sources = &answer.parts_src_replica_ranks;
                assert_eq!(sources.len(), if taker % 2 == 0 { MAX_SOURCES } else { 0 });
                assert_eq!(sources.first().copied(), answer.recover_src_replica_rank);
                for (source, other) in all.iter().enumerate() {
                    let gives = other.parts_dst_replica_ranks.contains(&(taker as i64));
                    assert_eq!(gives, sources.contains(&(source as i64)), "{source} to {taker}");
                }
            }
        }
    }
}
