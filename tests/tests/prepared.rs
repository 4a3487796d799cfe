//! Every collective and both messages as prepared operations from Rust: each rank starts, runs, or
//! makes the ordinary call, whichever its turn says. What comes is worked out by hand.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use polyrank::process_group::PreparedOperation;
use polyrank::tensor::Element;
use polyrank::{DType, Error, ProcessGroup, ReduceOp, Tensor};
use polyrank_tests::ranks;

const WORLDS: [u32; 4] = [1, 2, 3, 5];
const COUNTS: [usize; 4] = [0, 1, 7, 4099];
const ROUNDS: usize = 4;

/// What rank `from` gives rank `to` in a round.
fn value(from: usize, to: usize, round: usize, at: usize) -> i64 {
    ((2 * from + 3 * to + round + at) % 7) as i64
}

fn elements(tensor: &Tensor) -> Vec<i64> {
    let bytes = tensor.region().read(<[u8]>::to_vec);
    bytes.chunks_exact(8).map(|it| i64::from_ne_bytes(it.try_into().unwrap())).collect()
}

fn fill(tensor: &Tensor, values: impl Fn(usize) -> i64) {
    tensor.region().write(|bytes| {
        for (at, element) in bytes.chunks_exact_mut(8).enumerate() {
            element.copy_from_slice(&values(at).to_ne_bytes());
        }
    });
}

fn zeros(count: usize) -> Tensor {
    Tensor::zeros(DType::I64, &[count]).unwrap()
}

/// Runs `test` on all ranks of a group of each size.
fn in_every_world(test: impl Fn(ProcessGroup) + Send + Sync + Copy) {
    WORLDS.into_iter().for_each(|size| drop(ranks(size, test)));
}

/// Prepared messages to the next rank, and from the one before, with their tensors.
struct Ring {
    next: u32,
    before: u32,
    given: Tensor,
    taken: Tensor,
    send: PreparedOperation,
    recv: PreparedOperation,
}

impl Ring {
    fn new(group: &ProcessGroup, count: usize, tag: u32) -> Ring {
        let (rank, size) = (group.rank(), group.size());
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        let (given, taken) = (zeros(count), zeros(count));
        let send = group.prepare_send(given.clone(), next, tag).unwrap();
        let recv = group.prepare_recv(taken.clone(), before, tag).unwrap();
        Ring { next, before, given, taken, send, recv }
    }

    /// What this rank gives in a round.
    fn give(&self, rank: u32, round: usize) {
        fill(&self.given, |at| (rank as usize + round + at) as i64);
    }

    /// Whether what came is what the rank before gave in a round.
    fn check(&self, round: usize) {
        let count = self.taken.elements();
        let expected = (0..count).map(|at| (self.before as usize + round + at) as i64);
        assert_eq!(elements(&self.taken), expected.collect::<Vec<_>>(), "{count} {round}");
    }
}

/// Starts, runs, or makes the ordinary call on the same tensors.
fn take(
    way: usize,
    prepared: &PreparedOperation,
    ordinary: impl FnOnce() -> polyrank::Result<polyrank::Work>,
) {
    match way % 3 {
        0 => {
            prepared.start().unwrap().wait(None).unwrap();
            prepared.wait(None).unwrap();
        }
        1 => prepared.run().unwrap(),
        _ => ordinary().unwrap().wait(None).unwrap(),
    }
}

/// Collectives of one tensor, of `count` elements.
fn in_place(group: &ProcessGroup, count: usize) {
    let (rank, size) = (group.rank() as usize, group.size() as usize);
    let root = size - 1;
    let tensor = zeros(count);
    let sum = |until: usize, round, at| (0..until).map(|it| value(it, 0, round, at)).sum::<i64>();
    let own = |round, at| value(rank, 0, round, at);
    type Expected<'a> = Box<dyn Fn(usize, usize) -> i64 + 'a>;
    type Ordinary<'a> = Box<dyn Fn() -> polyrank::Result<polyrank::Work> + 'a>;
    let given = || tensor.clone();
    let cases: Vec<(PreparedOperation, Ordinary<'_>, Expected<'_>)> = vec![
        (
            group.prepare_allreduce(given(), ()).unwrap(),
            Box::new(|| group.allreduce_async(given(), ())),
            Box::new(|round, at| sum(size, round, at)),
        ),
        (
            group.prepare_reduce(given(), root).unwrap(),
            Box::new(|| group.reduce_async(given(), root)),
            Box::new(|round, at| if rank == root { sum(size, round, at) } else { own(round, at) }),
        ),
        (
            group.prepare_broadcast(given(), root).unwrap(),
            Box::new(|| group.broadcast_async(given(), root)),
            Box::new(|round, at| value(root, 0, round, at)),
        ),
        (
            group.prepare_scan(given(), ReduceOp::Sum).unwrap(),
            Box::new(|| group.scan_async(given(), ReduceOp::Sum)),
            Box::new(|round, at| sum(rank + 1, round, at)),
        ),
        (
            group.prepare_exscan(given(), ()).unwrap(),
            Box::new(|| group.exscan_async(given(), ())),
            Box::new(|round, at| if rank == 0 { own(round, at) } else { sum(rank, round, at) }),
        ),
    ];
    for (prepared, ordinary, expected) in &cases {
        for round in 0..ROUNDS {
            fill(&tensor, |at| own(round, at));
            take(rank + round, prepared, ordinary);
            let expected: Vec<i64> = (0..count).map(|at| expected(round, at)).collect();
            assert_eq!(elements(prepared.tensor()), expected, "{prepared:?} {round}");
        }
    }
}

/// Collectives from one tensor to another, whose parts have `count` elements.
fn apart(group: &ProcessGroup, count: usize) {
    let (rank, size) = (group.rank() as usize, group.size() as usize);
    let (one, all, other) = (zeros(count), zeros(size * count), zeros(size * count));
    let gather = group.prepare_allgather(all.clone(), one.clone(), ()).unwrap();
    let scatter = group.prepare_reduce_scatter(one.clone(), all.clone(), ()).unwrap();
    let swap = group.prepare_alltoall(other.clone(), all.clone(), ()).unwrap();
    for round in 0..ROUNDS {
        fill(&one, |at| value(rank, 0, round, at));
        take(rank + round, &gather, || group.all_gather_single_async(all.clone(), one.clone(), ()));
        let parts = (0..size).flat_map(|it| (0..count).map(move |at| value(it, 0, round, at)));
        assert_eq!(elements(&all), parts.collect::<Vec<_>>(), "{count} {round}");
        let part = |at: usize| value(rank, at / count.max(1), round, at % count.max(1));
        fill(&all, part);
        take(rank + round, &scatter, || {
            group.reduce_scatter_single_async(one.clone(), all.clone(), ())
        });
        let sum = |at| (0..size).map(|from| value(from, rank, round, at)).sum::<i64>();
        assert_eq!(elements(&one), (0..count).map(sum).collect::<Vec<_>>(), "{count} {round}");
        take(rank + round, &swap, || group.all_to_all_single_async(other.clone(), all.clone(), ()));
        let got = (0..size).flat_map(|it| (0..count).map(move |at| value(it, rank, round, at)));
        assert_eq!(elements(&other), got.collect::<Vec<_>>(), "{count} {round}");
    }
    assert_eq!(gather.tensors().len(), 2);
}

/// Lists of tensors at a root, and barriers.
fn lists(group: &ProcessGroup, count: usize) {
    let (rank, size) = (group.rank() as usize, group.size() as usize);
    let root = size - 1;
    let own = zeros(count);
    let places: Vec<Tensor> =
        if rank == root { (0..size).map(|_| zeros(count)).collect() } else { Vec::new() };
    let gather = group.prepare_gather(places.clone(), own.clone(), root).unwrap();
    let scatter = group.prepare_scatter(own.clone(), places.clone(), root).unwrap();
    let barrier = group.prepare_barrier(()).unwrap();
    for round in 0..ROUNDS {
        fill(&own, |at| value(rank, 0, round, at));
        take(rank + round, &gather, || group.gather_async(places.clone(), own.clone(), root));
        for (from, place) in places.iter().enumerate() {
            let expected: Vec<i64> = (0..count).map(|at| value(from, 0, round, at)).collect();
            assert_eq!(elements(place), expected);
            fill(place, |at| value(root, from, round, at));
        }
        take(rank + round, &scatter, || group.scatter_async(own.clone(), places.clone(), root));
        let expected: Vec<i64> = (0..count).map(|at| value(root, rank, round, at)).collect();
        assert_eq!(elements(&own), expected);
        take(rank + round, &barrier, || group.barrier_async(()));
    }
    assert_eq!(
        format!("{barrier:?}"),
        format!("PreparedOperation(barrier in {})", group.group_name())
    );
}

#[test]
fn every_collective_can_be_prepared() {
    in_every_world(|group| {
        for count in COUNTS {
            in_place(&group, count);
            apart(&group, count);
            lists(&group, count);
        }
    });
}

#[test]
fn messages_can_be_prepared() {
    in_every_world(|group| {
        let rank = group.rank();
        for count in COUNTS {
            let ring = Ring::new(&group, count, 5);
            let Ring { next, before, given, taken, send, recv } = &ring;
            for round in 0..6 {
                ring.give(rank, round);
                let sent = match (rank as usize + round) % 2 {
                    0 => send.start().unwrap(),
                    _ => group.send_async(given.clone(), *next, 5).unwrap(),
                };
                take(rank as usize + round, recv, || {
                    group.recv_async(taken.clone(), Some(*before), 5)
                });
                sent.wait(None).unwrap();
                ring.check(round);
            }
        }
    });
}

#[test]
fn a_message_is_started_behind_another() {
    in_every_world(|group| {
        for count in COUNTS {
            let ring = Ring::new(&group, count, 6);
            // Nothing is sent before all ranks have started both.
            let begun = [ring.recv.start().unwrap(), ring.recv.start().unwrap()];
            group.barrier_async(()).unwrap().wait(None).unwrap();
            for round in 0..2 {
                ring.give(group.rank(), round);
                ring.send.run().unwrap();
            }
            for work in &begun {
                work.wait(None).unwrap();
            }
            ring.check(1);
        }
    });
}

#[test]
fn a_start_of_a_collective_that_is_running_is_refused() {
    ranks(2, |group| {
        for count in [1, 4099] {
            let tensor = zeros(count);
            let prepared = group.prepare_allreduce(tensor.clone(), ()).unwrap();
            fill(&tensor, |_| 1);
            let go = Tensor::zeros(DType::U8, &[1]).unwrap();
            if group.rank() == 0 {
                // The other rank has not started it yet.
                let first = prepared.start().unwrap();
                for error in [prepared.start().map(drop), prepared.run()] {
                    let error = error.unwrap_err();
                    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
                    assert!(error.to_string().contains("is still running"), "{error:?}");
                }
                group.send_async(go, 1, 0).unwrap().wait(None).unwrap();
                first.wait(None).unwrap();
            } else {
                group.recv_async(go, Some(0), 0).unwrap().wait(None).unwrap();
                prepared.run().unwrap();
            }
            // What was refused was nothing to the other ranks.
            prepared.run().unwrap();
            assert_eq!(elements(&tensor), vec![4; count]);
        }
    });
}

/// Sums of `size` ranks' ones, of an element type.
fn sums<T: Element + Copy + PartialEq + Debug>(group: &ProcessGroup, one: T, all: T) {
    let prepared = group.prepare_allreduce(vec![one; 3], ()).unwrap();
    prepared.run().unwrap();
    let expected = vec![all; 3];
    let mut copy = vec![one; 3];
    group.allreduce(&mut copy[..], ()).unwrap();
    assert_eq!(copy, expected);
    let work = group.allreduce_async(vec![one; 3], ()).unwrap();
    work.wait(None).unwrap();
    let region = work.result()[0].region().read(<[u8]>::to_vec);
    assert_eq!(prepared.tensor().region().read(<[u8]>::to_vec), region);
}

#[test]
fn elements_of_several_types() {
    in_every_world(|group| {
        let size = group.size();
        sums(&group, 1u8, size as u8);
        sums(&group, 1i16, size as i16);
        sums(&group, 1f32, size as f32);
        sums(&group, 1f64, f64::from(size));
    });
}

#[test]
fn wrong_arguments_are_found_when_it_is_prepared() {
    ranks(2, |group| {
        let (one, two) = (|| vec![0f32; 1], || vec![0f32; 2]);
        let mistakes = [
            group.prepare_broadcast(one(), 2u32),
            group.prepare_reduce(one(), (5u32, ReduceOp::Max)),
            group.prepare_allgather(vec![0f32; 3], one(), ()),
            group.prepare_reduce_scatter(two(), two(), ()),
            group.prepare_alltoall(two(), two(), (&[2usize, 1], &[1usize, 1])),
            group.prepare_gather(vec![one()], one(), group.rank()),
            group.prepare_scatter(one(), vec![two(), two()], group.rank()),
            group.prepare_send(one(), 2, 0),
            group.prepare_recv(one(), 3, 0),
            group.prepare_send(Vec::<Vec<f32>>::new(), 1, 0),
        ];
        for (number, mistake) in mistakes.into_iter().enumerate() {
            let error = mistake.map(drop).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{number}: {error:?}");
        }
        let error = group.prepare_scan(one(), ReduceOp::Band).map(drop).unwrap_err();
        assert!(matches!(error, Error::UnsupportedDType { .. }), "{error:?}");
        // None of these was an operation.
        let work = group.allreduce_async(one(), ()).unwrap();
        work.wait(None).unwrap();
        assert_eq!(work.sequence(), 1);
    });
}

#[test]
fn hooks_see_the_ordinary_operation() {
    ranks(2, |group| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let gather = group.prepare_allgather(vec![0i32; 2], vec![1i32], ()).unwrap();
        let tell = group.prepare_broadcast(vec![0i32; 1], 1u32).unwrap();
        let notes = seen.clone();
        group
            .register_pre_hook(3, move |told| {
                let sizes = (told.input_tensors.len(), told.output_tensors.len());
                notes.lock().unwrap().push((told.name, told.root, sizes));
                Ok(())
            })
            .unwrap();
        gather.run().unwrap();
        tell.start().unwrap().wait(None).unwrap();
        group.unregister_pre_hook(3);
        gather.run().unwrap();
        let at_root = if group.rank() == 1 { (1, 0) } else { (0, 1) };
        let expected = [("ALLGATHER", -1, (1, 1)), ("BROADCAST", 1, at_root)];
        assert_eq!(*seen.lock().unwrap(), expected);
    });
}

#[test]
fn a_prepared_operation_ends_with_its_group() {
    ranks(2, |group| {
        let prepared = [
            group.prepare_broadcast(vec![1u8; 4], 0u32).unwrap(),
            group.prepare_gather(Vec::<Tensor>::new(), vec![1u8], 1 - group.rank()).unwrap(),
            group.prepare_barrier(()).unwrap(),
            group.prepare_send(vec![1u8], 0, 0).unwrap(),
        ];
        prepared[2].run().unwrap();
        group.shutdown().unwrap();
        for operation in &prepared {
            operation.run().unwrap_err();
            operation.start().and_then(|work| work.wait(None)).unwrap_err();
        }
        let error = group.prepare_barrier(()).map(drop).unwrap_err();
        assert!(matches!(error, Error::InvalidGroup { .. }), "{error:?}");
        let error = group.prepare_recv(vec![1u8], 0, 0).map(drop).unwrap_err();
        assert!(matches!(error, Error::InvalidGroup { .. }), "{error:?}");
    });
}
