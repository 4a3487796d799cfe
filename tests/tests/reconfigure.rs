//! Groups whose members change: the cases by name, over ranks that are threads. Processes, deaths
//! and languages are in `reconfigure_processes.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use polyrank::process_group::ReconfigureOptions;
use polyrank::store::HashStore;
use polyrank::{Error, GroupOptions, ProcessGroup, ReduceOp, WorkResult};

const LIMIT: Duration = Duration::from_secs(60);

type Job = Box<dyn FnOnce(&ProcessGroup) + Send>;

/// A rank that is a thread, and does what it is told.
struct Member {
    jobs: Sender<Job>,
    thread: Option<JoinHandle<()>>,
}

impl Member {
    fn of(make: impl FnOnce() -> ProcessGroup + Send + 'static) -> Member {
        let (jobs, todo) = channel::<Job>();
        let thread = std::thread::spawn(move || {
            let group = make();
            for job in todo {
                job(&group);
            }
        });
        Member { jobs, thread: Some(thread) }
    }

    /// A process that is in no group yet.
    fn newcomer() -> Member {
        Member::of(|| ProcessGroup::without_members(None, "group", options()).unwrap())
    }

    /// Does `job`; what it gives comes later.
    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&ProcessGroup) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (answer, answered) = channel();
        self.jobs.send(Box::new(move |group| drop(answer.send(job(group))))).unwrap();
        answered
    }

    fn handle(&self) -> String {
        self.ask(|group| group.get_reconfigure_handle().unwrap()).recv().unwrap()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(std::mem::replace(&mut self.jobs, channel().0));
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

fn options() -> GroupOptions {
    GroupOptions::default().timeout(LIMIT)
}

/// The members of a group of `size`.
fn world(size: u32) -> Vec<Member> {
    let store = Arc::new(HashStore::new());
    let member = |rank| {
        let store = store.clone();
        Member::of(move || ProcessGroup::new(store, rank, size, "group", options()).unwrap())
    };
    (0..size).map(member).collect()
}

fn handles(members: &[&Member]) -> Vec<String> {
    members.iter().map(|member| member.handle()).collect()
}

/// Makes `members` the members, of ranks in that order, and checks that they reduce.
fn reconfigure(uuid: i64, members: &[&Member]) {
    let handles = handles(members);
    let options = ReconfigureOptions::new(uuid, handles);
    for result in call(&options, members) {
        result.unwrap();
    }
    check(members);
}

fn call(options: &ReconfigureOptions, members: &[&Member]) -> Vec<Result<(), Error>> {
    let asked: Vec<_> = members
        .iter()
        .map(|member| {
            let options = options.clone();
            member.ask(move |group| group.reconfigure(options)?.wait(None))
        })
        .collect();
    asked.into_iter().map(|answer| answer.recv().unwrap()).collect()
}

/// Checks rank, size and the sum of what all have, of the members in the order of their ranks.
fn check(members: &[&Member]) {
    let size = members.len() as u32;
    let asked: Vec<_> = members
        .iter()
        .map(|member| {
            member.ask(|group| {
                let mut tensor = [f64::from(group.rank()) + 1.0, 1.0];
                group.allreduce(&mut tensor, ReduceOp::Sum).unwrap();
                let mut long = vec![group.rank() as i64; 100_000];
                group.allreduce(&mut long, ReduceOp::Max).unwrap();
                (group.rank(), group.size(), tensor, long[99_999])
            })
        })
        .collect();
    let sum = f64::from(size * (size + 1) / 2);
    for (rank, answer) in asked.into_iter().enumerate() {
        let expected = (rank as u32, size, [sum, f64::from(size)], i64::from(size) - 1);
        assert_eq!(answer.recv().unwrap(), expected);
    }
}

#[test]
fn identity() {
    for size in [1, 2, 3, 5, 8] {
        let members = world(size);
        let all: Vec<&Member> = members.iter().collect();
        for uuid in 0..3 {
            reconfigure(uuid, &all);
        }
    }
}

#[test]
fn grow() {
    for (size, more) in [(1, 1), (1, 4), (2, 3), (3, 5)] {
        let (members, newcomers) = (world(size), [(); 5].map(|()| Member::newcomer()));
        let all: Vec<&Member> = members.iter().chain(&newcomers[..more]).collect();
        reconfigure(7, &all);
    }
}

#[test]
fn shrink() {
    for (size, kept) in [(2, vec![1]), (3, vec![2, 0]), (5, vec![4, 1, 2]), (8, vec![7, 6])] {
        let members = world(size);
        let all: Vec<&Member> = kept.iter().map(|&rank: &usize| &members[rank]).collect();
        reconfigure(1, &all);
    }
}

#[test]
fn grow_and_shrink() {
    let (members, newcomers) = (world(3), [(); 2].map(|()| Member::newcomer()));
    reconfigure(1, &[&newcomers[0], &members[2], &members[1]]);
    // Who was left out comes again, and who came goes.
    reconfigure(2, &[&members[0], &newcomers[1], &members[1], &members[2]]);
    reconfigure(3, &[&newcomers[0]]);
    reconfigure(4, &[&members[0], &members[1], &members[2], &newcomers[0], &newcomers[1]]);
}

#[test]
fn split_brain() {
    let members = world(5);
    let (left, right) = ([&members[3], &members[0]], [&members[1], &members[4], &members[2]]);
    let options = [&left[..], &right[..]].map(|side| ReconfigureOptions::new(9, handles(side)));
    let asked: Vec<_> = [(&options[0], &left[..]), (&options[1], &right[..])]
        .into_iter()
        .flat_map(|(options, side)| {
            side.iter().map(move |member| {
                let options = options.clone();
                member.ask(move |group| group.reconfigure(options)?.wait(None))
            })
        })
        .collect();
    asked.into_iter().for_each(|answer| answer.recv().unwrap().unwrap());
    check(&left);
    check(&right);
}

/// The errors of a call that every member makes.
fn failures(options: &ReconfigureOptions, members: &[&Member]) -> Vec<Error> {
    call(options, members).into_iter().map(Result::unwrap_err).collect()
}

#[test]
fn unordered_handles_give_the_same_ranks_in_whatever_order() {
    let (members, newcomers) = (world(3), [(); 2].map(|()| Member::newcomer()));
    let all = [&newcomers[1], &members[2], &members[0], &newcomers[0]];
    let handles = handles(&all);
    let asked: Vec<_> = all
        .iter()
        .enumerate()
        .map(|(shift, member)| {
            let mut turned = handles.clone();
            turned.rotate_left(shift);
            let options = ReconfigureOptions::new(1, turned).ordered(false);
            member.ask(move |group| {
                group.reconfigure(options)?.wait(None)?;
                Ok::<_, Error>((group.rank(), group.size()))
            })
        })
        .collect();
    let mut ranks: Vec<_> = asked.iter().map(|answer| answer.recv().unwrap().unwrap()).collect();
    // Who was a member keeps its place before the newcomers.
    assert_eq!((ranks[2], ranks[1]), ((0, 4), (1, 4)));
    ranks.sort_unstable();
    assert_eq!(ranks, [(0, 4), (1, 4), (2, 4), (3, 4)]);
}

#[test]
fn a_call_that_is_wrong_changes_nothing() {
    let members = world(2);
    let all: Vec<&Member> = members.iter().collect();
    let before = handles(&all);
    reconfigure(5, &all);
    let now = handles(&all);
    assert_ne!(before, now);
    let refuse = |options: ReconfigureOptions, expected: &str| {
        for error in failures(&options, &all) {
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    };
    refuse(ReconfigureOptions::new(5, now.clone()), "uuid 5 was used before, by call 1");
    refuse(ReconfigureOptions::new(6, before), "which it had before an earlier call");
    refuse(ReconfigureOptions::new(6, [Member::newcomer().handle()]), "not among the 1 new");
    refuse(ReconfigureOptions::new(6, [now.clone(), now.clone()].concat()), "given twice");
    refuse(ReconfigureOptions::new(6, ["tcp://127.0.0.1:1"]), "is not a handle");
    refuse(ReconfigureOptions::new(6, Vec::<String>::new()), "got 0");
    check(&all);
    assert_eq!(handles(&all), now);
}

#[test]
fn operations_before_the_first_call_raise() {
    let newcomer = Member::newcomer();
    let seen = newcomer.ask(|group| {
        let mut tensor = [1.0f32; 3];
        let errors = [
            group.allreduce(&mut tensor, ReduceOp::Sum).unwrap_err(),
            group.broadcast(&mut tensor, 0).unwrap_err(),
            group.barrier(()).unwrap_err(),
            group.send(&tensor, 0, 0).unwrap_err(),
            group.recv(&mut tensor, 1, 0).unwrap_err(),
        ];
        (errors, group.size(), group.supports_reconfigure(), group.is_broken())
    });
    let (errors, size, supports, broken) = seen.recv().unwrap();
    for error in errors {
        assert!(matches!(error, Error::NoMembers { .. }), "{error:?}");
        assert!(error.to_string().contains("call reconfigure() first"), "{error}");
    }
    assert_eq!((size, supports, broken), (0, true, false));
    reconfigure(1, &[&newcomer]);
}

#[test]
fn what_is_in_flight_ends_and_says_why() {
    let members = world(3);
    let waits = members[2].ask(|group| {
        let work = group.recv_async(vec![0f32; 4], Some(0), 0)?;
        Ok::<_, Error>(work)
    });
    let in_flight = waits.recv().unwrap().unwrap();
    let elsewhere = members[1].ask(|group| group.allreduce_async(vec![1f64; 4], ReduceOp::Sum));
    let elsewhere = elsewhere.recv().unwrap().unwrap();
    // Rank 1 goes on with a newcomer: rank 2, which is left out, does not call.
    let newcomer = Member::newcomer();
    reconfigure(3, &[&members[1], &newcomer]);
    for (work, name) in [(elsewhere, "allreduce"), (in_flight, "recv")] {
        let error = work.wait(None).unwrap_err();
        let Error::Reconfigured { rank, collective, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*rank, collective.as_str()), (1, name));
        assert!(error.to_string().contains("was reconfigured by rank 1"), "{error}");
    }
}

#[test]
fn a_member_that_never_comes_is_named() {
    let (members, late) = (world(2), Member::newcomer());
    for late_rank in [0, 1, 2] {
        let all: Vec<&Member> = members.iter().collect();
        let mut handles = handles(&all);
        handles.insert(late_rank, late.handle());
        let options = ReconfigureOptions::new(late_rank as i64, handles);
        let options = options.timeout(Duration::from_millis(700));
        for error in failures(&options, &all) {
            let Error::RendezvousTimeout { rank, missing_ranks, message } = &error else {
                panic!("{error:?}")
            };
            assert_eq!((*rank, missing_ranks.to_vec()), (late_rank as u32, vec![late_rank as u32]));
            assert!(message.contains(&format!("rank {late_rank}")), "{message}");
            assert!(message.contains("group 'group'"), "{message}");
        }
        let after = members[0].ask(|group| group.barrier(()).unwrap_err().to_string());
        let after = after.recv().unwrap();
        assert!(after.contains("has no members since reconfigure"), "{after}");
        // It can be called again.
        reconfigure(100 + late_rank as i64, &all);
    }
}

#[test]
fn members_that_disagree_on_who_they_are_are_told() {
    let members = world(3);
    let all: Vec<&Member> = members.iter().collect();
    let handles = handles(&all);
    let short = ReconfigureOptions::new(1, handles[..2].to_vec()).timeout(LIMIT);
    let long = ReconfigureOptions::new(1, handles).timeout(LIMIT);
    let asked = [(0, short), (1, long)].map(|(rank, options): (usize, _)| {
        members[rank].ask(move |group| group.reconfigure(options)?.wait(None))
    });
    for answer in asked {
        let error = answer.recv().unwrap().unwrap_err().to_string();
        assert!(error.contains("members disagree on who they are"), "{error}");
    }
}

#[test]
fn an_abort_ends_the_wait_for_members() {
    let (members, late) = (world(2), Member::newcomer());
    let all: Vec<&Member> = members.iter().collect();
    let mut handles = handles(&all);
    handles.push(late.handle());
    let options = ReconfigureOptions::new(1, handles);
    let works = all.iter().map(|member| {
        let options = options.clone();
        member.ask(move |group| group.reconfigure(options).unwrap()).recv().unwrap()
    });
    let works: Vec<_> = works.collect();
    members[1].ask(|group| group.abort()).recv().unwrap();
    let errors: Vec<_> = works.iter().map(|work| work.wait(None).unwrap_err()).collect();
    assert!(matches!(errors[1], Error::Aborted { .. }), "{errors:?}");
    assert!(errors[0].to_string().contains("rank 1 does not come"), "{errors:?}");
    reconfigure(2, &all);
}

#[test]
fn groups_of_members_are_split_and_left_as_any_others() {
    let (members, newcomer) = (world(2), Member::newcomer());
    let all = [&members[1], &newcomer, &members[0]];
    reconfigure(1, &all);
    let asked = all.map(|member| {
        member.ask(|group| {
            let pair = group.split_group(&[2, 1], Default::default()).unwrap();
            let mut sum = [1i32];
            if let Some(pair) = &pair {
                pair.allreduce(&mut sum, ReduceOp::Sum).unwrap();
            }
            group.monitored_barrier(None, false).unwrap();
            group.shutdown().unwrap();
            sum[0]
        })
    });
    for (rank, answer) in asked.into_iter().enumerate() {
        assert_eq!(answer.recv().unwrap(), if rank == 0 { 1 } else { 2 });
    }
}

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
fn hooks_stay_with_their_group() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (seen, failures) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let members = world(2);
    let (seen_here, failures_here) = (seen.clone(), failures.clone());
    let registered = members[0].ask(move |group| {
        group.register_pre_hook(0, move |_| {
            seen_here.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        group.register_abort_hook(0, move || {
            failures_here.fetch_add(1, Ordering::SeqCst);
        });
    });
    registered.recv().unwrap();
    let newcomer = Member::newcomer();
    for (uuid, second) in [(1, &members[1]), (2, &newcomer)] {
        let before = seen.load(Ordering::SeqCst);
        reconfigure(uuid, &[&members[0], second]);
        assert!(seen.load(Ordering::SeqCst) > before, "the check's operations have hooks");
    }
    assert_eq!(failures.load(Ordering::SeqCst), 0, "no group has failed");
    let waiting = members[0].ask(|group| group.barrier(()).unwrap_err());
    newcomer.ask(ProcessGroup::abort).recv().unwrap();
    waiting.recv().unwrap();
    assert_eq!(failures.load(Ordering::SeqCst), 1, "the last one has");
}

#[test]
fn those_who_live_agree_whatever_happened() {
    let members = world(3);
    let [a, b, c] = [&members[0], &members[1], &members[2]];
    assert_eq!(agree(&[(a, 0b111), (b, 0b110), (c, 0b011)]), [0b010; 3]);
    let state = |member: &Member| member.ask(|group| group.get_error()).recv().unwrap();
    assert_eq!(state(a), WorkResult::Success);
    b.ask(|group| group.revoke()).recv().unwrap();
    let error = c.ask(|group| group.barrier(()).unwrap_err().to_string()).recv().unwrap();
    assert!(error.contains("rank 1: it revoked the group"), "{error}");
    assert_eq!([state(b), state(c)], [WorkResult::CommError; 2]);
    assert_eq!(agree(&[(a, -1), (b, 12), (c, 10)]), [8; 3]);
    // One leaves: its flag is not waited for.
    c.ask(|group| group.shutdown()).recv().unwrap().unwrap();
    reconfigure(1, &[b, a]);
    assert_eq!([state(a), state(b)], [WorkResult::Success; 2]);
    assert_eq!(agree(&[(b, 6), (a, 3)]), [2; 2]);
    a.ask(|group| group.shutdown_within(Duration::ZERO)).recv().unwrap().unwrap();
    assert_eq!(agree(&[(b, 5)]), [5]);
}
