//! The file as other processes see it: its bytes, its end, and what earlier runs leave behind.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use super::*;
use crate::store::suite::TemporaryFile;

const LIMIT: Duration = Duration::from_secs(20);

fn record(key: &str, value: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [key, value] {
        bytes.extend((part.len() as u32).to_le_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

#[test]
fn the_file_is_that_of_torch() {
    let file = TemporaryFile::new();
    let store = FileStore::new(&file.0, Some(1)).unwrap();
    assert_eq!(store.path(), file.0);
    store.set("k", b"v1").unwrap();
    store.add("n", 5).unwrap();
    store.delete_key("k").unwrap();
    let expected =
        [record("refcount/", "1"), record("/k", "v1"), record("/n", "5"), record("-/k", "")];
    assert_eq!(std::fs::read(&file.0).unwrap(), expected.concat());
}

#[test]
fn what_torch_wrote_is_read() {
    let file = TemporaryFile::new();
    let written =
        [record("refcount/", "1"), record("/k", "v1"), record("/k", "v2"), record("/n", "41")];
    std::fs::write(&file.0, written.concat()).unwrap();
    let store = FileStore::new(&file.0, None).unwrap();
    assert_eq!(store.get("k").unwrap(), b"v2");
    assert_eq!(store.add("n", 1).unwrap(), 42);
    assert_eq!(store.num_keys().unwrap(), 2);
}

#[test]
fn the_last_of_all_removes_the_file() {
    let file = TemporaryFile::new();
    let first = FileStore::new(&file.0, Some(2)).unwrap();
    let second = FileStore::new(&file.0, Some(2)).unwrap();
    let clone = second.clone_store().unwrap();
    drop(first);
    drop(second);
    assert!(file.0.exists(), "a clone still has it open");
    clone.set("k", b"v").unwrap();
    drop(clone);
    assert!(!file.0.exists());
    drop(FileStore::new(&file.0, None).unwrap());
    assert!(file.0.exists(), "the number of stores is not known");
}

#[test]
fn a_file_of_something_else_is_left_alone() {
    let file = TemporaryFile::new();
    for content in ["precious text that is not a record", "\x04\0\0\0"] {
        std::fs::write(&file.0, content).unwrap();
        let error = FileStore::new(&file.0, None).unwrap_err().to_string();
        assert!(error.contains("is not a store's file"), "{error}");
        assert_eq!(std::fs::read_to_string(&file.0).unwrap(), content);
    }
}

#[test]
fn a_record_that_was_cut_off_is_dropped() {
    let file = TemporaryFile::new();
    let store = FileStore::new(&file.0, None).unwrap();
    store.set("k", b"v").unwrap();
    let whole = std::fs::read(&file.0).unwrap();
    std::fs::write(&file.0, [&whole[..], b"\x02\0\0\0/j\x05\0\0\0ab"].concat()).unwrap();
    assert!(!store.check(&["j"]).unwrap());
    store.set("l", b"").unwrap();
    let other = FileStore::new(&file.0, None).unwrap();
    let mut keys = other.list_keys().unwrap();
    keys.sort_unstable();
    assert_eq!(keys, ["k", "l"]);
}

#[test]
fn a_file_that_goes_away_is_an_error() {
    let file = TemporaryFile::new();
    let store = FileStore::new(&file.0, None).unwrap();
    std::fs::remove_file(&file.0).unwrap();
    assert!(matches!(store.get("k"), Err(Error::Store { .. })));
    let _other = FileStore::new(&file.0, None).unwrap();
    assert!(matches!(store.set("k", b""), Err(Error::Store { .. })));
}

#[test]
fn ranks_join_and_a_finished_run_leaves_nothing() {
    let file = TemporaryFile::new();
    for run in 0..3 {
        let ranks: Vec<_> =
            (0..3).map(|rank| membership::join(&file.0, rank, 3, LIMIT).unwrap()).collect();
        assert_eq!(ranks[0].add("runs", 1).unwrap(), 1, "run {run} starts with no keys");
        assert_eq!(ranks[2].get("runs").unwrap(), b"1");
        assert_eq!(ranks[1].num_keys().unwrap(), 1);
    }
    assert!(!file.0.exists());
}

#[test]
fn one_rank_too_many_and_one_twice_are_told() {
    let file = TemporaryFile::new();
    let _zero = membership::join(&file.0, 0, 2, LIMIT).unwrap();
    let twice = membership::join(&file.0, 0, 2, LIMIT).unwrap_err().to_string();
    assert!(twice.contains("rank 0 joined twice"), "{twice}");
    let other_size = membership::join(&file.0, 1, 3, LIMIT).unwrap_err().to_string();
    assert!(other_size.contains("a group of 2 ranks"), "{other_size}");
    let one = membership::join(&file.0, 1, 2, LIMIT).unwrap();
    drop(one);
    let late = membership::join(&file.0, 1, 2, LIMIT).unwrap_err().to_string();
    assert!(late.contains("holds a complete group"), "{late}");
}

/// Members as a run that was killed leaves them.
#[cfg(target_os = "linux")]
#[test]
fn the_file_of_a_dead_run_is_started_anew_and_that_of_half_a_run_is_not() {
    let file = TemporaryFile::new();
    let rank = membership::join(&file.0, 0, 2, LIMIT).unwrap();
    rank.set("stale", b"").unwrap();
    let alive = std::fs::read(&file.0).unwrap();
    // This test's process never has such a number.
    let me = format!(" {} ", std::process::id());
    let text = String::from_utf8(alive.clone()).unwrap();
    let dead = text.replace(&me, &format!(" {} ", "9".repeat(me.len() - 2)));
    assert_ne!(dead, text);
    std::fs::write(&file.0, &dead).unwrap();
    let anew = membership::join(&file.0, 0, 2, LIMIT).unwrap();
    assert!(!anew.check(&["stale"]).unwrap());
    assert!(matches!(rank.check(&["stale"]), Err(Error::Store { .. })), "it notices");
    // A dead rank and a living one.
    let mixed = [
        &record("refcount/", "2")[..],
        &alive[record("refcount/", "1").len()..],
        &record("member/1", "? 1 1 0"),
    ];
    std::fs::write(&file.0, mixed.concat()).unwrap();
    let error = membership::join(&file.0, 1, 2, LIMIT).unwrap_err().to_string();
    assert!(error.contains("lost rank 1") && error.contains("rank 0 (process"), "{error}");
}
