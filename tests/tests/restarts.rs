//! Groups that start anew in a store that stands, after ranks of the group before were killed, with
//! real processes: the new ranks meet, whatever the store still knows of those that are gone.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank_tests::processes::{RunningRank, is_rank, report, with_variable};

/// How a rank reaches the store.
const URL: &str = "POLYRANK_TEST_URL";
/// Whether a rank that has met the others stays until it is killed, or one of them is.
const STAYS: &str = "POLYRANK_TEST_STAYS";
/// How long a rank waits for the others: all that a test sees of ranks that miss one another.
const LIMIT: Duration = Duration::from_secs(20);
/// The same in seconds, for ranks that are to see the end of it.
const LIMIT_S: &str = "POLYRANK_TEST_LIMIT_S";

/// How ranks find the store, through a server's port.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// `polyrank store`, with sessions that outlive their connections for a while.
    WebSocket,
    /// The store of a launcher.
    Launcher,
    /// A store that the caller passes.
    Given,
}

const WAYS: [Way; 2] = [Way::WebSocket, Way::Launcher];

/// A store that stands.
fn standing() -> TcpStore {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).wait_for_workers(false);
    TcpStore::new(options).unwrap()
}

/// What a started process does: meets, and reports the result.
fn run_rank() -> ! {
    let url = std::env::var(URL).unwrap();
    report("starts");
    let limit = std::env::var(LIMIT_S).map(|limit| Duration::from_secs(limit.parse().unwrap()));
    let mut options = InitOptions::default().timeout(limit.unwrap_or(LIMIT));
    if url.is_empty() {
        let number = |name| std::env::var(name).unwrap().parse::<u32>().unwrap();
        let client = TcpStoreOptions::new("127.0.0.1", number("MASTER_PORT") as u16);
        let store = Arc::new(TcpStore::new(client).unwrap());
        options = options.store(store).rank(number("RANK")).world_size(number("WORLD_SIZE"));
    } else {
        options = options.init_method(url);
    }
    let group = match init_process_group(options) {
        Ok(group) => group,
        Err(error) => {
            report(format!("{}: {error}", error.kind()));
            std::process::exit(1);
        }
    };
    report("has met");
    let stays = std::env::var(STAYS).is_ok_and(|stays| stays == "1");
    loop {
        let mut sum = [1u32];
        if let Err(error) = group.allreduce(&mut sum[..], ()) {
            report(format!("{}: {error}", error.kind()));
            std::process::exit(1);
        }
        assert_eq!(sum, [group.size()]);
        if !stays {
            break;
        }
    }
    destroy_process_group(None).unwrap();
    report("has left");
    std::process::exit(0);
}

/// Starts a rank of `test`.
fn start(test: &str, way: Way, (rank, size): (u32, u32), port: u16, stays: bool) -> RunningRank {
    let (url, launcher) = match way {
        Way::WebSocket => (format!("ws://127.0.0.1:{port}?rank={rank}&world_size={size}"), "False"),
        Way::Launcher => ("env://".to_owned(), "True"),
        Way::Given => (String::new(), "False"),
    };
    let begin = || RunningRank::start(test, (rank, size), port);
    let begin = || with_variable("TORCHELASTIC_USE_AGENT_STORE", launcher, begin);
    let begin = || with_variable(STAYS, if stays { "1" } else { "0" }, begin);
    let started = with_variable(URL, &url, begin);
    assert_eq!(started.next_report().as_deref(), Some("starts"));
    started
}

/// All ranks of a group of `size`, the last one first, meet and leave.
fn assert_meet(test: &str, way: Way, size: u32, port: u16, case: &str) {
    let ranks = (0..size).rev().map(|rank| start(test, way, (rank, size), port, false));
    assert_leave(&ranks.collect::<Vec<_>>(), case);
}

fn assert_leave(ranks: &[RunningRank], case: &str) {
    for rank in ranks {
        assert_eq!(rank.next_report().as_deref(), Some("has met"), "{case}");
        assert_eq!(rank.next_report().as_deref(), Some("has left"), "{case}");
    }
}

/// A group of `size` ranks that has met, and stays.
fn met_group(test: &str, way: Way, size: u32, port: u16) -> Vec<RunningRank> {
    let ranks: Vec<_> = (0..size).map(|rank| start(test, way, (rank, size), port, true)).collect();
    for rank in &ranks {
        assert_eq!(rank.next_report().as_deref(), Some("has met"));
    }
    ranks
}

/// Waits until rank `rank` waits for the others in `store`.
fn has_come(store: &TcpStore, rank: u32) {
    let end = format!("/join/{rank}");
    while !store.list_keys().unwrap().iter().any(|key| key.ends_with(&end)) {
        std::thread::yield_now();
    }
}

/// What new ranks find depends on how long ago the old ones were killed.
fn pass(pause_ms: u64) {
    std::thread::sleep(Duration::from_millis(pause_ms));
}

#[test]
fn after_all_ranks_were_killed() {
    let test = "after_all_ranks_were_killed";
    if is_rank() {
        run_rank();
    }
    for way in WAYS {
        for (old, new) in [(2, 2), (3, 3), (2, 3), (3, 2)] {
            for pause_ms in [0, 300, 1000] {
                let store = standing();
                let mut ranks = met_group(test, way, old, store.port());
                ranks.iter_mut().for_each(RunningRank::kill);
                pass(pause_ms);
                let case = format!("{way:?}: {new} ranks {pause_ms} ms after {old}");
                assert_meet(test, way, new, store.port(), &case);
            }
        }
    }
}

#[test]
fn ranks_of_an_earlier_restart_hear_of_the_later_one() {
    let test = "ranks_of_an_earlier_restart_hear_of_the_later_one";
    if is_rank() {
        run_rank();
    }
    for way in WAYS {
        let store = standing();
        let of_restart = |count, rank| {
            with_variable("TORCHELASTIC_RESTART_COUNT", count, || {
                start(test, way, (rank, 2), store.port(), false)
            })
        };
        let assert_told = |rank: &RunningRank, number: u32| {
            let told = rank.next_report().unwrap();
            let says = format!("Rendezvous: rank {number} of restart 0 ");
            assert!(told.starts_with(&says), "{way:?}: {told}");
            assert!(told.contains("ranks are of restart 1 by now"), "{way:?}: {told}");
        };
        let early = of_restart("0", 0);
        has_come(&store, 0);
        let later = of_restart("1", 1);
        assert_told(&early, 0);
        assert_told(&of_restart("0", 0), 0);
        assert_leave(&[of_restart("1", 0), later], &format!("{way:?}"));
    }
}

#[test]
fn ranks_of_two_runs_in_a_store_that_they_were_given_are_refused() {
    let test = "ranks_of_two_runs_in_a_store_that_they_were_given_are_refused";
    if is_rank() {
        run_rank();
    }
    for (variable, way) in [
        ("POLYRANK_RUN_ID", Way::Given),
        ("TORCHELASTIC_RUN_ID", Way::Given),
        ("SLURM_JOB_ID", Way::Given),
        ("POLYRANK_RUN_ID", Way::WebSocket),
    ] {
        let store = standing();
        let of_run = |name, rank| {
            with_variable(variable, name, || start(test, way, (rank, 2), store.port(), false))
        };
        let waits = of_run("A", 0);
        has_come(&store, 0);
        let stranger = of_run("B", 1);
        let told = stranger.next_report().unwrap();
        assert!(told.starts_with("Rendezvous: rank 1 of run '"), "{variable}: {told}");
        assert!(told.contains("B' came to group 'default_pg' of run '"), "{variable}: {told}");
        assert_eq!(waits.next_report(), Some(told));
        assert_leave(&[of_run("B", 0), of_run("B", 1)], variable);
    }
}

#[test]
fn after_one_rank_was_killed_and_the_others_ended() {
    let test = "after_one_rank_was_killed_and_the_others_ended";
    if is_rank() {
        run_rank();
    }
    for way in WAYS {
        for (victim, old, new, pause_ms) in
            [(0, 2, 2, 0), (1, 2, 3, 0), (0, 2, 3, 300), (1, 2, 3, 1000), (2, 3, 2, 300)]
        {
            let store = standing();
            let mut ranks = met_group(test, way, old, store.port());
            let mut gone = ranks.remove(victim as usize);
            gone.kill();
            for rank in &ranks {
                let told = rank.next_report().unwrap();
                assert!(told.starts_with("RankFailed"), "{told}");
            }
            pass(pause_ms);
            let case = format!("{way:?}: {new} ranks {pause_ms} ms after rank {victim} of {old}");
            assert_meet(test, way, new, store.port(), &case);
        }
    }
}

#[test]
fn while_the_ranks_were_joining() {
    let test = "while_the_ranks_were_joining";
    if is_rank() {
        run_rank();
    }
    for way in WAYS {
        // Of those that wait for the last rank so many are killed; then the last rank comes first.
        for (size, killed, pause_ms) in [(2, 1, 300), (3, 2, 1000), (3, 1, 0), (3, 1, 300)] {
            let store = standing();
            let start = |rank| start(test, way, (rank, size), store.port(), false);
            let mut ranks: Vec<_> = (0..size - 1).map(start).collect();
            (0..size - 1).for_each(|rank| has_come(&store, rank));
            let others = size - 1 - killed;
            ranks.drain(others as usize..).for_each(|mut rank| rank.kill());
            pass(pause_ms);
            ranks.extend((others..size).rev().map(start));
            assert_leave(&ranks, &format!("{way:?}: {killed} of {size}, {pause_ms} ms ago"));
        }
    }
}

#[test]
fn who_waits_in_vain_hears_who_was_killed_while_waiting() {
    let test = "who_waits_in_vain_hears_who_was_killed_while_waiting";
    if is_rank() {
        run_rank();
    }
    for way in WAYS {
        for (size, killed, says) in [
            (3, vec![1], "rank 2 of 3 did not join within 3 s; rank 1 had come, and is gone"),
            (
                5,
                vec![1, 3],
                "rank 4 of 5 did not join within 3 s; ranks 1, 3 had come, and are gone",
            ),
        ] {
            let store = standing();
            let start = |rank| {
                with_variable(LIMIT_S, "3", || start(test, way, (rank, size), store.port(), false))
            };
            let mut ranks: Vec<_> = (0..size - 1).map(start).collect();
            (0..size - 1).for_each(|rank| has_come(&store, rank));
            killed.iter().for_each(|rank| ranks[*rank as usize].kill());
            for (rank, waiting) in (0..).zip(&ranks).filter(|(rank, _)| !killed.contains(rank)) {
                let told = waiting.next_report().unwrap();
                assert!(told.starts_with("RendezvousTimeout: "), "{way:?}: {rank}: {told}");
                assert!(told.ends_with(says), "{way:?}: {rank}: {told}");
            }
        }
    }
}
