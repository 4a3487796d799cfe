//! Futures of works, as c10d has them, from Rust: their values, what is chained to them, and what
//! they say of operations that fail.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::mpsc::channel;
use std::time::Duration;

use polyrank::options::AllreduceOptions;
use polyrank::{Error, Future, ReduceOp, Tensor, Work, WorkResult};
use polyrank_tests::{ranks, ranks_with};

fn first(tensors: &[Tensor]) -> f32 {
    tensors[0].clone().into_vec::<f32>().unwrap()[0]
}

#[test]
fn a_future_has_the_outputs_and_what_is_chained_to_it() {
    for size in [1, 2, 3] {
        ranks(size, |group| {
            let work = group.allreduce_async(vec![1.0_f32; 3], ReduceOp::Sum).unwrap();
            let future = work.get_future();
            let (sender, told) = channel();
            future.add_done_callback(move |future: &Future<Vec<Tensor>>| {
                sender.send(future.value().unwrap().map(|it| first(&it))).unwrap();
            });
            let doubled = future.then(|sums| Ok(2.0 * first(&sums.wait()?)));
            let text = doubled.then(|value| Ok(format!("{}", value.wait()?)));
            let sum = size as f32;
            assert_eq!(first(&future.wait().unwrap()), sum);
            assert!(future.done());
            assert_eq!(doubled.wait().unwrap(), 2.0 * sum);
            assert_eq!(text.wait().unwrap(), format!("{}", 2.0 * sum));
            assert!(text.done() && text.value().unwrap().is_ok());
            assert_eq!(told.recv().unwrap().unwrap(), sum);
            // It is there: the callback runs in the call.
            assert_eq!(
                text.then(|text| text.wait()).value().unwrap().unwrap(),
                text.wait().unwrap()
            );
            let result = work.get_future_result();
            assert_eq!(result.wait().unwrap(), WorkResult::Success);
            assert!(format!("{future:?}").starts_with("Future(Work(allreduce #"));
        });
    }
}

#[test]
fn a_future_is_awaited() {
    ranks(2, |group| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sum = runtime.block_on(async {
            let work: Work = group.allreduce_async(vec![2.0_f32], ReduceOp::Sum).unwrap();
            let chained = work.get_future().then(|sums| Ok(first(&sums.wait()?)));
            assert_eq!(work.get_future_result().await.unwrap(), WorkResult::Success);
            chained.await.unwrap()
        });
        assert_eq!(sum, 4.0);
    });
}

#[test]
fn a_future_of_what_failed_has_the_failure_and_its_result_has_a_code() {
    let short = Duration::from_millis(200);
    let over = std::sync::Barrier::new(2);
    ranks(2, |group| {
        if group.rank() == 0 {
            let options = AllreduceOptions::default().timeout(short);
            let work = group.allreduce_async(vec![1.0_f32], options).unwrap();
            let chained = work.get_future().then(|sums| sums.wait().map(|it| it.len()));
            assert_eq!(work.get_future_result().wait().unwrap(), WorkResult::Timeout);
            assert!(matches!(work.get_future().wait(), Err(Error::CollectiveTimeout { .. })));
            assert!(matches!(
                work.get_future().value(),
                Some(Err(Error::CollectiveTimeout { .. }))
            ));
            assert!(matches!(chained.wait(), Err(Error::CollectiveTimeout { .. })));
        }
        over.wait();
        // The other rank has not asked for anything yet.
        group.abort();
    });
}

#[test]
fn a_value_is_not_there_before_its_operation_is_complete() {
    let ready = std::sync::Barrier::new(2);
    ranks_with(
        2,
        |_| polyrank::GroupOptions::default().timeout(polyrank_tests::LIMIT),
        |group| {
            if group.rank() == 0 {
                let work = group.recv_async(vec![0_u8], Some(1), 5).unwrap();
                let received = work.get_future();
                let chained = received.then(|_| Ok(7));
                assert!(!received.done() && received.value().is_none());
                assert!(!chained.done() && chained.value().is_none());
                ready.wait();
                assert_eq!(chained.wait().unwrap(), 7);
            } else {
                ready.wait();
                group.send(&[1_u8], 0, 5).unwrap();
            }
        },
    );
}

#[test]
fn a_callback_that_panics_fails_what_it_was_to_make() {
    ranks(1, |group| {
        let work = group.allreduce_async(vec![1.0_f32], ReduceOp::Sum).unwrap();
        let chained = work.get_future().then(|_| -> polyrank::Result<u32> { panic!("on purpose") });
        let error = chained.wait().unwrap_err();
        assert!(matches!(&error, Error::HookFailed { .. }), "{error:?}");
        work.get_future().add_done_callback(|_| ());
        assert_eq!(first(&work.get_future().wait().unwrap()), 1.0);
    });
}
