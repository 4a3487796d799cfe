//! A step that one replica has committed, and the others have not, and have done again without it:
//! it has as many steps as they have, and another state.
#![allow(clippy::unwrap_used)]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::{LIMIT, Rank, bits, options, until};
use polyrank_quorum::{Lighthouse, LighthouseOptions};
use polyrank_replicas::StartQuorum;

/// Without waiting long for who does not ask.
fn lighthouse() -> Lighthouse {
    let mut options = LighthouseOptions {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        quorum_tick: Duration::from_millis(5),
        ..LighthouseOptions::default()
    };
    options.quorum.join_timeout = Duration::from_millis(300);
    options.quorum.heartbeat_timeout = LIMIT;
    Lighthouse::start(options).unwrap()
}

/// They ask for quorums until there is one of just these. Each for itself: who is left out of one
/// waits until the others ask again.
fn meet(ranks: &[&Rank]) {
    let meets = |rank: &Rank| {
        until(|| {
            rank.manager.start_quorum(StartQuorum::default()).unwrap();
            rank.manager.wait_quorum().unwrap();
            let are_all = rank.manager.replicas().len() == ranks.len();
            if !are_all {
                lose(&[rank]);
            }
            are_all
        });
    };
    std::thread::scope(|scope| ranks.iter().for_each(|rank| drop(scope.spawn(|| meets(rank)))));
}

/// They lose the step.
fn lose(ranks: &[&Rank]) {
    for rank in ranks {
        rank.manager.report_error("lost");
        assert!(!rank.manager.should_commit(None).unwrap());
    }
}

/// They do the step, which is committed.
fn commit(ranks: &[&Rank], slope: f64) {
    std::thread::scope(|scope| {
        let steps: Vec<_> =
            ranks.iter().map(|it| scope.spawn(move || it.finish(&[slope]))).collect();
        assert!(steps.into_iter().all(|step| step.join().unwrap()));
    });
}

#[test]
fn who_committed_a_step_that_the_others_did_again_takes_their_state() {
    let lighthouse = lighthouse();
    let rank = |name| Rank::new(options(&lighthouse, name).init_sync(false), 0, vec![0.0]);
    let (a, b, c) = (rank("a"), rank("b"), rank("c"));
    meet(&[&a, &b, &c]);
    lose(&[&a, &b]);
    // Nothing has failed in it.
    assert!(c.manager.should_commit(None).unwrap());
    c.model.lock().unwrap()[0] = 100.0;
    meet(&[&a, &b]);
    commit(&[&a, &b], 3.0);
    assert_eq!([&a, &b, &c].map(|it| it.manager.current_step()), [1, 1, 1]);
    meet(&[&a, &b, &c]);
    assert_eq!([&a, &b, &c].map(|it| it.manager.is_participating()), [true, true, false]);
    commit(&[&a, &b, &c], 0.5);
    for rank in [&a, &b, &c] {
        assert_eq!(rank.manager.current_step(), 2);
        assert_eq!(bits(&rank.weights()), bits(&[3.5]), "{}", rank.manager.replica_id());
    }
    // And all are alike from then on.
    meet(&[&a, &b, &c]);
    assert!([&a, &b, &c].iter().all(|it| it.manager.is_participating()));
    commit(&[&a, &b, &c], 1.0);
    assert_eq!(bits(&c.weights()), bits(&a.weights()));
}
