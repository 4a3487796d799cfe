//! Groups whose members change, over real processes: several languages in one group, members that
//! are killed, and a hundred calls in a row of which nothing is left.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::TcpStream;
use std::time::Duration;

use polyrank::process_group::ReconfigureOptions;
use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{Error, GroupOptions, ProcessGroup, ReduceOp, WorkResult};
use polyrank_tests::languages::{Language, Program, every_rank_says};
use polyrank_tests::processes::{
    ProcessEnd, bare_processes, die, lines_of_survivors, report, with_variable,
};

use Language::{Browser, Node, Python, Rust};

const STEPS: Program = Program { example: "reconfigure", script: "reconfigure/run" };
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the steps in one job of these ranks; every rank must have made all that it is part of.
fn run(parts: &[(Language, u32)]) {
    // The second step is without rank 0. All are made twice.
    let steps = |rank, world| if rank == 0 && world > 1 { 8 } else { 10 };
    every_rank_says(STEPS, parts, |rank, world| format!("{} steps", steps(rank, world)));
}

#[test]
fn each_language_alone() {
    for world in [1, 2, 5] {
        run(&[(Rust, world)]);
        run(&[(Python, world)]);
        run(&[(Node, world)]);
    }
    run(&[(Rust, 8)]);
}

#[test]
fn three_languages() {
    run(&[(Rust, 1), (Python, 1), (Node, 1)]);
    run(&[(Node, 1), (Python, 2), (Rust, 2)]);
    run(&[(Python, 1), (Node, 1)]);
}

#[test]
fn browsers_alone_and_among_others() {
    run(&[(Browser, 1)]);
    run(&[(Browser, 2)]);
    run(&[(Rust, 1), (Browser, 1), (Python, 1), (Node, 1)]);
}

/// Where ranks find the store in which they exchange handles: this test's, which outlives them.
const STORE: &str = "POLYRANK_TEST_EXCHANGE";

/// A rank of a test, with a group that has no members yet.
struct Rank {
    rank: u32,
    size: u32,
    store: TcpStore,
    group: ProcessGroup,
}

impl Rank {
    fn start() -> Rank {
        let number = |name: &str| std::env::var(name).unwrap().parse::<u16>().unwrap();
        let options = TcpStoreOptions::new("127.0.0.1", number(STORE)).wait_for_workers(false);
        let (rank, size) = (u32::from(number("RANK")), u32::from(number("WORLD_SIZE")));
        let store = TcpStore::new(options).unwrap();
        let options = GroupOptions::default().timeout(LIMIT);
        let group = ProcessGroup::without_members(None, "group", options).unwrap();
        Rank { rank, size, store, group }
    }

    /// The handles of the ranks `members`, which exchange them.
    fn exchange(&self, round: u32, members: &[u32]) -> Vec<String> {
        let handle = self.group.get_reconfigure_handle().unwrap();
        self.store.set(&format!("{round}/{}", self.rank), handle.as_bytes()).unwrap();
        let keys: Vec<String> = members.iter().map(|rank| format!("{round}/{rank}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let handles = self.store.multi_get(&keys).unwrap();
        handles.into_iter().map(|handle| String::from_utf8(handle).unwrap()).collect()
    }

    /// Makes these the members, and checks that they reduce.
    fn reconfigure(&self, round: u32, members: &[u32]) {
        let handles = self.exchange(round, members);
        self.call(ReconfigureOptions::new(round.into(), handles)).unwrap();
        let mut tensor = [f64::from(self.rank)];
        self.group.allreduce(&mut tensor, ReduceOp::Sum).unwrap();
        assert_eq!(tensor[0], f64::from(members.iter().sum::<u32>()));
    }

    fn call(&self, options: ReconfigureOptions) -> Result<(), Error> {
        self.group.reconfigure(options.timeout(LIMIT))?.wait(None)
    }
}

/// Runs `rank_main` on `size` processes that can exchange handles.
fn ranks(test: &str, size: u32, rank_main: impl FnOnce(Rank)) -> Vec<ProcessEnd> {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true);
    let store = TcpStore::new(options).unwrap();
    with_variable(STORE, &store.port().to_string(), || {
        bare_processes(test, size, || rank_main(Rank::start()))
    })
}

/// The four members go on without `victim`, in order, and say which they are then.
fn go_on_without(victim: u32, member: Rank) {
    let others: Vec<u32> = (0..member.size).filter(|&one| one != victim).collect();
    member.reconfigure(2, &others);
    report(format!("rank {} of {}", member.group.rank(), member.group.size()));
    member.group.shutdown().unwrap();
}

/// Whether the other three did.
fn assert_three_go_on(ended: &[ProcessEnd], victim: u32) {
    for (place, (rank, line)) in lines_of_survivors(ended, victim).into_iter().enumerate() {
        assert_eq!(line, format!("rank {place} of 3"), "rank {rank}");
    }
}

/// The rank `victim` dies among operations; the others find that out, and go on without it.
fn dies(victim: u32, test: &str) {
    let ended = ranks(test, 4, |member| {
        let everyone: Vec<u32> = (0..member.size).collect();
        member.reconfigure(0, &everyone);
        let handles = member.exchange(1, &everyone);
        if member.rank == victim {
            die();
        }
        let mut tensor = [0f32; 3];
        let error = member.group.allreduce(&mut tensor, ReduceOp::Sum).unwrap_err();
        assert!(matches!(error, Error::RankFailed { rank, .. } if rank == victim), "{error:?}");
        // Those who do not know yet that it is gone are told.
        let error = member.call(ReconfigureOptions::new(1, handles)).unwrap_err();
        assert!(matches!(error, Error::RankFailed { rank, .. } if rank == victim), "{error:?}");
        go_on_without(victim, member);
    });
    assert_three_go_on(&ended, victim);
}

#[test]
fn the_leader_died() {
    dies(0, "the_leader_died");
}

#[test]
fn a_member_died() {
    dies(2, "a_member_died");
}

#[test]
fn the_last_member_died() {
    dies(3, "the_last_member_died");
}

/// Waits until nobody listens any more where the process with this handle was met.
fn await_end_of(handle: &str) {
    let place = handle.split_once("tcp://").and_then(|(_, place)| place.split_once('/'));
    let (address, _) = place.unwrap();
    while TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
}

/// The rank `victim` comes, and is killed while the others wait. Rank 1 comes when it is dead: if
/// `late`, when the others have been told.
fn dies_in_the_call(test: &str, victim: u32, late: bool) {
    let ended = ranks(test, 4, |member| {
        let everyone: Vec<u32> = (0..member.size).collect();
        member.reconfigure(0, &everyone);
        let handles = member.exchange(1, &everyone);
        let options = ReconfigureOptions::new(1, handles.clone()).timeout(LIMIT);
        if member.rank == victim {
            let work = member.group.reconfigure(options).unwrap();
            // It has come by then, in all likelihood; whether or not, the same holds.
            assert!(work.wait(Some(Duration::from_millis(300))).is_err());
            die();
        }
        match (member.rank, late) {
            (1, true) => member.store.wait(&["told"], Some(LIMIT)).unwrap(),
            (1, false) => await_end_of(&handles[victim as usize]),
            _ => {}
        }
        let error = member.call(options).unwrap_err();
        assert!(matches!(error, Error::RankFailed { rank, .. } if rank == victim), "{error:?}");
        assert_eq!(member.group.get_error(), WorkResult::CommError);
        member.store.set("told", b"").unwrap();
        go_on_without(victim, member);
    });
    assert_three_go_on(&ended, victim);
}

#[test]
fn a_member_dies_while_it_waits() {
    dies_in_the_call("a_member_dies_while_it_waits", 2, false);
}

#[test]
fn a_member_dies_while_it_waits_and_another_comes_late() {
    dies_in_the_call("a_member_dies_while_it_waits_and_another_comes_late", 2, true);
}

#[test]
fn the_leader_dies_while_it_waits() {
    dies_in_the_call("the_leader_dies_while_it_waits", 0, true);
}

#[test]
fn all_agree_although_each_drops_the_group_as_soon_as_it_knows() {
    let test = "all_agree_although_each_drops_the_group_as_soon_as_it_knows";
    let ended = ranks(test, 4, |mut member| {
        let everyone: Vec<u32> = (0..member.size).collect();
        for round in 0..40 {
            // The one before is dropped, by the host of its store too, and the last one by the end
            // of the process.
            let options = GroupOptions::default().timeout(LIMIT);
            member.group = ProcessGroup::without_members(None, "group", options).unwrap();
            let handles = member.exchange(round, &everyone);
            member.call(ReconfigureOptions::new(1, handles)).unwrap();
            assert_eq!(member.group.agree(6, None).unwrap(), 6, "round {round}");
        }
        report("agreed");
    });
    for ended in ended {
        assert_eq!((ended.code, ended.printed.len()), (Some(0), 1), "{}", ended.output);
    }
}

/// How many descriptors this process has, and how many files of shared memory.
fn held() -> (usize, usize) {
    let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    (count("/proc/self/fd"), maps.lines().filter(|line| line.contains("memfd")).count())
}

#[test]
fn hundreds_of_calls_leave_nothing_behind() {
    let ended = ranks("hundreds_of_calls_leave_nothing_behind", 3, |member| {
        // Connections of others end and begin a moment after they have come to another leader, so
        // that the numbers waver by a few. What 300 calls leave behind, even if only each tenth
        // does, is more than that.
        let mut before = (0, 0);
        for round in 0..=600 {
            let mut members = vec![0, 1, 2];
            members.rotate_left(round as usize % 3);
            member.reconfigure(round, &members);
            if round == 300 {
                before = held();
            }
        }
        let after = held();
        assert!(after.0 < before.0 + 30 && after.1 < before.1 + 30, "{before:?}, then {after:?}");
        report("as many as before");
        member.group.shutdown().unwrap();
    });
    for ended in ended {
        assert_eq!((ended.code, ended.printed.len()), (Some(0), 1), "{}", ended.output);
    }
}
