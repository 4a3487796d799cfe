//! Windows over frames: hostile ones touch nothing but what is registered, whatever they say, and
//! all orders in which frames come end alike.

use std::sync::Arc;
use std::time::Duration;

use super::World;
use super::world::{assert_ok, memory, values};
use crate::clock::Instant;
use crate::completion::Completion;
use crate::executor::limits::SEGMENT_BYTES;
use crate::executor::{
    AccessAction, ExposedMemory, Fence, Flush, GoneRanks, GoneReason, WindowAccess, WindowCall,
    WindowOperation,
};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::tensor::{Region, SharedBytes};
use crate::wire::frame::{Header, Kind};

const WINDOW: u32 = 1;

/// Nobody of so many ranks is gone.
fn gone(size: u32) -> Arc<GoneRanks> {
    Arc::new(GoneRanks::new(size))
}

fn expose(world: &mut World, rank: u32, region: &Region) {
    let now = Instant::now();
    let shared = SharedBytes::of(region);
    let exposed = ExposedMemory { dtype: DType::I32, region: region.clone(), shared };
    world.executor(rank).open_window(WINDOW, gone(2), now);
    world.executor(rank).expose(WINDOW, Some(exposed), now);
}

fn start(world: &mut World, rank: u32, operation: WindowOperation) -> Arc<Completion> {
    let completion = Arc::new(Completion::new());
    let now = Instant::now();
    let deadline = now + Duration::from_secs(1000);
    let call = WindowCall { deadline, finish: None, completion: completion.clone() };
    world.executor(rank).start_on_window(operation, call, now);
    completion
}

fn access(peer: u32, offset: usize, memory: &Region, action: AccessAction) -> WindowOperation {
    let (window, dtype, memory) = (WINDOW, DType::I32, memory.clone());
    WindowOperation::Access(WindowAccess { action, window, peer, dtype, offset, memory })
}

/// A segment of an access as it should be, of two elements.
fn segment(action: u8, elements: u64) -> Header {
    let mut header = Header::new(Kind::Access, 3);
    header.sequence = 1;
    header.message = WINDOW;
    header.payload_bytes = 8;
    header.fingerprint.collective = action;
    header.fingerprint.dtype = DType::I32 as u8;
    header.fingerprint.elements = elements;
    header
}

#[test]
fn what_is_put_in_any_order_is_got_and_counted() {
    for seed in 0..20 {
        let mut world = World::new(3, seed);
        let regions: Vec<Region> = (0..3).map(|_| memory(vec![0; 300_000])).collect();
        for (rank, region) in (0..).zip(&regions) {
            expose(&mut world, rank, region);
        }
        let mut all = Vec::new();
        for rank in 0..3_u32 {
            let peer = (rank + 1) % 3;
            let given = memory((0..200_000).map(|index| index + rank as i32));
            all.push(start(&mut world, rank, access(peer, 40, &given, AccessAction::Put)));
            let one = memory([1]);
            let add = AccessAction::Accumulate(ReduceOp::Sum);
            all.push(start(&mut world, rank, access(0, 0, &one, add.clone())));
            all.push(start(&mut world, rank, access(0, 0, &one, add)));
            let fence = Fence { window: WINDOW, name: "fence", closes: false };
            all.push(start(&mut world, rank, WindowOperation::Fence(fence)));
        }
        world.run(&all);
        assert_ok(&all);
        for (rank, region) in (0..).zip(&regions) {
            let found = values(region);
            let expected = (0..200_000).map(|index| index + (rank + 2) % 3);
            assert!(found[10..200_010].iter().copied().eq(expected), "seed {seed}");
            assert_eq!(found[0], if rank == 0 { 6 } else { 0 }, "seed {seed}");
        }
        let got = memory(vec![0; 300_000]);
        let all = [
            start(&mut world, 2, access(1, 0, &got, AccessAction::Get)),
            start(&mut world, 2, WindowOperation::Flush(Flush { peer: Some(1) })),
        ];
        world.run(&all);
        assert_ok(&all);
        assert_eq!(values(&got), values(&regions[1]), "seed {seed}");
    }
}

#[test]
fn memory_that_is_not_there_is_refused_at_the_origin() {
    let mut world = World::new(2, 1);
    let target = memory([7; 4]);
    expose(&mut world, 0, &target);
    world.executor(1).open_window(WINDOW, gone(2), Instant::now());
    let given = memory([1, 2]);
    let mut refused = vec![
        start(&mut world, 1, access(0, 12, &given, AccessAction::Put)),
        start(&mut world, 1, access(0, usize::MAX - 7, &given, AccessAction::Put)),
        start(&mut world, 1, access(0, 2, &given, AccessAction::Get)),
    ];
    world.run(&refused);
    world.executor(0).expose(WINDOW, None, Instant::now());
    refused.push(start(&mut world, 1, access(0, 0, &given, AccessAction::Put)));
    world.run(&refused);
    for completion in refused {
        let error = completion.error().expect("it is refused").to_string();
        assert!(error.contains("rank 0 has no memory"), "{error}");
    }
    assert_eq!(values(&target), [7; 4]);
    assert!(world.executor(0).broken().is_none() && world.executor(1).broken().is_none());
}

/// Whether the group of rank 0 broke by a frame from rank 1; what is registered, and what lies
/// around it, is as it was.
fn breaks(header: Header) -> bool {
    let mut world = World::new(2, 1);
    let all = memory([7; 12]);
    expose(&mut world, 0, &all.slice(16..32));
    let payload = vec![1; header.payload_bytes as usize];
    world.network.lock().unwrap().forge(1, 0, header, payload);
    for _ in 0..50 {
        world.step(0);
    }
    assert_eq!(values(&all), [7; 12], "{header:?}");
    world.executor(0).broken().is_some()
}

#[test]
fn hostile_accesses_touch_nothing() {
    assert!(breaks(segment(0, 8)), "no such access");
    assert!(breaks(segment(6, 8)), "no such access");
    assert!(breaks(segment(1, 4)), "less than the payload");
    assert!(breaks(segment(1, 0)), "nothing");
    assert!(breaks(segment(2, 8)), "a payload of what is read");
    assert!(breaks(segment(5, 8)), "one operand of two");
    assert!(breaks(segment(5, u64::MAX / 2 + 5)), "more than there are numbers");
    let long = SEGMENT_BYTES as u64 + 4;
    let read = Header { payload_bytes: 0, ..segment(2, long) };
    assert!(breaks(read), "more than a segment");
    for offset in [2, 12, 16, 1 << 40, u64::MAX - 3, u64::MAX] {
        let header = Header { offset, ..segment(1, 8) };
        assert!(!breaks(header), "outside, or between elements: refused");
    }
    let mut header = segment(1, 8);
    header.fingerprint.dtype = DType::F32 as u8;
    assert!(!breaks(header), "another type: refused");
    assert!(!breaks(Header { message: 2, ..segment(1, 8) }), "another window: refused");
    for operator in [1, 8, 9, 255] {
        let mut header = segment(3, 8);
        header.fingerprint.reduce_op = operator;
        assert!(!breaks(header), "no operator that reduces: refused");
    }
    let reply = Header { kind: Kind::AccessReply, ..segment(1, 8) };
    assert!(breaks(reply), "an answer to nothing");
    let signal = Header { kind: Kind::Signal, payload_bytes: 0, message: 9, ..segment(1, 8) };
    assert!(!breaks(signal), "a signal to no window");
}

#[test]
fn answers_that_do_not_fit_touch_nothing() {
    for (offset, elements, payload) in
        [(0, 8, 4), (0, 16, 16), (8, 8, 8), (0, 0, 0), (0, 4, 4), (u64::MAX, 8, 8)]
    {
        let mut world = World::new(2, 1);
        let all = memory([7; 12]);
        let into = all.slice(16..24);
        world.executor(0).open_window(WINDOW, gone(2), Instant::now());
        let got = start(&mut world, 0, access(1, 0, &into, AccessAction::Get));
        let mut reply = Header::new(Kind::AccessReply, 3);
        (reply.sequence, reply.message, reply.offset) = (1, WINDOW, offset);
        reply.fingerprint.elements = elements;
        reply.payload_bytes = payload;
        world.network.lock().unwrap().forge(1, 0, reply, vec![1; payload as usize]);
        for _ in 0..50 {
            world.step(0);
        }
        assert!(world.executor(0).broken().is_some(), "{offset} {elements} {payload}");
        assert!(got.error().is_some());
        assert_eq!(values(&all), [7; 12], "{offset} {elements} {payload}");
    }
}

#[test]
fn signals_wait_at_the_origin_while_none_leaves() {
    const SIGNALS: usize = 5000;
    let mut world = World::new(2, 3);
    for rank in 0..2 {
        world.executor(rank).open_window(WINDOW, gone(2), Instant::now());
    }
    let signal = || WindowOperation::Signal { window: WINDOW, peer: 1 };
    let signals: Vec<_> = (0..SIGNALS).map(|_| start(&mut world, 0, signal())).collect();
    let most = world.network.lock().unwrap().most_frames_queued;
    assert!(most <= 256, "{most} frames wait in the transport");
    assert!(!signals[SIGNALS - 1].is_done(), "who signals waits, too");
    let wait = || WindowOperation::WaitSignal { window: WINDOW, peer: 0 };
    let mut all: Vec<_> = (0..SIGNALS).map(|_| start(&mut world, 1, wait())).collect();
    all.extend(signals);
    world.run(&all);
    assert_ok(&all);
    let most = world.network.lock().unwrap().most_frames_queued;
    assert!(most <= 256, "{most} frames wait in the transport");
}

#[test]
fn what_needs_a_rank_that_has_closed_the_window_fails_and_the_rest_does_not() {
    for seed in 0..20 {
        let mut world = World::new(3, seed);
        let known: Vec<_> = (0..3).map(|_| gone(3)).collect();
        for (rank, gone) in (0..).zip(&known) {
            world.executor(rank).open_window(WINDOW, gone.clone(), Instant::now());
        }
        let wait = |peer| WindowOperation::WaitSignal { window: WINDOW, peer };
        let fence =
            || WindowOperation::Fence(Fence { window: WINDOW, name: "fence", closes: false });
        let signal = |peer| WindowOperation::Signal { window: WINDOW, peer };
        let before = [start(&mut world, 1, signal(0)), start(&mut world, 0, wait(1))];
        let late = start(&mut world, 0, wait(1));
        world.run(&before);
        assert_ok(&before);
        world.executor(1).close_window(WINDOW, Instant::now());
        let fences = [start(&mut world, 0, fence()), start(&mut world, 2, fence())];
        world.run(&[fences.to_vec(), vec![late.clone()]].concat());
        for failed in fences.iter().chain([&late]) {
            let error = failed.error().expect("it fails").to_string();
            assert!(error.contains("rank 1 has closed this window"), "seed {seed}: {error}");
        }
        assert_eq!(known[0].of(1), Some(GoneReason::Closed));
        assert_eq!((known[0].of(2), known[2].of(0)), (None, None));
        // The others go on.
        let rest = [start(&mut world, 0, signal(2)), start(&mut world, 2, wait(0))];
        world.run(&rest);
        assert_ok(&rest);
        for rank in 0..3 {
            assert!(world.executor(rank).broken().is_none(), "seed {seed}, rank {rank}");
        }
    }
}

#[test]
fn a_window_is_closed_when_its_last_call_has_ended() {
    for seed in 0..20 {
        let mut world = World::new(2, seed);
        for rank in 0..2 {
            world.executor(rank).open_window(WINDOW, gone(2), Instant::now());
        }
        let fence = Fence { window: WINDOW, name: "tensor_deregister", closes: true };
        let mut all = Vec::new();
        for rank in 0..2 {
            all.push(start(&mut world, rank, WindowOperation::Fence(fence)));
            world.executor(rank).close_window(WINDOW, Instant::now());
        }
        world.run(&all);
        assert_ok(&all);
        world.settle();
        for rank in 0..2 {
            assert!(!world.executor(rank).is_watched(), "nothing is left of it");
        }
    }
}
