//! Who waits long for a key of a store is told which one nobody has set: each kind of store, each
//! call that waits.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use polyrank::Error;
use polyrank::store::{
    FileStore, HashStore, PrefixStore, Store, TcpStore, TcpStoreOptions, WebSocketStore,
};
use polyrank_tests::processes::{ProcessEnd, bare_processes, with_variable};

/// Longer than it takes until something is said.
const WAIT: Duration = Duration::from_millis(1_500);

/// The lines in which `end` says what it waits for, without figures.
fn said(end: &ProcessEnd) -> Vec<String> {
    // The harness has not ended its line when the first is said.
    let lines = end.output.lines().filter_map(|line| Some(line.split_once("polyrank: ")?.1));
    let word = |word: &str| match word.parse::<f64>() {
        Ok(_) => "N".to_owned(),
        Err(_) => match word.trim_end_matches(',').rsplit_once(':') {
            Some((_, port)) if port.trim_end_matches('/').parse::<u16>().is_ok() => {
                word.replace(port.trim_end_matches('/'), "PORT").replace("PORT/", "PORT")
            }
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

fn server() -> TcpStore {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true);
    TcpStore::new(options.timeout(WAIT)).unwrap()
}

/// What is said of a store of which one key is there, and another never.
fn check(test: &str, at: &str, open: impl FnOnce() -> Arc<dyn Store>) {
    let ended = with_variable("POLYRANK_STALL_REPORT", "0.5", || {
        bare_processes(test, 1, || {
            let store = open();
            store.set_timeout(WAIT);
            store.set("here", b"1").unwrap();
            store.get("here").unwrap();
            late(store.wait(&["here", "never"], None));
            late(store.get("never"));
            late(store.multi_get(&["a", "b", "c", "here", "d", "e"]));
            late(store.queue_pop("queue", true));
        })
    });
    let said = said(&ended[0]);
    let waits = [
        ("'here', 'never'", "'never'"),
        ("'never'", "'never'"),
        ("'a', 'b', 'c', 'here' and N more keys", "'a', 'b', 'c', 'd' and N more key"),
        ("'queue'", "'queue'"),
    ];
    let expected = waits.iter().flat_map(|(needed, missing)| {
        let subject = format!("a client of {at} that needs {needed}");
        let waits = format!("{subject} has waited for N s; nobody has set {missing}");
        [waits, format!("{subject} waits no longer, after N s")]
    });
    assert_eq!(said, expected.collect::<Vec<_>>(), "{}", ended[0].output);
}

#[test]
fn which_key_of_a_tcp_store_is_not_there_is_said() {
    let test = "which_key_of_a_tcp_store_is_not_there_is_said";
    check(test, "the store at 127.0.0.1:PORT", || Arc::new(server()));
}

#[test]
fn which_key_of_a_hash_store_is_not_there_is_said() {
    let test = "which_key_of_a_hash_store_is_not_there_is_said";
    check(test, "a HashStore", || Arc::new(HashStore::new()));
}

#[test]
fn which_key_of_a_file_store_is_not_there_is_said() {
    let test = "which_key_of_a_file_store_is_not_there_is_said";
    let path = std::env::temp_dir().join(format!("polyrank_store_waits_{}", std::process::id()));
    let shown = format!("the store in {}", path.display());
    with_variable("STORE_WAITS_PATH", path.to_str().unwrap(), || {
        check(test, &shown, || {
            let path = std::env::var_os("STORE_WAITS_PATH").unwrap();
            Arc::new(FileStore::new(path, Some(1)).unwrap())
        });
    });
}

#[test]
fn which_key_of_a_websocket_store_is_not_there_is_said() {
    let test = "which_key_of_a_websocket_store_is_not_there_is_said";
    check(test, "the store at ws://127.0.0.1:PORT", || {
        // It serves until the process ends.
        let server = Box::leak(Box::new(server()));
        let url = format!("ws://127.0.0.1:{}", server.port());
        Arc::new(WebSocketStore::connect(&url, WAIT).unwrap())
    });
}

#[test]
fn a_barrier_and_the_prefix_of_a_key_are_named() {
    let test = "a_barrier_and_the_prefix_of_a_key_are_named";
    let ended = with_variable("POLYRANK_STALL_REPORT", "0.5", || {
        bare_processes(test, 1, || {
            let store: Arc<dyn Store> = Arc::new(server());
            late(store.barrier("all", 2, None));
            late(PrefixStore::new("mine", store).get("never"));
        })
    });
    let at = "a client of the store at 127.0.0.1:PORT that";
    let expected = [
        format!("{at} is at the barrier 'all' has waited for N s; not all have come"),
        format!("{at} is at the barrier 'all' waits no longer, after N s"),
        format!("{at} needs 'mine/never' has waited for N s; nobody has set 'mine/never'"),
        format!("{at} needs 'mine/never' waits no longer, after N s"),
    ];
    assert_eq!(said(&ended[0]), expected, "{}", ended[0].output);
}

#[test]
fn how_many_clients_have_not_come_is_said() {
    let test = "how_many_clients_have_not_come_is_said";
    let ended = with_variable("POLYRANK_STALL_REPORT", "0.5", || {
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
    let ended = with_variable("POLYRANK_STALL_REPORT", "0.5", || {
        bare_processes(test, 2, || {
            let port: u16 = std::env::var("MASTER_PORT").unwrap().parse().unwrap();
            let is_host = std::env::var("RANK").unwrap() == "0";
            let options = TcpStoreOptions::new("127.0.0.1", port).is_master(is_host);
            let store = TcpStore::new(options.world_size(2)).unwrap();
            if is_host {
                store.set("id", std::process::id().to_string().as_bytes()).unwrap();
                store.wait(&["the end"], None).unwrap();
                return;
            }
            let id = String::from_utf8(store.get("id").unwrap()).unwrap();
            let signal = |signal: &str| {
                std::process::Command::new("kill").args([signal, &id]).status().unwrap();
            };
            signal("-STOP");
            late(store.wait(&["never"], Some(2 * WAIT)));
            signal("-CONT");
            store.set("the end", b"").unwrap();
        })
    });
    let subject = "a client of the store at 127.0.0.1:PORT that needs 'never'";
    let silent = "the store at 127.0.0.1:PORT does not answer; whoever serves it, usually rank 0, \
                  is stopped or cut off";
    let said = said(&ended[1]);
    assert_eq!(said[0], format!("{subject} has waited for N s; {silent}"), "{said:#?}");
    assert_eq!(said.last().unwrap(), &format!("{subject} waits no longer, after N s"));
}
