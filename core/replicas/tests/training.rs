//! Training over replicas that are threads, at a lighthouse: what is committed, and what is not.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{
    LIMIT, Rank, SHORT, bits, first, lighthouse, lighthouse_at, options, own_address, replicas,
    slopes, until,
};
use polyrank::ReduceOp;
use polyrank::options::AllreduceOptions;
use polyrank_quorum::{Lighthouse, LighthouseOptions, Token};
use polyrank_replicas::{
    Manager, ManagerError, ManagerOptions, ManagerState, StartQuorum, WorldSizeMode,
};

const STEPS: i64 = 4;

/// What all replicas have after each step, for the ranks of this number: in the first step only the
/// one whose state all have taken contributes, if the quorum comes while they compute.
fn expected(count: usize, group_rank: u32, is_async: bool) -> Vec<Vec<f64>> {
    let primary = group_rank as usize % count;
    let mut weights = first(primary, group_rank);
    let after = (0..STEPS).map(|step| {
        let contributes = |replica: &usize| step > 0 || !is_async || *replica == primary;
        for (at, weight) in weights.iter_mut().enumerate() {
            let all = (0..count).filter(contributes);
            let sum: f64 = all.map(|replica| slopes(replica, group_rank, step)[at]).sum();
            *weight += sum / count as f64;
        }
        weights.clone()
    });
    after.collect()
}

fn trains(count: usize, world_size: u32, is_async: bool) {
    let lighthouse = lighthouse(count);
    let adapt = |_, options: ManagerOptions| options.use_async_quorum(is_async);
    let all = replicas(&lighthouse, (count, world_size), adapt, |rank| {
        let after = (0..STEPS).map(|step| {
            rank.commit(&slopes(rank.replica, rank.group_rank, step));
            rank.weights()
        });
        let after: Vec<Vec<f64>> = after.collect();
        let own = ManagerState { step: STEPS, batches_committed: STEPS * count as i64 };
        assert_eq!(rank.manager.state(), own);
        after
    });
    for (group_rank, wanted) in (0..world_size).map(|it| (it, expected(count, it, is_async))) {
        for ranks in &all {
            let after = &ranks[group_rank as usize];
            let first = &all[0][group_rank as usize];
            for ((weights, first), wanted) in after.iter().zip(first).zip(&wanted) {
                assert_eq!(bits(weights), bits(first), "{count} replicas of {world_size}");
                for (weight, wanted) in weights.iter().zip(wanted) {
                    assert!((weight - wanted).abs() < 1e-9, "{weights:?}, not {wanted:?}");
                }
            }
        }
    }
}

#[test]
fn replicas_of_one_rank_have_the_same_model_after_each_step() {
    [1, 2, 3, 5].into_iter().for_each(|count| trains(count, 1, true));
}

#[test]
fn replicas_of_two_ranks_have_the_same_models_after_each_step() {
    [1, 2, 3, 5].into_iter().for_each(|count| trains(count, 2, true));
}

#[test]
fn who_waits_for_the_quorum_contributes_in_the_step_in_which_it_takes_a_state() {
    for (count, world_size) in [(1, 1), (3, 1), (2, 2)] {
        trains(count, world_size, false);
    }
}

#[test]
fn without_init_sync_all_begin_with_what_they_have() {
    let lighthouse = lighthouse(2);
    let adapt = |_, options: ManagerOptions| options.init_sync(false);
    let all = replicas(&lighthouse, (2, 1), adapt, |rank| {
        rank.commit(&slopes(rank.replica, 0, 0));
        rank.weights()
    });
    let mean = (slopes(0, 0, 0)[0] + slopes(1, 0, 0)[0]) / 2.0;
    for (replica, ranks) in all.iter().enumerate() {
        assert_eq!(ranks[0][0], first(replica, 0)[0] + mean);
    }
}

#[test]
fn who_comes_later_takes_the_state_of_those_that_are_there() {
    let lighthouse = lighthouse(1);
    let a = Rank::new(options(&lighthouse, "a"), 0, vec![1.0, 2.0, 3.0]);
    (0..3).for_each(|_| a.commit(&[1.0, 1.0, 1.0]));
    let b = Rank::new(options(&lighthouse, "b"), 1, Vec::new());
    let train = |rank: &Rank| {
        // Both see the same of it.
        until(|| {
            rank.commit(&[0.1, 0.2, 0.3]);
            rank.manager.current_step() >= 8 && rank.manager.replicas().len() == 2
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            train(&b);
            b.manager.shutdown().unwrap();
        });
        train(&a);
        a.manager.shutdown().unwrap();
    });
    assert_eq!(a.manager.state(), b.manager.state());
    assert_eq!(bits(&a.weights()), bits(&b.weights()));
    assert_eq!(a.weights().len(), 3);
}

#[test]
fn who_comes_later_and_waits_for_the_quorum_contributes_at_once() {
    let lighthouse = lighthouse(1);
    let of = |name| options(&lighthouse, name).use_async_quorum(false);
    let a = Rank::new(of("a"), 0, vec![1.0]);
    (0..3).for_each(|_| a.commit(&[1.0]));
    let b = Rank::new(of("b"), 1, Vec::new());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            b.commit(&[5.0]);
            (b.manager.participating_rank(), b.manager.num_participants())
        });
        let mut before = a.weights();
        until(|| {
            before = a.weights();
            a.commit(&[1.0]);
            a.manager.replicas().len() == 2
        });
        assert_eq!(first.join().unwrap(), (Some(1), 2));
        assert_eq!(a.weights(), [before[0] + (1.0 + 5.0) / 2.0]);
        assert_eq!(b.weights(), a.weights());
    });
}

#[test]
fn spares_take_the_place_of_who_leaves() {
    let lighthouse = lighthouse(2);
    let adapt = |_, options: ManagerOptions| {
        options.min_replica_size(2).world_size_mode(WorldSizeMode::FixedWithSpares)
    };
    let all = replicas(&lighthouse, (3, 1), adapt, |rank| {
        let manager = &rank.manager;
        until(|| {
            rank.commit(&[1.0, 1.0]);
            manager.replicas().len() == 3
        });
        // All have the state now.
        rank.commit(&[1.0, 1.0]);
        let before = (manager.participating_rank(), manager.num_participants());
        let weights = rank.weights();
        rank.commit(&[
            f64::from(1 << (2 * rank.replica)),
            if rank.replica == 2 { f64::NAN } else { 0.0 },
        ]);
        let change = (rank.weights()[0] - weights[0], rank.weights()[1].is_finite());
        if rank.replica > 0 {
            // The first has left, or is about to.
            until(|| {
                rank.commit(&[1.0, 1.0]);
                manager.replicas().len() == 2
            });
        }
        let after = (manager.participating_rank(), manager.num_participants());
        (before, change, after, rank.weights())
    });
    let before = [(Some(0), 2), (Some(1), 2), (None, 2)];
    let after = [(Some(0), 2), (Some(0), 2), (Some(1), 2)];
    for (replica, ranks) in all.iter().enumerate() {
        let (was, change, is, _) = &ranks[0];
        assert_eq!((*was, *is), (before[replica], after[replica]), "{replica}");
        assert_eq!(*change, ((1.0 + 4.0) / 2.0, true), "{replica}");
    }
    assert_eq!(bits(&all[1][0].3), bits(&all[2][0].3));
}

#[test]
fn in_the_first_step_with_spares_each_rank_has_one_that_contributes() {
    let lighthouse = lighthouse(2);
    let adapt =
        |_, options: ManagerOptions| options.world_size_mode(WorldSizeMode::FixedWithSpares);
    let all = replicas(&lighthouse, (2, 2), adapt, |rank| {
        rank.commit(&slopes(rank.replica, rank.group_rank, 0));
        (rank.manager.num_participants(), rank.weights())
    });
    for ranks in &all {
        for (group_rank, (participants, weights)) in ranks.iter().enumerate() {
            let primary = (group_rank, group_rank as u32);
            let slopes = slopes(primary.0, primary.1, 0);
            let sum = first(primary.0, primary.1)[0] + slopes[0];
            assert_eq!((*participants, weights[0]), (1, sum), "rank {group_rank}");
        }
    }
}

#[test]
fn too_few_replicas_commit_nothing_until_another_comes() {
    let lighthouse = lighthouse(1);
    let of = |name| options(&lighthouse, name).min_replica_size(2);
    let a = Rank::new(of("a"), 0, vec![1.0]);
    assert!(!a.step(&[1.0]));
    let error = a.manager.errored().unwrap();
    assert!(matches!(error, ManagerError::TooFewReplicas { participants: 1, .. }), "{error:?}");
    assert_eq!(a.manager.current_step(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let b = Rank::new(of("b"), 1, vec![5.0]);
            b.commit(&[1.0]);
            b.manager.shutdown().unwrap();
        });
        a.commit(&[1.0]);
    });
    assert_eq!(a.manager.state(), ManagerState { step: 1, batches_committed: 2 });
}

#[test]
fn more_failures_in_a_row_than_may_be_are_an_error() {
    let lighthouse = lighthouse(1);
    let options = options(&lighthouse, "a").min_replica_size(2);
    let a = Rank::new(options.max_retries(1), 0, vec![1.0]);
    assert!(!a.step(&[1.0]));
    a.manager.start_quorum(StartQuorum::default()).unwrap();
    let error = a.manager.should_commit(None).unwrap_err();
    assert!(matches!(error, ManagerError::TooManyFailures { failures: 2, .. }), "{error:?}");
    assert!(error.to_string().contains("1 of at least 2 replicas participate"), "{error}");
}

#[test]
fn with_shrink_only_nobody_new_is_let_in() {
    let lighthouse = lighthouse(2);
    let (a, b) = (options(&lighthouse, "a"), options(&lighthouse, "b"));
    let (a, b) = (Rank::new(a, 0, vec![1.0]), Rank::new(b, 1, vec![2.0]));
    let both = |options: StartQuorum| {
        let run = |rank: &Rank| {
            rank.manager.start_quorum(options).unwrap();
            assert!(rank.finish(&[1.0]), "{:?}", rank.manager.errored());
            rank.manager.replicas().len()
        };
        std::thread::scope(|scope| {
            let of_b = scope.spawn(|| run(&b));
            (run(&a), of_b.join().unwrap())
        })
    };
    assert_eq!(both(StartQuorum::default()), (2, 2));
    let c = Rank::new(options(&lighthouse, "c"), 2, Vec::new());
    c.manager.start_quorum(StartQuorum::default()).unwrap();
    for _ in 0..3 {
        assert_eq!(both(StartQuorum::default().shrink_only(true)), (2, 2));
    }
    std::thread::scope(|scope| {
        let late = scope.spawn(|| c.finish(&[1.0]));
        until(|| both(StartQuorum::default()) == (3, 3));
        assert!(late.join().unwrap());
    });
    assert_eq!(bits(&c.weights()), bits(&a.weights()));
}

#[test]
fn without_a_lighthouse_a_loop_may_ask_again() {
    let first = lighthouse_at(own_address(), 1);
    let address = first.address();
    let waits = Rank::new(options(&first, "waits").use_async_quorum(false), 0, vec![1.0]);
    waits.commit(&[1.0]);
    drop(first);
    for _ in 0..2 {
        let error = waits.manager.start_quorum(StartQuorum::default().timeout(SHORT)).unwrap_err();
        assert!(matches!(error, ManagerError::Quorum { .. }), "{error:?}");
        assert!(error.is_retryable() && error.to_string().contains("replica waits:"), "{error}");
    }
    let second = lighthouse_at(address, 1);
    waits.commit(&[1.0]);
    assert_eq!(waits.weights(), [3.0]);
    drop(second);

    let third = lighthouse_at(address, 1);
    let asks = Rank::new(options(&third, "asks"), 0, vec![1.0]);
    // The other is alive still, as the lighthouse sees it, or was.
    drop(waits);
    asks.commit(&[1.0]);
    drop(third);
    asks.manager.start_quorum(StartQuorum::default().timeout(SHORT)).unwrap();
    let mut untouched = [7.0, 8.0];
    asks.manager.allreduce(&mut untouched, ReduceOp::Avg).unwrap();
    assert_eq!(untouched, [7.0, 8.0]);
    assert_eq!(asks.manager.num_participants(), 0);
    let error = asks.manager.wait_quorum().unwrap_err();
    assert!(matches!(error, ManagerError::Quorum { .. }), "{error:?}");
    assert!(!asks.manager.should_commit(None).unwrap());
    let _fourth = lighthouse_at(address, 1);
    asks.commit(&[1.0]);
    assert_eq!((asks.weights(), asks.manager.current_step()), (vec![3.0], 2));
}

#[test]
fn nobody_waits_for_a_replica_that_reports_an_error() {
    let lighthouse = lighthouse(2);
    let all = replicas(
        &lighthouse,
        (2, 1),
        |_, options| options,
        |rank| {
            let manager = &rank.manager;
            rank.commit(&[1.0, 1.0]);
            manager.start_quorum(StartQuorum::default()).unwrap();
            manager.wait_quorum().unwrap();
            // The other has begun, and does not wait for it.
            let begun = (rank.replica == 1).then(|| {
                let options = AllreduceOptions::default();
                manager.allreduce_async(vec![1.0_f32; 1000], options).unwrap()
            });
            if rank.replica == 0 {
                manager.report_error("out of data");
            }
            let is_committed = manager.should_commit(None).unwrap();
            drop(begun);
            let why = manager.errored().unwrap().to_string();
            rank.commit(&[1.0, 1.0]);
            (is_committed, why, manager.current_step(), bits(&rank.weights()))
        },
    );
    let [a, b] = [&all[0][0], &all[1][0]];
    assert_eq!((a.0, a.1.as_str(), a.2), (false, "out of data", 2));
    assert_eq!((b.0, b.2, &b.3), (false, 2, &a.3));
    assert!(b.1.contains("revoked the group") && b.1.contains("replica-0"), "{}", b.1);
}

#[test]
fn a_wrong_token_is_no_error_that_may_pass() {
    let token = |text: &str| Token::new(text).unwrap();
    let lighthouse = Lighthouse::start(LighthouseOptions {
        address: ([127, 0, 0, 1], 0).into(),
        token: Some(token("a-long-secret")),
        ..LighthouseOptions::default()
    });
    let lighthouse = lighthouse.unwrap();
    let options = options(&lighthouse, "a").quorum_retries(1000).use_async_quorum(false);
    let manager = Manager::new(options.token(token("another-secret"))).unwrap();
    let error = manager.start_quorum(StartQuorum::default()).unwrap_err();
    assert!(matches!(error, ManagerError::Quorum { .. }), "{error:?}");
    assert!(!error.is_retryable(), "{error}");
}

#[test]
fn an_error_reported_before_the_group_is_made_is_told_to_those_that_come() {
    let lighthouse = lighthouse(2);
    let none = |_, options| options;
    let all = replicas(&lighthouse, (2, 1), none, |rank| {
        let manager = &rank.manager;
        manager.start_quorum(StartQuorum::default()).unwrap();
        if rank.replica == 0 {
            manager.report_error("out of data");
        }
        let is_committed = rank.finish(&vec![1.0; 100_000]);
        let why = manager.errored().unwrap().to_string();
        rank.commit(&[1.0, 1.0]);
        (is_committed, why)
    });
    assert_eq!(all[0][0], (false, "out of data".to_owned()));
    let (is_committed, why) = &all[1][0];
    assert!(!is_committed && why.contains("revoked the group"), "{why}");
}

#[test]
fn what_is_called_between_two_steps_breaks_no_group() {
    let lighthouse = lighthouse(2);
    let none = |_, options| options;
    let all = replicas(&lighthouse, (2, 1), none, |rank| {
        rank.commit(&[1.0, 1.0]);
        let mut values = [3.0_f64];
        let error = rank.manager.allreduce(&mut values, ReduceOp::Avg).unwrap_err();
        assert!(matches!(error, ManagerError::Order(_)), "{error:?}");
        let error = rank.manager.allreduce(&mut [1_i32], ReduceOp::Avg).unwrap_err();
        assert!(matches!(error, ManagerError::Order(_)), "{error:?}");
        rank.manager.report_error("too late");
        assert_eq!(values, [3.0]);
        !rank.manager.group().is_broken() && rank.step(&[1.0, 1.0])
    });
    assert_eq!(all, [[true], [true]]);
}

#[test]
fn a_manager_that_waits_is_shut_down_and_says_so() {
    let lighthouse = lighthouse(2);
    let manager = Manager::new(options(&lighthouse, "alone")).unwrap();
    let error = manager.should_commit(None).unwrap_err();
    assert!(matches!(error, ManagerError::Order(_)), "{error:?}");
    manager.start_quorum(StartQuorum::default()).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| manager.wait_quorum().unwrap_err());
        manager.shutdown().unwrap();
        let error = waits.join().unwrap();
        assert!(matches!(error, ManagerError::Closed { .. }), "{error:?}");
    });
    manager.shutdown().unwrap();
    let error = manager.start_quorum(StartQuorum::default()).unwrap_err();
    assert!(matches!(error, ManagerError::Closed { .. }), "{error:?}");
}

#[test]
fn limits_may_be_as_long_as_a_program_can_say() {
    let lighthouse = lighthouse(2);
    let adapt = |_, options: ManagerOptions| {
        let options = options.timeout(Duration::MAX).quorum_timeout(Duration::MAX);
        options.connect_timeout(Duration::MAX)
    };
    let all = replicas(&lighthouse, (2, 2), adapt, |rank| {
        rank.manager.start_quorum(StartQuorum::default().timeout(Duration::MAX)).unwrap();
        rank.manager.wait_quorum().unwrap();
        rank.manager.should_commit(Some(Duration::MAX)).unwrap() && rank.step(&[1.0, 1.0])
    });
    assert_eq!(all, [[true, true], [true, true]]);
}

#[test]
fn a_manager_works_where_tasks_are_run() {
    let lighthouse = lighthouse(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let rank = Rank::new(options(&lighthouse, "a"), 0, vec![1.0]);
        rank.manager.start_quorum(StartQuorum::default()).unwrap();
        let options = AllreduceOptions::default().reduce_op(ReduceOp::Avg);
        let work = rank.manager.allreduce_async(vec![4.0_f32, 5.0], options).unwrap();
        let mean = work.await.swap_remove(0).into_vec::<f32>().unwrap();
        assert_eq!(mean, [4.0, 5.0]);
        assert!(rank.manager.should_commit(Some(LIMIT)).unwrap());
    });
}

#[test]
fn options_that_cannot_be_are_refused_at_once() {
    let of = |options: ManagerOptions| Manager::new(options).unwrap_err().to_string();
    let some = || ManagerOptions::new(1).lighthouse("127.0.0.1:1").connect_timeout(SHORT);
    assert!(of(ManagerOptions::new(0)).contains("min_replica_size must be more than 0"));
    assert!(of(ManagerOptions::new(1)).contains("TORCHFT_LIGHTHOUSE"));
    let two = some().group_world_size(2);
    assert!(of(two.clone().group_rank(2)).contains("group_rank is 2"));
    assert!(of(two).contains("needs a store in which they meet"));
    assert!(of(some()).contains("nothing answers at 127.0.0.1:1"));
    assert!(of(some().data("{")).contains("data must be JSON"));
    let lighthouse = lighthouse(1);
    let a = options(&lighthouse, "a");
    let missing = a.clone().store_address("127.0.0.1:1").connect_timeout(SHORT);
    assert!(of(missing).contains("the store 127.0.0.1:1 of the replica group"));
    let manager = Manager::new(a).unwrap();
    manager.register_state("x", || Ok(Vec::new()), |_| Ok(())).unwrap();
    let twice = manager.register_state("x", || Ok(Vec::new()), |_| Ok(())).unwrap_err();
    assert!(twice.to_string().contains("registered already"), "{twice}");
}
