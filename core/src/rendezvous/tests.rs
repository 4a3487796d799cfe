//! URLs, handlers, and ranks that meet, or do not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod claims;
mod counting;

use std::net::TcpListener;
use std::sync::atomic::Ordering;

use super::*;
use crate::store::suite::TemporaryFile;
use crate::store::{HashStore, PrefixStore, TcpStore, TcpStoreOptions};
use counting::Counting;

const LIMIT: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

/// What each of `ranks` gets from joining, each on its own thread.
fn join_all(store: &dyn Store, ranks: &[u32], world_size: u32, limit: Duration) -> Vec<Result<()>> {
    std::thread::scope(|scope| {
        let spawn = |&rank: &u32| {
            let store = store.clone_store().unwrap();
            scope.spawn(move || join(&*store, "g", rank, world_size, limit))
        };
        let threads: Vec<_> = ranks.iter().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn all_ranks_join() {
    for world_size in [1, 2, 3, 5, 8] {
        let ranks: Vec<u32> = (0..world_size).collect();
        let joined = join_all(&HashStore::new(), &ranks, world_size, LIMIT);
        assert_eq!(joined, vec![Ok(()); world_size as usize]);
    }
}

#[test]
fn everyone_who_is_there_hears_who_is_not() {
    for (present, missing_ranks, message) in [
        (&[0, 1][..], vec![2, 3], "ranks 2, 3 of 4 did not join within 50 ms"),
        (&[3, 0, 2], vec![1], "rank 1 of 4 did not join within 50 ms"),
    ] {
        let (rank, message) = (missing_ranks[0], message.to_owned());
        let missing_ranks = missing_ranks.into();
        let expected = Err(Error::RendezvousTimeout { rank, missing_ranks, message });
        let store = HashStore::new();
        let (impatient, patient) = present.split_first().unwrap();
        std::thread::scope(|scope| {
            let others = scope.spawn(|| join_all(&store, patient, 4, LIMIT));
            // The first one's time begins when all came that shall.
            for rank in patient {
                store.wait(&[&format!("polyrank/g/join/{rank}")], None).unwrap();
            }
            assert_eq!(join(&store, "g", *impatient, 4, SHORT), expected);
            assert_eq!(others.join().unwrap(), vec![expected; patient.len()]);
        });
    }
    let many = join(&HashStore::new(), "g", 0, 100, Duration::from_secs(1)).unwrap_err();
    let expected = "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 83 more of \
                    100 did not join within 1 s";
    assert_eq!(many.to_string(), expected);
    let Error::RendezvousTimeout { rank: 1, missing_ranks, .. } = many else { panic!("{many:?}") };
    assert_eq!(*missing_ranks, (1..100).collect::<Vec<_>>());
}

#[test]
fn a_rank_that_comes_too_late_is_told_so() {
    let store = HashStore::new();
    let expected = "rank 0 of 2 did not join within 50 ms";
    std::thread::scope(|scope| {
        let early = scope.spawn(|| join(&store, "g", 1, 2, SHORT));
        store.wait(&["polyrank/g/join/verdict"], Some(LIMIT)).unwrap();
        let late = join(&store, "g", 0, 2, LIMIT).unwrap_err().to_string();
        let said = "rank 0 came to group 'g' after the others had given up: ";
        assert_eq!(late, format!("{said}{expected}"));
        assert_eq!(early.join().unwrap().unwrap_err().to_string(), expected);
    });
}

#[test]
fn everyone_hears_why_a_rank_does_not_join() {
    for is_first in [true, false] {
        let store = HashStore::new();
        let why = Error::InvalidArgument { message: "POLYRANK_IFNAME: no such thing".into() };
        let refusal = async || {
            refuse(&store, "g", (0, 3), &why, LIMIT).await;
            Ok(())
        };
        let refuse = || block_on(refusal()).unwrap();
        let joined = std::thread::scope(|scope| {
            if is_first {
                scope.spawn(refuse);
                let verdict = "polyrank/g/join/verdict";
                store.wait(&[verdict], Some(LIMIT)).unwrap();
            }
            let others = scope.spawn(|| join_all(&store, &[1, 2], 3, LIMIT));
            if !is_first {
                refuse();
            }
            others.join().unwrap()
        });
        for error in joined.into_iter().map(Result::unwrap_err) {
            assert!(matches!(error, Error::Rendezvous { .. }), "{error}");
            let said = "rank 0 does not join group 'g': POLYRANK_IFNAME: no such thing";
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}

#[test]
fn what_no_rank_wrote_is_quoted() {
    for written in ["text", "made up", "rubbish", "t:", "t: 1 2", "joined!"] {
        let store = HashStore::new();
        store.set("polyrank/g/join/verdict", written.as_bytes()).unwrap();
        let error = join(&store, "g", 0, 2, LIMIT).unwrap_err();
        let Error::Rendezvous { message } = &error else { panic!("{written}: {error:?}") };
        let said = format!("\"{written}\" under 'polyrank/g/join/verdict'");
        assert!(message.contains(&said), "{message}");
    }
}

#[test]
fn a_group_that_is_not_complete_is_called_by_its_name() {
    let options = crate::process_group::GroupOptions::default().timeout(SHORT);
    let group = crate::process_group::ProcessGroup::new(
        std::sync::Arc::new(HashStore::new()),
        0,
        2,
        "mine",
        options,
    );
    assert!(matches!(group, Err(Error::RendezvousTimeout { .. })));
    let store = std::sync::Arc::new(HashStore::new());
    let again = || {
        let options = crate::process_group::GroupOptions::default().timeout(SHORT);
        crate::process_group::ProcessGroup::new(store.clone(), 0, 2, "mine", options)
            .unwrap_err()
            .to_string()
    };
    again();
    let twice = again();
    assert!(twice.contains("group 'mine'"), "{twice}");
}

#[test]
fn a_large_group_is_given_up_as_soon_as_a_small_one() {
    let store = Counting::default();
    let error = join(&store, "g", 3, MAX_WORLD_SIZE, SHORT).unwrap_err();
    let expected = "ranks 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 1048559 more \
                    of 1048576 did not join within 50 ms";
    assert_eq!(error.to_string(), expected);
    let asked = store.asked.load(Ordering::Relaxed);
    assert!(asked < 300, "{asked} requests");
    for (size, says) in
        [(0, "world size 0 is not a number of ranks"), (MAX_WORLD_SIZE + 1, "the most")]
    {
        let error = join(&store, "h", 0, size, SHORT).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_rank_that_joined_and_is_gone_is_named_and_its_successor_ends_the_wait() {
    let store = HashStore::new();
    let keys = ["rank/0", "rank/1", "rank/2"];
    store.set("rank/0", b"card").unwrap();
    let error = block_on(await_joined(&store, ("g", 3), &keys, SHORT, None)).unwrap_err();
    let Error::RendezvousTimeout { rank: 1, missing_ranks, message } = &error else {
        panic!("{error}")
    };
    assert_eq!(**missing_ranks, [1, 2]);
    assert_eq!(message, "ranks 1, 2 of 3 joined group 'g', but did not go on within 50 ms");
    // Those that come in place of the ones that are gone say so.
    assert_eq!(join_all(&store, &[0, 1, 2], 3, LIMIT), [Ok(()), Ok(()), Ok(())]);
    block_on(join::supersede(&store, "g")).unwrap();
    let error = block_on(await_joined(&store, ("g", 3), &keys, LIMIT, None)).unwrap_err();
    assert!(error.to_string().contains("has joined again"), "{error}");
    // What all wrote before is enough.
    store.multi_set(&keys, &[b"card".as_slice(); 3]).unwrap();
    block_on(await_joined(&store, ("g", 3), &keys, LIMIT, None)).unwrap();
}

/// Finds at once that somebody is gone.
struct Finds;

impl JoinObserver for Finds {
    fn look(&self) -> PendingLook<'_> {
        Box::pin(std::future::ready(Ok(Some("rank 1 is gone".to_owned()))))
    }
}

#[test]
fn a_rank_that_fails_after_it_joined_tells_the_others() {
    let (store, keys) = (HashStore::new(), ["rank/0", "rank/1"]);
    assert_eq!(join_all(&store, &[0, 1], 2, LIMIT), [Ok(()), Ok(())]);
    let found = block_on(await_joined(&store, ("g", 2), &keys, LIMIT, Some(&Finds)));
    assert_eq!(found, Err(Error::Rendezvous { message: "rank 1 is gone".to_owned() }));
    let why = Error::Network { message: "no descriptor is left".to_owned() };
    block_on(async {
        fail_joined(&store, "g", 1, &why).await;
        Ok(())
    })
    .unwrap();
    let error = block_on(await_joined(&store, ("g", 2), &keys, LIMIT, None)).unwrap_err();
    let expected = "rank 1 joined group 'g', and failed then: no descriptor is left";
    assert!(error.to_string().contains(expected), "{error}");
    // What all wrote before is enough.
    store.multi_set(&keys, &[b"card".as_slice(); 2]).unwrap();
    block_on(await_joined(&store, ("g", 2), &keys, LIMIT, None)).unwrap();
}

#[test]
fn a_rank_that_comes_twice_fails_everyone_who_waits() {
    for result in join_all(&HashStore::new(), &[0, 1, 1], 3, LIMIT) {
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("rank 1 joined twice"), "{error}");
    }
    // After the group is complete it is the newcomer's mistake alone.
    let store = HashStore::new();
    assert_eq!(join_all(&store, &[0, 1], 2, LIMIT), [Ok(()), Ok(())]);
    let error = join(&store, "g", 1, 2, LIMIT).unwrap_err().to_string();
    assert!(error.starts_with("rank 1 joined twice"), "{error}");
}

#[test]
fn world_sizes_that_differ_are_told() {
    let store = HashStore::new();
    let results = std::thread::scope(|scope| {
        let join = |rank, size| {
            let store = store.clone_store().unwrap();
            scope.spawn(move || join(&*store, "g", rank, size, LIMIT))
        };
        [join(0, 2), join(1, 3)].map(|thread| thread.join().unwrap())
    });
    for result in results {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("world size 2") && error.contains("with 3")
                || error.contains("world size 3") && error.contains("with 2"),
            "{error}"
        );
    }
}

#[test]
fn the_host_leaves_last() {
    let store = HashStore::new();
    assert!(matches!(leave(&store, "g", (0, 2), true, SHORT), Err(Error::StoreTimeout { .. })));
    leave(&store, "h", (1, 2), false, SHORT).unwrap();
    leave(&store, "h", (0, 2), true, SHORT).unwrap();
    block_on(leave_at_once(&store, "i", 1)).unwrap();
    leave(&store, "i", (0, 2), true, SHORT).unwrap();
}

#[test]
fn a_host_that_heard_of_all_may_end_before_the_others_know() {
    let store = Counting::that_ends();
    leave(&store, "g", (1, 2), false, SHORT).unwrap();
    assert!(matches!(leave(&store, "g", (0, 2), true, SHORT), Err(Error::Network { .. })));
}

#[test]
#[cfg(target_os = "linux")]
fn the_host_does_not_wait_for_ranks_that_are_gone() {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).wait_for_workers(false);
    let store = Arc::new(TcpStore::new(options).unwrap());
    // The store itself came over TCP first.
    while !store.has_no_clients() {
        std::thread::yield_now();
    }
    let other = TcpStore::new(TcpStoreOptions::new("127.0.0.1", store.port())).unwrap();
    assert!(!store.has_no_clients());
    let clone = store.clone_store().unwrap();
    let store = PrefixStore::new("p", store);
    let host_leaves = |limit| leave(&store, "g", (0, 2), true, limit);
    assert!(matches!(host_leaves(SHORT), Err(Error::StoreTimeout { .. })));
    drop(other);
    host_leaves(LIMIT).unwrap();
    assert!(clone.has_no_clients());
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::from_lookup(|variable| {
        let found = variables.iter().find(|(name, _)| *name == variable.name());
        found.map(|(_, value)| (*value).to_owned())
    })
    .unwrap()
}

/// A port that nobody is given by chance as long as the socket exists, and that rank 0 can take:
/// the socket does not listen, and both set `SO_REUSEADDR`.
fn reserved_port() -> (u16, socket2::Socket) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&std::net::SocketAddr::from(([0, 0, 0, 0], 0)).into()).unwrap();
    (socket.local_addr().unwrap().as_socket().unwrap().port(), socket)
}

fn ask(url: &str) -> RendezvousRequest<'_> {
    RendezvousRequest { url, rank: None, world_size: None, timeout: LIMIT }
}

#[test]
fn the_environment_says_where_to_meet() {
    for host in ["127.0.0.1", "localhost", "::1"] {
        let listening = TcpListener::bind((host, 0));
        if listening.is_err() {
            eprintln!("skipped: no address {host} here");
            continue;
        }
        drop(listening);
        let (port, _reservation) = reserved_port();
        let port = port.to_string();
        std::thread::scope(|scope| {
            for rank in ["0", "1", "2"] {
                let port = &port;
                scope.spawn(move || {
                    let environment = environment(&[
                        ("RANK", rank),
                        ("WORLD_SIZE", "3"),
                        ("MASTER_ADDR", host),
                        ("MASTER_PORT", port),
                    ]);
                    let url = Url::parse("env://").unwrap();
                    let met = from_environment(&url, ask("env://"), &environment).unwrap();
                    assert_eq!((met.rank.to_string(), met.world_size), (rank.into(), 3));
                    assert_eq!(met.hosting, rank == "0");
                    join(&*met.store, "g", met.rank, 3, LIMIT).unwrap();
                    leave(&*met.store, "g", (met.rank, 3), met.hosting, LIMIT).unwrap();
                });
            }
        });
    }
}

#[test]
fn a_variable_that_is_missing_is_named() {
    let all =
        [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1")];
    for missing in 0..all.len() {
        let mut some = all.to_vec();
        let (name, _) = some.remove(missing);
        let url = Url::parse("env://").unwrap();
        let error = from_environment(&url, ask("env://"), &environment(&some)).unwrap_err();
        let message = format!(
            "Error initializing polyrank using env:// rendezvous: environment variable {name} \
             expected, but not set"
        );
        assert_eq!(error, Error::Rendezvous { message });
    }
}

#[test]
fn under_an_mpi_launcher_a_missing_rank_points_to_the_mpi_backend() {
    for (launcher, missing) in
        [("OMPI_COMM_WORLD_RANK", "WORLD_SIZE"), ("PMIX_RANK", "RANK"), ("PMI_RANK", "RANK")]
    {
        let url = Url::parse("env://").unwrap();
        let environment = environment(&[(launcher, "0")]);
        let error = from_environment(&url, ask("env://"), &environment).unwrap_err().to_string();
        let says = format!(
            "{missing} expected, but not set. An MPI launcher started this process: the backend \
             \"mpi\" learns from it where the ranks meet; for another one, set MASTER_ADDR"
        );
        assert!(error.contains(&says), "{launcher}: {error}");
    }
}

#[test]
fn everyone_is_a_client_of_a_launchers_store() {
    let launcher = TcpStore::new(TcpStoreOptions::new("127.0.0.1", 0).is_master(true)).unwrap();
    let port = launcher.port().to_string();
    for attempt in ["0", "1"] {
        let environment = environment(&[
            ("RANK", "0"),
            ("WORLD_SIZE", "1"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_RESTART_COUNT", attempt),
        ]);
        let url = Url::parse("env://").unwrap();
        let met = from_environment(&url, ask("env://"), &environment).unwrap().of_restart();
        assert!(!met.hosting);
        join(&*met.store, "g", 0, 1, LIMIT).unwrap();
    }
    let key = "polyrank/attempt_1/polyrank/g/join/verdict";
    assert_eq!(launcher.get(key).unwrap(), b"joined");
}

#[test]
fn a_url_says_where_to_meet() {
    let file = TemporaryFile::new();
    let (port, _reservation) = reserved_port();
    let urls = [format!("tcp://localhost:{port}"), format!("file://{}", file.0.display())];
    for url in urls {
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let url = &url;
                scope.spawn(move || {
                    let met = match rank {
                        0 => rendezvous(url, Some(0), Some(3), LIMIT),
                        _ => rendezvous(
                            &format!("{url}?rank={rank}&world_size=3"),
                            None,
                            None,
                            LIMIT,
                        ),
                    };
                    let met = met.unwrap();
                    join(&*met.store, "g", met.rank, met.world_size, LIMIT).unwrap();
                    leave(&*met.store, "g", (met.rank, 3), met.hosting, LIMIT).unwrap();
                });
            }
        });
    }
    assert!(!file.0.exists());
}

#[test]
fn mistakes_in_urls_are_told() {
    let both = "file:///f?rank=0&world_size=1";
    for (url, rank, world_size, expected) in [
        ("invalid://", None, None, "No rendezvous handler for invalid://"),
        ("nothing", None, None, "No rendezvous handler for nothing"),
        ("tcp://localhost", Some(0), Some(1), "using tcp:// rendezvous: port number missing"),
        ("tcp://h:1?world_size=1", None, None, "using tcp:// rendezvous: rank parameter missing"),
        ("tcp://h:1?rank=0", None, None, "using tcp:// rendezvous: world size parameter missing"),
        ("tcp://h:1?rank=x", None, None, "using tcp:// rendezvous: rank 'x' is not a number"),
        ("file://", Some(0), Some(1), "using file:// rendezvous: path missing"),
        ("file:///f", None, Some(1), "using file:// rendezvous: rank parameter missing"),
        ("file:///f", Some(0), None, "using file:// rendezvous: world size parameter missing"),
        (both, Some(0), None, "has node-specific arguments(rank, world_size) already."),
        ("tcp://localhost:1", Some(2), Some(2), "rank 2 is out of range for world size 2"),
    ] {
        let error = rendezvous(url, rank, world_size, SHORT).unwrap_err();
        let begins =
            if expected.starts_with("using") { "Error initializing polyrank " } else { "" };
        assert!(error.to_string().starts_with(begins), "{error}");
        assert!(error.to_string().ends_with(expected), "{error}");
    }
}

#[test]
fn handlers_may_be_added_once() {
    let handler: RendezvousHandler = Arc::new(|request| {
        assert_eq!(request.url, "test-scheme://x");
        Rendezvous::new(Arc::new(HashStore::new()), request.rank.unwrap_or(0), 2)
    });
    register_rendezvous_handler("test-scheme", handler.clone()).unwrap();
    let met = rendezvous("test-scheme://x", Some(1), None, LIMIT).unwrap();
    assert_eq!((met.rank, met.world_size, met.hosting), (1, 2, false));
    for scheme in ["test-scheme", "tcp", "env", "file"] {
        let error = register_rendezvous_handler(scheme, handler.clone()).unwrap_err();
        let expected = format!("Rendezvous handler for {scheme}:// already registered");
        assert_eq!(error.to_string(), expected);
    }
}
