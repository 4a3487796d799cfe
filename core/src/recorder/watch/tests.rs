//! What is said of operations that wait long.
#![allow(clippy::unwrap_used)]

use super::place::{CalledOperation, GroupPlace};
use super::words::stalled;
use super::*;
use crate::stall_report::seconds;

fn group(size: u32, rank: u32) -> GroupFacts {
    let members = (0..size).collect();
    let (name, description, backend) = ("dp".to_owned(), String::new(), "tcp".to_owned());
    GroupFacts { name, description, rank, members, backend, epoch: 0 }
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

/// What rank 0 of `size` says of allreduce #7.
fn said(size: u32, known: impl IntoIterator<Item = (u32, Place)>) -> String {
    let places = Places { known: known.into_iter().collect(), obstacle: None };
    let operation = collective("allreduce 'layer 1'", 7, true);
    let said = stalled(&group(size, 0), &operation, Duration::from_secs(10), &places).for_rank();
    let begin = "allreduce 'layer 1' #7 of group dp: ";
    said.strip_prefix(begin).unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[test]
fn each_rank_is_said_to_stand_where_it_stands() {
    let last = |sequence| Some(collective("barrier", sequence, false));
    let cases = [
        (place("dp", vec![collective("allreduce", 7, true)], last(7)), None),
        // Whether or not it waits for it.
        (place("dp", vec![collective("allreduce", 7, false)], last(7)), None),
        (place("dp", Vec::new(), None), Some("rank 1 has called no collective of group dp")),
        (
            place("dp", Vec::new(), last(6)),
            Some("rank 1 waits for nothing; it last called barrier #6, 12 s ago"),
        ),
        (place("dp", Vec::new(), last(9)), Some("rank 1 has done its part, and called barrier #9")),
        (
            place("tp", vec![collective("broadcast", 4, true)], None),
            Some("rank 1 is in broadcast #4 of group tp for 12 s"),
        ),
        (
            place("dp", vec![collective("barrier", 6, true)], last(6)),
            Some("rank 1 is in barrier #6 of group dp for 12 s"),
        ),
    ];
    for (place, expected) in cases {
        let said = said(2, [(1, place)]);
        match expected {
            None => assert_eq!(said, "ranks 0, 1 have waited for 10 s"),
            Some(text) => assert_eq!(said, format!("rank 0 has waited for 10 s; {text}")),
        }
    }
}

#[test]
fn ranks_that_stand_at_the_same_place_are_named_together() {
    let here = || place("dp", vec![collective("allreduce", 7, true)], None);
    let there = || place("tp", vec![collective("send", 4, true)], None);
    let said_of_five = said(5, [(1, here()), (2, there()), (3, there())]);
    let expected = "ranks 0, 1 have waited for 10 s; ranks 2, 3 are in send #4 of group tp \
                    for 12 s; rank 4 did not answer: stopped, gone, or cut off from the store";
    assert_eq!(said_of_five, expected);
    let said_of_many = said(100, (1..90).map(|rank| (rank, here())));
    let first: Vec<_> = (0..16).map(|rank: u32| rank.to_string()).collect();
    let expected =
        format!("ranks {} and 74 more have waited for 10 s; ranks 90, ", first.join(", "));
    assert!(said_of_many.starts_with(&expected), "{said_of_many}");
}

#[test]
fn several_ranks_that_wait_for_nothing_are_several() {
    let last = |sequence| Some(collective("barrier", sequence, false));
    let places = [
        (None, "have called no collective of group dp"),
        (last(6), "wait for nothing; they last called barrier #6, 12 s ago"),
        (last(9), "have done their part, and called barrier #9"),
    ];
    for (last, expected) in places {
        let site = Some("train.py:4".to_owned());
        let place = || Place { site: site.clone(), ..place("dp", Vec::new(), last.clone()) };
        let said = said(3, [(1, place()), (2, place())]);
        let expected = format!("; ranks 1, 2 {expected}, and are at train.py:4");
        assert!(said.ends_with(&expected), "{said}");
    }
}

#[test]
fn a_store_that_cannot_be_asked_is_said_to_be_the_reason() {
    let obstacle = Some("it is gone".to_owned());
    let places = Places { known: BTreeMap::new(), obstacle };
    let operation = collective("allreduce", 7, true);
    let said = stalled(&group(2, 0), &operation, Duration::from_secs(10), &places).for_rank();
    assert!(
        said.ends_with("rank 1 may be anywhere (ranks cannot be asked where they are: it is gone)"),
        "{said}"
    );
}

#[test]
fn a_rank_that_a_debugger_holds_is_said_to_be_there() {
    let held = Some("train.py:17".to_owned());
    let place = place("dp", Vec::new(), Some(collective("allreduce", 6, false)));
    let said = said(2, [(1, Place { held, ..place })]);
    assert_eq!(said, "rank 0 has waited for 10 s; rank 1 is at its breakpoint, train.py:17");
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

#[test]
fn what_is_open_between_the_first_and_the_last_is_open() {
    let last = Some(collective("allreduce", 20, true));
    let open = vec![collective("allreduce", 20, true)];
    let mut there = place("dp", open, last);
    there.groups[0].first_open = Some(3);
    assert_eq!(said(2, [(1, there.clone())]), "ranks 0, 1 have waited for 10 s");
    there.groups[0].first_open = Some(8);
    let expected = "rank 0 has waited for 10 s; rank 1 is in allreduce #20 of group dp for 12 s";
    assert_eq!(said(2, [(1, there)]), expected);
}
