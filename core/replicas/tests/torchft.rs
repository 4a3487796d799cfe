//! Our managers at torchft's lighthouse, and in one quorum with torchft's managers. `cargo xtask
//! setup` installs it.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../../tests/torchft/peer.rs"]
mod peer;

use common::{Rank, SHORT, bits, lighthouse, options, slopes};
use peer::Peer;
use polyrank_replicas::{Manager, ManagerError, ManagerOptions, ManagerState, StartQuorum};
use serde_json::json;

#[test]
fn replicas_train_at_the_lighthouse_of_torchft() {
    let test = "replicas_train_at_the_lighthouse_of_torchft";
    let Some(mut theirs) = Peer::start(test, &["serve", "2"]) else { return };
    let address = format!("http://127.0.0.1:{}", theirs.said()["port"]);
    let train = |replica: usize| {
        let options = ManagerOptions::new(2).lighthouse(&address);
        let options = options.replica_id(format!("replica-{replica}"));
        let rank = Rank::new(options, replica, vec![replica as f64; 2]);
        for step in 0..5 {
            rank.commit(&slopes(replica, 0, step));
        }
        let outcome = (rank.manager.state(), bits(&rank.weights()));
        rank.manager.shutdown().unwrap();
        outcome
    };
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| train(1));
        (train(0), second.join().unwrap())
    });
    assert_eq!(first.0, ManagerState { step: 5, batches_committed: 10 });
    assert_eq!(first, second);
}

#[test]
fn a_manager_of_torchft_is_told_to_take_the_state_of_ours() {
    let test = "a_manager_of_torchft_is_told_to_take_the_state_of_ours";
    let lighthouse = lighthouse(2);
    let address = format!("http://{}", lighthouse.address());
    let Some(mut theirs) = Peer::start(test, &["managers", &address, "5"]) else { return };
    // Its process group is PyTorch's: nobody comes to ours.
    let ours = Manager::new(options(&lighthouse, "ours").timeout(SHORT)).unwrap();
    ours.load_state(ManagerState { step: 7, batches_committed: 14 });
    ours.start_quorum(StartQuorum::default()).unwrap();
    ours.wait_quorum().unwrap();
    let told = &theirs.said()[0];
    assert_eq!((&told["heal"], &told["max_step"]), (&json!(true), &json!(7)));
    assert_eq!(told["recover_src_replica_rank"], 0);
    assert_eq!(told["replica_ids"], json!([ours.replica_id(), "replica-0"]));
    assert_eq!((ours.replicas().len(), ours.participating_rank()), (2, Some(0)));
    assert_eq!(ours.num_participants(), 1);
    let error = ours.errored().unwrap();
    assert!(matches!(error, ManagerError::Group { .. }), "{error:?}");
    assert!(error.to_string().contains("its rank is that of replica replica-0"), "{error}");
    assert!(!ours.should_commit(None).unwrap());
}
