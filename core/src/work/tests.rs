//! What works, groups and stores show of themselves.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::generated::collective::Collective;
use crate::process_group::{GroupOptions, ProcessGroup};
use crate::request::Request;
use crate::store::{HashStore, Store};

fn pair() -> [ProcessGroup; 2] {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let join = |rank| {
        let store = store.clone();
        move || ProcessGroup::new(store, rank, 2, "pair", GroupOptions::default()).unwrap()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(join(1));
        [join(0)(), other.join().unwrap()]
    })
}

/// The text of a work, with the number of its milliseconds as N.
fn text(work: &Work) -> String {
    let text = work.to_string();
    let (before, after) = text.split_once(" ms").unwrap();
    let (before, time) = before.rsplit_once(' ').unwrap();
    assert!(time.parse::<u64>().is_ok(), "{text}");
    format!("{before} N ms{after}")
}

#[test]
fn texts_say_what_of_which_group_and_how_long() {
    let [zero, one] = pair();
    let barrier = |group: &ProcessGroup| group.issue(Request::new(Collective::Barrier)).unwrap();
    let (work, other) = (barrier(&zero), barrier(&one));
    work.wait(None).unwrap();
    assert_eq!(text(&work), "Work(barrier #1 of pair, complete, N ms)");
    other.wait(None).unwrap();
    let open = zero.recv_async(vec![0f32], Some(1), 0).unwrap();
    assert!(text(&open).ends_with("of pair, in flight, N ms)"), "{open}");
    let store = zero.get_group_store();
    let shown = store.description();
    assert!(shown.starts_with("PrefixStore('") && shown.contains("HashStore()"), "{shown}");
    zero.abort();
    assert!(open.wait(None).is_err());
    assert!(text(&open).contains("of pair, failed, N ms: "), "{open}");
    assert_eq!(format!("{zero:?}"), "ProcessGroup(pair, rank 0 of 2, tcp)");
    let _ = zero.shutdown();
    assert_eq!(format!("{zero:?}"), "ProcessGroup(pair, rank 0 of 2, tcp, left)");
    assert_eq!(store.description(), "Store(of pair, left)");
    drop(zero);
    assert_eq!(text(&work), "Work(barrier #1 of pair, complete, N ms)");
    drop(one);
}

#[test]
fn an_operation_that_was_done_immediately_took_no_time() {
    let work = Work::done("allreduce", u64::MAX, 1);
    assert_eq!(work.to_string(), "Work(allreduce #1, complete, 0 ms)");
    assert_eq!(milliseconds(Duration::from_micros(2_499)), 2);
    assert_eq!(milliseconds(Duration::from_micros(2_500)), 3);
}
