//! torchft's `configure`: what it does at each world size, and what goes wrong, over ranks that are
//! threads. Languages and processes are in `reconfigure_processes.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::TcpListener;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use polyrank::process_group::ConfigureOptions;
use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{Error, ReduceOp};
use polyrank_tests::LIMIT;
use polyrank_tests::members::{Member, check, world};
use polyrank_tests::processes::{all_went_well, bare_processes, die, report};

/// How long members wait for one that does not come.
const SHORT: Duration = Duration::from_millis(500);

fn server() -> TcpStore {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true);
    TcpStore::new(options.wait_for_workers(false)).unwrap()
}

fn address(server: &TcpStore, prefix: &str) -> String {
    format!("127.0.0.1:{}/{prefix}", server.port())
}

/// Where a member of this rank says who it is, under the prefix.
fn handle_key(rank: u32) -> String {
    format!("polyrank-configure/members/{rank}")
}

/// `member` calls it with these options; what comes of it.
fn call(member: &Member, options: ConfigureOptions) -> Receiver<Result<(), Error>> {
    member.ask(move |group| group.configure(options))
}

/// All call it with the ranks of their order, at `address`.
fn configure(address: &str, members: &[&Member]) {
    let size = members.len() as u32;
    let options = |rank| ConfigureOptions::new(address, rank, size);
    let called: Vec<_> =
        (0..).zip(members).map(|(rank, member)| call(member, options(rank))).collect();
    called.into_iter().for_each(|ended| ended.recv().unwrap().unwrap());
    check(members);
}

#[test]
fn members_come_and_go() {
    let server = server();
    for size in [1, 2, 3, 5, 8] {
        let members: Vec<Member> = (0..size).map(|_| Member::newcomer()).collect();
        let all: Vec<&Member> = members.iter().collect();
        configure(&address(&server, &format!("{size}/all")), &all);
        let mut turned = all.clone();
        turned.reverse();
        configure(&address(&server, &format!("{size}/turned")), &turned);
        configure(&address(&server, &format!("{size}/last")), &turned[..1]);
        configure(&address(&server, &format!("{size}/again")), &all);
    }
}

#[test]
fn members_of_an_ordinary_group_are_configured_and_what_is_in_flight_ends() {
    let server = server();
    let members = world(3);
    // Nobody else comes to it.
    let begun = members[1].ask(|group| group.allreduce_async(vec![1.0f32], ReduceOp::Sum).unwrap());
    let work = begun.recv().unwrap();
    configure(&address(&server, "a"), &[&members[2], &members[1]]);
    let error = work.wait(None).unwrap_err();
    assert!(matches!(error, Error::Reconfigured { .. }), "{error:?}");
}

#[test]
fn the_store_is_not_needed_afterwards_and_a_quorum_of_its_own_may_have_its_prefix() {
    let members: Vec<Member> = (0..2).map(|_| Member::newcomer()).collect();
    let all: Vec<&Member> = members.iter().collect();
    let first = server();
    for quorum in 0..3 {
        let called: Vec<_> = (0..2)
            .map(|rank| {
                let place = address(&first, "torchft");
                call(all[rank as usize], ConfigureOptions::new(place, rank, 2).quorum_id(quorum))
            })
            .collect();
        called.into_iter().for_each(|ended| ended.recv().unwrap().unwrap());
    }
    drop(first);
    check(&all);
    // What they meet in next is another.
    configure(&address(&server(), "0"), &all);
}

#[test]
fn addresses_of_ipv6_and_of_web_sockets_lead_to_the_store() {
    let options = TcpStoreOptions::new("::1", 0).is_master(true).wait_for_workers(false);
    let six = TcpStore::new(options).unwrap();
    let four = server();
    let members: Vec<Member> = (0..2).map(|_| Member::newcomer()).collect();
    let all: Vec<&Member> = members.iter().collect();
    configure(&format!("[::1]:{}/p/q", six.port()), &all);
    configure(&format!("ws://127.0.0.1:{}/p/r", four.port()), &all);
    // One may come over TCP, and another over a WebSocket.
    let places = [address(&four, "r"), format!("ws://127.0.0.1:{}/r", four.port())];
    let called: Vec<_> = (0..)
        .zip(places)
        .map(|(rank, place)| call(all[rank as usize], ConfigureOptions::new(place, rank, 2)))
        .collect();
    called.into_iter().for_each(|ended| ended.recv().unwrap().unwrap());
    check(&all);
}

#[test]
fn who_does_not_come_is_named_and_the_next_call_is_another() {
    let server = server();
    let members: Vec<Member> = (0..3).map(|_| Member::newcomer()).collect();
    let called: Vec<_> = [0, 2]
        .map(|rank| {
            let options = ConfigureOptions::new(address(&server, "late"), rank, 3).timeout(SHORT);
            call(&members[rank as usize], options)
        })
        .into();
    for ended in called {
        let error = ended.recv().unwrap().unwrap_err();
        assert!(matches!(error, Error::RendezvousTimeout { rank: 1, .. }), "{error:?}");
    }
    let without = members[0].ask(|group| group.barrier(()).unwrap_err()).recv().unwrap();
    assert!(matches!(without, Error::NoMembers { .. }), "{without:?}");
    configure(&address(&server, "all"), &members.iter().collect::<Vec<_>>());
}

#[test]
fn a_call_that_is_wrong_changes_nothing() {
    let server = server();
    let members = world(2);
    let all: Vec<&Member> = members.iter().collect();
    configure(&address(&server, "first"), &all);
    let place = |prefix: &str| address(&server, prefix);
    let wrong = [
        (ConfigureOptions::new(place("first"), 0, 2), "/first' was used before, by call 1"),
        (ConfigureOptions::new(place("x"), 2, 2), "rank 2 does not exist: ranks are 0 to 1"),
        (ConfigureOptions::new(place("x"), 0, 0), "got a world_size of 0"),
        (ConfigureOptions::new(place("x"), 0, 1 << 20), "got a world_size of 1048576"),
        (ConfigureOptions::new(place("x"), 0, 2).global_ranks([1]), "got 1 for 2"),
        (ConfigureOptions::new("127.0.0.1", 0, 2), "expected host:port/prefix"),
        (ConfigureOptions::new("127.0.0.1:99999/x", 0, 2), "expected host:port/prefix"),
        (ConfigureOptions::new("http://127.0.0.1:1/x", 0, 2), "expected host:port/prefix"),
        (ConfigureOptions::new("ws:///x", 0, 2), "expected host:port/prefix"),
    ];
    for (options, expected) in wrong {
        let shown = format!("{options:?}");
        let error = call(&members[0], options).recv().unwrap().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{shown}: {error:?}");
        assert!(error.to_string().contains(expected), "{shown}: {error}");
    }
    check(&all);
}

#[test]
fn ranks_that_come_twice_and_sizes_that_differ_are_told() {
    let server = server();
    let members: Vec<Member> = (0..2).map(|_| Member::newcomer()).collect();
    for (prefix, others) in [("twice", (0, 2)), ("sizes", (1, 3))] {
        let options = [(0, 2), others]
            .map(|(rank, size)| ConfigureOptions::new(address(&server, prefix), rank, size));
        let called: Vec<_> = members
            .iter()
            .zip(options)
            .map(|(member, options)| call(member, options.timeout(SHORT * 4)))
            .collect();
        for ended in called {
            let error = ended.recv().unwrap().unwrap_err();
            assert!(matches!(error, Error::Rendezvous { .. }), "{error:?}");
            let text = error.to_string();
            let said = ["rank 0 came twice: two processes", "with world size "]
                [usize::from(prefix != "twice")];
            assert!(text.starts_with("configure (127.0.0.1:") && text.contains(said), "{text}");
        }
    }
    configure(&address(&server, "all"), &members.iter().collect::<Vec<_>>());
}

#[test]
fn a_store_that_is_not_there_is_an_error_in_time() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let member = Member::newcomer();
    let options = ConfigureOptions::new(format!("{nobody}/x"), 0, 1).timeout(SHORT);
    let error = call(&member, options).recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::Network { .. }), "{error:?}");
    configure(&address(&server(), "x"), &[&member]);
}

#[test]
fn an_abort_ends_the_wait_for_the_others() {
    let server = server();
    let members: Vec<Member> = (0..2).map(|_| Member::newcomer()).collect();
    let group = members[1].ask(|group| group.clone()).recv().unwrap();
    let called: Vec<_> = (0..)
        .zip(&members)
        .map(|(rank, member)| call(member, ConfigureOptions::new(address(&server, "x"), rank, 3)))
        .collect();
    // They are there as soon as they wait.
    let handles = [0, 1].map(|rank| format!("x/{}", handle_key(rank)));
    server.wait(&[&handles[0], &handles[1]], None).unwrap();
    group.abort();
    let [told, aborted] = [0, 1].map(|at: usize| called[at].recv().unwrap().unwrap_err());
    assert!(matches!(aborted, Error::Aborted { .. }), "{aborted:?}");
    assert!(matches!(told, Error::Rendezvous { .. }), "{told:?}");
    assert!(told.to_string().contains("rank 1 does not come: "), "{told}");
    configure(&address(&server, "y"), &members.iter().collect::<Vec<_>>());
}

/// Descriptors of this process.
#[cfg(target_os = "linux")]
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs alone: others open descriptors, too.
#[test]
#[cfg(target_os = "linux")]
fn calls_that_fail_leave_nothing_open() {
    let test = "calls_that_fail_leave_nothing_open";
    let ended = bare_processes(test, 1, || {
        let server = server();
        let members: Vec<Member> = (0..2).map(|_| Member::newcomer()).collect();
        let all: Vec<&Member> = members.iter().collect();
        let mut first = None;
        for round in 0..12 {
            configure(&address(&server, &format!("good {round}")), &all);
            let place = address(&server, &format!("bad {round}"));
            let called = [0, 1].map(|rank: u32| {
                let options = ConfigureOptions::new(&*place, rank, 3);
                call(&members[rank as usize], options.timeout(Duration::from_millis(50)))
            });
            called.into_iter().for_each(|ended| drop(ended.recv().unwrap().unwrap_err()));
            // What the first rounds open stays.
            if round == 2 {
                first = Some(descriptors());
            }
        }
        let (first, last) = (first.unwrap(), descriptors());
        assert!(last <= first + 4, "{first} descriptors, then {last}");
    });
    all_went_well(&ended);
}

#[test]
fn a_member_that_is_killed_while_others_are_waited_for_ends_it_for_all() {
    let test = "a_member_that_is_killed_while_others_are_waited_for_ends_it_for_all";
    let ended = bare_processes(test, 3, || {
        let number = |name: &str| std::env::var(name).unwrap().parse::<u32>().unwrap();
        let (rank, port) = (number("RANK"), number("MASTER_PORT") as u16);
        let options = TcpStoreOptions::new("127.0.0.1", port).is_master(rank == 2);
        let store = TcpStore::new(options.wait_for_workers(false)).unwrap();
        if rank == 2 {
            // It serves the store, and does not come.
            store.wait(&["told"], None).unwrap();
            return;
        }
        if rank == 1 {
            let own = store.clone_store().unwrap();
            std::thread::spawn(move || {
                let here = [0, 1].map(|rank| format!("x/{}", handle_key(rank)));
                own.wait(&[&here[0], &here[1]], None).unwrap();
                die();
            });
        }
        let member = Member::newcomer();
        let options = ConfigureOptions::new(format!("127.0.0.1:{port}/x"), rank, 3).timeout(LIMIT);
        let error = call(&member, options).recv().unwrap().unwrap_err();
        report(&error);
        assert!(matches!(error, Error::RankFailed { rank: 1, .. }), "{error:?}");
        store.set("told", b"").unwrap();
    });
    assert_eq!(ended[0].code, Some(0), "{}", ended[0].output);
    assert!(ended[0].printed[0].contains("rank 1 came, and its process is gone"));
}
