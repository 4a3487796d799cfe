//! Groups whose members change: the cases by name, over ranks that are threads. Processes, deaths
//! and languages are in `reconfigure_processes.rs`, calls of those that are left of a group in
//! `survivors.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrank::process_group::ReconfigureOptions;
use polyrank::{Error, ProcessGroup, ReduceOp, SplitOptions, WorkResult};
use polyrank_tests::LIMIT;
use polyrank_tests::members::{self, Member, check, failures, handles, reconfigure, world};

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
            group.all_gather_single(&mut [0f32; 2], &[0f32; 2], ()).unwrap_err(),
            group.reduce_scatter_single(&mut [0f32; 2], &[0f32; 2], ()).unwrap_err(),
            group.monitored_barrier(None, false).unwrap_err(),
            group.all_gather_object(&1u8).unwrap_err(),
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

#[test]
fn hooks_stay_with_their_group() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (seen, failures) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let members = world(2);
    let (seen_here, failures_here) = (seen.clone(), failures.clone());
    let registered = members[0].ask(move |group| {
        group
            .register_pre_hook(0, move |_| {
                seen_here.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .unwrap();
        group
            .register_abort_hook(0, move || {
                failures_here.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
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
fn one_order_on_some_members_and_another_on_others_is_found() {
    for newcomers in [0, 2] {
        let (members, others) = (world(3), [(); 2].map(|()| Member::newcomer()));
        let all: Vec<&Member> = members.iter().chain(&others[..newcomers]).collect();
        let handles = handles(&all);
        let asked: Vec<_> = (0..)
            .zip(&all)
            .map(|(shift, member)| {
                let mut turned = handles.clone();
                turned.rotate_left(shift % 2);
                let options = ReconfigureOptions::new(1, turned);
                member.ask(move |group| group.reconfigure(options)?.wait(None))
            })
            .collect();
        for answer in asked {
            let error = answer.recv().unwrap().unwrap_err().to_string();
            assert!(error.contains("members disagree on who they are"), "{error}");
        }
        reconfigure(2, &all);
    }
}

#[test]
fn a_host_that_does_not_answer_is_named_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("tcp://{}/1f", silent.local_addr().unwrap());
    let eldest = format!("polyrank-1/0/{:016x}/0/{place}", 7);
    let member = Member::newcomer();
    let limit = Duration::from_millis(300);
    let options = ReconfigureOptions::new(1, [member.handle(), eldest]).timeout(limit);
    let work = member.ask(|group| group.reconfigure(options).unwrap()).recv().unwrap();
    let error = work.wait(None).unwrap_err();
    let text = error.to_string();
    let is_named =
        matches!(error, Error::RendezvousTimeout { missing_ranks, .. } if *missing_ranks == [1]);
    assert!(
        is_named
            && text.contains(&format!("rank 1, where the members meet, did not answer at {place}")),
        "{text}"
    );
    reconfigure(2, &[&member]);
}

#[test]
fn an_abort_ends_the_way_to_a_host_that_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let member = Member::newcomer();
    // A former member is older than a newcomer.
    let eldest = format!("polyrank-1/0/{:016x}/0/tcp://{}/1f", 7, silent.local_addr().unwrap());
    let options = ReconfigureOptions::new(1, [member.handle(), eldest]);
    let work = member.ask(|group| group.reconfigure(options).unwrap()).recv().unwrap();
    let (_held, _) = silent.accept().unwrap();
    member.ask(|group| group.abort()).recv().unwrap();
    let error = work.wait(None).unwrap_err();
    assert!(matches!(error, Error::Aborted { rank: 0, .. }), "{error:?}");
    reconfigure(2, &[&member]);
}

#[test]
fn a_group_without_members_says_so_whatever_ended_the_wait_for_them() {
    let newcomer = Member::newcomer();
    newcomer.ask(|group| group.abort()).recv().unwrap();
    let error = newcomer.ask(|group| group.barrier(()).unwrap_err()).recv().unwrap();
    assert!(matches!(error, Error::NoMembers { .. }), "{error:?}");
    assert!(error.to_string().contains("call reconfigure() first"), "{error}");
    reconfigure(1, &[&newcomer]);
}

#[test]
fn a_group_that_was_destroyed_gets_no_members_and_meets_nobody() {
    let members = world(2);
    let others = [Member::newcomer(), Member::newcomer()];
    let [first, second] = &others;
    reconfigure(1, &[first, second]);
    for member in members.iter().chain(&others) {
        let handle = member.handle();
        let (_, place) = handle.rsplit_once("://").unwrap();
        let place = place.split('/').next().unwrap().to_owned();
        assert!(TcpStream::connect(&place).is_ok(), "{place}");
        let left = member.ask(|group| {
            group.shutdown_within(Duration::ZERO).unwrap();
            let again = ReconfigureOptions::new(9, [handle]);
            let errors = [
                group.get_reconfigure_handle().unwrap_err(),
                group.reconfigure(again).map(drop).unwrap_err(),
                group.shrink_group(&[], None).and_then(|work| work.wait(None)).unwrap_err(),
                group.agree(1, None).unwrap_err(),
            ];
            (errors, place)
        });
        let (errors, place) = left.recv().unwrap();
        for error in errors {
            assert!(matches!(error, Error::InvalidGroup { .. }), "{error:?}");
            assert!(error.to_string().contains("was destroyed"), "{error}");
        }
        assert!(TcpStream::connect(&place).is_err(), "somebody still listens at {place}");
    }
}

#[test]
fn prepared_operations_end_with_the_members() {
    let members = world(2);
    let all: Vec<&Member> = members.iter().collect();
    let sizes = [4, 100_000];
    let prepared: Vec<_> = all
        .iter()
        .map(|member| {
            member.ask(move |group| {
                sizes.map(|size| group.prepare_allreduce(vec![1f32; size], ReduceOp::Sum).unwrap())
            })
        })
        .map(|answer| answer.recv().unwrap())
        .collect();
    reconfigure(1, &all);
    for (rank, operation) in prepared
        .iter()
        .enumerate()
        .flat_map(|(rank, both)| both.iter().map(move |operation| (rank as u32, operation)))
    {
        for error in [operation.start().map(drop).unwrap_err(), operation.run().unwrap_err()] {
            let Error::Reconfigured { rank: by, collective, .. } = &error else {
                panic!("{error:?}")
            };
            assert_eq!((*by, collective.as_str()), (rank, "allreduce"), "{error}");
        }
    }
    check(&all);
}

#[test]
fn a_member_that_leaves_without_an_operation_says_why() {
    let (members, newcomer) = (world(3), Member::newcomer());
    check(&members.iter().collect::<Vec<_>>());
    let waits = members[0].ask(|group| group.recv_async(vec![0f32; 4], Some(2), 0).unwrap());
    let receives = waits.recv().unwrap();
    reconfigure(1, &[&members[2], &newcomer]);
    let error = receives.wait(None).unwrap_err();
    assert!(matches!(error, Error::Reconfigured { rank: 2, .. }), "{error:?}");
    // What is called later needs it, too.
    for member in &members[..2] {
        let error = member.ask(|group| group.allreduce(&mut [1f32], ReduceOp::Sum).unwrap_err());
        let error = error.recv().unwrap();
        assert!(matches!(error, Error::Reconfigured { rank: 2, .. }), "{error:?}");
    }
}

#[test]
fn meetings_leave_no_keys_behind() {
    let members = world(3);
    let all: Vec<&Member> = members.iter().collect();
    let keys = |member: &Member| {
        member.ask(|group| group.get_group_store().num_keys().unwrap()).recv().unwrap()
    };
    reconfigure(1, &all);
    let first = keys(all[0]);
    for uuid in 2..=20 {
        reconfigure(uuid, &all);
    }
    // The server forgets a member when it sees the end of its connection.
    let began = std::time::Instant::now();
    while keys(all[0]) > first && began.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    assert!(keys(all[0]) <= first, "{} keys, where there were {first}", keys(all[0]));
}

/// How the group of `member` stands once it does not work any more, which it learns without asking.
fn end_of(member: &Member) -> WorkResult {
    let asked = member.ask(|group| {
        let began = Instant::now();
        while group.get_error() == WorkResult::Success && began.elapsed() < LIMIT {
            std::thread::yield_now();
        }
        group.get_error()
    });
    asked.recv().unwrap()
}

#[test]
fn each_knows_how_its_group_stands() {
    let members = world(3);
    let [a, b, c] = [&members[0], &members[1], &members[2]];
    check(&[a, b, c]);
    let states = |members: &[&Member]| {
        let asked = members.iter().map(|member| member.ask(|group| group.get_error()));
        asked.map(|answer| answer.recv().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(states(&[a, b, c]), [WorkResult::Success; 3]);
    reconfigure(1, &[a, b]);
    // Who is left out is told what its next operation would be.
    assert_eq!(end_of(c), WorkResult::CommError);
    let next = c.ask(|group| group.barrier(()).unwrap_err()).recv().unwrap();
    assert!(matches!(next, Error::Reconfigured { .. }), "{next:?}");
    assert_eq!(states(&[a, b]), [WorkResult::Success; 2]);
    let options = ReconfigureOptions::new(2, handles(&[a, b])).timeout(Duration::from_millis(300));
    let late = failures(&options, &[a]);
    assert!(matches!(late[0], Error::RendezvousTimeout { .. }), "{late:?}");
    assert_eq!(states(&[a]), [WorkResult::Timeout]);
    assert_eq!(end_of(b), WorkResult::CommError);
    // A member that leaves lives, and is not said to be dead.
    let options = ReconfigureOptions::new(3, handles(&[a, b]));
    b.ask(|group| group.shutdown().unwrap()).recv().unwrap();
    let gone = failures(&options, &[a]).remove(0);
    assert!(matches!(gone, Error::RankFailed { rank: 1, .. }), "{gone:?}");
    assert!(gone.to_string().contains("its process is gone, or it left the group"), "{gone}");
    assert_eq!(states(&[a]), [WorkResult::CommError]);
    reconfigure(4, &[a, c]);
    assert_eq!(states(&[a, c]), [WorkResult::Success; 2]);
}

#[test]
fn the_store_of_former_members_says_that_they_were_replaced() {
    let members = world(2);
    let [a, b] = [&members[0], &members[1]];
    let store = a.ask(ProcessGroup::get_group_store).recv().unwrap();
    reconfigure(1, &[a, b]);
    let error = store.get("key").unwrap_err().to_string();
    assert!(error.contains("its members were replaced"), "{error}");
    a.ask(|group| group.get_group_store().set("key", b"value").unwrap()).recv().unwrap();
    let value = b.ask(|group| group.get_group_store().get("key").unwrap()).recv().unwrap();
    assert_eq!(value, b"value");
}

#[test]
fn members_that_call_with_another_number_are_told_both() {
    let members = world(3);
    let all: Vec<&Member> = members.iter().collect();
    let handles = handles(&all);
    let asked: Vec<_> = (0..3)
        .map(|rank| {
            let options = ReconfigureOptions::new(40 + rank as i64, handles.clone());
            all[rank].ask(move |group| group.reconfigure(options)?.wait(None))
        })
        .collect();
    for (rank, answer) in asked.into_iter().enumerate() {
        let error = answer.recv().unwrap().unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, Error::Rendezvous { .. }), "{error:?}");
        assert!(said.contains("it called reconfigure with uuid 4"), "{said}");
        assert!(said.contains(&format!("rank {rank} with uuid {}", 40 + rank)), "{said}");
    }
    reconfigure(50, &all);
}

#[test]
fn whoever_comes_when_members_disagree_hears_it_and_no_group_differs() {
    let members = world(3);
    let all: Vec<&Member> = members.iter().collect();
    for (uuid, odd) in (1..).zip([0, 1, 2]) {
        let handles = handles(&all);
        let reversed = handles.iter().rev().cloned().collect::<Vec<_>>();
        let ask = |rank: usize| {
            let handles = if rank == odd { reversed.clone() } else { handles.clone() };
            let options = ReconfigureOptions::new(uuid, handles);
            members[rank].ask(move |group| {
                let error = group.reconfigure(options)?.wait(None).unwrap_err();
                Ok::<_, Error>((error, group.get_error()))
            })
        };
        for answer in [0, 1, 2].map(ask) {
            let (error, stands) = answer.recv().unwrap().unwrap();
            let said = error.to_string();
            assert!(said.contains("members disagree on who they are"), "{said}");
            let size = said.split("which has ").nth(1).unwrap();
            assert!(size.starts_with("3 handles"), "{said}");
            assert_eq!(stands, WorkResult::CommError, "{said}");
        }
    }
    reconfigure(9, &all);
}

#[test]
fn a_group_without_members_says_that_it_has_none() {
    let group = ProcessGroup::without_members(None, "g", members::options()).unwrap();
    assert_eq!(format!("{group:?}"), "ProcessGroup(g, rank 0 of 0, tcp, no members)");
    let error = group.get_group_store().set("key", b"value").unwrap_err();
    assert!(matches!(error, Error::NoMembers { .. }), "{error:?}");
    group.shutdown().unwrap();
    assert_eq!(format!("{group:?}"), "ProcessGroup(g, rank 0 of 0, tcp, left)");
    let error = group.get_group_store().set("key", b"value").unwrap_err();
    assert!(matches!(error, Error::InvalidGroup { .. }), "{error:?}");
}

#[test]
fn every_call_of_a_rank_that_was_left_out_says_that_the_others_go_on() {
    let members = world(3);
    let [a, b, c] = [&members[0], &members[1], &members[2]];
    check(&[a, b, c]);
    reconfigure(1, &[a, b]);
    assert_eq!(end_of(c), WorkResult::CommError);
    type Call = fn(&ProcessGroup) -> Result<(), Error>;
    let calls: [Call; 6] = [
        |group| group.monitored_barrier(None, false),
        |group| group.split_group(&[0, 2], SplitOptions::default()).map(drop),
        |group| group.split_group(&[2], SplitOptions::default()).map(drop),
        |group| group.shrink_group(&[0], None)?.wait(None),
        |group| group.new_window().map(drop),
        |group| group.barrier(()),
    ];
    for (number, call) in calls.into_iter().enumerate() {
        let error = c.ask(move |group| call(group).unwrap_err()).recv().unwrap();
        assert!(matches!(error, Error::Reconfigured { .. }), "{number}: {error:?}");
    }
}
