//! Who waits long is told who is missing where: real jobs that hang, each in its own way.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::{Debug, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polyrank::distributed::{
    BreakpointOptions, NewGroupOptions, breakpoint, destroy_process_group, new_group,
};
use polyrank::process_group::ReconfigureOptions;
use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{Error, GroupOptions, ProcessGroup};
use polyrank_tests::processes::{
    ProcessEnd, bare_processes, die, dies_between_operations, is_rank, processes, report,
    with_variable,
};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Tells the test, and the other ranks through the store, what the library says of stalls.
struct Log;

/// The group whose store the log tells.
static GROUP: OnceLock<ProcessGroup> = OnceLock::new();

/// What is done when something was said, where the log tells no group's store.
static ON_SAID: OnceLock<fn()> = OnceLock::new();

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Its fields say what the text says.
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "polyrank::stall"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        report(&text.0);
        ON_SAID.get().into_iter().for_each(|then| then());
        if let Some(group) = GROUP.get() {
            let store = group.get_group_store().clone_store().unwrap();
            store.add(&said_by(group.rank()), 1).unwrap();
            if text.0.contains("waits no longer") {
                store.set(&taken_back_by(group.rank()), b"").unwrap();
            }
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn said_by(rank: u32) -> String {
    format!("said by {rank}")
}

fn taken_back_by(rank: u32) -> String {
    format!("taken back by {rank}")
}

/// Runs a job in which operations are reported that wait for a second. In a rank this does not
/// return.
fn job(test: &str, size: u32, rank_main: impl FnOnce(&ProcessGroup)) -> Vec<ProcessEnd> {
    if is_rank() {
        tracing::subscriber::set_global_default(Log).unwrap();
    }
    with_variable("POLYRANK_STALL_REPORT", "1", || {
        processes(test, size, |group| {
            GROUP.set(group.clone()).unwrap();
            rank_main(&group);
        })
    })
}

/// Waits until these ranks have said that they wait.
fn until_said(group: &ProcessGroup, ranks: &[u32]) {
    let keys: Vec<_> = ranks.iter().map(|&rank| said_by(rank)).collect();
    until_set(group, &keys.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Waits for `keys`, so that it is not said that they are waited for.
fn until_set(group: &ProcessGroup, keys: &[&str]) {
    let (store, slice) = (group.get_group_store(), Duration::from_millis(200));
    while matches!(store.wait(keys, Some(slice)), Err(Error::StoreTimeout { .. })) {}
    store.wait(keys, None).unwrap();
}

/// What `rank` said, with every number of seconds as `N s`.
fn said(ended: &[ProcessEnd], rank: usize) -> Vec<String> {
    let without_times = |line: &String| {
        let words = line.split(' ').collect::<Vec<_>>();
        let time = |at: usize| words.get(at + 1).is_some_and(|unit| unit.starts_with('s'));
        let is_time = |at: usize, word: &str| time(at) && word.parse::<f64>().is_ok();
        let words = words.iter().enumerate();
        let words = words.map(|(at, word)| if is_time(at, word) { "N" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    ended[rank].printed.iter().map(without_times).collect()
}

#[test]
fn a_rank_that_computes_is_named_and_it_is_said_when_it_goes_on() {
    let test = "a_rank_that_computes_is_named_and_it_is_said_when_it_goes_on";
    let ended = job(test, 4, |group| {
        group.allreduce(&mut [1.0], ()).unwrap();
        if group.rank() == 2 {
            until_said(group, &[0, 1, 3]);
        }
        group.barrier(()).unwrap();
        // What is taken back is said before the process ends.
        if group.rank() != 2 {
            until_set(group, &[&taken_back_by(group.rank())]);
        }
    });
    for rank in [0, 1, 3] {
        let said = said(&ended, rank);
        let first = "barrier #2 of group default_pg: ranks 0, 1, 3 have waited for N s; \
                     rank 2 waits for nothing; it last called allreduce #1, N s ago";
        assert_eq!(said[0], first, "{}", ended[rank].output);
        let over = "barrier #2 of group default_pg waits no longer, after N s";
        assert_eq!(said.last().unwrap(), over);
    }
    assert!(ended[2].printed.is_empty(), "{}", ended[2].output);
}

#[test]
fn two_groups_in_another_order_are_named() {
    let test = "two_groups_in_another_order_are_named";
    let ended = job(test, 2, |group| {
        let groups = ["red", "blue"].map(|name| {
            let options = NewGroupOptions::default().group_name(name);
            new_group(options).unwrap().unwrap()
        });
        let own = group.clone();
        // Neither ever goes on.
        std::thread::spawn(move || {
            until_said(&own, &[0, 1]);
            std::process::exit(0);
        });
        let [first, second] = groups;
        let (first, second) = if group.rank() == 0 { (first, second) } else { (second, first) };
        first.allreduce(&mut [1.0], ()).unwrap();
        second.allreduce(&mut [1.0], ()).unwrap();
    });
    for (rank, other) in [(0, 1), (1, 0)] {
        let said = said(&ended, rank);
        let [own, its] = if rank == 0 { ["red", "blue"] } else { ["blue", "red"] };
        let expected = format!(
            "allreduce #1 of group {own}: rank {rank} has waited for N s; rank {other} is in \
             allreduce #1 of group {its} for N s"
        );
        assert_eq!(said[0], expected, "{}", ended[rank].output);
    }
}

#[test]
fn groups_are_named_by_their_descriptions_and_calls_by_where_they_are() {
    let test = "groups_are_named_by_their_descriptions_and_calls_by_where_they_are";
    let ended = with_variable("POLYRANK_DEBUG", "DETAIL", || {
        job(test, 2, |group| {
            let groups = ["tp", "dp", "dp"].map(|description| {
                let options = NewGroupOptions::default().description(description);
                new_group(options).unwrap().unwrap()
            });
            let own = group.clone();
            // Neither ever goes on.
            std::thread::spawn(move || {
                until_said(&own, &[0, 1]);
                std::process::exit(0);
            });
            let [tp, dp, _other] = groups;
            let (first, second) = if group.rank() == 0 { (tp, dp) } else { (dp, tp) };
            first.allreduce(&mut [1.0], ()).unwrap();
            second.allreduce(&mut [1.0], ()).unwrap();
        })
    });
    let said = &said(&ended, 0)[0];
    // Tests are built without the numbers of lines.
    let line = |text: &str| text.contains(" stalls::groups_are") || text.contains("stalls.rs:");
    let begin = "allreduce #1 of group tp: rank 0 has waited for N s; rank 1 is in allreduce #1 of \
                 group dp (default_pg:split:";
    let (begins, rest) = (said.starts_with(begin), said.split("; ").collect::<Vec<_>>());
    let is_at = rest.last().is_some_and(|it| it.starts_with("this rank is at ") && line(it));
    assert!(begins && is_at && rest.len() == 3 && line(rest[1]), "{}", ended[0].output);
}

#[test]
fn a_message_that_nobody_sends_is_named_and_where_its_sender_is() {
    let test = "a_message_that_nobody_sends_is_named_and_where_its_sender_is";
    let ended = job(test, 3, |group| {
        match group.rank() {
            0 => group.recv(&mut [0.0_f32], 1, 7).unwrap(),
            1 => {
                until_said(group, &[0]);
                group.send(&[1.0_f32], 0, 7).unwrap();
            }
            _ => {}
        }
        group.barrier(()).unwrap();
    });
    let expected = "recv from rank 1 (tag 7) of group default_pg: rank 0 has waited for N s; \
                    rank 1 has called no collective of group default_pg";
    assert_eq!(said(&ended, 0)[0], expected, "{}", ended[0].output);
}

#[test]
fn who_has_not_come_is_named_on_standard_error_where_nobody_listens() {
    let test = "who_has_not_come_is_named_on_standard_error_where_nobody_listens";
    let ended = with_variable("POLYRANK_STALL_REPORT", "0.5", || {
        bare_processes(test, 4, || {
            let rank: u32 = std::env::var("RANK").unwrap().parse().unwrap();
            let port: u16 = std::env::var("MASTER_PORT").unwrap().parse().unwrap();
            let options = TcpStoreOptions::new("127.0.0.1", port).is_master(rank == 0);
            let store = Arc::new(TcpStore::new(options.wait_for_workers(false)).unwrap());
            if rank == 3 {
                store.wait(&["0 is here", "1 is here", "2 is here"], None).unwrap();
                // Nothing tells that they have said it: four times as long as they wait for it.
                std::thread::sleep(Duration::from_secs(2));
            }
            store.set(&format!("{rank} is here"), b"").unwrap();
            let options = GroupOptions::default();
            let group = ProcessGroup::new(store, rank, 4, "four", options).unwrap();
            group.shutdown().unwrap();
        })
    });
    for ProcessEnd { output, .. } in &ended[..3] {
        let expected = "polyrank: group 'four': rank 3 of 4 has not come to the rendezvous";
        assert!(output.contains(expected), "{output}");
        assert!(output.contains("polyrank: the rendezvous waits no longer"), "{output}");
    }
    assert!(!ended[3].output.contains("polyrank: "), "{}", ended[3].output);
}

#[test]
fn a_dump_has_what_all_ranks_have_called_whatever_they_do() {
    let test = "a_dump_has_what_all_ranks_have_called_whatever_they_do";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    with_variable("POLYRANK_TEST_FILE", path.to_str().unwrap(), || {
        job(test, 4, |group| {
            group.allreduce(&mut [1.0, 2.0, 3.0], ()).unwrap();
            let store = group.get_group_store();
            match group.rank() {
                // It computes, as far as anybody knows.
                2 => store.wait(&["dumped"], None).unwrap(),
                0 => {
                    let barrier = group.barrier_async(()).unwrap();
                    let path = std::env::var("POLYRANK_TEST_FILE").unwrap();
                    assert_eq!(group.dump(Some(path.as_ref())).unwrap(), Path::new(&path));
                    store.set("dumped", b"").unwrap();
                    return barrier.wait(None).unwrap();
                }
                _ => {}
            }
            group.barrier(()).unwrap();
        })
    });
    let trace: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((&trace["missing"], &trace["gathered_by"]), (&json!([]), &json!(0)));
    for (rank, dump) in trace["ranks"].as_array().unwrap().iter().enumerate() {
        assert_eq!((&dump["rank"], &dump["world_size"]), (&json!(rank), &json!(4)));
        assert_eq!(dump["pg_config"]["0"]["ranks"], json!("[0, 1, 2, 3]"));
        let entry = |at: usize, field: &str| dump["entries"][at][field].clone();
        assert_eq!(entry(0, "profiling_name"), json!("polyrank:all_reduce"));
        assert_eq!((entry(0, "state"), entry(0, "reduce_op")), (json!("completed"), json!("SUM")));
        assert_eq!(entry(0, "input_sizes"), json!([[3]]));
        assert_eq!(entry(0, "input_dtypes"), json!(["Double"]));
        assert_eq!(entry(0, "collective_seq_id"), json!(1));
        assert!(entry(0, "time_created_ns").as_u64().unwrap() > 1_700_000_000_000_000_000);
        let barrier = (entry(1, "name"), entry(1, "state"), entry(1, "collective_seq_id"));
        match rank {
            2 => assert_eq!(barrier, (Value::Null, Value::Null, Value::Null)),
            _ => assert_eq!(barrier, (json!("barrier"), json!("started"), json!(2))),
        }
    }
}

#[test]
fn where_an_operation_fails_each_rank_writes_what_it_has_called() {
    let test = "where_an_operation_fails_each_rank_writes_what_it_has_called";
    let folder = tempfile::tempdir().unwrap();
    with_variable("POLYRANK_TRACE_DIR", folder.path().to_str().unwrap(), || {
        job(test, 3, |group| {
            group.barrier(()).unwrap();
            dies_between_operations(group, 1);
            group.allreduce(&mut [1.0], ()).unwrap_err();
            std::process::exit(0);
        })
    });
    for rank in [0, 2] {
        let path = folder.path().join(format!("polyrank_trace_rank_{rank}.json"));
        let dump: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(dump["rank"], json!(rank));
        let last = &dump["entries"][1];
        assert_eq!((&last["name"], &last["collective_seq_id"]), (&json!("allreduce"), &json!(2)));
        let failed = last["failed"].as_str().unwrap();
        assert!(failed.contains("rank 1"), "{failed}");
        assert!(dump["reason"].as_str().unwrap().contains(failed), "{}", dump["reason"]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn members_that_came_later_are_watched_over_and_ranks_are_their_own() {
    let test = "members_that_came_later_are_watched_over_and_ranks_are_their_own";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let ended = with_variable("POLYRANK_TEST_FILE", path.to_str().unwrap(), || {
        job(test, 3, |group| {
            let store = group.get_group_store();
            let options = GroupOptions::default();
            let again = ProcessGroup::without_members(Some(&*store), "again", options).unwrap();
            for uuid in [1, 2] {
                let own = again.get_reconfigure_handle().unwrap();
                store.set(&format!("{uuid}/{}", group.rank()), own.as_bytes()).unwrap();
                let get = |rank: u32| store.get(&format!("{uuid}/{rank}")).unwrap();
                // The first time in another order: ranks and numbers mean something else then.
                let order = if uuid == 1 { [2, 1, 0] } else { [0, 1, 2] };
                let handles = order.map(|rank| String::from_utf8(get(rank)).unwrap());
                let options = ReconfigureOptions::new(uuid, handles);
                again.reconfigure(options).unwrap().wait(None).unwrap();
                again.allreduce(&mut [1.0], ()).unwrap();
                again.barrier(()).unwrap();
            }
            if again.rank() == 1 {
                until_said(group, &[0, 2]);
            }
            if again.rank() == 0 {
                let barrier = again.allreduce_async(vec![1.0], ()).unwrap();
                let path = std::env::var("POLYRANK_TEST_FILE").unwrap();
                again.dump(Some(path.as_ref())).unwrap();
                barrier.wait(None).unwrap();
            } else {
                again.allreduce(&mut [1.0], ()).unwrap();
            }
            group.barrier(()).unwrap();
        })
    });
    for rank in [0, 2] {
        let said = said(&ended, rank);
        let found = said.iter().find(|text| text.contains("#3 of group again: ranks 0, 2 have"));
        let found = found.unwrap_or_else(|| panic!("{}", ended[rank].output));
        let expected = "rank 1 waits for nothing; it last called barrier #2, N s ago";
        assert!(found.ends_with(expected), "{found}");
    }
    let trace: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((&trace["missing"], &trace["obstacle"]), (&json!([]), &Value::Null));
    let of_again = |entry: &&Value| entry["process_group"][0] == "again";
    let entries = trace["ranks"][1]["entries"].as_array().unwrap().iter().filter(of_again);
    let numbers: Vec<_> = entries.map(|entry| entry["collective_seq_id"].clone()).collect();
    assert_eq!(numbers, [json!(1), json!(2)], "those of earlier members are forgotten");
}

#[test]
fn a_stopped_rank_is_named() {
    let test = "a_stopped_rank_is_named";
    let ended = job(test, 3, |group| {
        let store = group.get_group_store();
        if group.rank() == 1 {
            let id = std::process::id().to_string();
            store.set("id", id.as_bytes()).unwrap();
            group.barrier(()).unwrap();
            let _ = std::process::Command::new("kill").args(["-STOP", &id]).status();
            die();
        }
        group.barrier(()).unwrap();
        let id = String::from_utf8(store.get("id").unwrap()).unwrap();
        let own = group.clone();
        std::thread::spawn(move || {
            until_said(&own, &[0, 2]);
            let _ = std::process::Command::new("kill").args(["-CONT", &id]).status();
        });
        group.allreduce(&mut [1.0], ()).unwrap_err();
        std::process::exit(0);
    });
    for rank in [0, 2] {
        let expected = "allreduce #2 of group default_pg: ranks 0, 2 have waited for N s; \
                        rank 1 did not answer: stopped, gone, or cut off from the store";
        assert_eq!(said(&ended, rank)[0], expected, "{}", ended[rank].output);
    }
}

#[test]
fn a_rank_at_its_breakpoint_is_named() {
    let test = "a_rank_at_its_breakpoint_is_named";
    let line = line!() + 11;
    let ended = job(test, 3, |group| {
        let store = group.get_group_store();
        if group.rank() == 2 {
            store.set("id", std::process::id().to_string().as_bytes()).unwrap();
        }
        let (id, own) = (String::from_utf8(store.get("id").unwrap()).unwrap(), group.clone());
        std::thread::spawn(move || {
            until_said(&own, &[0, 1]);
            let _ = std::process::Command::new("kill").args(["-CONT", &id]).status();
        });
        breakpoint(BreakpointOptions::default().rank(2)).unwrap();
    });
    for rank in [0, 1] {
        let expected = format!(
            "barrier #1 of group default_pg: ranks 0, 1 have waited for N s; rank 2 is at its \
             breakpoint, tests/tests/stalls.rs:{line}"
        );
        // The first may have come before the other rank.
        assert!(said(&ended, rank).contains(&expected), "{}", ended[rank].output);
    }
}

#[test]
fn who_asks_again_and_again_whether_it_is_done_is_told_who_is_missing() {
    let test = "who_asks_again_and_again_whether_it_is_done_is_told_who_is_missing";
    let ended = job(test, 2, |group| {
        if group.rank() == 1 {
            until_said(group, &[0]);
        }
        let work = group.allreduce_async(vec![1.0], ()).unwrap();
        while !work.is_completed() {
            std::thread::yield_now();
        }
    });
    let expected = "allreduce #1 of group default_pg: rank 0 has waited for N s; \
                    rank 1 has called no collective of group default_pg";
    assert_eq!(said(&ended, 0)[0], expected, "{}", ended[0].output);
    assert!(ended[1].printed.is_empty(), "{}", ended[1].output);
}

#[test]
fn who_has_not_come_to_a_monitored_barrier_is_named() {
    let test = "who_has_not_come_to_a_monitored_barrier_is_named";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let ended = with_variable("POLYRANK_TEST_FILE", path.to_str().unwrap(), || {
        job(test, 3, |group| {
            if group.rank() == 2 {
                until_said(group, &[0, 1]);
                let path = std::env::var("POLYRANK_TEST_FILE").unwrap();
                group.dump(Some(path.as_ref())).unwrap();
            }
            group.monitored_barrier(None, false).unwrap();
        })
    });
    let trace: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let subject = "monitored_barrier of group default_pg";
    let waits = &trace["ranks"][0]["rendezvous"][0];
    assert_eq!((&waits["subject"], &waits["missing"]), (&json!(subject), &json!([2])));
    assert_eq!(waits["makes_group"], json!(false));
    for rank in [0, 1] {
        let said = said(&ended, rank);
        let expected = format!("{subject}: rank {rank} has waited for N s; rank 2 has not come");
        assert_eq!(said[0], expected, "{}", ended[rank].output);
        assert_eq!(said.last().unwrap(), &format!("{subject} waits no longer, after N s"));
    }
}

/// Runs rank 1 of a job whose rank 0 serves the store, and is stopped until rank 1 has said
/// something.
fn job_with_a_stopped_store(test: &str, rank_main: impl FnOnce(&ProcessGroup)) -> Vec<ProcessEnd> {
    if is_rank() {
        tracing::subscriber::set_global_default(Log).unwrap();
    }
    with_variable("POLYRANK_STALL_REPORT", "1", || {
        processes(test, 2, |group| {
            // From now on it has the connection of these, too.
            group.monitored_barrier(None, false).unwrap();
            let store = group.get_group_store();
            if group.rank() == 0 {
                HOST.set(std::process::id()).unwrap();
                store.set("id", std::process::id().to_string().as_bytes()).unwrap();
                // The other stops it, and lets it go on.
                store.wait(&["go on"], None).unwrap();
                return;
            }
            let id = String::from_utf8(store.get("id").unwrap()).unwrap();
            HOST.set(id.parse().unwrap()).unwrap();
            ON_SAID.set(|| signal_host("-CONT")).unwrap();
            signal_host("-STOP");
            // It has no answer, and is read when the host goes on.
            store.set("go on", b"").unwrap();
            rank_main(&group);
        })
    })
}

/// The process that serves the store.
static HOST: OnceLock<u32> = OnceLock::new();

fn signal_host(signal: &str) {
    let id = HOST.get().unwrap().to_string();
    let _ = std::process::Command::new("kill").args([signal, &id]).status();
}

#[test]
fn a_stopped_store_is_named_in_a_monitored_barrier() {
    let test = "a_stopped_store_is_named_in_a_monitored_barrier";
    let ended = job_with_a_stopped_store(test, |group| {
        // The other does not come.
        let limit = Duration::from_millis(1);
        group.monitored_barrier(Some(limit), false).unwrap_err();
    });
    let said = said(&ended, 1);
    let first = &said[0];
    let subject = "monitored_barrier of group default_pg";
    let begins = first.starts_with(&format!("{subject}: rank 1 has waited for N s; the store at "));
    let ends = first
        .ends_with(" does not answer; whoever serves it, usually rank 0, is stopped or cut off");
    assert!(begins && ends, "{}", ended[1].output);
    assert_eq!(said.last().unwrap(), &format!("{subject} waits no longer, after N s"));
}

#[test]
fn a_stopped_store_is_named_where_a_group_is_left() {
    let test = "a_stopped_store_is_named_where_a_group_is_left";
    let ended = job_with_a_stopped_store(test, |_| {
        destroy_process_group(None).unwrap();
        std::process::exit(0);
    });
    let said = said(&ended, 1);
    let begin =
        "destroy_process_group of group default_pg: rank 1 has waited for N s; the store at ";
    assert!(said[0].starts_with(begin), "{}", ended[1].output);
    let over = "destroy_process_group of group default_pg waits no longer, after N s";
    assert_eq!(said[1], over);
}

#[test]
fn a_store_that_accepts_a_client_and_never_answers_is_named() {
    let test = "a_store_that_accepts_a_client_and_never_answers_is_named";
    let ended = with_variable("POLYRANK_STALL_REPORT", "0.5", || {
        bare_processes(test, 1, || {
            // The system accepts connections, and nobody reads from them.
            let silent = TcpListener::bind("127.0.0.1:0").unwrap();
            let options = TcpStoreOptions::new("127.0.0.1", silent.local_addr().unwrap().port());
            let error = TcpStore::new(options.timeout(Duration::from_secs(2))).unwrap_err();
            report(error);
        })
    });
    let ProcessEnd { output, printed, .. } = &ended[0];
    let why = "a connection is accepted there, and nobody answers";
    assert!(output.contains("polyrank: the store at 127.0.0.1:"), "{output}");
    for said in [" cannot be reached (", "s. Is rank 0, or whoever else"] {
        assert!(output.contains(said), "{output}");
    }
    assert!(output.contains(&format!("({why}); waited for ")), "{output}");
    assert!(printed[0].ends_with(why), "{output}");
}
