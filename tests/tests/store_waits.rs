//! Who waits long for a key of a group's store is told which one nobody has set, in the words that
//! the program knows, and what the library itself waits for is not told of. Each kind of store, as
//! Python and Node have them, is in `test_store_waits.py` and `store_waits.test.js`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use polyrank::Error;
use polyrank::distributed::barrier;
use polyrank::store::{PrefixStore, Store, TcpStore, TcpStoreOptions};
use polyrank_tests::processes::{ProcessEnd, bare_processes, processes, with_variable};

/// Longer than it takes until something is said.
const WAIT: Duration = Duration::from_millis(700);

/// The lines in which `end` says what it waits for, without figures.
fn said(end: &ProcessEnd) -> Vec<String> {
    // The harness has not ended its line when the first is said.
    let lines = end.output.lines().filter_map(|line| Some(line.split_once("polyrank: ")?.1));
    let word = |word: &str| match word.parse::<f64>() {
        Ok(_) => "N".to_owned(),
        Err(_) => match word.trim_end_matches([',', ';']).rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => word.replace(port, "PORT"),
            _ => word.to_owned(),
        },
    };
    let mut said: Vec<String> =
        lines.map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ")).collect();
    // A busy machine may come to say it again.
    said.dedup();
    said
}

fn late(result: Result<impl std::fmt::Debug, Error>) {
    assert!(matches!(result, Err(Error::StoreTimeout { .. })), "{result:?}");
}

#[test]
fn what_a_program_waits_for_in_its_groups_store_is_said() {
    let test = "what_a_program_waits_for_in_its_groups_store_is_said";
    let ended = with_variable("POLYRANK_STALL_REPORT", "0.2", || {
        processes(test, 1, |group| {
            let store = group.get_group_store();
            store.set_timeout(WAIT);
            store.set("here", b"1").unwrap();
            store.get("here").unwrap();
            late(store.wait(&["here", "never"], None));
            late(store.get("never"));
            late(store.multi_get(&["a", "b", "c", "here", "d", "e"]));
            late(store.queue_pop("queue", true));
            late(store.barrier("all", 2, None));
        })
    });
    let waits = [
        ("needs 'here', 'never'", "nobody has set 'never'"),
        ("needs 'never'", "nobody has set 'never'"),
        (
            "needs 'a', 'b', 'c', 'here' and N more keys",
            "nobody has set 'a', 'b', 'c', 'd' and N more key",
        ),
        ("needs an element of the queue 'queue'", "nobody has pushed one to 'queue'"),
        ("is at the barrier 'all'", "not all have come"),
    ];
    let expected = waits.iter().flat_map(|(does, missing)| {
        let subject = format!("a client of the store at 127.0.0.1:PORT that {does}");
        let waits = format!("{subject} has waited for N s; {missing}");
        [waits, format!("{subject} waits no longer, after N s")]
    });
    assert_eq!(said(&ended[0]), expected.collect::<Vec<_>>(), "{}", ended[0].output);
}

#[test]
fn what_the_library_waits_for_has_words_of_its_own() {
    let test = "what_the_library_waits_for_has_words_of_its_own";
    let ended = with_variable("POLYRANK_STALL_REPORT", "0.2", || {
        bare_processes(test, 2, || {
            let port: u16 = std::env::var("MASTER_PORT").unwrap().parse().unwrap();
            let is_host = std::env::var("RANK").unwrap() == "0";
            let options = TcpStoreOptions::new("127.0.0.1", port).is_master(is_host);
            let store = TcpStore::new(options.world_size(2)).unwrap();
            // As a library does that keeps a thread at a key.
            let waits = match is_host {
                true => {
                    PrefixStore::new("p", store.clone_store().unwrap()).wait(&["x"], Some(WAIT))
                }
                false => store.wait(&["x"], Some(WAIT)),
            };
            late(waits);
        })
    });
    for end in &ended {
        assert_eq!(said(end), Vec::<String>::new(), "{}", end.output);
    }
}

#[test]
fn how_many_clients_have_not_come_is_said() {
    let test = "how_many_clients_have_not_come_is_said";
    let ended = with_variable("POLYRANK_STALL_REPORT", "0.2", || {
        bare_processes(test, 1, || {
            let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).world_size(3);
            TcpStore::new(options.timeout(WAIT)).unwrap_err();
        })
    });
    let subject = "the store at 127.0.0.1:PORT, which waits for clients";
    let expected = [
        format!(
            "{subject} has waited for N s; N of N clients have come, this process's own among them"
        ),
        format!("{subject} waits no longer, after N s"),
    ];
    assert_eq!(said(&ended[0]), expected, "{}", ended[0].output);
}

#[test]
fn a_store_that_is_stopped_meanwhile_is_named() {
    let test = "a_store_that_is_stopped_meanwhile_is_named";
    let ended = with_variable("POLYRANK_STALL_REPORT", "0.2", || {
        processes(test, 2, |group| {
            let store = group.get_group_store();
            barrier(()).unwrap();
            if group.rank() == 0 {
                store.set("id", std::process::id().to_string().as_bytes()).unwrap();
                store.wait(&["the end"], None).unwrap();
                return;
            }
            let id = String::from_utf8(store.get("id").unwrap()).unwrap();
            let signal = |signal: &str| {
                std::process::Command::new("kill").args([signal, &id]).status().unwrap();
            };
            signal("-STOP");
            late(store.wait(&["never"], Some(3 * WAIT)));
            signal("-CONT");
            store.set("the end", b"").unwrap();
        })
    });
    let subject = "a client of the store at 127.0.0.1:PORT that needs 'never'";
    let silent = "the store at 127.0.0.1:PORT does not answer; whoever serves it, usually rank 0, \
                  is stopped or cut off";
    let said = said(&ended[1]);
    assert_eq!(said[0], format!("{subject} has waited for N s; {silent}"), "{said:#?}");
    assert!(said.contains(&format!("{subject} waits no longer, after N s")), "{said:#?}");
}
