//! What is said of operations that wait long.
#![allow(clippy::unwrap_used)]

use serde::Deserialize;

use super::place::{CalledOperation, GroupPlace};
use super::words::stalled;
use super::*;
use crate::stall_report::seconds;

/// What pages say in the same words (`bindings-wasm/tests/words.test.mjs`).
#[derive(Deserialize)]
struct Cases {
    stalls: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    what: String,
    group: CaseGroup,
    operation: CalledOperation,
    waited_ms: u64,
    obstacle: Option<String>,
    places: BTreeMap<u32, Place>,
    said: String,
}

#[derive(Deserialize)]
struct CaseGroup {
    name: String,
    description: String,
    rank: u32,
    members: Vec<u32>,
}

#[test]
fn each_rank_is_said_to_stand_where_it_stands() {
    let cases: Cases = serde_json::from_str(include_str!("words.json")).unwrap();
    for Case { what, group, operation, waited_ms, obstacle, places, said } in cases.stalls {
        let CaseGroup { name, description, rank, members } = group;
        let backend = "tcp".to_owned();
        let group = GroupFacts { name, description, rank, members, backend, epoch: 0 };
        let places = Places { known: places, obstacle };
        let waited = Duration::from_millis(waited_ms);
        assert_eq!(stalled(&group, &operation, waited, &places).for_rank(), said, "{what}");
    }
}

fn collective(title: &str, sequence: u64, is_awaited: bool) -> CalledOperation {
    let title = title.to_owned();
    let since_ms = 12_000;
    CalledOperation {
        title,
        sequence,
        is_collective: true,
        is_awaited,
        since_ms,
        ..Default::default()
    }
}

fn place(group: &str, open: Vec<CalledOperation>, last: Option<CalledOperation>) -> Place {
    Place {
        answers: 1,
        groups: vec![GroupPlace { group: group.to_owned(), open, last, ..GroupPlace::default() }],
        ..Place::default()
    }
}

#[test]
fn what_is_no_place_is_none() {
    let known = place("dp", vec![collective("allreduce", 7, true)], None);
    assert_eq!(Place::decode(&known.encode()), Some(known));
    for wrong in [&b""[..], b"{", b"[1, 2]", b"{\"answers\": \"x\", \"groups\": []}"] {
        assert_eq!(Place::decode(wrong), None);
    }
}

#[test]
fn times_are_short() {
    let text = |seconds_| seconds(Duration::from_secs_f64(seconds_));
    assert_eq!([text(0.25), text(2.0), text(9.9), text(61.4)], ["0.2 s", "2 s", "9.9 s", "61 s"]);
}
