//! Calls of those that are left of a group, over ranks that are threads: `agree` and
//! `shrink_group`. Processes that are killed are in `survivors_processes.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polyrank::store::{HashStore, Store};
use polyrank::{Error, ProcessGroup, SplitOptions, WorkResult};
use polyrank_tests::LIMIT;
use polyrank_tests::members::{Member, check, reconfigure, world, world_in};

/// A limit that passes while others do not come.
const SHORT: Duration = Duration::from_millis(300);

/// Goes on without `excluded`; the members that stay are given.
fn exclude(excluded: &'static [u32], members: &[&Member]) {
    let asked: Vec<_> = members
        .iter()
        .map(|member| member.ask(|group| group.shrink_group(excluded, None)?.wait(None)))
        .collect();
    asked.into_iter().for_each(|answer| answer.recv().unwrap().unwrap());
    check(members);
}

#[test]
fn survivors_go_on_without_the_others() {
    let members = world(5);
    let [first, second, third, fourth, fifth] = members.as_slice() else { panic!("five ranks") };
    // Over the store in which the group was made, then over those of the members.
    exclude(&[1, 4], &[first, third, fourth]);
    exclude(&[0], &[third, fourth]);
    reconfigure(1, &[fifth, third, second]);
    exclude(&[], &[fifth, third, second]);
    let wrong = third.ask(|group| {
        let errors = [&[1u32][..], &[3]].map(|list| group.shrink_group(list, None).unwrap_err());
        errors.map(|error| error.to_string())
    });
    let [own, none] = wrong.recv().unwrap();
    assert!(own.contains("rank 1, which calls it, is to be excluded"), "{own}");
    assert!(none.contains("rank 3 is not one of the 3 ranks"), "{none}");
    check(&[fifth, third, second]);
}

/// What the members agree on, who have these flags.
fn agree(members: &[(&Member, i64)]) -> Vec<i64> {
    let asked: Vec<_> = members
        .iter()
        .map(|(member, flag)| {
            let flag = *flag;
            member.ask(move |group| group.agree(flag, Some(LIMIT)).unwrap())
        })
        .collect();
    asked.into_iter().map(|answer| answer.recv().unwrap()).collect()
}

#[test]
fn those_who_live_agree_whatever_happened() {
    let members = world(3);
    let [a, b, c] = [&members[0], &members[1], &members[2]];
    assert_eq!(agree(&[(a, 0b111), (b, 0b110), (c, 0b011)]), [0b010; 3]);
    let state = |member: &Member| member.ask(|group| group.get_error()).recv().unwrap();
    assert_eq!(state(a), WorkResult::Success);
    b.ask(|group| group.revoke().unwrap()).recv().unwrap();
    let error = c.ask(|group| group.barrier(()).unwrap_err().to_string()).recv().unwrap();
    assert!(error.contains("rank 1: it revoked the group"), "{error}");
    assert_eq!([state(b), state(c)], [WorkResult::CommError; 2]);
    assert_eq!(agree(&[(a, -1), (b, 12), (c, 10)]), [8; 3]);
    // One leaves: its flag is not waited for.
    c.ask(|group| group.shutdown()).recv().unwrap().unwrap();
    reconfigure(1, &[b, a]);
    assert_eq!([state(a), state(b)], [WorkResult::Success; 2]);
    assert_eq!(agree(&[(b, 6), (a, 3)]), [2; 2]);
    // The eldest, which was rank 0 before, hosts the store.
    b.ask(|group| group.shutdown_within(Duration::ZERO)).recv().unwrap().unwrap();
    assert_eq!(agree(&[(a, 5)]), [5]);
}

/// What members say who make one call each.
fn calls<T: Send + 'static>(
    members: &[&Member],
    call: impl Fn(&ProcessGroup) -> Result<T, Error> + Send + Clone + 'static,
) -> Vec<Result<T, Error>> {
    let asked: Vec<_> = members.iter().map(|member| member.ask(call.clone())).collect();
    asked.into_iter().map(|answer| answer.recv().unwrap()).collect()
}

fn is_late<T>(result: Result<T, Error>, ranks: &[u32]) -> bool {
    match result {
        Err(Error::RendezvousTimeout { missing_ranks, .. }) => *missing_ranks == *ranks,
        _ => false,
    }
}

#[test]
fn a_call_that_ends_badly_does_so_for_all_and_the_next_is_the_next_of_all() {
    let members = world(3);
    let [a, b, c] = [&members[0], &members[1], &members[2]];
    let agree_within = |limit| move |group: &ProcessGroup| group.agree(3, Some(limit));
    assert!(calls(&[a, b], agree_within(SHORT)).into_iter().all(|it| is_late(it, &[2])));
    // Who comes when the others have given up learns that, and does not wait.
    let late = calls(&[c], agree_within(Duration::ZERO)).remove(0).unwrap_err().to_string();
    assert!(late.contains("rank 2 came when the others had given up"), "{late}");
    assert_eq!(agree(&[(a, 7), (b, 6), (c, 12)]), [4; 3]);
    let shrink_within =
        |limit| move |group: &ProcessGroup| group.shrink_group(&[], Some(limit))?.wait(None);
    assert!(calls(&[c], shrink_within(SHORT)).into_iter().all(|it| is_late(it, &[0, 1])));
    assert!(calls(&[a], shrink_within(Duration::ZERO)).into_iter().all(|it| is_late(it, &[0, 1])));
    assert!(calls(&[b], shrink_within(Duration::ZERO)).into_iter().all(|it| is_late(it, &[0, 1])));
    check(&[a, b, c]);
    exclude(&[], &[a, b, c]);
    assert_eq!(agree(&[(a, 7), (b, 6), (c, 12)]), [4; 3]);
}

#[test]
fn ranks_that_call_different_things_are_told() {
    let members = world(3);
    let [a, b, c] = [&members[0], &members[1], &members[2]];
    for reconfigures in [false, true] {
        if reconfigures {
            reconfigure(1, &[a, b, c]);
        }
        let agrees = a.ask(|group| group.agree(1, None).map(drop));
        let shrinks = b.ask(|group| group.shrink_group(&[], None)?.wait(None));
        let others = c.ask(|group| group.shrink_group(&[1], None)?.wait(None));
        for answer in [agrees, shrinks, others] {
            let error = answer.recv().unwrap().unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
            assert!(error.to_string().contains("ranks call different things"), "{error}");
        }
        assert_eq!(agree(&[(a, 1), (b, 3), (c, 5)]), [1; 3]);
    }
}

#[test]
fn a_rank_that_a_call_leaves_out_is_in_step_once_that_has_failed() {
    let members = world(3);
    let [a, b, c] = [&members[0], &members[1], &members[2]];
    for reconfigures in [false, true] {
        if reconfigures {
            reconfigure(1, &[a, b, c]);
        }
        // The first two would go on without the third, of whom one does not come.
        let shrink = |group: &ProcessGroup| group.shrink_group(&[2], Some(SHORT))?.wait(None);
        assert!(calls(&[a], shrink).into_iter().all(|it| is_late(it, &[1])));
        // The third does not take part in that, and waits for them in the next.
        let asked = c.ask(|group| group.agree(6, Some(LIMIT)));
        assert!(calls(&[b], shrink).into_iter().all(|it| is_late(it, &[1])));
        assert_eq!(agree(&[(a, 7), (b, 3)]), [2; 2]);
        assert_eq!(asked.recv().unwrap().unwrap(), 2);
        assert_eq!(agree(&[(a, 7), (b, 6), (c, 12)]), [4; 3]);
    }
    // Whom the others have left behind is told so.
    exclude(&[2], &[a, b]);
    let error = c.ask(|group| group.agree(1, Some(LIMIT)).unwrap_err()).recv().unwrap();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    assert!(error.to_string().contains("rank 2 calls agree, where the one"), "{error}");
}

#[test]
fn who_has_left_a_group_made_out_of_another_is_not_waited_for() {
    let members = world(3);
    let split = |group: &ProcessGroup| {
        let options = SplitOptions::default().name("part");
        Ok(group.split_group(&[0, 1, 2], options).unwrap().unwrap())
    };
    let all: Vec<&Member> = members.iter().collect();
    let parts: Vec<ProcessGroup> = calls(&all, split).into_iter().map(Result::unwrap).collect();
    let [first, second, third] = parts.as_slice() else { panic!("three ranks") };
    first.revoke().unwrap();
    assert!(second.barrier(()).is_err() && third.barrier(()).is_err());
    let _ = third.shutdown();
    thread::scope(|scope| {
        let other = scope.spawn(|| second.agree(6, Some(LIMIT)).unwrap());
        assert_eq!(first.agree(3, Some(LIMIT)).unwrap(), 2);
        assert_eq!(other.join().unwrap(), 2);
    });
    // All three are members of the group it was made out of.
    assert_eq!(agree(&[(all[0], 7), (all[1], 6), (all[2], 12)]), [4; 3]);
}

#[test]
fn agreements_leave_no_keys_behind() {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let members = world_in(store.clone(), 3);
    let flags: Vec<_> = members.iter().map(|member| (member, 1)).collect();
    agree(&flags);
    let keys = store.num_keys().unwrap();
    for _ in 0..20 {
        assert_eq!(agree(&flags), [1; 3]);
    }
    assert_eq!(store.num_keys().unwrap(), keys);
}
