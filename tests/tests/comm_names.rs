//! Names that users give to operations: where they are seen, and to which operations they belong.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use polyrank::{Error, ProcessGroup, record_comm, record_comm_async};
use polyrank_tests::ranks;

/// The name of each operation, and what the user calls it.
type Names = Arc<Mutex<Vec<(&'static str, Option<String>)>>>;

/// The names that hooks are told: before an operation, after its issue, at the end.
fn told(group: &ProcessGroup) -> Names {
    let log = Names::default();
    let note = {
        let log = log.clone();
        move |name, called: &Option<Arc<str>>| {
            log.lock().unwrap().push((name, called.as_deref().map(str::to_owned)));
        }
    };
    let (before, after, end) = (note.clone(), note.clone(), note);
    group
        .register_pre_hook(0, move |it| {
            before(it.name, &it.comm_name);
            Ok(())
        })
        .unwrap();
    group.register_post_hook(0, move |it| after(it.name, &it.comm_name)).unwrap();
    group.register_completion_hook(0, move |it| end(it.name, &it.comm_name)).unwrap();
    log
}

#[test]
fn hooks_are_given_the_name_of_the_innermost_block() {
    for size in [1, 2, 3, 5, 8] {
        ranks(size, |group| {
            let log = told(&group);
            let mut one = [1.0f32];
            group.barrier(()).unwrap();
            record_comm("outer", || {
                group.allreduce(&mut one, ()).unwrap();
                record_comm("inner", || group.broadcast(&mut one, 0).unwrap());
                group.allreduce_async(one.to_vec(), ()).unwrap().wait(None).unwrap();
                // A thread of its own is in no block.
                std::thread::scope(|scope| {
                    scope.spawn(|| group.barrier(()).unwrap());
                });
            });
            group.barrier(()).unwrap();
            // The end is told on the thread that notices it, which need not be this one.
            while log.lock().unwrap().len() < 18 {
                std::thread::yield_now();
            }
            let log: Vec<_> = log.lock().unwrap().chunks(3).map(<[_]>::to_vec).collect();
            let (outer, inner) = (Some("outer".to_owned()), Some("inner".to_owned()));
            let expected = [
                ("BARRIER", None),
                ("ALLREDUCE", outer.clone()),
                ("BROADCAST", inner),
                ("ALLREDUCE", outer),
                ("BARRIER", None),
                ("BARRIER", None),
            ];
            assert_eq!(log, expected.map(|it| vec![it; 3]));
        });
    }
}

#[test]
fn errors_say_the_name_beside_the_collective() {
    let late = Barrier::new(2);
    ranks(2, |group| {
        if group.rank() == 1 {
            late.wait();
            group.allreduce(&mut [1.0f64], ()).unwrap();
            return;
        }
        let work = record_comm("layer 1", || group.allreduce_async(vec![1.0f64], ())).unwrap();
        let error = work.wait(Some(Duration::from_millis(1))).unwrap_err();
        assert!(matches!(error, Error::WaitTimeout { .. }));
        assert_eq!(error.collective(), Some("allreduce 'layer 1'"));
        assert!(error.to_string().contains("; allreduce 'layer 1' (operation "), "{error}");
        assert!(work.to_string().starts_with("Work(allreduce 'layer 1' #"), "{work}");
        late.wait();
        work.wait(None).unwrap();
    });
    let issued = Barrier::new(2);
    let store = Arc::new(polyrank::store::HashStore::new());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (store, issued) = (store.clone(), &issued);
            scope.spawn(move || {
                let options = polyrank::GroupOptions::default().timeout(polyrank_tests::LIMIT);
                let group = ProcessGroup::new(store, rank, 2, "aborted", options).unwrap();
                if rank == 1 {
                    issued.wait();
                    group.abort();
                    return;
                }
                let seen = Arc::new(Mutex::new(None));
                let kept = seen.clone();
                let issue = || group.allreduce_async(vec![1u8], ());
                let work = record_comm("layer 2", issue).unwrap();
                work.on_done(move |result| *kept.lock().unwrap() = result.clone().err());
                issued.wait();
                let error = work.wait(None).unwrap_err();
                assert_eq!(error.collective(), Some("allreduce 'layer 2'"));
                assert_eq!(work.error(), Some(error.clone()));
                assert_eq!(*seen.lock().unwrap(), Some(error));
                // What is called of a broken group has the name of its own block.
                let later = record_comm("layer 3", || group.allreduce(&mut [1u8], ()));
                assert_eq!(later.unwrap_err().collective(), Some("allreduce 'layer 3'"));
            });
        }
    });
}

/// A group of each of two ranks in threads, and the error that each gets in the block of this name.
fn errors_in_a_block(fail: impl Fn(&ProcessGroup) -> polyrank::Result<()> + Sync) -> Vec<Error> {
    let errors = Mutex::new(Vec::new());
    let store = Arc::new(polyrank::store::HashStore::new());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (store, fail, errors) = (store.clone(), &fail, &errors);
            scope.spawn(move || {
                let options = polyrank::GroupOptions::default().timeout(polyrank_tests::LIMIT);
                let group = ProcessGroup::new(store, rank, 2, "failing", options).unwrap();
                let error = record_comm("layer 4", || fail(&group)).unwrap_err();
                errors.lock().unwrap().push(error.clone());
                if let Error::CollectiveMismatch { .. } = error {
                    // A later call fails for the earlier one.
                    let later = record_comm("layer 5", || group.barrier(())).unwrap_err();
                    assert!(!later.to_string().contains("layer 5"), "{later}");
                }
            });
        }
    });
    errors.into_inner().unwrap()
}

#[test]
fn every_kind_of_message_says_the_name() {
    let check = |errors: &[Error], called: &str| {
        assert_eq!(errors.len(), 2);
        for error in errors {
            let text = error.to_string();
            assert!(text.contains(&format!("{called} 'layer 4'")), "{error:?}: {text}");
            assert!(error.collective().is_some_and(|it| it.ends_with(" 'layer 4'")), "{error:?}");
        }
    };
    let mismatch = |group: &ProcessGroup| match group.rank() {
        0 => group.allreduce(&mut [1.0f32], ()),
        _ => group.allreduce(&mut [1.0f32; 2], ()),
    };
    check(&errors_in_a_block(mismatch), "disagree on allreduce");
    let aborted = |group: &ProcessGroup| {
        group.barrier(())?;
        group.abort();
        group.allreduce(&mut [1.0f32], ())
    };
    check(&errors_in_a_block(aborted), "; allreduce");
    let to_itself = |elements: usize, group: &ProcessGroup| {
        let work = group.recv_async(vec![0.0f32; 2], Some(group.rank()), 3)?;
        let sent = group.send_async(vec![1.0f32; elements], group.rank(), 3)?;
        work.wait(None).and_then(|()| sent.wait(None))
    };
    check(&errors_in_a_block(|group| to_itself(3, group)), "; recv");
    let of_a_window = |group: &ProcessGroup| {
        let window = group.new_window()?;
        group.barrier(())?;
        group.abort();
        window.signal(1 - group.rank())
    };
    check(&errors_in_a_block(of_a_window), "; signal");
    let late = |group: &ProcessGroup| {
        let limit = Some(Duration::from_millis(1));
        if group.rank() == 1 {
            group.get_group_store().wait(&["given up"], None)?;
        }
        let result = group.monitored_barrier(limit, false);
        group.get_group_store().set("given up", b"")?;
        result
    };
    check(&errors_in_a_block(late), "(monitored_barrier");
}

#[test]
fn a_future_has_its_name_whatever_thread_polls_it() {
    ranks(3, |group| {
        let log = told(&group);
        let mut own = record_comm("outer", || {
            Box::pin(record_comm_async("future", async {
                group.barrier_async(()).unwrap().await.unwrap();
                // Somewhere else by now, as a runtime with several threads has it.
                group.barrier_async(()).unwrap().await.unwrap();
            }))
        });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                while own.as_mut().poll(&mut context).is_pending() {
                    std::thread::yield_now();
                }
            });
        });
        let names: Vec<_> = log.lock().unwrap().iter().map(|(_, name)| name.clone()).collect();
        assert_eq!(names, vec![Some("future".to_owned()); 6]);
    });
}
