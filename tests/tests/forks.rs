//! Ranks that fork: the others hear of the end of such a rank while its children live, and what
//! children do is no concern of the parent's group. Every rank is a process.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

use polyrank::distributed::{
    InitOptions, NewGroupOptions, destroy_process_group, init_process_group, is_initialized,
    new_group,
};
use polyrank::process_group::ReconfigureOptions;
use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{Error, GroupHints, ProcessGroup, SplitOptions};
use polyrank_tests::LIMIT;
use polyrank_tests::fork::{detach, end, fork, shared_sockets};
use polyrank_tests::processes::{
    ProcessEnd, bare_processes, die, dies_between_operations, is_rank, lines_of_survivors,
    processes, report, with_variable,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Where a rank reads who is to die.
const VICTIM: &str = "POLYRANK_TEST_VICTIM";
/// Where a child reads at which path the test listens.
const PATH: &str = "POLYRANK_TEST_PATH";

/// The sum of ones of all ranks, in messages of several sizes.
fn sums(group: &ProcessGroup) -> Result<(), Error> {
    for elements in [1, 5000, 300_000] {
        let mut ones = vec![1u32; elements];
        group.allreduce(&mut ones, ())?;
        assert!(ones.iter().all(|sum| *sum == group.size()), "{elements} elements");
    }
    Ok(())
}

/// Whether a child may ask nothing of the group that it inherited.
fn refuses_a_child(group: &ProcessGroup) {
    let own = [group.rank()];
    let handle = || Ok::<_, Error>(ReconfigureOptions::new(1, [group.get_reconfigure_handle()?]));
    let hints = GroupHints::default().compress("bf16");
    let refused = [
        ("agree", group.agree(0, None).map(drop)),
        ("shrink_group", group.shrink_group(&[], None).map(drop)),
        ("get_reconfigure_handle", group.get_reconfigure_handle().map(drop)),
        ("reconfigure", handle().and_then(|options| group.reconfigure(options)).map(drop)),
        ("revoke", group.revoke()),
        ("split_group", group.split_group(&own, SplitOptions::default()).map(drop)),
        ("set_hints", group.set_hints(hints)),
        ("set_timeout", group.set_timeout(LIMIT)),
        ("register_completion_hook", group.register_completion_hook(0, |_| {})),
        ("shutdown", group.shutdown()),
        ("destroy_process_group", destroy_process_group(Some(group))),
    ];
    for (call, ended) in refused {
        assert!(matches!(ended, Err(Error::InvalidGroup { .. })), "{call}: {ended:?}");
    }
    // It has no outcome; the others go on.
    group.abort();
}

/// Connects to the test, which nobody but the child itself does.
fn connect_to_test() -> UnixStream {
    UnixStream::connect(std::env::var_os(PATH).unwrap()).unwrap()
}

/// Answers the test for as long as it asks.
fn answer(mut test: UnixStream) {
    let mut byte = [0];
    while test.read_exact(&mut byte).is_ok() {
        test.write_all(&byte).unwrap();
    }
}

/// Whether the process at the other end still lives.
fn answers(child: &mut UnixStream) -> bool {
    let mut byte = [7];
    child.write_all(&byte).is_ok() && child.read_exact(&mut byte).is_ok()
}

/// Forks a child that lives until the test is over; returns when the test can tell that it does.
fn leave_a_child() {
    let (mut parent, mut child) = UnixStream::pair().unwrap();
    let _lives_on = fork(|| {
        detach();
        let test = connect_to_test();
        child.write_all(&[0]).unwrap();
        answer(test);
    });
    parent.read_exact(&mut [0]).unwrap();
}

/// Three ranks, of which `victim` is killed while a child that it forked lives on; the others do
/// `what` meanwhile.
fn killed_with_a_child(test: &str, victim: u32, what: fn(&ProcessGroup) -> Error) {
    for transport in ["auto", "tcp"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test");
        let listener = (!is_rank()).then(|| UnixListener::bind(&path).unwrap());
        let run = || {
            processes(test, 3, |group| {
                sums(&group).unwrap();
                let victim: u32 = std::env::var(VICTIM).unwrap().parse().unwrap();
                if group.rank() == victim {
                    leave_a_child();
                }
                group.barrier(()).unwrap();
                dies_between_operations(&group, victim);
                let error = what(&group);
                report(format!("{}: {error}", error.kind()));
                // Those that have the reason may not leave before the others have it.
                let _ = group.get_group_store().barrier("reported", 2, Some(LIMIT));
            })
        };
        let ended = with_variable("POLYRANK_TRANSPORT", transport, || {
            with_variable(VICTIM, &victim.to_string(), || {
                with_variable(PATH, path.to_str().unwrap(), run)
            })
        });
        assert_named(&ended, victim, transport);
        let (mut child, _) = listener.unwrap().accept().unwrap();
        assert!(answers(&mut child), "{transport}: the child ended before the test");
    }
}

fn assert_named(ended: &[ProcessEnd], victim: u32, transport: &str) {
    for (rank, line) in lines_of_survivors(ended, victim) {
        let names = format!("rank {victim} of group");
        let is_named = line.starts_with("RankFailed") && line.contains(&names);
        assert!(is_named, "{transport}, rank {rank}: {line}");
    }
}

fn exchange_until_it_fails(group: &ProcessGroup) -> Error {
    loop {
        if let Err(error) = sums(group) {
            return error;
        }
    }
}

#[test]
fn a_killed_rank_whose_child_lives_is_named_in_an_operation() {
    let test = "a_killed_rank_whose_child_lives_is_named_in_an_operation";
    killed_with_a_child(test, 1, exchange_until_it_fails);
}

#[test]
fn a_killed_host_of_the_store_whose_child_lives_is_named() {
    let test = "a_killed_host_of_the_store_whose_child_lives_is_named";
    killed_with_a_child(test, 0, exchange_until_it_fails);
}

#[test]
fn a_killed_rank_whose_child_lives_is_named_while_connections_are_idle() {
    let test = "a_killed_rank_whose_child_lives_is_named_while_connections_are_idle";
    killed_with_a_child(test, 2, |_| new_group(NewGroupOptions::default()).unwrap_err());
}

#[test]
fn what_a_child_does_with_what_it_inherited_does_not_reach_the_parents_group() {
    let test = "what_a_child_does_with_what_it_inherited_does_not_reach_the_parents_group";
    for transport in ["auto", "tcp"] {
        let ended = with_variable("POLYRANK_TRANSPORT", transport, || {
            processes(test, 3, |group| {
                sums(&group).unwrap();
                let store = group.get_group_store();
                store.set("from the parent", b"1").unwrap();
                let child = fork(|| {
                    let error = group.allreduce(&mut [1u32], ()).unwrap_err();
                    assert!(error.to_string().contains("forked child"), "{error}");
                    refuses_a_child(&group);
                    assert!(!is_initialized());
                    // A store asks over a connection of the child's own.
                    store.set(&format!("from a child/{}", group.rank()), b"2").unwrap();
                    assert_eq!(store.get("from the parent").unwrap(), b"1");
                    let _ = group.shutdown();
                    drop((group.clone(), store.clone()));
                });
                for _ in 0..20 {
                    sums(&group).unwrap();
                }
                assert_eq!(child.wait(), Some(0));
                for rank in 0..group.size() {
                    assert_eq!(store.get(&format!("from a child/{rank}")).unwrap(), b"2");
                }
                assert_eq!(group.agree(7, None).unwrap(), 7);
                sums(&group).unwrap();
                let more = new_group(NewGroupOptions::default()).unwrap().unwrap();
                sums(&more).unwrap();
                report("done");
            })
        });
        for ended in &ended {
            assert_eq!(ended.printed, ["done"], "{transport}: {}", ended.output);
        }
    }
}

#[test]
fn children_form_a_group_that_outlives_their_parents() {
    let test = "children_form_a_group_that_outlives_their_parents";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test");
    let listener = (!is_rank()).then(|| UnixListener::bind(&path).unwrap());
    let ended = with_variable(PATH, path.to_str().unwrap(), || {
        processes(test, 2, |group| {
            sums(&group).unwrap();
            let (mut ready, mut formed) = UnixStream::pair().unwrap();
            let _lives_on = fork(|| {
                detach();
                let place = std::env::var(PATH).unwrap();
                let url = format!("file://{place}.children?rank={}&world_size=2", group.rank());
                let options = InitOptions::default().init_method(url).timeout(LIMIT);
                let own = init_process_group(options).unwrap();
                sums(&own).unwrap();
                formed.write_all(&[0]).unwrap();
                let mut test = connect_to_test();
                // The test writes when the parents are dead.
                test.read_exact(&mut [0]).unwrap();
                sums(&own).unwrap();
                destroy_process_group(None).unwrap();
                test.write_all(&[1]).unwrap();
            });
            ready.read_exact(&mut [0]).unwrap();
            for _ in 0..5 {
                sums(&group).unwrap();
            }
            die();
        })
    });
    assert!(ended.iter().all(|ended| ended.signal == Some(9)), "{ended:?}");
    let listener = listener.unwrap();
    let mut children = [listener.accept().unwrap().0, listener.accept().unwrap().0];
    children.iter_mut().for_each(|child| child.write_all(&[0]).unwrap());
    for child in &mut children {
        let mut sign = [0];
        child.read_exact(&mut sign).unwrap();
        assert_eq!(sign, [1]);
    }
}

fn store(port: u16, is_master: bool) -> TcpStore {
    let options = TcpStoreOptions::new("127.0.0.1", port)
        .is_master(is_master)
        .wait_for_workers(false)
        .timeout(LIMIT);
    TcpStore::new(options).unwrap()
}

#[test]
fn no_fork_comes_between_the_opening_of_a_socket_and_its_entry() {
    let test = "no_fork_comes_between_the_opening_of_a_socket_and_its_entry";
    let ended = bare_processes(test, 1, || {
        let inherited = shared_sockets();
        let hosts = store(0, true);
        let port = hosts.port();
        let stop = AtomicBool::new(false);
        let has_stopped = || stop.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !has_stopped() {
                        store(port, false).set("key", b"value").unwrap();
                    }
                });
            }
            let child = || fork(|| end(i32::from(shared_sockets() != inherited)));
            let codes: Vec<_> = (0..300).map(|_| child().wait()).collect();
            stop.store(true, Ordering::Relaxed);
            assert!(codes.iter().all(|code| *code == Some(0)), "{codes:?}");
        });
        report("done");
    });
    assert_eq!(ended[0].printed, ["done"], "{}", ended[0].output);
}

#[test]
fn a_child_gives_sockets_up_where_no_descriptor_is_left() {
    let test = "a_child_gives_sockets_up_where_no_descriptor_is_left";
    let ended = bare_processes(test, 1, || {
        let inherited = shared_sockets();
        let hosts = store(0, true);
        hosts.set("key", b"value").unwrap();
        assert!(shared_sockets().len() > inherited.len(), "the store has sockets");
        let limit = Rlimit { current: Some(256), maximum: getrlimit(Resource::Nofile).maximum };
        setrlimit(Resource::Nofile, limit).unwrap();
        let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        let child = fork(|| {
            assert_eq!(shared_sockets(), inherited);
            // What they were stays taken, until their owners close it.
            assert!(File::open("/dev/null").is_err(), "a descriptor is free");
        });
        assert_eq!(child.wait(), Some(0));
        drop(files);
        assert_eq!(hosts.get("key").unwrap(), b"value");
        report("done");
    });
    assert_eq!(ended[0].printed, ["done"], "{}", ended[0].output);
}

#[test]
fn sockets_of_the_program_that_have_the_descriptors_of_closed_ones_stay() {
    let test = "sockets_of_the_program_that_have_the_descriptors_of_closed_ones_stay";
    let ended = bare_processes(test, 1, || {
        let hosts = store(0, true);
        let before = shared_sockets();
        let clients: Vec<TcpStore> = (0..20).map(|_| store(hosts.port(), false)).collect();
        let had = shared_sockets();
        drop(clients);
        // The server closes its ends a moment later.
        while shared_sockets().len() > before.len() {
            std::thread::yield_now();
        }
        let mut pairs: Vec<_> = (0..20).map(|_| UnixStream::pair().unwrap()).collect();
        let own = shared_sockets();
        assert!(own.iter().any(|it| had.contains(it) && !before.contains(it)), "{own:?} {had:?}");
        let child = fork(|| {
            for (_, child) in &mut pairs {
                child.write_all(&[9]).unwrap();
            }
        });
        assert_eq!(child.wait(), Some(0));
        for (parent, _) in &mut pairs {
            let mut byte = [0];
            parent.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [9]);
        }
        report("done");
    });
    assert_eq!(ended[0].printed, ["done"], "{}", ended[0].output);
}
