//! Backends from outside the crate: one that runs everything over a store gives the results of
//! every other, its errors and deadlines are those of every other, and `fake` needs no other rank.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::thread;
use std::time::Duration;

use polyrank::backend::{
    Backend, BackendContext, BackendOptions, BackendType, Call, Capabilities, IssueOptions,
    IssuedOperation, Leaving, SpecificOptions, Transfer, register_backend,
};
use polyrank::process_group::SplitOptions;
use polyrank::store::{HashStore, Store};
use polyrank::{
    Collective, Device, Error, GroupOptions, ProcessGroup, ReduceOp, Region, Request, Result,
};
use polyrank_tests::over_store::OverStore;
use polyrank_tests::{LIMIT, cases, ranks_with};

/// Options of groups over the backend `name`.
fn over(name: &str) -> GroupOptions {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        register_backend("store", &["cpu"], OverStore::make).unwrap();
        register_backend("stubborn", &[], |context: BackendContext| {
            Ok(Stubborn::new(&context) as Arc<dyn Backend>)
        })
        .unwrap();
        register_backend("panicking", &[], |_: BackendContext| {
            Ok(Arc::new(Stubborn { panics: true, ..Stubborn::default() }) as Arc<dyn Backend>)
        })
        .unwrap();
        register_backend("hurried", &[], |_: BackendContext| {
            Ok(Arc::new(Stubborn { hurries: true, ..Stubborn::default() }) as Arc<dyn Backend>)
        })
        .unwrap();
        register_backend("picky", &[], |context: BackendContext| {
            let who = "the picky one".to_owned();
            match context.rank {
                1 => Err(Error::InvalidArgument { message: format!("{who} dislikes rank 1") }),
                _ => OverStore::make(context),
            }
        })
        .unwrap();
    });
    GroupOptions::default().timeout(LIMIT).backend(name.parse().unwrap())
}

const SIZES: [u32; 4] = [1, 2, 3, 5];

#[test]
fn every_collective_over_a_store_gives_the_results_of_numpy() {
    for size in SIZES {
        ranks_with(
            size,
            |_| over("store"),
            |group| {
                for (name, case) in cases::pairwise(size) {
                    let outcome =
                        cases::run(&group, &case).unwrap_or_else(|error| panic!("{error}"));
                    assert!(outcome.is_ok(), "{name}, world {size}: {outcome:?}");
                }
            },
        );
    }
}

#[test]
fn each_device_may_have_a_backend_from_outside() {
    for size in SIZES {
        for backends in ["cpu:tcp,cuda:stubborn", "cpu:store,cuda:stubborn"] {
            ranks_with(
                size,
                |_| over(backends),
                |group| {
                    assert_eq!(group.backend_config(), backends);
                    let half = SplitOptions::default();
                    let members: Vec<u32> = (0..size).collect();
                    let again = group.split_group(&members, half).unwrap().unwrap();
                    for group in [&group, &again] {
                        let mut sum = [1_i32];
                        group.allreduce(&mut sum[..], ReduceOp::Sum).unwrap();
                        assert_eq!(sum, [size as i32]);
                    }
                },
            );
        }
    }
}

#[test]
fn messages_groups_hooks_and_awaiting_are_as_with_every_backend() {
    for size in [2, 3, 5] {
        ranks_with(
            size,
            |_| over("CPU:Store"),
            |group| {
                let (rank, next) = (group.rank(), (group.rank() + 1) % size);
                let previous = (rank + size - 1) % size;
                let ended = Arc::new(AtomicUsize::new(0));
                let seen = ended.clone();
                group
                    .register_completion_hook(0, move |it| {
                        assert_eq!(it.error, None);
                        seen.fetch_add(1, Ordering::SeqCst);
                    })
                    .unwrap();
                // Received first, sent afterwards: a receive must not hold up the call.
                let work = group.recv_async(vec![0_i64; 2], Some(previous), 7).unwrap();
                group.send(&[i64::from(rank), 5], next, 7).unwrap();
                work.wait(None).unwrap();
                assert_eq!(work.source_rank(), Some(previous));
                let mut got = [0_i64; 2];
                work.result()[0].region().read(|bytes| {
                    got[0] = i64::from_ne_bytes(bytes[..8].try_into().unwrap());
                });
                assert_eq!(got[0], i64::from(previous));
                // Hooks run on another thread, which who waits here does not wait for.
                while ended.load(Ordering::SeqCst) < 2 {
                    thread::yield_now();
                }
                let part = group.split_group(&[1, 0], SplitOptions::default()).unwrap();
                assert_eq!(part.is_some(), rank < 2);
                if let Some(part) = part {
                    let mut sum = [part.rank() + 1];
                    part.allreduce(&mut sum, ReduceOp::Sum).unwrap();
                    assert_eq!(sum, [if size > 1 { 3 } else { 1 }]);
                    part.shutdown().unwrap();
                }
                let served = group.get_backend(Device::Cpu).unwrap();
                assert_eq!((served.name(), served.rank(), served.size()), ("store", rank, size));
                assert_eq!(served.backend_type(), BackendType::Custom);
                let missing = group.get_backend(Device::Cuda(0)).unwrap_err().to_string();
                assert!(missing.contains("serves cuda:0"), "{missing}");
            },
        );
    }
}

#[test]
fn what_it_lacks_and_what_it_fails_with_says_where() {
    ranks_with(
        2,
        |_| over("stubborn"),
        |group| {
            let rank = group.rank();
            let mut data = [1.0_f32];
            let error = group.broadcast(&mut data, 0).unwrap_err();
            let (who, operation) = ("the backend 'stubborn'".to_owned(), "broadcast".to_owned());
            assert_eq!(error, Error::Unsupported { who, operation });
            let error = group.reduce(&mut data, 0).unwrap_err();
            let message =
                format!("reduce (operation 2 of group 'test') on rank {rank}: no reduction");
            assert_eq!(error, Error::Backend { backend: "stubborn".into(), message });
            // That was the operation's alone.
            group.allreduce(&mut data, ReduceOp::Sum).unwrap();
            assert!(!group.is_broken());
        },
    );
}

#[test]
fn one_that_does_not_end_passes_its_deadline_and_breaks_the_group() {
    ranks_with(
        2,
        |_| over("stubborn").timeout(Duration::from_millis(50)),
        |group| {
            let failed = Arc::new(AtomicUsize::new(0));
            let told = failed.clone();
            group
                .register_abort_hook(0, move || {
                    told.fetch_add(1, Ordering::SeqCst);
                })
                .unwrap();
            let error = group.barrier(()).unwrap_err();
            let Error::CollectiveTimeout { collective, waiting_rank, sequence, detail, .. } =
                &error
            else {
                panic!("{error}");
            };
            assert_eq!(
                (collective.as_str(), *waiting_rank, *sequence),
                ("barrier", group.rank(), 1)
            );
            assert_eq!(detail, "the backend 'stubborn' had not ended it");
            assert_eq!(failed.load(Ordering::SeqCst), 1);
            let mut data = [1_u8];
            assert_eq!(group.allreduce(&mut data, ()).unwrap_err(), error);
            // The backend may still write: not to the memory of the caller.
            assert_eq!(data, [1]);
        },
    );
}

#[test]
fn one_whose_abort_panics_ends_no_deadline_of_another() {
    // One after the other: what the first does must not end what looks at the clock.
    for _ in 0..2 {
        ranks_with(
            1,
            |_| over("panicking").timeout(Duration::from_millis(20)),
            |group| {
                let error = group.barrier(()).unwrap_err();
                assert!(matches!(error, Error::CollectiveTimeout { .. }), "{error}");
            },
        );
    }
}

#[test]
fn aborting_ends_what_is_in_flight_and_tells_the_backend() {
    ranks_with(
        1,
        |_| over("stubborn"),
        |group| {
            let work = group.barrier_async(()).unwrap();
            let waiter = work.clone();
            std::thread::scope(|scope| {
                let waited = scope.spawn(move || waiter.wait(None));
                group.abort();
                assert!(matches!(waited.join().unwrap(), Err(Error::Aborted { .. })));
            });
            assert!(matches!(group.barrier(()), Err(Error::Aborted { .. })));
            assert!(ABORTED.lock().unwrap().contains(&"it called abort()".to_owned()));
        },
    );
}

#[test]
fn a_factory_that_fails_on_one_rank_fails_the_group_on_all() {
    for backends in ["picky", "cpu:tcp,cuda:picky"] {
        let store: Arc<dyn Store> = Arc::new(HashStore::new());
        let made = |rank: u32| {
            let options = over(backends);
            ProcessGroup::new(store.clone(), rank, 3, "picky", options).unwrap_err().to_string()
        };
        std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..3).map(|rank| scope.spawn(move || made(rank))).collect();
            for rank in ranks {
                let said = rank.join().unwrap();
                assert!(said.contains("the picky one dislikes rank 1"), "{said}");
            }
        });
    }
}

#[test]
fn operations_that_go_together_have_their_memory_back_when_one_fails() {
    ranks_with(
        1,
        |_| over("stubborn"),
        |group| {
            // The first is in flight when the second is refused.
            let mut request = Request::new(Collective::Allgather);
            request.coalesced = true;
            let one = |value: u8| polyrank::Tensor::from(vec![value]);
            let (first, second) = (one(0), one(0));
            request.inputs = vec![vec![one(7)], vec![one(8)]];
            request.outputs = vec![vec![first.clone()], vec![second]];
            let error = group.run(request).unwrap_err();
            assert!(error.to_string().contains("one gathering at a time"), "{error}");
            // Either it had ended, or it never writes.
            let written = || first.region().read(|bytes| bytes[0]);
            let at_return = written();
            assert!([0, 7].contains(&at_return) && written() == at_return);
        },
    );
}

#[test]
fn nobody_writes_to_memory_that_its_owner_has_back() {
    ranks_with(
        4,
        |_| over("hurried"),
        |group| {
            if group.rank() > 0 {
                return;
            }
            // The first has begun to copy its results when the second is refused.
            let mut request = Request::new(Collective::Allgather);
            request.coalesced = true;
            let blocks = |len: usize| -> Vec<_> {
                (0..4).map(|_| polyrank::Tensor::from(vec![0_u8; len])).collect()
            };
            let large = blocks(16 << 20);
            let (begun, last) = (large[0].region().clone(), large[3].region().clone());
            *HURRIED.lock().unwrap() = Some(begun);
            request.inputs = vec![blocks(16 << 20)[..1].to_vec(), blocks(1)[..1].to_vec()];
            request.outputs = vec![large, blocks(1)];
            let error = group.run(request).unwrap_err();
            assert!(error.to_string().contains("one gathering at a time"), "{error}");
            let end = || last.read(|bytes| bytes[bytes.len() - 1]);
            let at_return = end();
            LATE_WRITER.lock().unwrap().take().unwrap().join().unwrap();
            assert_eq!(end(), at_return, "written when the call had returned");
        },
    );
}

#[test]
fn leaving_has_one_limit_for_what_is_in_flight_and_for_the_backend() {
    ranks_with(
        1,
        |_| over("stubborn"),
        |group| {
            let work = group.barrier_async(()).unwrap();
            group.shutdown_within(Duration::from_millis(50)).unwrap();
            assert!(matches!(work.wait(None), Err(Error::Aborted { .. })));
            // The operation took all of it.
            assert!(LIMITS.lock().unwrap().contains(&Duration::ZERO));
        },
    );
}

/// Options of the backend that notes them.
#[derive(Debug, PartialEq)]
struct Channels(u32);

impl SpecificOptions for Channels {
    const NAME: &'static str = "Channels";
    const BACKEND: &'static str = "noting";
}

#[test]
fn a_factory_is_given_the_options_of_its_group() {
    static GIVEN: Mutex<Vec<Option<u32>>> = Mutex::new(Vec::new());
    register_backend("noting", &["cpu"], |context: BackendContext| {
        let options = context.options.as_ref().and_then(BackendOptions::get::<Channels>);
        GIVEN.lock().unwrap().push(options.map(|it| it.0));
        OverStore::make(context)
    })
    .unwrap();
    let new = |name, options| ProcessGroup::new(Arc::new(HashStore::new()), 0, 1, name, options);
    let group = new("four", over("noting").backend_options(Channels(4))).unwrap();
    let split = |options| group.split_group(&[0], options).unwrap().unwrap();
    let inherited = split(SplitOptions::default());
    let own = split(SplitOptions::default().backend_options(Channels(5)));
    let other = split(SplitOptions::default().backend("tcp".parse().unwrap()));
    let none = new("none", over("noting")).unwrap();
    assert_eq!(*GIVEN.lock().unwrap(), [Some(4), Some(4), Some(5), None]);
    let error = new("wrong", over("tcp").backend_options(Channels(6))).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    assert!(
        error.to_string().contains("Channels are for groups in which noting serves"),
        "{error}"
    );
    for group in [inherited, own, other, none, group] {
        group.shutdown().unwrap();
    }
}

#[test]
fn a_fake_group_of_any_size_needs_no_other_rank() {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let options = GroupOptions::default().backend("fake".parse().unwrap());
    let group = ProcessGroup::new(store, 3, 1000, "alone", options).unwrap();
    let mut data = [2.0_f64, -1.0];
    group.allreduce(&mut data, ReduceOp::Max).unwrap();
    group.broadcast(&mut data, 0).unwrap();
    assert_eq!(data, [2.0, -1.0]);
    group.allreduce(&mut data, ReduceOp::PremulSum(3.0)).unwrap();
    assert_eq!(data, [6.0, -3.0]);
    let mut all = vec![0_i32; 1000];
    group.all_gather_single(&mut all, &[5], ()).unwrap();
    assert_eq!(all, [5; 1000]);
    let every: Vec<i32> = (0..1000).collect();
    let mut own = [0];
    group.reduce_scatter_single(&mut own, &every, ()).unwrap();
    assert_eq!(own, [3]);
    group.all_to_all_single(&mut all, &every, ()).unwrap();
    assert_eq!(all, every);
    group.barrier(()).unwrap();
    group.monitored_barrier(None, true).unwrap();
    assert_eq!(group.recv_anysource(&mut own, 0).unwrap(), 3);
    let part = group.split_group(&[900, 3, 0], SplitOptions::default()).unwrap().unwrap();
    assert_eq!((part.rank(), part.size(), part.ranks()), (1, 3, &[900, 3, 0][..]));
    part.shutdown().unwrap();
    group.shutdown().unwrap();
    assert!(matches!(group.get_backend(Device::Cpu), Err(Error::InvalidGroup { .. })));
}

/// What the stubborn backends were told when they were aborted.
static ABORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// How long the stubborn backends were given to leave.
static LIMITS: Mutex<Vec<Duration>> = Mutex::new(Vec::new());

/// Where the results of a hurried gathering begin, and the thread that copies them.
static HURRIED: Mutex<Option<Region>> = Mutex::new(None);
static LATE_WRITER: Mutex<Option<std::thread::JoinHandle<()>>> = Mutex::new(None);

/// Ends some operations, refuses others, and never ends a barrier.
#[derive(Default)]
struct Stubborn {
    gatherings: AtomicUsize,
    open: Mutex<Vec<IssuedOperation>>,
    /// Whether it panics when it is aborted.
    panics: bool,
    /// Whether it ends the first gathering before it refuses the second.
    hurries: bool,
}

impl Stubborn {
    fn new(_: &BackendContext) -> Arc<Stubborn> {
        Arc::new(Stubborn::default())
    }

    fn never(&self) -> IssuedOperation {
        let issued = IssuedOperation::open();
        self.open.lock().unwrap().push(issued.clone());
        issued
    }
}

impl Backend for Stubborn {
    fn name(&self) -> &str {
        "stubborn"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::complete()
    }

    fn collective(&self, call: Call, _: IssueOptions) -> Result<IssuedOperation> {
        match call.collective {
            Collective::Allreduce => Ok(IssuedOperation::ended(Ok(()))),
            Collective::Barrier => Ok(self.never()),
            Collective::Allgather if self.gatherings.fetch_add(1, Ordering::SeqCst) == 0 => {
                call.output.iter().for_each(|output| output.write(|bytes| bytes.fill(7)));
                Ok(self.never())
            }
            Collective::Allgather => {
                let open = std::mem::take(&mut *self.open.lock().unwrap());
                // Too late: the caller is about to learn that both have failed.
                let ended = std::thread::spawn(move || open[0].completion.complete(Ok(())));
                if self.hurries {
                    *LATE_WRITER.lock().unwrap() = Some(ended);
                    let begun = HURRIED.lock().unwrap().take().unwrap();
                    while begun.read(|bytes| bytes[0]) == 0 {
                        std::thread::yield_now();
                    }
                }
                Err(Error::InvalidArgument { message: "one gathering at a time".to_owned() })
            }
            Collective::Reduce => {
                Err(Error::InvalidArgument { message: "no reduction".to_owned() })
            }
            _ => Err(Error::Unsupported {
                who: "nobody".to_owned(),
                operation: call.collective.facts().name.to_owned(),
            }),
        }
    }

    fn send(&self, _: Transfer, _: IssueOptions) -> Result<IssuedOperation> {
        Ok(IssuedOperation::ended(Ok(())))
    }

    fn recv(&self, transfer: Transfer, _: IssueOptions) -> Result<IssuedOperation> {
        let _memory: Region = transfer.memory;
        Ok(self.never())
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn abort(&self, why: &str) {
        assert!(!self.panics, "this panic is part of a test");
        ABORTED.lock().unwrap().push(why.to_owned());
    }

    fn shutdown(&self, leaving: Leaving) -> Result<()> {
        LIMITS.lock().unwrap().push(leaving.limit);
        Ok(())
    }
}
