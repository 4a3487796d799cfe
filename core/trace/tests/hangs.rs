//! Jobs that hang in known ways, and what is said of each: the right operation, the right ranks, in
//! the words that a user reads. The jobs are imagined (`world`), so what is right is known.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod world;

use polyrank_trace::{Finding, Job, Kind, Selection, Severity, read};
use serde_json::Value;
use world::{Call, MS, World, collective, message, step};

fn job_of(dumps: &[Value]) -> Job {
    let file =
        |(at, dump): (usize, &Value)| read(&format!("{at}.json"), &dump.to_string()).unwrap();
    Job::new(dumps.iter().enumerate().map(file).collect()).unwrap()
}

fn gathered(world: &World, missing: &[u32]) -> Job {
    job_of(&[world.gathered(missing)])
}

/// The first finding, and the whole report.
fn told(job: &Job) -> (Finding, String) {
    let report = job.report(&Selection::default());
    let first = job.findings().into_iter().next();
    (first.unwrap_or_else(|| panic!("nothing was found: {report}")), report)
}

fn steps(count: usize) -> Vec<Call> {
    (0..count).flat_map(|_| step()).collect()
}

/// The numbers of ranks that the jobs are tried with.
const SIZES: [u32; 4] = [2, 3, 5, 8];

#[test]
fn a_job_that_ends_well_has_nothing_wrong_with_it() {
    for size in [1, 2, 3, 5, 8] {
        let job = gathered(&World::new(size, &steps(3)), &[]);
        assert_eq!(job.findings(), [], "{size} ranks");
        let report = job.report(&Selection::default());
        assert!(report.contains("Nothing is wrong"), "{report}");
        assert!(report.contains("9 collectives"), "{report}");
        assert_eq!(job.report_json(&Selection::default())["ok"], true);
    }
}

#[test]
fn a_missed_barrier_is_named_with_who_left_it_out() {
    for size in SIZES {
        let mut world = World::new(size, &steps(3));
        let odd = size - 1;
        // The barrier of the last step.
        world.calls[odd as usize].remove(7);
        let (finding, report) = told(&gathered(&world, &[]));
        assert_eq!((finding.kind, finding.sequence), (Kind::Mismatch, Some(7)), "{report}");
        assert!(report.contains("barrier #7 of default_pg"), "{report}");
        let is_in = format!("rank {odd} is in broadcast #7 of default_pg (train.py:42 in step)");
        assert!(report.contains(&is_in), "{report}");
        assert!(report.contains("barrier #7 of default_pg (train.py:41 in step)"), "{report}");
        if size > 2 {
            assert_eq!(finding.ranks, [odd], "{report}");
            let left_out = format!("rank {odd} has left out barrier (train.py:41 in step)");
            assert!(report.contains(&left_out), "{report}");
        }
    }
}

#[test]
fn a_barrier_that_nothing_follows_waits_for_who_missed_it() {
    for size in SIZES {
        let mut world = World::new(size, &steps(2)[..5]);
        world.calls[0].pop();
        let mut files = world.gathered(&[]);
        files["ranks"][0]["call_site"] = serde_json::json!("train.py:17 in compute");
        let (finding, report) = told(&job_of(&[files.clone()]));
        files["ranks"][0]["breakpoint"] = serde_json::json!("train.py:17");
        let (_, held) = told(&job_of(&[files]));
        assert!(held.contains("; it is at its breakpoint, train.py:17"), "{held}");
        assert_eq!((finding.kind, finding.sequence), (Kind::Hang, Some(4)), "{report}");
        assert_eq!((finding.ranks, finding.waiting.len()), (vec![0], size as usize - 1));
        assert_eq!(finding.waited_ns, Some(12_000 * MS));
        let last = "rank 0 has issued nothing since allreduce #3 of default_pg (train.py:40 in \
                    step), which ended 12 s before";
        assert!(report.contains(last), "{report}");
        assert!(report.contains("; its program is at train.py:17 in compute"), "{report}");
        assert!(report.contains("waited 12 s") || report.contains("waited up to 12 s"), "{report}");
    }
}

#[test]
fn groups_are_named_by_their_descriptions_and_found_by_either_name() {
    let mut world = World::new(2, &[collective(0, "allreduce", 40)]);
    world.calls[1].clear();
    let mut files = world.gathered(&[]);
    for rank in [0, 1] {
        files["ranks"][rank]["pg_config"]["0"]["desc"] = serde_json::json!("tp");
    }
    let job = job_of(&[files]);
    let (_, report) = told(&job);
    assert!(report.contains("Rank 0 waits in allreduce #0 of tp for rank 1"), "{report}");
    for name in ["tp", "default_pg"] {
        let chosen = Selection { groups: vec![name.to_owned()], ..Selection::default() };
        assert!(job.report(&chosen).contains("of tp for rank 1"), "{name}");
    }
}

/// As `world`'s files, with ranks that wait at a rendezvous.
fn at_rendezvous(mut files: Value, ranks: &[usize], meeting: &Value) -> Value {
    for &rank in ranks {
        let dump = &mut files["ranks"][rank];
        let mut meeting = meeting.clone();
        let dumped = dump["dumped_at_ns"].as_i64().unwrap();
        meeting["since_ns"] = serde_json::json!(dumped - 11_000 * MS);
        dump["rendezvous"] = serde_json::json!([meeting]);
    }
    files
}

#[test]
fn a_group_that_a_rank_does_not_make_is_named_with_where_the_rank_is() {
    let meeting = serde_json::json!({
        "subject": "new_group of ranks 0, 1, 2", "call": "new_group", "ranks": [0, 1, 2],
        "group": "default_pg:split:64db:1", "missing": [], "others_missing": 0,
        "frames": [{ "name": "main", "filename": "/a/train.py", "line": 82 }],
    });
    let files = World::new(3, &steps(2)).gathered(&[]);
    let (finding, report) = told(&job_of(&[at_rendezvous(files, &[0, 2], &meeting)]));
    assert_eq!((finding.kind, &*finding.ranks), (Kind::Rendezvous, &[1][..]), "{report}");
    let words = [
        "\nnew_group of ranks 0, 1, 2: rank 1 has not come to the rendezvous.",
        "- ranks 0 and 2 have waited up to 11 s (train.py:82 in main)",
        "- rank 1 has issued nothing since broadcast #5 of default_pg",
        "new_group of ranks 0, 1, 2  waits for 11 s",
    ];
    words.iter().for_each(|words| assert!(report.contains(words), "{words}: {report}"));
    assert!(!report.contains("Nothing is wrong"), "{report}");
}

#[test]
fn a_rank_that_never_joins_is_named_as_in_the_log() {
    let meeting = serde_json::json!({
        "subject": "group 'default_pg'", "call": null, "group": "default_pg",
        "ranks": [0, 1, 2], "missing": [2], "others_missing": 0, "frames": [],
    });
    let mut files = World::new(3, &[]).gathered(&[2]);
    // Before there is a group.
    for rank in [0, 1] {
        files["ranks"][rank]["pg_config"] = serde_json::json!({});
        files["ranks"][rank]["pg_status"] = serde_json::json!({});
    }
    let (finding, report) = told(&job_of(&[at_rendezvous(files, &[0, 1], &meeting)]));
    assert_eq!((finding.kind, &*finding.ranks), (Kind::Rendezvous, &[2][..]), "{report}");
    assert_eq!((&*finding.waiting, finding.waited_ns), (&[0, 1][..], Some(11_000 * MS)));
    let words = [
        "Group 'default_pg': rank 2 of 3 has not come to the rendezvous.",
        "- no file from rank 2: not started, not at the rendezvous yet, stopped or killed",
        "rank 1  the rendezvous of group 'default_pg'  waits for 11 s",
    ];
    words.iter().for_each(|words| assert!(report.contains(words), "{words}: {report}"));
}

#[test]
fn who_has_not_come_to_a_call_of_a_group_is_at_no_rendezvous() {
    for (missing, text) in [
        (vec![2], "Drain of group tp: rank 2 has not come."),
        (vec![], "Drain of group tp: ranks 0 and 1 wait for ranks that have not come."),
    ] {
        let meeting = serde_json::json!({
            "subject": "drain of group tp", "call": "drain", "makes_group": false, "group": "tp",
            "ranks": [0, 1, 2], "missing": missing, "others_missing": 0, "frames": [],
        });
        let files = World::new(3, &[]).gathered(&[2]);
        let (finding, report) = told(&job_of(&[at_rendezvous(files, &[0, 1], &meeting)]));
        assert_eq!((finding.kind, &*finding.ranks), (Kind::Rendezvous, &[2][..]), "{report}");
        let cause = "- no file from rank 2: stopped or killed, which is not known";
        [text, cause].iter().for_each(|words| assert!(report.contains(words), "{words}: {report}"));
        assert!(!report.contains("at the rendezvous"), "{report}");
    }
}

#[test]
fn another_collective_is_named_on_both_sides() {
    let mut world = World::new(4, &[steps(5), vec![collective(0, "allreduce", 40)]].concat());
    world.calls[2].pop();
    world.calls[2].push(collective(0, "broadcast", 44));
    let (finding, report) = told(&gathered(&world, &[]));
    assert_eq!((finding.kind, finding.ranks), (Kind::Mismatch, vec![2]), "{report}");
    assert_eq!((finding.waiting, finding.severity), (vec![0, 1, 3], Severity::Error));
    let usual = "ranks 0, 1 and 3 are in allreduce #15 of default_pg (train.py:40 in step)";
    assert!(report.contains(usual), "{report}");
    let odd = "rank 2 is in broadcast #15 of default_pg (train.py:44 in step)";
    assert!(report.contains(odd), "{report}");
}

#[test]
fn sizes_dtypes_roots_and_reductions_that_differ_are_named() {
    type Change = fn(&mut Call);
    let changes: [(&str, &'static str, Change); 4] = [
        ("sizes", "allreduce", |call| call.size = 512),
        ("dtypes", "allreduce", |call| call.dtype = "Double"),
        ("reductions", "allreduce", |call| call.reduce_op = Some("MAX")),
        ("roots", "broadcast", |call| call.root = Some(1)),
    ];
    for (what, name, change) in changes {
        let mut world = World::new(3, &[steps(1), vec![collective(0, name, 50)]].concat());
        change(world.calls[1].last_mut().unwrap());
        let (finding, report) = told(&gathered(&world, &[]));
        assert_eq!((finding.kind, finding.ranks), (Kind::Mismatch, vec![1]), "{report}");
        assert!(finding.text.contains(&format!("their {what} differ")), "{report}");
        assert!(finding.text.contains(&format!("{name} #3 of default_pg")), "{report}");
    }
}

#[test]
fn another_order_of_two_groups_is_a_deadlock_that_names_both() {
    for size in SIZES {
        let mut world = World::new(size, &steps(1));
        world.groups.push(("dp", (0..size).collect()));
        world.groups.push(("tp", (0..size).collect()));
        let (dp, tp) = (collective(1, "allreduce", 60), collective(2, "allreduce", 61));
        for (rank, calls) in world.calls.iter_mut().enumerate() {
            let pair = if rank == 0 { [tp.clone(), dp.clone()] } else { [dp.clone(), tp.clone()] };
            calls.extend(pair);
        }
        let (finding, report) = told(&gathered(&world, &[]));
        assert_eq!(
            (finding.kind, &finding.groups[..]),
            (Kind::Deadlock, &["dp".to_owned(), "tp".to_owned()][..])
        );
        assert!(finding.ranks.contains(&0) && finding.ranks.len() == 2, "{report}");
        assert!(report.contains("groups dp and tp in different orders"), "{report}");
        let waits = "rank 0 is in allreduce #0 of tp (train.py:61 in step) and has waited";
        assert!(report.contains(waits), "{report}");
    }
}

#[test]
fn a_deadlock_of_groups_without_common_members_goes_around() {
    let mut world = World::new(3, &steps(1));
    world.groups.extend([("ab", vec![0, 1]), ("bc", vec![1, 2]), ("ca", vec![0, 2])]);
    // Each is in the group with the next, and none is where it is waited for.
    for (rank, group) in [(0, 1), (1, 2), (2, 3)] {
        world.calls[rank].push(collective(group, "barrier", 80 + group as u64));
    }
    let (finding, report) = told(&gathered(&world, &[]));
    assert_eq!((finding.kind, finding.ranks), (Kind::Deadlock, vec![0, 1, 2]), "{report}");
    assert_eq!(finding.groups, ["ab", "bc", "ca"]);
    for waits in ["rank 0 is in barrier #0 of ab", "rank 1 is in barrier #0 of bc"] {
        assert!(report.contains(waits), "{report}");
    }
    assert!(!report.contains("in different orders"), "{report}");
}

#[test]
fn a_rendezvous_and_a_collective_that_wait_for_each_other_are_a_deadlock() {
    let meeting = serde_json::json!({
        "subject": "new_group of group tp (ranks 0, 1)", "call": "new_group", "ranks": [0, 1],
        "group": "tp", "missing": [1], "others_missing": 0,
        "frames": [{ "name": "main", "filename": "/a/train.py", "line": 82 }],
    });
    let mut world = World::new(3, &steps(1));
    for rank in [1, 2] {
        world.calls[rank].push(collective(0, "barrier", 50));
    }
    let files = at_rendezvous(world.gathered(&[]), &[0], &meeting);
    let job = job_of(std::slice::from_ref(&files));
    let (finding, report) = told(&job);
    assert_eq!((finding.kind, finding.ranks), (Kind::Deadlock, vec![0, 1]), "{report}");
    assert_eq!(finding.groups, ["default_pg", "tp"]);
    let words = [
        "Ranks 0 and 1 wait for each other between the groups default_pg and tp: a deadlock",
        "rank 0 is in new_group of group tp (ranks 0, 1) (train.py:82 in main) and has waited 11 s \
         for rank 1",
        "rank 1 is in barrier #3 of default_pg (train.py:50 in step) and has waited",
        "these ranks use the groups default_pg and tp in different orders",
    ];
    words.iter().for_each(|words| assert!(report.contains(words), "{words}: {report}"));
    let is_late = |it: &Finding| it.kind == Kind::Rendezvous;
    assert!(!job.findings().iter().any(is_late), "{report}");
}

#[test]
fn who_computes_beside_an_operation_waits_for_nobody() {
    let mut world = World::new(2, &steps(1));
    world.groups.extend([("dp", vec![0, 1]), ("tp", vec![0, 1])]);
    world.calls[0].push(collective(1, "allreduce", 60));
    world.calls[1].push(collective(2, "allreduce", 61));
    let mut files = world.gathered(&[]);
    let last = files["ranks"][1]["entries"].as_array().unwrap().len() - 1;
    files["ranks"][1]["entries"][last]["awaited"] = serde_json::json!(false);
    let job = job_of(&[files]);
    assert!(!job.findings().iter().any(|it| it.kind == Kind::Deadlock), "{:?}", job.findings());
    assert_eq!(told(&job).0.kind, Kind::Hang);
}

#[test]
fn a_rank_without_a_file_is_called_what_it_is() {
    for size in SIZES {
        let mut world = World::new(size, &steps(4));
        let gone = size - 1;
        world.calls[gone as usize].truncate(6);
        let mut gathered = world.gathered(&[gone]);
        let job = job_of(&[gathered.clone()]);
        let (finding, report) = told(&job);
        assert_eq!((finding.kind, finding.ranks), (Kind::Hang, vec![gone]), "{report}");
        assert!(report.contains("allreduce #6 of default_pg"), "{report}");
        let no_file = format!("no file from rank {gone}: killed, stopped, not reachable");
        assert!(report.contains(&no_file) && report.contains("is not known"), "{report}");
        // What the others' recorders know of it.
        for dump in gathered["ranks"].as_array_mut().unwrap() {
            let last = dump["entries"].as_array_mut().unwrap().last_mut().unwrap();
            last["waits_for"] = serde_json::json!([gone]);
        }
        let (_, report) = told(&job_of(&[gathered]));
        let who = if size == 2 { "rank 0 waits" } else { "wait" };
        assert!(report.contains(&format!("{who} for its data")), "{report}");
    }
}

#[test]
fn a_rank_that_never_started_is_missing_from_the_first_operation() {
    let mut world = World::new(4, &steps(1));
    world.calls[1].clear();
    let (finding, report) = told(&gathered(&world, &[1]));
    assert_eq!((finding.sequence, finding.ranks), (Some(0), vec![1]), "{report}");
    assert!(report.contains("never started"), "{report}");
    // It started, but has called nothing.
    let (finding, report) = told(&gathered(&world, &[]));
    assert_eq!((finding.sequence, finding.ranks), (Some(0), vec![1]), "{report}");
    assert!(report.contains("rank 1 has issued nothing at all"), "{report}");
    // It has not even told its groups.
    let mut dumps = world.dumps();
    dumps[1]["pg_config"] = serde_json::json!({});
    let (finding, _) = told(&job_of(&dumps));
    assert_eq!((finding.sequence, finding.ranks), (Some(0), vec![1]));
}

#[test]
fn single_files_of_a_dead_store_are_one_job() {
    let mut world = World::new(5, &steps(2));
    world.calls[3].truncate(4);
    let (of_one, report) = told(&gathered(&world, &[]));
    let mut dumps = world.dumps();
    // Rank 3 had written before; the later file counts.
    let mut early = dumps[3].clone();
    early["dumped_at_ns"] = (world::START_NS + MS).into();
    early["entries"] = serde_json::json!([]);
    dumps.insert(0, early.clone());
    dumps.push(early);
    let (of_many, _) = told(&job_of(&dumps));
    assert_eq!(of_one, of_many, "{report}");
    assert_eq!(of_many.ranks, [3]);
}

#[test]
fn a_slow_rank_is_told_by_how_often_and_how_much() {
    for size in SIZES {
        let mut world = World::new(size, &steps(10));
        let slow = size - 1;
        world.calls[slow as usize].iter_mut().for_each(|call| call.before_ns = 5 * MS);
        let job = gathered(&world, &[]);
        let (finding, report) = told(&job);
        assert_eq!((finding.kind, finding.severity), (Kind::SlowRank, Severity::Note), "{report}");
        assert_eq!(finding.ranks, [slow]);
        // 30 times it comes 4 ms after the others.
        let came =
            format!("rank {slow} came last to 30 of 30 collectives of default_pg, by 120 ms");
        assert!(report.to_lowercase().contains(&came), "{report}");
        assert!(report.contains("Nothing is wrong"), "{report}");
        assert_eq!(job.arrivals()[0].ranks[0].late_ns, 120 * MS);
    }
}

#[test]
fn a_message_that_nobody_sends_and_one_that_nobody_receives() {
    let mut world = World::new(4, &steps(1));
    world.calls[1].extend([message(0, 1, 2, true), message(0, 1, 2, true)]);
    world.calls[2].extend([message(0, 1, 2, false)]);
    let (finding, report) = told(&gathered(&world, &[]));
    assert_eq!((finding.kind, finding.ranks), (Kind::NotReceived, vec![2]), "{report}");
    assert!(report.contains("2 sends and 1 receive"), "{report}");
    world.calls[2].extend([message(0, 1, 2, false), message(0, 1, 2, false)]);
    let (finding, report) = told(&gathered(&world, &[]));
    assert_eq!((finding.kind, finding.ranks), (Kind::NotSent, vec![1]), "{report}");
    let waits = "Rank 2 waits in recv from rank 1 (tag 0) in default_pg (train.py:70 in step), and \
                 rank 1 has not sent it";
    assert!(report.contains(waits), "{report}");
    // Both wait for what the other would send afterwards.
    let mut world = World::new(2, &[]);
    world.calls[0].extend([message(0, 1, 0, false), message(0, 0, 1, true)]);
    world.calls[1].extend([message(0, 0, 1, false), message(0, 1, 0, true)]);
    let (finding, report) = told(&gathered(&world, &[]));
    assert_eq!((finding.kind, finding.ranks), (Kind::Deadlock, vec![0, 1]), "{report}");
    // From anybody.
    let mut world = World::new(2, &steps(1));
    let any = Call { from_any: true, ..message(0, 1, 0, false) };
    world.calls[0].push(any);
    let (finding, report) = told(&gathered(&world, &[]));
    assert_eq!((finding.kind, finding.ranks), (Kind::NotSent, vec![0]), "{report}");
}

#[test]
fn what_follows_stands_behind_what_it_follows_from() {
    // Rank 2 waits in the group of 2 and 3 for rank 3, so ranks 0 and 1 wait for rank 2.
    let mut world = World::new(4, &steps(1));
    world.groups.extend([("all", vec![0, 1, 2]), ("pair", vec![2, 3])]);
    world.calls[0].push(collective(1, "allreduce", 90));
    world.calls[1].push(collective(1, "allreduce", 90));
    world.calls[2].extend([collective(2, "barrier", 91), collective(1, "allreduce", 90)]);
    let job = gathered(&world, &[]);
    let findings = job.findings();
    let (first, second) = (&findings[0], &findings[1]);
    let report = job.report(&Selection::default());
    assert_eq!(
        (&first.groups[..], &first.ranks[..]),
        (&["pair".to_owned()][..], &[3][..]),
        "{report}"
    );
    assert!(second.is_consequence && second.ranks == [2], "{report}");
    assert!(report.contains("This follows from it:"), "{report}");
    assert!(report.contains("rank 2 is in barrier #0 of pair (train.py:91 in step)"), "{report}");
}

#[test]
fn failures_are_told_with_their_texts() {
    let mut world = World::new(3, &steps(1));
    world.calls[1].truncate(2);
    let mut dumps = world.dumps();
    dumps.remove(1);
    for dump in &mut dumps {
        let end = dump["dumped_at_ns"].clone();
        let last = dump["entries"].as_array_mut().unwrap().last_mut().unwrap();
        last["failed"] = "rank 1 failed: its connection was closed".into();
        last["time_discovered_completed_ns"] = end;
        last["state"] = "completed".into();
        dump["pg_status"]["0"]["failure"] = "rank 1 failed".into();
    }
    let job = job_of(&dumps);
    let (first, report) = told(&job);
    assert_eq!((first.kind, first.ranks), (Kind::Hang, vec![1]), "{report}");
    let said = "ranks 0 and 2: rank 1 failed: its connection was closed";
    assert!(report.contains(said) && report.contains("ranks 0 and 2: rank 1 failed\n"), "{report}");
}

#[test]
fn many_operations_in_flight_are_one_finding() {
    let mut calls = steps(1);
    for line in 0..100 {
        calls.push(Call { waits: false, ..collective(0, "allreduce", 100 + line) });
    }
    let mut world = World::new(3, &calls);
    world.calls[1].truncate(10);
    let job = gathered(&world, &[]);
    let (finding, report) = told(&job);
    assert_eq!((finding.sequence, finding.ranks), (Some(10), vec![1]), "{report}");
    assert!(report.contains("92 later operations"), "{report}");
    assert_eq!(job.findings().len(), 1, "{report}");
}

#[test]
fn what_was_forgotten_is_not_taken_for_what_was_not_called() {
    let mut dumps = World::new(3, &steps(4)).dumps();
    // The recorder of rank 1 keeps the last three.
    let entries = dumps[1]["entries"].as_array_mut().unwrap();
    entries.drain(..9);
    let last = dumps[0]["entries"].as_array_mut().unwrap();
    // Rank 0 has an old operation that never ended.
    last[2]["state"] = "started".into();
    last[2]["time_discovered_completed_ns"] = Value::Null;
    let (finding, report) = told(&job_of(&dumps));
    assert_eq!((finding.kind, finding.sequence), (Kind::Unfinished, Some(2)), "{report}");
}

/// As a recorder writes that notes what was done at once in few words: without the time of the
/// call, without tags of some messages, and with sizes in place of shapes, numbered by group.
#[test]
fn few_words_on_what_was_done_at_once_are_no_difference() {
    let mut world = World::new(3, &[steps(2), vec![collective(0, "allreduce", 40)]].concat());
    let with_tag = |call: Call| Call { tag: Some(5), ..call };
    world.calls[0].insert(3, with_tag(message(0, 0, 1, true)));
    world.calls[1].insert(3, with_tag(message(0, 0, 1, false)));
    world.groups.push(("dp", vec![0, 1, 2]));
    world.calls.iter_mut().for_each(|calls| calls.insert(1, collective(1, "allreduce", 44)));
    world.calls[2].pop();
    let mut dumps = world.dumps();
    for (rank, dump) in dumps.iter_mut().enumerate() {
        let mut numbers = [0, 0];
        for (at, entry) in dump["entries"].as_array_mut().unwrap().iter_mut().enumerate() {
            let group = entry["pg_id"].as_u64().unwrap() as usize;
            entry["record_id"] = numbers[group].into();
            numbers[group] += 1;
            if entry["is_p2p"] == true && rank == 0 {
                entry["tag"] = Value::Null;
            }
            if (at + rank) % 2 == 0 && entry["state"] == "completed" {
                entry["time_created_ns"] = entry["time_discovered_completed_ns"].clone();
            } else if entry["input_sizes"] == serde_json::json!([[1024]]) {
                entry["input_sizes"] = serde_json::json!([[512], [16, 32]]);
            }
        }
    }
    let job = job_of(&dumps);
    let (finding, report) = told(&job);
    assert_eq!((finding.kind, finding.ranks), (Kind::Hang, vec![2]), "{report}");
    assert_eq!((finding.sequence, job.findings().len()), (Some(6), 1), "{report}");
}

#[test]
fn ranks_that_know_a_part_of_their_job_have_it_together() {
    let mut world = World::new(4, &[]);
    world.groups = vec![("ab", vec![0, 1]), ("cd", vec![2, 3])];
    for rank in 0..4 {
        world.calls[rank].push(collective(rank / 2, "barrier", 5));
    }
    let mut dumps = world.dumps();
    dumps.iter_mut().for_each(|dump| dump["world_size"] = 2.into());
    let job = job_of(&dumps);
    assert_eq!((job.world_size, job.missing.len(), job.findings().len()), (4, 0, 0));
    // Who gathered could not ask all.
    let gathered = serde_json::json!({
        "version": "2.10", "missing": [3], "obstacle": "the store is gone", "ranks": &dumps[..3],
    });
    let report = job_of(&[gathered]).report(&Selection::default());
    assert!(report.contains("not all ranks could be asked: the store is gone"), "{report}");
}

#[test]
fn ranks_in_other_languages_call_the_same_by_other_names() {
    let world = World::new(3, &[steps(1), vec![collective(0, "allreduce", 40)]].concat());
    let mut dumps = world.dumps();
    for (dump, name) in dumps.iter_mut().zip(["allreduce", "all_reduce", "allReduce"]) {
        let last = dump["entries"].as_array_mut().unwrap().last_mut().unwrap();
        last["name"] = name.into();
        last["profiling_name"] = format!("polyrank:{name}").into();
        last["state"] = "started".into();
        last["time_discovered_completed_ns"] = Value::Null;
    }
    let job = job_of(&dumps);
    let (finding, report) = told(&job);
    assert_eq!((finding.kind, finding.sequence), (Kind::Unfinished, Some(3)), "{report}");
    let recordings = job.flight_recordings();
    let last = |at: usize| recordings[at].entries.last().unwrap().profiling_name.clone();
    assert_eq!([0, 1, 2].map(last), ["c10d:all_reduce"; 3]);
}
