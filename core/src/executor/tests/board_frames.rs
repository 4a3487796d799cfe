//! Frames, and marks on the board, that no rank of this version sends while an alltoall goes over
//! the board: a typed error on the rank that they reach, or nothing, and never a hang.

use std::sync::Arc;
use std::time::Duration;

use super::board_alltoall::call;
use super::boards;
use super::world::{assert_ok, errors, memory, values};
use super::{Call, World, with_seeds};
use crate::completion::Completion;
use crate::executor::limits::{FRAME_COST_BYTES, WINDOW_BYTES};
use crate::generated::collective::Collective;
use crate::generated::error::Error;
use crate::tensor::Region;
use crate::wire::frame::{Fingerprint, Header, Kind};

/// Elements of a block.
const ELEMENTS: usize = 8;
const BYTES: usize = 4 * ELEMENTS;

/// The call of `rank`, of three.
fn exchange(rank: u32, fits: bool) -> Call {
    call(rank, fits, 0, &[ELEMENTS; 3], &[ELEMENTS; 3])
}

/// A frame of the schedule of operation 1, as it would be right.
fn data() -> Header {
    Header {
        kind: Kind::Data,
        generation: 3,
        sequence: 1,
        message: 0,
        offset: 0,
        message_bytes: BYTES as u64,
        payload_bytes: BYTES as u32,
        issued: 1,
        fingerprint: exchange(2, false).fingerprint,
    }
}

/// Delivers a frame to rank 0 from rank 2.
fn forge(world: &World, header: Header) {
    let payload = vec![1; header.payload_bytes as usize];
    world.network.lock().unwrap().forge(2, 0, header, payload);
}

/// What becomes of the call of rank 0, to which the frame comes when it is on the board, and all
/// others show their parts.
fn outcome(seed: u64, header: Header) -> Option<Error> {
    let mut world = World::with_board_of_readers(3, seed, false);
    let own = world.issue(0, exchange(0, true));
    forge(&world, header);
    world.settle();
    for rank in 1..3 {
        let _ = world.issue(rank, exchange(rank, true));
    }
    world.run(std::slice::from_ref(&own));
    own.error()
}

fn is_blamed(error: Option<&Error>) -> bool {
    matches!(error, Some(Error::RankFailed { rank: 2, why, .. }) if why.contains("protocol"))
}

#[test]
fn a_schedule_that_nobody_says_to_run_is_its_senders_fault() {
    with_seeds(|seed| {
        let ready = Header { kind: Kind::Ready, payload_bytes: 0, ..data() };
        for header in [data(), ready] {
            let error = outcome(seed, header);
            assert!(is_blamed(error.as_ref()), "{error:?}");
        }
    });
}

#[test]
fn frames_of_another_call_are_a_mismatch() {
    with_seeds(|seed| {
        let right = data();
        let fingerprint = right.fingerprint;
        let other = |algorithm, dtype| {
            let fingerprint = Fingerprint { algorithm, dtype, ..fingerprint };
            Header { fingerprint, ..right }
        };
        for header in [other(1, fingerprint.dtype), other(fingerprint.algorithm, 1)] {
            let ready = Header { kind: Kind::Ready, payload_bytes: 0, ..header };
            for header in [header, ready] {
                let error = outcome(seed, header);
                assert!(matches!(error, Some(Error::CollectiveMismatch { .. })), "{error:?}");
            }
        }
    });
}

/// What the call of rank 0 ends with if rank 2 says that it runs the schedule, and the frame comes
/// after its own. Rank 1 is not there, so that the operation is still in flight by then.
fn marked(seed: u64, header: Header) -> Error {
    let mut world = World::with_board_of_readers(3, seed, false);
    let own = world.issue(0, exchange(0, true));
    let _ = world.issue(2, exchange(2, false));
    world.settle();
    assert!(!own.is_done());
    forge(&world, header);
    world.run(std::slice::from_ref(&own));
    own.error().unwrap()
}

#[test]
fn frames_that_the_schedule_does_not_have_are_errors() {
    with_seeds(|seed| {
        let right = data();
        let ready = Header { kind: Kind::Ready, payload_bytes: 0, ..right };
        for header in [right, Header { offset: 4, payload_bytes: 28, ..right }] {
            let error = marked(seed, header);
            assert!(is_blamed(Some(&error)), "{header:?}: {error}");
        }
        for header in [
            Header { message: 7, ..right },
            Header { message: u32::MAX, ..right },
            Header { message_bytes: 28, payload_bytes: 28, ..right },
            Header { message_bytes: u64::MAX, ..right },
            Header { message: 7, ..ready },
            Header { message_bytes: 1, ..ready },
        ] {
            let error = marked(seed, header);
            assert!(matches!(error, Error::CollectiveMismatch { .. }), "{header:?}: {error}");
        }
    });
}

#[test]
fn who_marks_and_sends_nothing_is_named_at_the_deadline() {
    with_seeds(|seed| {
        let mut world = World::with_board_of_readers(3, seed, false);
        world.network.lock().unwrap().cut.extend([(2, 0), (2, 1)]);
        let calls: Vec<_> =
            (0..3).map(|rank| world.issue(rank, exchange(rank, rank != 2))).collect();
        world.settle();
        assert!(calls[..2].iter().all(|call| !call.is_done()));
        world.pass(Duration::from_secs(61));
        world.run(&calls[..2]);
        for error in errors(&calls[..2]) {
            let Error::CollectiveTimeout { detail, .. } = &error else { panic!("{error}") };
            assert!(detail.contains("rank 2"), "{detail}");
        }
    });
}

#[test]
fn a_mark_of_another_call_is_a_mismatch() {
    with_seeds(|seed| {
        let mut world = World::with_board_of_readers(3, seed, false);
        let other = call(2, false, 1, &[ELEMENTS; 3], &[ELEMENTS; 3]);
        let mut calls: Vec<_> =
            (0..2).map(|rank| world.issue(rank, exchange(rank, true))).collect();
        calls.push(world.issue(2, other));
        world.run(&calls);
        for error in errors(&calls) {
            assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error}");
        }
    });
}

#[test]
fn frames_of_other_numbers_wait_for_them_or_are_dropped() {
    with_seeds(|seed| {
        for sequence in [0, 2, 5, u64::MAX] {
            let mut world = World::with_board_of_readers(3, seed, false);
            forge(&world, Header { sequence, issued: sequence, ..data() });
            world.settle();
            for number in 1..=5_u64 {
                let mut calls: Vec<Arc<Completion>> = Vec::new();
                let mut output: Vec<Region> = Vec::new();
                for rank in 0..3 {
                    let small = boards::small(Collective::Allreduce, rank, 3, 0);
                    let tensor = memory([rank as i32]);
                    let sum = boards::call(small, 1, vec![], vec![tensor.clone()]);
                    let call = if number == 5 { sum } else { exchange(rank, true) };
                    output.push(tensor);
                    calls.push(world.issue(rank, call));
                }
                world.run(&calls[..1]);
                if number == sequence {
                    let error = calls[0].error().unwrap();
                    let is_mismatch = matches!(error, Error::CollectiveMismatch { .. });
                    assert!(is_mismatch || is_blamed(Some(&error)), "{error}");
                    break;
                }
                world.run(&calls);
                assert_ok(&calls);
                assert!(number < 5 || output.iter().all(|sum| values(sum) == [3]));
            }
        }
    });
}

#[test]
fn too_many_frames_ahead_are_their_senders_fault() {
    with_seeds(|seed| {
        let mut world = World::with_board_of_readers(3, seed, false);
        let (right, most) = (data(), 2 * WINDOW_BYTES / (BYTES + FRAME_COST_BYTES));
        for ahead in 0..=most as u64 {
            forge(&world, Header { sequence: 2 + ahead, ..right });
        }
        let own = world.issue(0, exchange(0, true));
        world.run(std::slice::from_ref(&own));
        assert!(is_blamed(own.error().as_ref()), "{:?}", own.error());
    });
}
