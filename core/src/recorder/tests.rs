//! What is remembered of operations that are done at once, and of others.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::completion::Completion;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;

fn recorder() -> Arc<Recorder> {
    let members = vec![3, 5];
    let (name, description) = ("g".to_owned(), String::new());
    let backend = "cpu:tcp".to_owned();
    Recorder::new(GroupFacts { name, description, rank: 1, members, backend, epoch: 0 })
}

fn done(sequence: u64) -> DoneOperation {
    DoneOperation {
        name: "allreduce",
        kind: OperationKind::Collective,
        dtype: DType::F32,
        reduce_op: Some(ReduceOp::Max),
        peer: NO_RANK,
        tag: 0,
        sequence,
        given: 12,
        taken: 12,
    }
}

fn note_done(recorder: &Recorder, operation: &DoneOperation) {
    recorder.note_done(operation, CallTime::default());
}

fn issued(name: &'static str, sequence: u64) -> (IssuedNote, Arc<Completion>) {
    let completion = Arc::new(Completion::new());
    let note = OperationNote { kind: OperationKind::Collective, ..OperationNote::default() };
    let (issued, comm_name) = (Instant::now(), None);
    let known = completion.clone();
    let frames = Arc::default();
    (IssuedNote { name, comm_name, sequence, parts: 1, note, issued, completion, frames }, known)
}

fn sequences(operations: &[RecordedOperation]) -> Vec<u64> {
    operations.iter().map(|operation| operation.sequence).collect()
}

#[test]
fn the_last_thousand_are_remembered_in_the_order_of_their_calls() {
    let recorder = recorder();
    for sequence in 1..=1500 {
        match sequence % 3 {
            0 => {
                let (note, completion) = issued("broadcast", sequence);
                recorder.note_issued(note);
                completion.complete(Ok(()));
            }
            _ => note_done(&recorder, &done(sequence)),
        }
    }
    let operations = recorder.operations();
    assert_eq!(sequences(&operations), (501..=1500).collect::<Vec<_>>());
    let [.., before, last] = operations.as_slice() else { panic!("there are many") };
    assert_eq!((before.name, last.name), ("allreduce", "broadcast"));
    assert_eq!(before.note.reduce_op, Some("MAX"));
    assert_eq!((&*before.note.inputs, before.note.peer), (&[tensor_of(3)][..], None));
    assert!(operations.iter().all(|it| it.end.as_ref().unwrap().error.is_none()));
}

fn tensor_of(elements: usize) -> TensorNote {
    TensorNote { dtype: DType::F32, shape: [elements].into() }
}

#[test]
fn what_is_not_done_is_remembered_however_much_follows() {
    let recorder = recorder();
    let (note, completion) = issued("recv", 1);
    recorder.note_issued(note);
    for sequence in 2..=3000 {
        let (note, completion) = issued("broadcast", sequence);
        recorder.note_issued(note);
        completion.complete(Ok(()));
        note_done(&recorder, &done(sequence));
    }
    assert_eq!(sequences(&recorder.open_operations()), [1]);
    let operations = recorder.operations();
    assert_eq!((operations[0].name, operations.len()), ("recv", REMEMBERED + 1));
    assert!(!operations[0].is_awaited);
    completion.note_awaited();
    assert!(recorder.open_operations()[0].is_awaited);
    let message = "it broke".to_owned();
    completion.complete(Err(Error::Network { message }));
    assert!(recorder.open_operations().is_empty());
}

#[test]
fn a_part_is_known_by_the_name_of_the_whole() {
    let recorder = recorder();
    let (note, completion) = issued("alltoall", 4);
    recorder.note_issued(note);
    let (note, _) = issued("neighbor_alltoall", 4);
    recorder.note_issued(IssuedNote { completion, ..note });
    let operations = recorder.operations();
    assert_eq!((operations.len(), operations[0].name), (1, "neighbor_alltoall"));
}

#[test]
fn threads_that_note_at_the_same_time_lose_nothing() {
    let recorder = recorder();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let recorder = &recorder;
            scope.spawn(move || {
                (0..200).for_each(|number| note_done(recorder, &done(thread * 1000 + number)));
            });
        }
        // Whoever reads meanwhile sees whole lines.
        for _ in 0..50 {
            let whole = |it: &RecordedOperation| {
                it.name == "allreduce" && *it.note.outputs == [tensor_of(3)]
            };
            assert!(recorder.operations().iter().all(whole));
        }
    });
    let mut all = sequences(&recorder.operations());
    all.sort_unstable();
    let expected = (0..4).flat_map(|thread| thread * 1000..thread * 1000 + 200);
    assert_eq!(all, expected.collect::<Vec<_>>());
}

#[test]
fn what_was_begun_is_there_once_it_is_done_and_nothing_is_if_it_is_taken_back() {
    let recorder = recorder();
    note_done(&recorder, &done(1));
    let begun = recorder.begin_note(&done(2));
    assert_eq!(sequences(&recorder.operations()), [1]);
    recorder.end_note(begun, CallTime::default());
    let begun = recorder.begin_note(&done(3));
    recorder.take_back(begun);
    let (note, _) = issued("allreduce", 3);
    recorder.note_issued(note);
    // Another operation was called before this is taken back.
    let begun = recorder.begin_note(&done(4));
    note_done(&recorder, &done(5));
    recorder.take_back(begun);
    note_done(&recorder, &done(6));
    let operations = recorder.operations();
    assert_eq!(sequences(&operations), [1, 2, 3, 5, 6]);
    assert_eq!(operations.iter().map(|it| it.number).collect::<Vec<_>>(), [0, 1, 2, 4, 5]);
}

#[test]
fn a_dump_has_the_layout_of_pytorch() {
    let recorder = recorder();
    note_done(&recorder, &done(1));
    let send = DoneOperation {
        name: "send",
        kind: OperationKind::Send,
        reduce_op: None,
        peer: 0,
        tag: 9,
        taken: 0,
        ..done(0)
    };
    note_done(&recorder, &send);
    let (note, completion) = issued("broadcast", 2);
    let comm_name = Some("layer 1".into());
    recorder.note_issued(IssuedNote { comm_name, ..note });
    completion.complete(Err(Error::Network { message: "it broke".into() }));
    let dump = dump::dump(5, "a test");
    let of_group = |it: &&serde_json::Value| it["process_group"][0] == "g";
    let entries: Vec<_> = dump["entries"].as_array().unwrap().iter().filter(of_group).collect();
    let field = |field: &str| entries.iter().map(|it| it[field].to_string()).collect::<Vec<_>>();
    let names = field("profiling_name");
    assert_eq!(
        names,
        [r#""polyrank:all_reduce""#, r#""polyrank:send 1->0""#, r#""polyrank:broadcast""#]
    );
    assert_eq!(field("collective_seq_id"), ["1", "0", "2"]);
    assert_eq!(field("p2p_seq_id"), ["0", "1", "0"]);
    assert_eq!(field("is_p2p"), ["false", "true", "false"]);
    assert_eq!(field("output_sizes"), ["[[3]]", "[]", "[]"]);
    assert_eq!(field("comm_name"), ["null", "null", r#""layer 1""#]);
    assert_eq!(field("failed"), ["null", "null", r#""it broke""#]);
    assert_eq!((&dump["rank"], &dump["version"]), (&5.into(), &"2.10".into()));
    assert_eq!(dump["reason"], "a test");
}
