//! torchft 0.2.0 at our lighthouse, and our client at torchft's. `cargo xtask setup` installs it.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/torchft/peer.rs"]
mod peer;
mod served;

use std::future::Future;
use std::time::Duration;

use polyrank_quorum::proto::{Quorum, QuorumMember};
use polyrank_quorum::{
    ClientOptions, LighthouseClient, ManagerOptions, ManagerServer, QuorumError,
};
use serde_json::{Value, json};

use peer::Peer;
use served::ServedLighthouse;

const LIMIT: Duration = Duration::from_secs(60);

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

fn member(id: &str) -> QuorumMember {
    QuorumMember {
        replica_id: id.to_owned(),
        address: format!("http://{id}.example:1"),
        store_address: format!("{id}.example:2"),
        step: 11,
        world_size: 12,
        shrink_only: true,
        // As Python writes it.
        data: format!("{{\"name\": \"{id}\"}}"),
        commit_failures: 3,
        committed_in: 0,
    }
}

/// Our client asks once.
fn ask(address: &str, member: QuorumMember, limit: Duration) -> Result<Quorum, QuorumError> {
    wait(async {
        let client = LighthouseClient::connect(address, ClientOptions::default()).await?;
        client.heartbeat(&member.replica_id, LIMIT).await?;
        client.quorum(member, limit).await
    })
}

#[test]
fn a_client_of_torchft_and_one_of_ours_are_in_one_quorum_of_ours() {
    let test = "a_client_of_torchft_and_one_of_ours_are_in_one_quorum_of_ours";
    let served = ServedLighthouse::start(&["--min-replicas=2", "--heartbeat-timeout=60"], &[]);
    let Some(mut theirs) = Peer::start(test, &["quorum", served.url(), "theirs", "60"]) else {
        return;
    };
    let quorum = ask(served.url(), member("ours"), LIMIT).unwrap();
    let said = theirs.said();
    assert_eq!(said["quorum_id"], quorum.quorum_id);
    let named = |name: &str| -> Value {
        json!({
            "replica_id": name, "address": format!("http://{name}.example:1"),
            "store_address": format!("{name}.example:2"), "step": 11, "world_size": 12,
            "shrink_only": true, "data": { "name": name },
        })
    };
    for (number, name) in ["ours", "theirs"].into_iter().enumerate() {
        let told = said["participants"][number].as_object().unwrap();
        for (field, value) in named(name).as_object().unwrap() {
            assert_eq!(&told[field], value, "{name}: {field}");
        }
    }
    let expected = QuorumMember { commit_failures: 0, ..member("theirs") };
    assert_eq!(quorum.participants, [member("ours"), expected]);
}

#[test]
fn managers_of_torchft_learn_who_heals_whom_from_our_quorum_and_end_when_told() {
    let test = "managers_of_torchft_learn_who_heals_whom_from_our_quorum_and_end_when_told";
    let served = ServedLighthouse::start(&["--min-replicas=3", "--heartbeat-timeout=60"], &[]);
    let words = ["managers", served.url(), "5", "3", "5"];
    let Some(mut peer) = Peer::start(test, &words) else { return };
    let (results, status) = (peer.said(), served.status());
    for (number, heals) in [false, true, false].into_iter().enumerate() {
        let result = &results[number];
        assert_eq!(result["heal"], heals, "{result}");
        assert_eq!(result["replica_rank"], number);
        assert_eq!(result["replica_world_size"], 3);
        assert_eq!((&result["quorum_id"], &result["max_step"]), (&status["quorum_id"], &json!(5)));
        assert_eq!(result["max_world_size"], 2);
        assert_eq!(result["replica_ids"], json!(["replica-0", "replica-1", "replica-2"]));
    }
    assert_eq!(results[1]["recover_src_replica_rank"], 0);
    assert_eq!(results[0]["recover_dst_replica_ranks"], json!([1]));
    assert!(status["quorum_id"].as_u64().unwrap() > 1_700_000_000);
    assert_eq!(status["participants"][2]["store_address"], "store-2");
    assert!(served.ask("POST /replica/replica-1/kill", "").0.ends_with("200 OK"));
    // All three are in one process.
    assert_eq!(peer.child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_rank_of_torchft_at_our_manager_heals_from_a_manager_of_torchft() {
    let test = "a_rank_of_torchft_at_our_manager_heals_from_a_manager_of_torchft";
    let served = ServedLighthouse::start(&["--min-replicas=2", "--heartbeat-timeout=60"], &[]);
    let Some(mut theirs) = Peer::start(test, &["managers", served.url(), "5"]) else { return };
    let ours = ManagerServer::start(ManagerOptions::new("ours", served.url())).unwrap();
    let mut rank = Peer::start(test, &["rank", ours.address(), "3"]).unwrap();
    let (told, theirs) = (rank.said(), theirs.said());
    assert_eq!((&told["heal"], &told["recover_src_replica_rank"]), (&json!(true), &json!(1)));
    assert_eq!(told["store_address"], "store-0");
    assert_eq!((&told["max_step"], &told["max_replica_rank"]), (&json!(5), &Value::Null));
    assert_eq!(told["replica_ids"], json!(["ours", "replica-0"]));
    assert_eq!(
        (&told["checkpoint"], &told["commits"]),
        (&json!("checkpoint"), &json!([true, false]))
    );
    assert_eq!(theirs[0]["recover_dst_replica_ranks"], json!([0]));
    assert_eq!(theirs[0]["quorum_id"], told["quorum_id"]);
}

#[test]
fn a_client_of_torchft_is_told_why_there_is_no_quorum() {
    let test = "a_client_of_torchft_is_told_why_there_is_no_quorum";
    let served = ServedLighthouse::start(&["--min-replicas=2"], &[]);
    let Some(mut peer) = Peer::start(test, &["quorum", served.url(), "alone", "0.5"]) else {
        return;
    };
    let said = peer.said();
    let error = said["error"].as_str().unwrap();
    assert!(error.starts_with("TimeoutError"), "{error}");
    assert!(error.contains("waits for 1 more replica: 1 of at least 2 has joined"), "{error}");
}

#[test]
fn our_client_is_served_by_the_lighthouse_of_torchft() {
    let test = "our_client_is_served_by_the_lighthouse_of_torchft";
    let Some(mut peer) = Peer::start(test, &["serve", "1"]) else { return };
    let address = format!("127.0.0.1:{}", peer.said()["port"]);
    let quorum = ask(&address, member("ours"), LIMIT).unwrap();
    assert_eq!(quorum.participants, [member("ours")]);
    assert_eq!(quorum.quorum_id, 1);
    // commit_failures is above 0.
    assert_eq!(ask(&address, member("ours"), LIMIT).unwrap().quorum_id, 2);
    // It is not more than half of those alive.
    let error = wait(async {
        let client = LighthouseClient::connect(&address, ClientOptions::default()).await.unwrap();
        client.heartbeat("other", LIMIT).await.unwrap();
        client.quorum(member("new"), Duration::from_millis(300)).await.unwrap_err()
    });
    assert!(matches!(error, QuorumError::Deadline(_)), "{error:?}");
}
