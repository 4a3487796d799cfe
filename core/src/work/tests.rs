//! What works, groups and stores show of themselves.
#![allow(clippy::unwrap_used)]

use super::shown::milliseconds;
use super::*;
use crate::completion::Notification;
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

#[test]
fn a_work_that_was_waited_for_is_done_although_another_thread_has_yet_to_tell() {
    let [zero, one] = pair();
    let barrier = |group: &ProcessGroup| group.issue(Request::new(Collective::Barrier)).unwrap();
    let (known, other) = (barrier(&zero), barrier(&one));
    other.wait(None).and(known.wait(None)).unwrap();
    let (_, backend) = known.parts().remove(0);
    let failure = Error::Store { message: "made up".into() };
    let ends: [[Result<()>; 2]; 2] = [[Ok(()), Ok(())], [Ok(()), Err(failure)]];
    for ends in ends {
        let issue = |sequence| IssuedOperation { sequence, completion: Arc::default() };
        let parts = [1, 2].map(issue);
        let completions = parts.clone().map(|part| part.completion);
        let parts = parts.map(|part| (part, backend.clone())).into();
        let label = OperationLabel {
            name: "allreduce_coalesced",
            group: 0,
            comm_name: None,
            began: Instant::now(),
            record: None,
        };
        let work = Work::new(label, parts, Vec::new());
        let (told, hears) = std::sync::mpsc::channel();
        work.on_end(move || told.send(()).unwrap());
        let is_well = ends[1].is_ok();
        // Held back, as by a thread that runs another callback first.
        let late = completions.iter().zip(ends).filter_map(|(part, end)| part.mark_done(end));
        let late: Vec<_> = late.collect();
        assert_eq!((late.len(), work.wait(None).is_ok()), (2, is_well));
        assert!(work.is_done() && work.is_completed());
        assert_eq!((work.is_success(), work.error().is_none()), (is_well, is_well));
        hears.try_recv().unwrap();
        late.into_iter().for_each(Notification::deliver);
        assert!(hears.try_recv().is_err(), "it is told once");
    }
    drop(one);
}
